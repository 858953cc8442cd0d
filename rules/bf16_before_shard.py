"""The model is in half precision when it is sharded, so the optimizer works on half precision, too.

## What it finds

`.to(torch.bfloat16)`, `.bfloat16()`, `.half()`, `from_pretrained(..., torch_dtype=torch.bfloat16)`, or
`torch.set_default_dtype(torch.bfloat16)` around the making of a model, written out and under no condition of its own,
where the model is then sharded and trained by one of torch's own optimizers.

## Why it is wrong

The sharded parameters are the master weights. In bfloat16 they have 8 bits of mantissa: **an update below about 1/256
of a weight is rounded away, without a word**. Measured on torch 2.13.0: 50 steps of AdamW with lr 1e-5 change 3 % of
the weights of a linear layer that was cast before `fully_shard`, and all of them where only the policy says bfloat16.
The moments of Adam are in bfloat16 as well.

## How to mend it

Leave the model in float32 and let the policy cast: `MixedPrecisionPolicy(param_dtype=torch.bfloat16,
reduce_dtype=torch.float32)`.

## When to leave it

Where the memory is not there (16 bytes a parameter become 8) and you accept the loss, or where an optimizer rounds
stochastically or keeps its own master weights: other optimizers than torch's are not reported, nor are frozen models,
adapters on a frozen base, models that nobody trains, casts that an option asks for, and casts back to float32.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`MixedPrecisionPolicy`)
- https://github.com/pytorch/torchtitan/issues/1133
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import BuildOptimizer, Cast, Freeze, Shard, UseParameters
from fsdp_lint.trace.models.optim import is_torch_optimizer
from fsdp_lint.trace.models.precision import LOW
from fsdp_lint.trace.trace import Trace, called, related, touches
from fsdp_lint.trace.values import exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each cast, where the cast model is sharded and trained."""
    for cast in trace.every(Cast):
        if cast.dtype not in LOW or trace.in_test(cast):
            continue
        shard = next((s for s in trace.every(Shard) if _follows(trace, cast, s)), None)
        if shard is None or _is_excused(trace, cast, shard):
            continue
        build = next((b for b in trace.every(BuildOptimizer) if _trains(b, cast)), None)
        if build is not None:
            yield Finding(
                at=cast,
                message=f"`{called(cast.value)}` is {cast.dtype} when it is sharded: "
                f"`{called(build.optimizer)}` updates {cast.dtype} weights and loses small updates",
                because=[(shard, "it is sharded here"), (build, "the optimizer gets its parameters here")],
            )


def _follows(trace: Trace, cast: Cast, shard: Shard) -> bool:
    return touches(shard.module, cast.value) and cast.order < shard.order and trace.before(cast, shard, cast.value)


def _trains(build: BuildOptimizer, cast: Cast) -> bool:
    """True when one of torch's optimizers holds the cast model's parameters, wherever the cast is made."""
    if not is_torch_optimizer(build.optimizer.cls) or exclusive(build.guards, cast.guards):
        return False
    # A cast under a test of its own is an option that the user has.
    if not {guard for guard in cast.guards if guard.site is not None} <= set(build.guards):
        return False
    return any(touches(of, cast.value) for params in build.optimizer.holds for of in params.of)


def _is_excused(trace: Trace, cast: Cast, shard: Shard) -> bool:
    if any(touches(event.module, cast.value) for event in trace.every(Freeze)):
        return True
    asked = (use for use in trace.every(UseParameters) if use.how == "requires_grad")
    if any(touches(of, cast.value) for use in asked for of in use.params.of):
        return True
    if any("peft" in event.to.lower() or "lora" in event.to.lower() for event in trace.handed(cast.value)):
        return True
    return any(
        other.dtype not in LOW and related(other.value, cast.value) and other.order > cast.order
        for other in trace.every(Cast)
    )


RULE = Rule(check, code="FSDP701", severity=Severity.WARNING, since="0.1.0")
