"""A sharded model is copied with `deepcopy`, which FSDP refuses.

## What it finds

`copy.deepcopy(model)` on a sharded module, on something that holds one, or on a list or dict of such, and the classes
that copy the model they are given: `torch.optim.swa_utils.AveragedModel`, `timm.utils.ModelEmaV2`.

## Why it is wrong

Measured on torch 2.13.0: with FSDP2 "AssertionError: FSDP does not support deepcopy. Please use state dict for
serialization"; with FSDP1 "RuntimeError: Only Tensors created explicitly by the user (graph leaves) support the
deepcopy protocol" after a step. The job stops, often hours later: moving averages and reference models are copied when
they are first needed.

## How to mend it

Copy the model before it is sharded and shard the copy in the same way. Weights alone can be copied with
`copy.deepcopy(model.state_dict())`; a moving average that keeps a clone of each parameter needs no copy of the model.

## When to leave it

The rule is silent for copies of configurations, state dicts, optimizers and parameter lists (they work), for parts of
a sharded model that hold no unit of their own, and where the program asks for the class of what it copies.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/_fully_shard/_fully_shard.py
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Copy, Shard
from fsdp_lint.trace.trace import Trace, called, covers, is_asked_for_class


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each copy of what holds a sharded module."""
    for copy in trace.every(Copy):
        for shard in trace.every(Shard):
            if not trace.before(shard, copy, copy.module) or shard.order > copy.order:
                continue
            if is_asked_for_class(copy, copy.module, shard):
                continue
            if any(covers(copy.module, unit) for unit in (shard.module, *shard.group)):
                yield Finding(
                    at=copy,
                    message=f"`{copy.how}` copies `{called(copy.module)}`, which is sharded: FSDP does not support it",
                    because=[(shard, f"`{called(shard.module)}` is sharded here")],
                )
                break


RULE = Rule(check, code="FSDP106", severity=Severity.ERROR, since="0.1.0")
