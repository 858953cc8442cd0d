"""Questions about collectives: what all ranks must do together, and who does it."""

from __future__ import annotations

from fsdp_lint.trace.events import CheckClass, Collective, Event, Forward, Shard, TakeState
from fsdp_lint.trace.trace import Trace, called, runs_alone, touches
from fsdp_lint.trace.values import Literal, Module, Object, Params, StateDict, Tensor, Value, exclusive, options_of

FSDP = frozenset({"FullyShardedDataParallel", "FSDPModule"})
PLUGIN = "FullyShardedDataParallelPlugin"
GATHERS = frozenset({"get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "FSDP.optim_state_dict"})
ALWAYS = frozenset({"full_tensor", "redistribute", "distribute_tensor"})
STATE = frozenset(
    {
        "get_model_state_dict",
        "get_optimizer_state_dict",
        "get_state_dict",
        "set_model_state_dict",
        "set_optimizer_state_dict",
        "set_state_dict",
        "summon_full_params",
        "FSDP.optim_state_dict",
        "unshard",
    }
)


def collective_of(trace: Trace, event: Event) -> str:
    """What the event is called when all ranks must take part in it; empty for other events."""
    match event:
        case Collective(op=op, on=on, plain=plain):
            if plain or op in ALWAYS or op.startswith("torch.distributed.checkpoint."):
                return f"`{op.rpartition('.')[2] if 'checkpoint' in op else op}`"
            if op in STATE or op == "clip_grad_norm_":
                return f"`{op}`" if _any_sharded(trace, on, event) else ""
        case Shard(generation=generation):
            return "`fully_shard`" if generation == 2 else "`FullyShardedDataParallel`"
        case Forward(module=module):
            if trace.sharded(module, event) is not None and trace.covering(module, event) is not None:
                return f"the forward of the sharded `{called(module)}`"
        case TakeState(state=state):
            if _is_fsdp1(state.of) and state.form == "raw":
                return f"`{called(state.of)}.state_dict()`, a collective with FSDP1"
    return ""


def gathering_of(trace: Trace, event: Event) -> str:
    """What the event is called when it gathers what was sharded before this run: the state of a model of which the code
    asks whether FSDP has sharded it, and what accelerate gathers with an FSDP plugin; empty for other events.

    `full_tensor()` tells nothing: helpers that get whole tensors too call it where they meet a DTensor.
    """
    if not isinstance(event, Collective) or event.plain:
        return ""
    if event.by is not None and _has_plugin(event.by):
        return f"`{called(event.by)}.{event.op}`"
    asked = [
        check.value
        for check in trace.every(CheckClass)
        if check.by == "isinstance" and {name.rpartition(".")[2] for name in check.names} & FSDP
    ]
    if event.op in GATHERS and any(touches(one, other) for one in event.on for other in asked):
        return f"`{event.op}`"
    return ""


def _has_plugin(accelerator: Value) -> bool:
    """True for an object of accelerate's that is told of FSDP here."""
    given = accelerator.kwargs.get("fsdp_plugin") if isinstance(accelerator, Object) else None
    return any(isinstance(one, Object) and one.cls.endswith(PLUGIN) for one, _ in options_of(given or Value()))


def _any_sharded(trace: Trace, on: tuple[Value, ...], event: Event) -> bool:
    for value in on:
        modules: tuple[Value, ...] = (value,)
        if isinstance(value, Params):
            modules = value.of
        elif isinstance(value, Tensor | StateDict):
            continue
        if any(trace.sharded(module, event) is not None for module in modules):
            return True
    return False


def _is_fsdp1(module: Value) -> bool:
    return isinstance(module, Module) and module.library == "FullyShardedDataParallel"


def has_counterpart(trace: Trace, event: Event, what: str, guard: Literal) -> bool:
    """True when the ranks that the guard leaves out make the same call in another place."""
    for other in trace.events:
        if other is event or type(other) is not type(event):
            continue
        if any(literal.key == guard.key and literal.holds != guard.holds for literal in other.guards):
            met = collective_of(trace, other)
            # One call on a model that some ranks load and the others make is called by another name for each.
            if met == what or (met and other.site == event.site):
                return True
        if guard not in other.guards and exclusive(event.guards, other.guards) and collective_of(trace, other) == what:
            return True
        if _left_before(trace, event, other) and collective_of(trace, other) == what:
            return True
    return False


def _left_before(trace: Trace, event: Event, other: Event) -> bool:
    """True when whoever passes `event` leaves the body in which `other` follows, so that the rest meets there."""
    here = set(event.guards)
    return any(
        event.order < leave.order <= other.order
        and here <= set(leave.guards)
        and other.stack[: len(leave.stack)] == leave.stack
        and not exclusive(leave.guards, event.guards)
        for leave in trace.leaves
    )


def is_alone(event: Event) -> bool:
    """True when the call is made in a group of its own, or in a run that is not distributed."""
    return runs_alone(event) or (isinstance(event, Collective) and event.group is not None)
