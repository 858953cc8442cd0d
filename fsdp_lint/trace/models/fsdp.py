"""torch.distributed.fsdp: sharding calls, wrappers and what belongs to them."""

from __future__ import annotations

from functools import partial

from fsdp_lint.trace.events import (
    CallPolicy,
    Collective,
    Compile,
    Freeze,
    RegisterForward,
    Replicate,
    Reshard,
    Rework,
    Shard,
    ShardEach,
    Thaw,
    Unshard,
)
from fsdp_lint.trace.models import frameworks, fsdp1
from fsdp_lint.trace.models.api import NOTHING, Call, Handler, Machine, constant_name
from fsdp_lint.trace.values import Bound, Const, External, Function, Module, Object, Partial, Sequence, Unknown, Value

GENERATION_2 = (
    "torch.distributed.fsdp.fully_shard",
    "torch.distributed.fsdp._fully_shard.fully_shard",
    "torch.distributed.fsdp._fully_shard._fully_shard.fully_shard",
    "torch.distributed._composable.fsdp.fully_shard",
    "torch.distributed._composable.fsdp.fully_shard.fully_shard",
)
GENERATION_1 = fsdp1.NAMES
# The with-block of `enable_wrap` that is told to wrap by FSDP1.
WRAPPING = "enable_wrap by FSDP1"
WRAPPERS = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel",
)
REPLICATE = ("torch.distributed._composable.replicate.replicate", "torch.distributed._composable.replicate")
PASS_THROUGH = ("torch.nn.SyncBatchNorm.convert_sync_batchnorm", "torch.jit.script")
REWORKS = (
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.checkpoint_wrapper",
    "torch.distributed.algorithms._checkpoint.checkpoint_wrapper.ptd_checkpoint_wrapper",
    "torch.distributed.tensor.parallel.parallelize_module",
)
REWORK_NAMES = tuple(dict.fromkeys(name.rpartition(".")[2] for name in REWORKS))
OBJECTS = (
    "MixedPrecisionPolicy",
    "CPUOffloadPolicy",
    "OffloadPolicy",
    "CPUOffload",
    "MixedPrecision",
    "FullStateDictConfig",
    "ShardedStateDictConfig",
    "LocalStateDictConfig",
    "FullOptimStateDictConfig",
)
POLICIES = (
    "ModuleWrapPolicy",
    "CustomPolicy",
    "size_based_auto_wrap_policy",
    "transformer_auto_wrap_policy",
    "always_wrap_policy",
    "lambda_auto_wrap_policy",
)


# Keywords of FullyShardedDataParallel that fully_shard has not (both signatures of torch 2.13.0), and those of them
# that say nothing FSDP2 needs to hear.
DROPPED_KEYWORDS = (
    "use_orig_params",
    "device_id",
    "limit_all_gathers",
    "sync_module_states",
    "forward_prefetch",
    "backward_prefetch",
)
FSDP1_KEYWORDS = (
    "process_group",
    "sharding_strategy",
    "cpu_offload",
    "auto_wrap_policy",
    "mixed_precision",
    "ignored_modules",
    "param_init_fn",
    *DROPPED_KEYWORDS,
    "ignored_states",
    "device_mesh",
)


FUNCTION_POLICIES = ("transformer_auto_wrap_policy", "size_based_auto_wrap_policy", "lambda_auto_wrap_policy")


def fully_shard(run: Machine, call: Call) -> Value:
    """FSDP2: in place; gives the module back."""
    module = call.first("module")
    kwargs = dict(call.kwargs)
    kwargs.pop("module", None)
    for option in run.options(module):
        with run.under(option):
            _shard2(run, call, option.value, kwargs)
    return module


def _shard2(run: Machine, call: Call, module: Value, kwargs: dict[str, Value]) -> None:
    if isinstance(module, Const | External):
        return
    group: tuple[Value, ...] = ()
    if isinstance(module, Sequence):
        group = tuple(item for item in module.items if not isinstance(item, Const))
        if not group:
            return
        module = group[0]
    run.emit(
        Shard,
        call.site,
        module=module,
        generation=2,
        kwargs=kwargs,
        kwargs_known=not call.open,
        result=module,
        group=group,
        like=run.like(module),
    )


