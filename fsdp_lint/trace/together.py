"""Questions about collectives: what all ranks must do together, and who does it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fsdp_lint.trace.events import (
    CheckClass,
    Collective,
    ConfigureFSDP,
    Event,
    Forward,
    SetStateType,
    Shard,
    SwitchOnFSDP,
    TakeState,
)
from fsdp_lint.trace.models import lightning
from fsdp_lint.trace.models.configs import names_backend, setting
from fsdp_lint.trace.trace import Trace, called, runs_alone, touches
from fsdp_lint.trace.values import (
    Const,
    Literal,
    Mapping,
    Module,
    Object,
    Params,
    Sequence,
    StateDict,
    Tensor,
    Unknown,
    Value,
    exclusive,
    made_of,
    options_of,
)

if TYPE_CHECKING:
    from fsdp_lint.source.file import Site

FSDP = frozenset({"FullyShardedDataParallel", "FSDPModule"})
PLUGIN = "FullyShardedDataParallelPlugin"
FULL = "FULL_STATE_DICT"
HOW = re.compile(r"distributed_type|DistributedType|fsdp|deepspeed|plugin|sharded", re.IGNORECASE)
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
        case Collective(op=op, by=by) if by is not None and runs_fsdp(trace, by, event):
            return f"`{called(by)}.{op.rpartition('.')[2]}`" if op != "barrier" else "`barrier`"
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
    if isinstance(event, Collective) and event.by is not None:
        return collective_of(trace, event) if runs_fsdp(trace, event.by, event) else ""
    if not isinstance(event, Collective) or event.plain:
        return ""
    asked = [
        check.value
        for check in trace.every(CheckClass)
        if check.by == "isinstance" and {name.rpartition(".")[2] for name in check.names} & FSDP
    ]
    if event.op in GATHERS and any(touches(one, other) for one in event.on for other in asked):
        return f"`{event.op}`"
    return ""


def runs_fsdp(trace: Trace, by: Value, event: Event) -> bool:
    """True for an object of a framework that is told of FSDP: by an argument, or by the file for accelerate's launcher,
    unless the event stands under a test of what it was told."""
    if not isinstance(by, Object) or _asks_how_launched(event):
        return False
    library, last = by.cls.partition(".")[0], by.cls.rpartition(".")[2]
    if library == "accelerate":
        given = by.kwargs.get("fsdp_plugin")
        if given is not None:
            return any(isinstance(one, Object) and one.cls.endswith(PLUGIN) for one, _ in options_of(given))
        return trace.launch is not None
    if library in lightning.LIBRARIES:
        return lightning.runs_fsdp(by)
    if not last.endswith("Trainer"):
        return False
    if isinstance(event, Collective) and event.op != "save_model":
        return _is_told(trace, by, event)
    return _gathers_on_save(trace, by, event)


def told_by(trace: Trace, args: Value | None) -> ConfigureFSDP | None:
    """What arguments of a Trainer of transformers ask for; None where they are not seen to ask for FSDP."""
    return next((one for one in trace.every(ConfigureFSDP) if one.made is args and one.by == "arguments"), None)


def _is_told(trace: Trace, trainer: Object, event: Event) -> bool:
    """True for a Trainer of transformers that is told of FSDP, by its arguments or by the file for the launcher."""
    args = trainer.get(1, "args")
    asked = told_by(trace, args)
    if asked is None:
        return args is not None and left_to_launcher(trace, args, event) is not None
    return _is_text(asked.arguments.get("fsdp")) and "xla" not in asked.options


def _gathers_on_save(trace: Trace, trainer: Object, event: Event) -> bool:
    """True for a Trainer of transformers that is told of FSDP, and saves whole state dicts: as it is told, or as it
    does where nothing is said of it."""
    asked = told_by(trace, trainer.get(1, "args")) or trace.launch
    said = [one.to for one in trace.every(SetStateType) if one.order < event.order]
    if asked is None or not _is_text(asked.arguments.get("fsdp")):
        return False
    kind = said[-1] if said else asked.options.get("state_dict_type")
    if kind is None:
        return trace.launch is None and _is_whole_unsaid(asked)
    return kind == FULL or (isinstance(kind, Const) and kind.value == FULL)


def _is_whole_unsaid(asked: ConfigureFSDP) -> bool:
    """True where arguments that say nothing of the type of state dicts get whole ones, whatever the release: with FSDP1
    accelerate's plugin does so (accelerate/utils/dataclasses.py), and where no version is said either the Trainer takes
    FSDP1, or says so itself (transformers/training_args.py of 4.57.3 and 5.24.0). With `version` 2 older releases take
    sharded ones."""
    config = asked.arguments.get("fsdp_config")
    hidden = "**" in asked.arguments or (isinstance(config, Mapping) and bool(config.open or config.rest))
    version = asked.options.get("version")
    return not hidden and "xla" not in asked.options and (version is None or setting(version) == "1")


def _is_text(fsdp: Value | None) -> bool:
    """True where `fsdp=` is left out, or surely switches FSDP on."""
    return fsdp is None or (isinstance(fsdp, Const) and bool(fsdp.value)) or isinstance(fsdp, Sequence)


def launch_of(trace: Trace, event: Event) -> list[tuple[Event | Site, str]]:
    """Where the launcher is told of FSDP, for what an object of a framework does that is not told of it itself."""
    by = event.by if isinstance(event, Collective) else None
    told = isinstance(by, Object) and bool({"fsdp_plugin", "strategy"} & set(by.kwargs))
    told = told or any(one.by == "arguments" for one in trace.every(ConfigureFSDP))
    if by is None or told or trace.launch is None:
        return []
    return [(trace.launch, "the launcher is told of FSDP here")]


def left_to_launcher(trace: Trace, args: Value, event: Event) -> ConfigureFSDP | None:
    """What a file for accelerate's launcher asks for, where a Trainer with such arguments leaves FSDP to it; None where
    there is none, or the event stands under a test of how the program was launched."""
    asked = trace.launch
    if asked is None or names_backend(args) or not isinstance(args, Object | Unknown) or _asks_how_launched(event):
        return None
    if setting(asked.arguments["distributed_type"]) != "FSDP" or setting(asked.arguments.get("num_processes")) == "1":
        return None
    elsewhere = any(True for _ in trace.every(SwitchOnFSDP))
    return None if elsewhere or any(one.by == "arguments" for one in trace.every(ConfigureFSDP)) else asked


def _asks_how_launched(event: Event) -> bool:
    """True under a test of what the launcher was told."""
    asked = (one for literal in event.guards for value in literal.values for one in made_of(value))
    words = [word for one in asked for word in (one.key, one.name)]
    words += [word for literal in event.guards for word in literal.words]
    return any(HOW.search(word) for word in words)


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
