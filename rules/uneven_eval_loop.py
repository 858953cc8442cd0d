"""The ranks go through different numbers of batches with a sharded model.

## What it finds

A `for` over data of which each rank takes its own part by hand (`data[rank::world_size]`, `range(rank, n, world_size)`,
`dataset.shard(...)`, `Subset` of such indices, a file a rank, `itertools.islice(rows, rank, None, world_size)`), with a
forward of a sharded model and no backward inside: an evaluation. Also where a generator of the project, or the
`__iter__` or `__len__` of its dataset, picks the part.

## Why it is wrong

The parts differ in length where the number of ranks does not divide that of the items. Every forward of a sharded model
gathers its parameters with all ranks, so the ranks that have one batch more wait for the others: measured on two ranks,
with gloo (torch 2.13.0) until the timeout, with NCCL (2.11) until the watchdog ends the job, with an all-gather on one
rank and the next collective on the other. FSDP has no `join()`, as DDP has, to help out.

## How to mend it

Let `DistributedSampler` split the data: it repeats items so that all ranks have the same number. Or cut the data to a
multiple of the number of ranks, or `all_reduce` a flag in each round that says whether every rank has a batch.

## When to leave it

Where the data is known to be divisible; for training data it mostly is, and training loops are not reported. The rule
is silent, too, where a collective in the loop brings the ranks together, where the loop or a generator that it goes
over may end early (`break`, `return`, `zip` with a count), where the length of the data or the bounds are divided by
the number of ranks (a part is padded or cut then, or an error raised), and where it does not see how the data is split.

## References

- https://docs.pytorch.org/docs/stable/data.html (`DistributedSampler`)
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://docs.pytorch.org/tutorials/advanced/generic_join.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Backward, Collective, Event, Forward, LoopOverPart
from fsdp_lint.trace.splitting import measured
from fsdp_lint.trace.trace import Trace, called, rank_guard, runs_alone


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each loop over a rank's own part of the data that calls a sharded model."""
    for loop in trace.every(LoopOverPart):
        if (
            loop.may_stop
            or measured(trace, loop.over)
            or runs_alone(loop)
            or rank_guard(loop) is not None
            or trace.in_test(loop)
        ):
            continue
        inside = [event for event in trace.events if _is_in(event, loop)]
        if any(isinstance(event, Backward) or (isinstance(event, Collective) and event.plain) for event in inside):
            continue
        call = next((event for event in inside if isinstance(event, Forward) and _gathers(trace, event)), None)
        if call is not None:
            yield Finding(
                at=loop,
                message=f"each rank takes its own part of the data, and may have one batch less than the others: "
                f"`{called(call.module)}` is sharded, and all ranks must call it equally often",
                because=[(call, f"`{called(call.module)}` gathers its parameters with all ranks here")],
            )


def _is_in(event: Event, loop: LoopOverPart) -> bool:
    return any(abs(number) == loop.number for number in event.loops)


def _gathers(trace: Trace, call: Forward) -> bool:
    return trace.covering(call.module, call) is not None


RULE = Rule(check, code="FSDP503", severity=Severity.WARNING, since="0.1.0")
