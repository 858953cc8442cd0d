"""Questions about what is loaded: whether the state dict that a sharded model gets holds whole, plain tensors."""

from __future__ import annotations

from fsdp_lint.trace.events import Event, LoadState, Save, SetEntry, Shard
from fsdp_lint.trace.saving import loose_shards, raw_states
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import (
    Choice,
    Literal,
    Loaded,
    Mapping,
    Module,
    Sequence,
    StateDict,
    Tensor,
    Value,
    exclusive,
    parts,
)

# What these get of a state dict, they only read.
READERS = ("print", "len", "info", "debug", "warning", "log", "keys", "append", "update", "load_state_dict")

HOLDERS = (Choice, Mapping, Sequence)


def surely_sharded(trace: Trace, module: Value, at: Event, generation: int) -> Shard | None:
    """The sharding call that has touched `module` when `at` happens, in an order that is known.

    The methods of a class that nobody makes have no order, but all come after its `__init__`.
    """
    other = 3 - generation
    shard = trace.sharded(module, at, generation)
    if shard is not None and _of_another_pick(shard, module, at):
        found = (each for each in trace.shards(module, generation) if not exclusive(each.guards, at.guards))
        shard = next((each for each in found if not _of_another_pick(each, module, at)), None)
    if shard is None or shard.order > at.order or shard.entry not in (0, at.entry):
        return None
    return shard if trace.sharded(module, at, other) is None else None


def _of_another_pick(shard: Shard, module: Value, at: Event) -> bool:
    """True when the call shards modules that one walk over a model picks, and `module` is what another one picks."""
    drawn = [one for one in (shard.module, module) if isinstance(one, Module) and one.each == "modules"]
    return len(drawn) == 2 and not set(shard.loops) & set(at.loops)


def by_other_choices(shard: Shard, at: Event) -> bool:
    """True when each of the two rests on a choice that the other does not ask for: one run may never make both."""
    return _apart(*({g for g in event.guards if g.kind == "other"} for event in (shard, at)))


def by_other_modes(shard: Shard, at: Event) -> bool:
    """The same of modes only, which have a name: `strategy == "fsdp2"` here, `kind == "adapter"` there."""
    return _apart(*({g for g in event.guards if g.holds and _names_a_mode(g)} for event in (shard, at)))


def _apart(one: set[Literal], other: set[Literal]) -> bool:
    return bool(one - other) and bool(other - one)


def _names_a_mode(literal: Literal) -> bool:
    return literal.kind == "other" and literal.key[0] == "equals" and isinstance(literal.key[-1], str)


def plain_state(trace: Trace, load: LoadState) -> str:
    """What the loaded state dict is, in words, when it holds whole, plain tensors; empty when that is not sure."""
    if load.state is None:
        return ""
    words = [_plain(trace, part, load) for part in parts(load.state) if not isinstance(part, HOLDERS)]
    return words[0] if words and all(words) else ""


def _plain(trace: Trace, value: Value, load: LoadState) -> str:
    file = next((one for one in value.line() if isinstance(one, Loaded)), None)
    if file is not None:
        return "read from a file" if _is_plain_file(trace, file, load) else ""
    if isinstance(value, Tensor):
        if value.form == "full":
            return "gathered"
        return _plain_dict(trace, value.source, load) if isinstance(value.source, StateDict) else ""
    return _plain_dict(trace, value, load) if isinstance(value, StateDict) else ""


def _is_plain_file(trace: Trace, file: Loaded, load: LoadState) -> bool:
    if file.path_by_rank or _is_changed(trace, file, load):
        return False
    # A file that this program has written itself may hold shards.
    return not any(
        any(True for _ in raw_states(trace, save)) or loose_shards(trace, save) is not None
        for save in trace.every(Save)
    )


def _is_changed(trace: Trace, value: Value, load: LoadState) -> bool:
    """True when entries were replaced, or when unknown code had it in its hands."""
    for event in trace.every(SetEntry):
        if event.order < load.order and any(one is value for one in event.container.line()):
            return True
    return any(
        event.order < load.order and not event.to.rpartition(".")[2].startswith(READERS)
        for event in trace.handed(value)
    )


def _plain_dict(trace: Trace, state: StateDict, load: LoadState) -> str:
    if _is_changed(trace, state, load):
        return ""
    if state.form in ("full", "full-rank0"):
        return "gathered"
    if state.form != "raw" or not isinstance(state.of, Module) or state.of.each:
        return ""
    taken = trace.taken(state)
    known = state.of.library is not None or state.of.cls is not None
    if taken is None or not known or trace.sharded(state.of, taken) is not None:
        return ""
    return f"that of the unsharded `{called(state.of)}`"
