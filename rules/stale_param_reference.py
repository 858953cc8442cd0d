"""Parameters that were taken before sharding are used after it.

## What it finds

A list, dict or set of parameters (`list(model.parameters())`, a name map, groups) that was made before
`fully_shard(...)` or `FullyShardedDataParallel(...)` on that model, and whose members are clipped, changed, frozen,
hooked or read by value afterwards.

## Why it is wrong

Sharding replaces the parameters of the module. Whoever holds the old ones holds tensors that no forward pass uses and
no gradient reaches. Measured on torch 2.13.0: `clip_grad_norm_` over such a list returns 0.0 and clips nothing (the
true norm was 0.95), a moving average follows dead weights, and the whole unsharded model is kept in memory.

## How to mend it

Take the parameters anew from the sharded model, after the last sharding call.

## When to leave it

Names, shapes and counts do not change, so a list that serves only for these is right, and so is `requires_grad` that
is set before sharding. An optimizer built from such a list is optimizer-before-shard's business.

## References

- https://github.com/huggingface/accelerate/issues/3859
- https://github.com/NVIDIA/Megatron-LM/issues/2471
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Event, UseParameters
from fsdp_lint.trace.trace import Trace, called, keeps_parameters
from fsdp_lint.trace.values import Optimizer

EFFECTS = {
    "clip": "are clipped",
    "update": "are changed or mixed",
    "copy": "are copied",
    "read": "are read",
    "data": "are changed or mixed",
    "hook": "get a hook",
    "accumulate-hook": "get a hook",
    "requires_grad": "are frozen or thawed",
    "gradient": "get a gradient",
}


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each capture that is used by value after a sharding call."""
    reported: set[Event] = set()
    for use in trace.every(UseParameters):
        taken = use.params.taken
        if taken is None or taken in reported or use.how == "copy":
            continue
        if any(trace.ignores_some(module) for module in use.params.of):
            continue
        # Those of an optimizer are the business of optimizer-before-shard.
        if any(isinstance(one, Optimizer) for one in use.params.line()):
            continue
        for shard in trace.shards_after(use.params):
            if trace.before(shard, use, use.params) and not keeps_parameters(shard) and taken.site != use.site:
                reported.add(taken)
                yield Finding(
                    at=taken,
                    message=f"these parameters of `{called(use.params.of[0])}` are replaced by sharding, "
                    "and used all the same",
                    because=[
                        (shard, f"`{called(shard.module)}` is sharded here"),
                        (use, f"the old parameters {EFFECTS.get(use.how, 'are used')} here"),
                    ],
                )
                break


RULE = Rule(check, code="FSDP102", severity=Severity.ERROR, since="0.1.0")
