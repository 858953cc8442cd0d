"""What only FSDP1 has: its methods, its static functions, and its way to skip the reduction of gradients."""

from __future__ import annotations

from fsdp_lint.trace.events import CheckClass, ChooseStateForm, Collective, SetSync, Unshard, UseFSDP1
from fsdp_lint.trace.models.api import NOTHING, Call, Handler, Machine, constant_name
from fsdp_lint.trace.values import Choice, Const, External, Module, Object, Unknown, Value

NAMES = (
    "torch.distributed.fsdp.FullyShardedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel",
)
FSDP2 = "torch.distributed.fsdp.FSDPModule"
DDP = "torch.nn.parallel.DistributedDataParallel"
# Attributes that DDP reads and no FSDP does.
FLAGS = frozenset({"require_backward_grad_sync"})
# Methods that a module has by FSDP1 and not by FSDP2 (dir() of both, torch 2.13.0).
METHODS_OF_ITS_OWN = frozenset({"no_sync", "clip_grad_norm_", "check_is_root", "summon_full_params", "fsdp_modules"})
# Methods that a module has by FSDP2 and by nothing else (dir() of it, torch 2.13.0).
METHODS_OF_FSDP2 = frozenset(
    {
        "set_requires_gradient_sync",
        "set_requires_all_reduce",
        "set_is_last_backward",
        "set_reshard_after_forward",
        "set_reshard_after_backward",
        "set_modules_to_forward_prefetch",
        "set_modules_to_backward_prefetch",
        "set_gradient_divide_factor",
        "set_reduce_scatter_divide_factor",
        "set_unshard_in_backward",
        "unshard",
        "reshard",
    }
)
OF_ONE_GENERATION = METHODS_OF_ITS_OWN | METHODS_OF_FSDP2
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


def has_attribute(run: Machine, call: Call) -> Value | None:
    """What `hasattr(module, name)` says of a method that only one generation has; None where that is not known."""
    owner, name = call.first(), constant_name(call.get(1, ""))
    if name not in OF_ONE_GENERATION:
        return None
    if isinstance(owner, Choice):
        return run.test_each(owner, lambda one: _has(run, one, name, call), "hasattr", name)
    known = _has(run, owner, name, call)
    return Const(value=known) if known is not None else None


def _has(run: Machine, owner: Value, name: str, call: Call) -> bool | None:
    if isinstance(owner, Module) and name in METHODS_OF_ITS_OWN:
        run.emit(CheckClass, call.site, value=owner, by="hasattr", names=(name,))
    return has_method(run, owner, name)


def has_method(run: Machine, owner: Value, name: str) -> bool | None:
    """Whether a module has a method that only one generation has, by how it was sharded; None where it is not known."""
    if not isinstance(owner, Module) or name not in OF_ONE_GENERATION:
        return None
    fsdp1, ddp, fsdp2 = (run.is_instance(owner, External(dotted=cls)) is True for cls in (NAMES[0], DDP, FSDP2))
    if name in METHODS_OF_FSDP2:
        return True if fsdp2 else False if fsdp1 or ddp else None
    if fsdp1 or (ddp and name == "no_sync"):
        return True
    return False if fsdp2 else None


def missing(run: Machine, call: Call, name: str) -> Value | None:
    """What `getattr(module, name, default)` gives where the module has no such method, by how it was sharded."""
    default = call.get(2, "default")
    if default is None or name not in OF_ONE_GENERATION:
        return None

    def of_one(owner: Value) -> Value:
        return default if _has(run, owner, name, call) is False else run.attribute(owner, name)

    return run.each_option(call.first(), of_one)


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
