"""Questions about what is written to files: which sharded values it holds, and who writes it."""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.trace.events import ChooseStateForm, Event, Handed, LoadState, Save, Shard, TakeState
from fsdp_lint.trace.trace import IGNORING, Trace, fsdp2_only, rank_guard
from fsdp_lint.trace.values import (
    Choice,
    Const,
    Module,
    Object,
    Optimizer,
    Params,
    StateDict,
    Tensor,
    Value,
    exclusive,
    parts,
)

KEPT = frozenset({"entry", "shard", "parameter"})


def raw_states(trace: Trace, save: Save) -> Iterator[StateDict]:
    """State dicts of FSDP2 models that are saved with their DTensors as they are.

    Code that saves a plain state dict on one path and a gathered one on another knows of sharding; which path goes with
    which model is its business.
    """
    gathered = any(isinstance(part, StateDict) and part.form not in ("raw", "sharded") for part in parts(save.content))
    for part in parts(save.content):
        state = part if isinstance(part, StateDict) else None
        if isinstance(part, Tensor) and part.form in KEPT and isinstance(part.source, StateDict):
            state = part.source
        if state is None or isinstance(state.of, Optimizer) or state.form not in ("raw", "sharded"):
            continue
        if gathered and isinstance(save.content, Choice):
            continue
        if trace.sharded(state.of, trace.taken(state) or save, 2) is not None and not _is_wrapped(state.of):
            yield state


def _is_wrapped(module: Value) -> bool:
    return isinstance(module, Module) and module.library in ("FullyShardedDataParallel", "DistributedDataParallel")


def is_fsdp1(module: Value) -> bool:
    """True for what FSDP1 has wrapped."""
    return isinstance(module, Module) and module.library == "FullyShardedDataParallel"


def loose_shards(trace: Trace, save: Save) -> Tensor | None:
    """A parameter of an FSDP2 model, or a copy of one, that is saved as the DTensor it is."""
    for part in parts(save.content):
        if isinstance(part, Tensor) and part.form in ("copy", "shard", "parameter") and isinstance(part.source, Params):
            if _sharded_source(trace, part, save):
                return part
    return None


def sharded_tensors(trace: Trace, save: Save) -> Iterator[Tensor]:
    """Shards, parameters and copies of parameters of sharded models that are saved."""
    for part in parts(save.content):
        if isinstance(part, Tensor) and part.form in ("local", "copy", "shard", "parameter"):
            if _sharded_source(trace, part, save):
                yield part


def shares(trace: Trace, save: Save) -> str:
    """What in the saved content differs from rank to rank, apart from raw model state dicts; empty when nothing."""
    for part in parts(save.content):
        if isinstance(part, StateDict):
            if part.form == "full-rank0" and trace.sharded(model_of(part), save) is not None:
                return f"`{part.name}` is empty on every rank but 0"
            if _is_own_part(trace, part, save):
                return f"`{part.name}` holds this rank's part of the optimizer's state"
        if isinstance(part, Tensor) and part.form == "local" and _sharded_source(trace, part, save):
            return "the local shards differ from rank to rank"
    return "the DTensors hold this rank's shards" if loose_shards(trace, save) is not None else ""


def model_of(state: StateDict) -> Value:
    """The model of a state dict; of an optimizer's, the model that it trains."""
    if isinstance(state.of, Optimizer) and state.of.holds:
        return state.of.holds[0].of[0]
    return state.of


def _sharded_source(trace: Trace, tensor: Tensor, save: Save) -> bool:
    source = tensor.source
    if isinstance(source, StateDict):
        return trace.sharded(model_of(source), save) is not None
    if isinstance(source, Params) and source.taken is not None:
        shards = [trace.sharded(module, source.taken, 2) for module in source.of]
        # Of many parameters those that FSDP is told to ignore may be the ones.
        return any(shard is not None and (source.key or not shard.kwargs.keys() & set(IGNORING)) for shard in shards)
    return False


def optimizer_states(trace: Trace, save: Save) -> Iterator[StateDict]:
    """Raw states of optimizers of sharded models that are saved."""
    for part in parts(save.content):
        if isinstance(part, StateDict) and _is_own_part(trace, part, save):
            yield part