def wrap(run: Machine, call: Call) -> Value:
    """FSDP1: a wrapper around the module."""
    module = call.first("module")
    if isinstance(module, Const):
        return Unknown()
    kwargs = dict(call.kwargs)
    kwargs.pop("module", None)
    for at, name in enumerate(("module", "process_group", "sharding_strategy", "cpu_offload", "auto_wrap_policy")):
        if at and at < len(call.args):
            kwargs.setdefault(name, call.args[at])
    for option in run.options(kwargs.get("param_init_fn") or NOTHING):
        with run.under(option):
            if isinstance(option.value, Function | Bound | Partial):
                run.invoke(
                    option.value, Call(site=call.site, args=[run.element(module, "modules")], name="param_init_fn")
                )
    if "fsdp_auto_wrap_policy" in kwargs:
        kwargs.setdefault("auto_wrap_policy", kwargs["fsdp_auto_wrap_policy"])
    wrapper = run.new(
        Module(name=module.name, library="FullyShardedDataParallel", wraps=module, owner=module.owner, built=True)
    )
    run.emit(
        Shard,
        call.site,
        module=module,
        generation=1,
        kwargs=kwargs,
        kwargs_known=not call.open,
        result=wrapper,
    )
    return wrapper


def enable_wrap(run: Machine, call: Call) -> Value:
    """`with enable_wrap(wrapper_cls=FullyShardedDataParallel, ...)`."""
    wrapper = call.first("wrapper_cls")
    fsdp = isinstance(wrapper, External) and wrapper.dotted in GENERATION_1
    return Object(cls=WRAPPING if fsdp else "enable_wrap", kwargs=dict(call.kwargs))


def wrap_here(run: Machine, call: Call) -> Value:
    """`wrap(module)`, which wraps by what `enable_wrap` around it says; where there is none, it gives the module."""
    if WRAPPING not in run.contexts:
        return call.first("module")
    return wrap(run, Call(site=call.site, args=call.args[:1], kwargs=dict(call.kwargs), open=True, name=call.name))


# What a module does not have, and its DDP wrapper does.
OF_DDP_ALONE = frozenset({"module", "no_sync", "register_comm_hook"})


def ddp(run: Machine, call: Call) -> Value:
    """DistributedDataParallel."""
    module = call.first("module")
    run.emit(Replicate, call.site, module=module, wrapper=True)
    return run.new(
        Module(name=module.name, library="DistributedDataParallel", wraps=module, owner=module.owner, built=True)
    )


def replicate(run: Machine, call: Call) -> Value:
    """The composable replicate."""
    run.emit(Replicate, call.site, module=call.first("module"))
    return call.first("module")


def same(run: Machine, call: Call) -> Value:
    """Calls that give back the module, perhaps wrapped, with its parameters unchanged."""
    return call.args[0] if call.args else Unknown()


def reworked(run: Machine, call: Call) -> Value:
    """`checkpoint_wrapper(module)`, `parallelize_module(module, ...)`: taken for the module itself."""
    module = call.get(0, "module") or Unknown()
    for option in run.options(module):
        with run.under(option):
            if not isinstance(option.value, Const | External):
                run.emit(Rework, call.site, module=option.value, how=call.name.rpartition(".")[2])
    return module


def compiled(run: Machine, call: Call) -> Value:
    """`torch.compile(module)`: a wrapper that is taken for the module itself."""
    module = call.get(0, "model")
    if module is None:
        return Unknown()
    if not isinstance(module, Function | Bound | Partial | Const | External):
        run.emit(Compile, call.site, module=module)
    return module


def register_forward(run: Machine, call: Call) -> Value:
    """`register_fsdp_forward_method(module, name)`."""
    run.emit(RegisterForward, call.site, module=call.first("module"), method=constant_name(call.get(1, "method_name")))
    return NOTHING


