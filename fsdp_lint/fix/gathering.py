"""Saves of sharded state dicts made whole: gathered by all ranks, written by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeGuard

from fsdp_lint.fix.arguments import argument, function_of, is_path, keywords, receiver_of, text_of
from fsdp_lint.fix.blocks import common_block
from fsdp_lint.fix.calls import assigned_call, knows
from fsdp_lint.fix.edits import Edit, EnsureImport, Replace, Wrap
from fsdp_lint.fix.ranks import AllRanks, Collected, above_rank_test, by_all_ranks, on_rank_zero, opened_around
from fsdp_lint.fix.spelling import spelled
from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import below
from fsdp_lint.trace.events import Backward, BuildOptimizer, Event, LoadState, Save, Step, TakeState
from fsdp_lint.trace.models.checkpoint import STATE
from fsdp_lint.trace.reading import cut_at
from fsdp_lint.trace.saving import by_every_rank, by_rank_zero, optimizer_states
from fsdp_lint.trace.trace import Trace, called, called_by_one_rank, common_depth, rank_guard
from fsdp_lint.trace.values import Optimizer, StateDict, Tensor, Value, parts

FULL = "full_state_dict=True, cpu_offload=True"
FSDP1 = "FullyShardedDataParallel"


def saved_whole(trace: Trace, save: Save, states: Iterable[StateDict]) -> tuple[Edit, ...] | None:
    """The edits that gather the state dicts on all ranks, and let rank 0 alone save what it gets.

    Raw states of optimizers that are saved along are gathered, too, where that can be written down. None where one of
    the others cannot be, or where it is not seen who saves.
    """
    wanted: list[tuple[Collected, tuple[Edit, ...]]] = []
    for state in states:
        found = _collected(trace, save, state)
        if found is None:
            return None
        wanted.append(found)
    wanted += [found for state in optimizer_states(trace, save) if (found := _collected(trace, save, state))]
    unique = {id(each.call.node): (each, imports) for each, imports in wanted}
    alone: tuple[Edit, ...] | None = ()
    home = opened_around(save.site)
    place = AllRanks(home, (home,))
    if by_every_rank(save):
        alone = on_rank_zero(save.site)
    else:
        place = above_rank_test(save.site) or place
    edits = by_all_ranks([each for each, _ in unique.values()], place)
    if alone is None or edits is None:
        return None
    return *edits, *alone, *(edit for _, imports in unique.values() for edit in imports)


def saved_as_whole_tensors(trace: Trace, save: Save, cuts: Iterable[Site | None]) -> tuple[Edit, ...] | None:
    """The edits by which local shards, cut at these places for a save by all ranks, are gathered, and rank 0 saves.

    None where a place is not seen beside the save, or may not be reached by all ranks, or where something else is done
    with what is cut there.
    """
    alone, edits = on_rank_zero(save.site), dict[int, Edit]()
    for cut in cuts:
        owner = receiver_of(cut) if cut is not None else None
        pair = common_block(cut, save.site) if cut is not None else None
        if cut is None or owner is None or pair is None or _has_arguments(cut) or not _plain(pair[0]):
            return None
        if any(_speaks_of(event, cut) for event in trace.events if event is not save):
            return None
        edits[id(cut.node)] = Replace(cut, f"{text_of(owner)}.full_tensor()")
    return (*edits.values(), *alone) if alone is not None else None


def _plain(statement: Site) -> bool:
    """True for what all ranks run alike: a simple statement, or a loop, with nothing in it that is done or left out."""
    import libcst as cst

    if not isinstance(statement.node, cst.SimpleStatementLine | cst.For):
        return False
    apart = cst.If | cst.IfExp | cst.While | cst.Try | cst.With | cst.Continue | cst.Break
    return not any(isinstance(node, apart) for node in below(statement.node))


def _speaks_of(event: Event, cut: Site) -> bool:
    """True when an event is about a tensor that was cut at a place, or about one computed from it."""
    held = [part for value in vars(event).values() for part in _values(value)]
    return any(isinstance(part, Tensor) and cut_at(part) == cut for part in held)


def _values(field: object) -> Iterator[Value]:
    if isinstance(field, Value):
        yield from parts(field)
    elif isinstance(field, tuple):
        for each in field:
            yield from _values(each)


def _collected(trace: Trace, save: Save, state: StateDict) -> tuple[Collected, tuple[Edit, ...]] | None:
    """The call that takes the state dict, and what is to stand there, with its imports."""
    take = trace.taken(state)
    if take is None or not (by_every_rank(save) or by_rank_zero(save)):
        return None
    # What is kept between calls or over steps, an average say, is not for the file alone.
    if common_depth(take, save) < min(len(take.stack), len(save.stack)) or {*save.loops} != {*take.loops}:
        return None
    if any(take.order < event.order < save.order for event in trace.events if isinstance(event, Backward | Step)):
        return None
    # Under a test of the rank it can be taken out of it only where both are seen side by side.
    if rank_guard(take) is not None and (
        take.stack != save.stack or above_rank_test(save.site) is None or called_by_one_rank(take)
    ):
        return None
    return _of_optimizer(trace, take, state.of) if isinstance(state.of, Optimizer) else _of_model(take)


def _of_model(take: TakeState) -> tuple[Collected, tuple[Edit, ...]] | None:
    site, function = take.site, function_of(take.site)
    name = text_of(function).rpartition(".")[2] if function is not None else ""
    options = spelled(site, STATE, "StateDictOptions")
    if options is None or "\n" in text_of(site):
        return None
    if name == "get_model_state_dict" and function is not None:
        model, given = argument(site, "model", 0), argument(site, "options")
        if not {*keywords(site)} <= {"model", "options"}:
            return None
        # Of other options, only those that do not matter for a whole dict may be lost.
        made = assigned_call(site, text_of(given)) if given is not None and is_path(given) else given
        if given is not None and (made is None or not {*keywords(made)} <= {"full_state_dict", "cpu_offload"}):
            return None
        gather: tuple[str, tuple[EnsureImport, ...]] | None = (text_of(function), ())
    else:
        model, gather = receiver_of(site), spelled(site, STATE, "get_model_state_dict")
        if name != "state_dict" or _has_arguments(site):
            return None
    if model is None or gather is None or not is_path(model):
        return None
    text = f"{gather[0]}({text_of(model)}, options={options[0]}({FULL}))"
    return Collected(site, text, "model_state"), (*gather[1], *options[1])


def _of_optimizer(trace: Trace, take: TakeState, of: Optimizer) -> tuple[Collected, tuple[Edit, ...]] | None:
    site, function, optimizer = take.site, function_of(take.site), receiver_of(take.site)
    options, gather = spelled(site, STATE, "StateDictOptions"), spelled(site, STATE, "get_optimizer_state_dict")
    if function is None or optimizer is None or options is None or gather is None or _has_arguments(site):
        return None
    model = _model_of(trace, take, of)
    if text_of(function).rpartition(".")[2] != "state_dict" or model is None or not is_path(optimizer):
        return None
    text = f"{gather[0]}({model}, {text_of(optimizer)}, options={options[0]}({FULL}))"
    return Collected(site, text, "optimizer_state"), (*gather[1], *options[1])


def as_whole_fsdp1_state(trace: Trace, save: Save, state: StateDict, optimizer: Optimizer) -> tuple[Edit, ...] | None:
    """`optimizer.state_dict()`, saved by one rank, as `FSDP.optim_state_dict(model, optimizer)` of all ranks."""
    take = trace.taken(state)
    place, receiver = above_rank_test(save.site), receiver_of(take.site) if take is not None else None
    if take is None or place is None or receiver is None or take.stack != save.stack or called_by_one_rank(take):
        return None
    wrapper, model = spelled(take.site, "torch.distributed.fsdp", FSDP1), _model_of(trace, take, optimizer)
    if wrapper is None or model is None or not is_path(receiver) or _has_arguments(take.site):
        return None
    text = f"{wrapper[0]}.optim_state_dict({model}, {text_of(receiver)})"
    edits = by_all_ranks([Collected(take.site, text, "optimizer_state")], place)
    return (*edits, *wrapper[1]) if edits is not None else None


def as_load_of_whole_fsdp1_state(trace: Trace, load: LoadState, optimizer: Optimizer) -> tuple[Edit, ...] | None:
    """`optimizer.load_state_dict(state)`, with the rank's piece cut out of the whole state."""
    receiver, state = receiver_of(load.site), argument(load.site, "state_dict", 0)
    wrapper, model = spelled(load.site, "torch.distributed.fsdp", FSDP1), _model_of(trace, load, optimizer)
    if receiver is None or state is None or wrapper is None or model is None or not is_path(receiver):
        return None
    before = f"{wrapper[0]}.optim_state_dict_to_load({model}, {text_of(receiver)}, "
    return Wrap(state, before, ")"), *wrapper[1]


