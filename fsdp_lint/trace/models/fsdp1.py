"""What only FSDP1 has: its methods, its static functions, and its way to skip the reduction of gradients."""

from __future__ import annotations

from fsdp_lint.trace.events import CheckClass, ChooseStateForm, Collective, SetSync, Unshard, UseFSDP1
from fsdp_lint.trace.models.api import NOTHING, Call, Handler, Machine, constant_name
from fsdp_lint.trace.values import Const, External, Module, Object, Unknown, Value

NAMES = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
)
# Attributes that DDP reads and no FSDP does.
FLAGS = frozenset({"require_backward_grad_sync"})
# Methods that a module has by FSDP1 and not by FSDP2 (dir() of both, torch 2.13.0).
METHODS_OF_ITS_OWN = frozenset({"no_sync", "clip_grad_norm_", "check_is_root", "summon_full_params", "fsdp_modules"})
# Static functions by how a module that FSDP1 did not wrap takes them (measured, torch 2.13.0).
STATIC = {
    "summon_full_params": "does nothing",
    "state_dict_type": "does nothing, and raises KeyError when its block ends,",
    "set_state_dict_type": "does nothing",
    "get_state_dict_type": "does nothing",
    "fsdp_modules": "finds nothing",
    "optim_state_dict": "raises AttributeError",
    "optim_state_dict_to_load": "raises AttributeError",
    "full_optim_state_dict": "raises IndexError",
    "sharded_optim_state_dict": "raises IndexError",
}


# What a branch for FSDP1 does that is missed where the branch is left out.
NEEDED = METHODS_OF_ITS_OWN | frozenset(STATIC) | {"save", "ShardedGradScaler", "StateDictType", "full_tensor"}


def is_fsdp1(dotted: str) -> bool:
    """True for FSDP1's class, by any of its paths."""
    return dotted.rpartition(".")[2] == "FullyShardedDataParallel"


def no_sync(run: Machine, call: Call) -> Value:
    """`with module.no_sync():`, of FSDP1 and of DDP."""
    run.emit(UseFSDP1, call.site, value=call.self_value, api="no_sync()")
    return Object(cls="no_sync", args=(call.self_value,))


def set_sync(run: Machine, call: Call) -> Value:
    """`module.set_requires_gradient_sync(flag)`, of FSDP2."""
    flag = call.get(0, "requires_gradient_sync")
    run.emit(SetSync, call.site, value=call.self_value, flag=flag)
    return NOTHING


def set_all_reduce(run: Machine, call: Call) -> Value:
    """`module.set_requires_all_reduce(flag)`, of FSDP2 with replicas: what is reduced between them."""
    flag = call.get(0, "requires_all_reduce")
    run.emit(SetSync, call.site, value=call.self_value, flag=flag, partly=True)
    return NOTHING


def _static(name: str) -> Handler:
    def handler(run: Machine, call: Call) -> Value:
        module = call.first("module") if "module" in call.kwargs or call.args else call.kwargs.get("model", Unknown())
        if name == "summon_full_params":
            run.emit(Collective, call.site, op="summon_full_params", on=(module,))
            run.emit(Unshard, call.site, module=module)
        elif "optim_state_dict" in name:
            run.emit(Collective, call.site, op="FSDP.optim_state_dict", on=tuple(call.args[:1]))
        run.emit(UseFSDP1, call.site, value=module, api=f"FSDP.{name}")
        if name in ("state_dict_type", "set_state_dict_type"):
            kind = call.get(1, "state_dict_type")
            run.emit(
                ChooseStateForm,
                call.site,
                module=module,
                form=kind.dotted.rpartition(".")[2] if isinstance(kind, External) else "",
                config=call.get(2, "state_dict_config"),
                scoped=name == "state_dict_type",
            )
        if "optim_state_dict" in name:
            return Unknown()
        cls = "state_dict_type" if "state_dict_type" in name else name
        return Object(cls=cls, args=tuple(call.args), kwargs=dict(call.kwargs))

    return handler


def has_attribute(run: Machine, call: Call) -> bool | None:
    """What `hasattr(module, name)` says of a method that only FSDP1 has; None where that is not known."""
    owner, name = call.first(), constant_name(call.get(1, ""))
    if name not in METHODS_OF_ITS_OWN or not isinstance(owner, Module):
        return None
    run.emit(CheckClass, call.site, value=owner, by="hasattr", names=(name,))
    if run.is_instance(owner, External(dotted=NAMES[0])) is True:
        return True
    return False if run.is_instance(owner, External(dotted="torch.distributed.fsdp.FSDPModule")) is True else None


def missing(run: Machine, call: Call) -> Value | None:
    """What `getattr(module, name, default)` gives where FSDP2 has sharded the module and has no such method."""
    default = call.get(2, "default")
    if default is not None and has_attribute(run, call) is False:
        return default
    return None


def asked(value: Value) -> Value | None:
    """The module whose class `type(module)` or `module.__class__` is; None for other values."""
    if not isinstance(value, Unknown):
        return None
    found = value.inputs[0] if value.name == "type(...)" and len(value.inputs) == 1 else value.owner
    if value.name != "type(...)" and value.key != "__class__":
        return None
    return found if isinstance(found, Module) else None


def asked_by_name(value: Value) -> Value | None:
    """The module whose class `type(module).__name__` names; None for other values."""
    if isinstance(value, Unknown) and value.owner is not None and value.key in ("__name__", "__qualname__"):
        return asked(value.owner)
    return None


PLAIN = (
    "builtins.",
    "collections.",
    "typing.",
    "numbers.",
    "enum.",
    "pathlib.",
    "omegaconf.",
    "numpy.",
    "torch.Tensor",
)


def class_name(value: Value) -> str:
    """The name by which a test speaks of a class; empty for what no module is an instance of: Python's own types."""
    if isinstance(value, External):
        return "" if value.dotted.startswith(PLAIN) else value.dotted
    return "" if isinstance(value, Const) else value.name


FUNCTIONS: dict[str, Handler] = {f"{path}.{name}": _static(name) for path in NAMES for name in STATIC}
METHODS: dict[str, Handler] = {
    "no_sync": no_sync,
    "set_requires_gradient_sync": set_sync,
    "set_requires_all_reduce": set_all_reduce,
}
