"""Questions about values of tensors: sharded where they come from, and agreed among the ranks later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_lint.trace.events import Collective, Event, Handed, SetEntry, Shard
from fsdp_lint.trace.models.collectives import AGREEING, TOGETHER
from fsdp_lint.trace.trace import Trace, is_whole
from fsdp_lint.trace.values import Params, Rank, StateDict, Tensor, Unknown, Value, origins, parts

if TYPE_CHECKING:
    from fsdp_lint.source.file import Site

QUIET = ("print", "info", "debug", "warning", "log", "append", "write", "add_scalar", "update", "format")


def sharded_source(trace: Trace, tensor: Tensor, at: Event) -> Shard | None:
    """The FSDP2 sharding call by which the parameters behind a tensor are DTensors."""
    source = tensor.source
    modules: tuple[Value, ...] = ()
    when: Event = at
    if isinstance(source, Params):
        modules = source.of
        when = source.taken or at
    elif isinstance(source, StateDict):
        modules = (source.of,)
    for module in modules:
        shard = None if is_whole(trace, module, when) else trace.sharded(module, when, 2)
        if shard is not None and trace.sharded(module, when, 1) is None:
            return shard
    return None


def cut_at(tensor: Tensor) -> Site | None:
    """Where `to_local()` gave the shard that the tensor was computed from; None where something else did."""
    seen: set[int] = set()
    todo = [tensor]
    while todo:
        one = todo.pop(0)
        if one.cut is not None:
            return one.cut
        if one.number not in seen:
            seen.add(one.number)
            todo.extend(one.inputs)
    return None


def agreed_later(trace: Trace, tensor: Tensor) -> bool:
    """True when the ranks bring the value together by a collective, or when it goes where that cannot be seen."""
    vectors = {event.container.number for event in trace.every(SetEntry) if _comes_from(event.content, tensor)}
    for event in trace.events:
        if isinstance(event, Collective) and event.op in AGREEING:
            if any(_comes_from(value, tensor) or vectors & origins(value) for value in event.on):
                return True
        if isinstance(event, Handed) and any(_comes_from(value, tensor) for value in event.values):
            if not _is_quiet(event.to.rpartition(".")[2]) or any(
                _is_rank(part) for value in event.values for part in parts(value)
            ):
                return True
    return False


def _is_quiet(name: str) -> bool:
    """True for functions that only show or keep a value, and for what tensors do in place, by their names."""
    in_place = name.endswith("_") and not name.startswith("_") and not TOGETHER.search(name)
    return in_place or name.startswith(QUIET)


def _is_rank(value: Value) -> bool:
    return isinstance(value, Rank) or (isinstance(value, Unknown) and any(isinstance(v, Rank) for v in value.inputs))


def _comes_from(value: Value, tensor: Tensor, hops: int = 6) -> bool:
    for part in parts(value):
        if isinstance(part, Tensor) and tensor.number in part.ancestry():
            return True
        if isinstance(part, Unknown) and hops:
            if any(_comes_from(one, tensor, hops - 1) for one in part.inputs):
                return True
    return False