def as_optimizer_state(trace: Trace, take: TakeState, optimizer: Optimizer) -> tuple[Edit, ...] | None:
    """`optimizer.state_dict()` as `get_optimizer_state_dict(model, optimizer)`."""
    function, receiver = function_of(take.site), receiver_of(take.site)
    made = spelled(take.site, STATE, "get_optimizer_state_dict")
    if function is None or receiver is None or made is None or _has_arguments(take.site):
        return None
    model = _model_of(trace, take, optimizer)
    if model is None or not is_path(receiver) or text_of(function).rpartition(".")[2] != "state_dict":
        return None
    return Replace(take.site, f"{made[0]}({model}, {text_of(receiver)})"), *made[1]


def as_set_optimizer_state(trace: Trace, load: LoadState, optimizer: Optimizer) -> tuple[Edit, ...] | None:
    """`optimizer.load_state_dict(state)` as `set_optimizer_state_dict(model, optimizer, state)`."""
    receiver, state = receiver_of(load.site), argument(load.site, "state_dict", 0)
    made = spelled(load.site, STATE, "set_optimizer_state_dict")
    model = _model_of(trace, load, optimizer)
    if receiver is None or state is None or made is None or model is None or not is_path(receiver):
        return None
    return Replace(load.site, f"{made[0]}({model}, {text_of(receiver)}, {text_of(state)})"), *made[1]


def _model_of(trace: Trace, at: Event, optimizer: Optimizer) -> str | None:
    """What the optimizer's one model is called in the body in which an event happens."""
    models = {id(module): module for params in optimizer.holds for module in params.of}
    if len(models) != 1:
        return None
    model = next(iter(models.values()))
    for other in trace.events:
        about = other.state.of if isinstance(other, TakeState) else other.into[0] if _loads(other) else None
        named = receiver_of(other.site) if about is model and other.stack == at.stack else None
        if named is not None and is_path(named):
            return text_of(named)
    name = called(model)
    builds = [params for build in trace.every(BuildOptimizer) for params in build.optimizer.holds]
    if any(called(other) == name and other is not model for params in builds for other in params.of):
        return None  # the name is what a function called each of them
    names = (name, f"self.{name.rpartition('.')[2]}")
    return next((each for each in names if knows(at.site, each)), None)


def _loads(event: Event) -> TypeGuard[LoadState]:
    return isinstance(event, LoadState) and event.how == "load_state_dict"


def _has_arguments(site: Site) -> bool:
    return text_of(site)[-2:] != "()"
