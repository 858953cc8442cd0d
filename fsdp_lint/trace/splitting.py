"""Questions about data that is split among the ranks: whether each of them has as much of it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdp_lint.trace.events import ShareOut
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import (
    Const,
    Instance,
    Loaded,
    Object,
    Product,
    Rank,
    Sequence,
    Unknown,
    Value,
    WorldSize,
    made_of,
)

# Calls that give a part of their data, by their names.
PARTS = re.compile(
    r"(^|[._])(shard|split\w*|select|partition|subset|take_every|islice_by_rank)\(\.\.\.\)$", re.IGNORECASE
)
# Wrappers that give as many items as they get, and the number of these.
SAME = re.compile(r"(^|[._])(tqdm|trange|track|iter|list|sorted|len|progress\w*)\(\.\.\.\)$", re.IGNORECASE)


def split_unevenly(value: Value, hops: int = 8) -> bool:
    """True when the rank picks its items out of the data, and nothing makes the parts equally long."""
    if hops == 0:
        return False
    if isinstance(value, Sequence):
        return _picks(value.chosen_by) or _of_parts(value.chosen_by, hops)
    if isinstance(value, Loaded):
        return value.path_by_rank
    if isinstance(value, Instance):
        return value.draws is not None and split_unevenly(value.draws, hops - 1)
    if isinstance(value, Object):
        return _of_object(value, hops)
    if isinstance(value, Unknown):
        if PARTS.search(value.name):
            return _picks(value.inputs) or any(split_unevenly(one, hops - 1) for one in value.inputs)
        if SAME.search(value.name):
            return any(split_unevenly(one, hops - 1) for one in value.inputs[:1])
        return value.key == "[rank]" and value.owner is not None
    return False


def measured(trace: Trace, over: Value) -> bool:
    """True where the program asks how the length of the data goes with the number of processes: it looks after parts
    that differ, by padding, cutting or an error."""
    data = {one.number for one in _data_of(over)}
    return any(one.number in data for event in trace.every(ShareOut) for one in _counted(event.of))


def _counted(number: Value, hops: int = 4) -> Iterator[Value]:
    """What a number is the length of."""
    inputs = number.inputs if isinstance(number, Unknown) else ()
    if number.name == "len(...)":
        yield from inputs
    elif hops:
        for one in inputs:
            yield from _counted(one, hops - 1)


def _data_of(over: Value) -> Iterator[Value]:
    """All that the items of a loop come from."""
    todo, seen = [over], set[int]()
    while todo:
        one = todo.pop()
        if one.number in seen:
            continue
        seen.add(one.number)
        yield one
        todo.extend(made_of(one))
        todo.extend(one.chosen_by if isinstance(one, Sequence) else ())
        todo.extend([one.draws] if isinstance(one, Instance) and one.draws is not None else ())


def _of_parts(values: tuple[Value, ...], hops: int) -> bool:
    """True for items of an uneven part, unless a slice ends them where all ranks may have as many."""
    ends = len(values) > 2 and not (isinstance(values[2], Const) and values[2].value is None)
    if ends and split_unevenly(values[0], hops - 1):
        return False
    return any(split_unevenly(one, hops - 1) for one in values) and not any(map(_is_fitted, values))


def _of_object(value: Object, hops: int) -> bool:
    last = value.cls.rpartition(".")[2]
    if last.endswith("DataLoader"):
        sampler = value.kwargs.get("sampler") or value.kwargs.get("batch_sampler")
        data = sampler or value.get(0, "dataset")
        return data is not None and split_unevenly(data, hops - 1)
    if last in ("Subset", "SubsetRandomSampler", "SequentialSampler", "BatchSampler"):
        indices = value.get(1 if last == "Subset" else 0, "indices")
        return indices is not None and split_unevenly(indices, hops - 1)
    return False


def _picks(values: tuple[Value, ...]) -> bool:
    """True when the rank is among what chooses the items, and no number that was made to fit the ranks."""
    return any(isinstance(value, Rank) for value in values) and not any(_is_fitted(value) for value in values)


def _is_fitted(value: Value) -> bool:
    """True for numbers that are computed from the number of processes, such as a length that it divides, and for data
    that was cut to such a length."""
    if isinstance(value, Product):
        return True
    if isinstance(value, Sequence):
        return any(_is_fitted(one) for one in value.chosen_by)
    inputs = value.inputs if isinstance(value, Unknown) else ()
    return any(isinstance(one, WorldSize) or _is_fitted(one) for one in inputs)
