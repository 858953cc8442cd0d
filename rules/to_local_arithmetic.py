"""A local shard is reduced as if it were the whole tensor.

## What it finds

A sum, norm, mean, maximum or comparison of `to_local()` of a parameter or gradient of a model sharded with
`fully_shard`, the result of which no collective brings together.

## Why it is wrong

`to_local()` gives this rank's rows. Measured on torch 2.13.0 with two gloo ranks: an L2 penalty of 52.5 and 53.7 where
the true one is 101.2; a parameter scaled by its local norm ends with norm 1.414 instead of 1; a mean has the wrong sign
on one rank; clipping by a local norm scales the gradients of the ranks by different factors. No error is raised.

## How to mend it

Reduce the DTensor itself and call `.full_tensor()` on the result, on all ranks. Or `all_reduce` the local sum over
the group of the shards.

## When to leave it

Elementwise use of the shard is right: in-place updates under `no_grad`, moving averages, noise, quantisation. Shapes
and counts of the shard are right, too, and so is a value that is meant to be this rank's own.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html
- https://github.com/inclusionAI/AReaL/issues/312
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import ReduceLocal
from fsdp_lint.trace.reading import agreed_later, cut_at, sharded_source
from fsdp_lint.trace.trace import Trace, called


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each reduction of a local shard that stays local."""
    for event in trace.every(ReduceLocal):
        if "assert" in event.contexts or trace.in_test(event):
            continue
        shard = sharded_source(trace, event.tensor, event)
        if shard is None or agreed_later(trace, event.tensor):
            continue
        cut = cut_at(event.tensor)
        apart = [(cut, "`to_local()` gives this rank's shard here")] if cut is not None and cut != event.site else []
        yield Finding(
            at=event,
            message="this is a value of one rank's shard only: `to_local()` does not see the rest of the tensor",
            because=[(shard, f"`{called(shard.module)}` is sharded here"), *apart],
        )


RULE = Rule(check, code="FSDP401", severity=Severity.WARNING, since="0.1.0")