def _is_own_part(trace: Trace, state: StateDict, save: Save) -> bool:
    """True for this rank's part of the state of an optimizer."""
    if not isinstance(state.of, Optimizer) or state.form not in ("raw", "sharded"):
        return False
    return any(True for _ in shards_of(trace, state.of, save))


def raw_optimizer_states(value: Value) -> Iterator[tuple[StateDict, Optimizer]]:
    """The state dicts in a value that an optimizer's own `state_dict()` gave, each with its optimizer."""
    for part in parts(value):
        if isinstance(part, StateDict) and part.form == "raw" and isinstance(part.of, Optimizer):
            yield part, part.of


def shards_of(trace: Trace, optimizer: Optimizer, at: Event, generation: int | None = None) -> Iterator[Shard]:
    """The sharding calls by which models of an optimizer are sharded when `at` happens, one for each of them."""
    for params in optimizer.holds:
        for module in params.of:
            shard = trace.sharded(module, at, generation)
            if shard is not None:
                yield shard


def lone_optimizer_state(trace: Trace, save: Save) -> StateDict | None:
    """A raw state that is saved of an optimizer which holds DTensors: all its models are FSDP2's, sharded before it was
    made, and it keeps something for each parameter."""
    for state in optimizer_states(trace, save):
        optimizer = state.of
        assert isinstance(optimizer, Optimizer)
        plain_sgd = optimizer.cls.rpartition(".")[2] == "SGD" and "momentum" not in optimizer.kwargs
        stale = any(trace.shards_after(params) for params in optimizer.holds)
        modules = [module for params in optimizer.holds for module in params.of]
        at = trace.taken(state) or save
        if not plain_sgd and not stale and all(_by_fsdp2_only(trace, module, at) for module in modules):
            return state
    return None


def _by_fsdp2_only(trace: Trace, module: Value, at: Event) -> bool:
    return fsdp2_only(trace, module, at) is not None and not _is_wrapped(module)


def by_rank_zero(save: Save) -> bool:
    """True when a test stands around the call that only rank 0 of the world passes."""
    guard = rank_guard(save)
    return guard is not None and guard.key == ("rank", "world", 0) and guard.holds


def state_type(trace: Trace, taken: TakeState) -> ChooseStateForm | None:
    """What FSDP1 was told of the state dict that is taken; None where it gives what it gives by default, a full one."""
    scoped = "state_dict_type" in taken.contexts
    found = None
    for event in trace.every(ChooseStateForm):
        if event.order < taken.order and event.scoped is scoped and not exclusive(event.guards, taken.guards):
            found = event
    return found


def missing_flags(config: Value | None, names: tuple[str, ...]) -> list[str]:
    """Which of the flags a configuration leaves out or sets to False; none where that is not known."""
    if config is None:
        return list(names)
    if not isinstance(config, Object) or config.args:
        return []
    values = {name: config.kwargs.get(name, Const(value=False)) for name in names}
    if not all(isinstance(value, Const) for value in values.values()):
        return []
    return [name for name, value in values.items() if isinstance(value, Const) and not value.value]


def rank_zero_only(config: Value | None) -> bool | None:
    """Whether FSDP1's configuration gives the state dict to rank 0 alone; None where that is not known."""
    if config is not None and not isinstance(config, Object):
        return None
    return not missing_flags(config, ("rank0_only",))


def saves_by_some(trace: Trace, state: StateDict) -> list[Save]:
    """The saves of a state dict where some ranks save it, and no rank does anything else with it."""
    saves = [save for save in trace.every(Save) if _holds(save.content, state)]
    others = any(_holds(load.state, state) for load in trace.every(LoadState) if load.state is not None)
    others = others or any(
        rank_guard(event) is None and event.to != "print" and any(_holds(value, state) for value in event.values)
        for event in trace.every(Handed)
    )
    return [] if others or any(by_every_rank(save) for save in saves) else saves


def _holds(value: Value, state: StateDict) -> bool:
    return any(part is state or (isinstance(part, Tensor) and part.source is state) for part in parts(value))


def by_every_rank(save: Save) -> bool:
    """True when no test of the rank stands around the call."""
    return rank_guard(save) is None