def unshard(run: Machine, call: Call) -> Value:
    """`module.unshard()`."""
    run.emit(Collective, call.site, op="unshard", on=(call.self_value,))
    run.emit(Unshard, call.site, module=call.self_value)
    return Unknown()


def reshard(run: Machine, call: Call) -> Value:
    """`module.reshard()`."""
    run.emit(Reshard, call.site, module=call.self_value)
    return NOTHING


def apply(run: Machine, call: Call) -> Value:
    """`module.apply(fn)`: fn is called with every module; with fully_shard each becomes a unit."""
    function = call.first("fn")
    if _is_given_a_model(call.self_value, function):
        run.hand(call, call.name)
        return Unknown(name=f"{call.name}(...)", inputs=tuple(call.values()))
    if isinstance(function, External) and function.dotted in GENERATION_2:
        run.emit(ShardEach, call.site, module=call.self_value)
    elif not isinstance(function, External):
        element = run.element(call.self_value, "modules", backwards=True)  # children come before what holds them
        run.invoke(function, Call(site=call.site, args=[element], name="apply"))
    return call.self_value


def _is_given_a_model(owner: Value, argument: Value) -> bool:
    """True for `strategy.apply(model)`: what is called so is no module, and does something with one."""
    if not isinstance(owner, Unknown) or frameworks.IS_MODEL.search(owner.name.rpartition(".")[2]):
        return False
    return isinstance(argument, Module) or (
        isinstance(argument, Unknown) and bool(frameworks.IS_MODEL.search(argument.name.rpartition(".")[2]))
    )


def requires_grad(run: Machine, call: Call) -> Value:
    """`module.requires_grad_(flag)`."""
    argument = call.get(0, "requires_grad")
    if isinstance(argument, Const) and argument.value is False:
        run.emit(Freeze, call.site, module=call.self_value)
    else:
        run.emit(Thaw, call.site, module=call.self_value)
    return call.self_value


def clip_method(run: Machine, call: Call) -> Value:
    """FSDP1's `model.clip_grad_norm_()`."""
    run.emit(Collective, call.site, op="clip_grad_norm_", on=(call.self_value,))
    return Unknown()


def policy(name: str, run: Machine, call: Call) -> Value:
    """`transformer_auto_wrap_policy(module, recurse, nonwrapped_numel, ...)`: whether a module is wrapped."""
    asked = len(call.args) + len({"module", "recurse", "nonwrapped_numel"} & set(call.kwargs))
    if asked < 3 and not call.open:
        run.emit(CallPolicy, call.site, policy=name)
    return Object(cls=name, args=tuple(call.args), kwargs=dict(call.kwargs), site=call.site)


ASKED: dict[str, Handler] = {f"torch.distributed.fsdp.wrap.{name}": partial(policy, name) for name in FUNCTION_POLICIES}
FUNCTIONS = {
    **ASKED,
    **dict.fromkeys(GENERATION_2, fully_shard),
    **dict.fromkeys(GENERATION_1, wrap),
    "torch.distributed.fsdp.wrap.enable_wrap": enable_wrap,
    "torch.distributed.fsdp.wrap.wrap": wrap_here,
    **dict.fromkeys(WRAPPERS, ddp),
    **dict.fromkeys(REPLICATE, replicate),
    **dict.fromkeys(PASS_THROUGH, same),
    **dict.fromkeys(REWORKS, reworked),
    "torch.compile": compiled,
    "torch.distributed.fsdp.register_fsdp_forward_method": register_forward,
    "torch.distributed._composable.fsdp.register_fsdp_forward_method": register_forward,
    **fsdp1.FUNCTIONS,
}
METHODS = {
    **fsdp1.METHODS,
    "apply": apply,
    "requires_grad_": requires_grad,
    "unshard": unshard,
    "reshard": reshard,
    "clip_grad_norm_": clip_method,
}
