"""Every small module becomes an FSDP unit of its own.

## What it finds

- `fully_shard` in a loop over `modules()` or `named_modules()` without a filter, or with one that lets linear layers
  through (norms alone may be units for the sake of their own dtype);
- a loop over the layers inside a block;
- `model.apply(fully_shard)`;
- FSDP1 with a policy that wraps `nn.Linear` or a norm, or `size_based_auto_wrap_policy` with `min_num_params` below
  100,000.

## Why it is wrong

A unit costs one all-gather in the forward, one in the backward, and one reduce-scatter. The bytes stay the same, but
there are many more collectives, and small ones are slow. Measured: 873 collectives a step instead of 98 for a
Llama-shaped model of 32 layers, 2,169 instead of 242 for 80 layers (a group of 64 ranks); on two H200 with NCCL a
step of a model of 937 million parameters took 1.8 times as long. Memory and losses do not change.

## How to mend it

Shard each transformer block, then the root. A block is the largest module that repeats, usually an element of
`model.layers`.

## When to leave it

Where small modules have to be units for another reason: quantised or adapter layers of another dtype, experts of a
mixture, per-sample gradients. A filter on your own block class is never reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://github.com/Lightning-AI/pytorch-lightning/issues/15976
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Shard, ShardEach
from fsdp_lint.trace.granularity import leaf_reason, policy_reason
from fsdp_lint.trace.trace import Trace, called


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each call that makes leaf modules into units."""
    for each in trace.every(ShardEach):
        yield Finding(at=each, message=f"`{called(each.module)}.apply` makes every module of it an FSDP unit")
    for shard in trace.every(Shard):
        reason = leaf_reason(trace, shard) if shard.generation == 2 else policy_reason(shard)
        if reason:
            yield Finding(at=shard, message=reason)


RULE = Rule(check, code="FSDP201", severity=Severity.WARNING, since="0.1.0")
