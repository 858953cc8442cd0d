"""A sharded model is cast to a smaller type of number.

## What it finds

`.half()`, `.bfloat16()`, `.double()` or `.to(dtype)` on a sharded model, or on a part of it: after a forward pass where
another pass follows, and before the first one where an optimizer trains the model.

## Why it is wrong

Once it has run, FSDP holds buffers of the old type. Measured on torch 2.13.0: after a step, and after a mere forward
pass, the next forward raises "RuntimeError: Expected out tensor to have dtype c10::BFloat16, but got float instead"
(FSDP1: "Invalid usage of tensors with different dtypes"). Before the first pass the cast works, and **the sharded
parameters themselves, which the optimizer updates, become bfloat16**: there are no full weights any more, as mixed
precision would keep, and small updates are lost. A part that is cast alone has another type than its neighbours.

## How to mend it

Let FSDP cast: `fully_shard(module, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))` computes in bfloat16
and keeps the weights. If all of the model is to be in that type, cast it before it is sharded.

## When to leave it

Casting after the last pass, in order to save, works, and so does a cast to float32. The rule is silent for frozen
models, and for a cast under a test of its own before the first pass, which is an option that somebody chose. A cast
before sharding is bf16-before-shard's business.

## References

- https://github.com/pytorch/torchtitan/issues/1168
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (MixedPrecisionPolicy)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import BuildOptimizer, Cast, Forward, Freeze, Shard
from fsdp_lint.trace.trace import Trace, called, touches
from fsdp_lint.trace.values import exclusive

SMALLER = frozenset({"bfloat16", "float16", "float64"})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each cast of a sharded model that goes on."""
    for cast in trace.every(Cast):
        if cast.dtype not in SMALLER or trace.in_test(cast) or _is_frozen(trace, cast):
            continue
        units = [s for s in trace.every(Shard) if s.order < cast.order and trace.before(s, cast)]
        units = [s for s in units if touches(s.module, cast.value)]
        if not units or not _is_new(trace, cast, units[0]):
            continue
        passes = [f for f in trace.every(Forward) if touches(f.module, cast.value)]
        ran = next((f for f in passes if units[0].order < f.order < cast.order and trace.before(f, cast)), None)
        again = next((f for f in passes if f is not ran and trace.before(cast, f)), None)
        name = called(cast.value)
        if ran is not None and again is not None:
            yield Finding(
                at=cast,
                message=f"`{name}` is cast to {cast.dtype} after it has run sharded: its next forward raises",
                because=[(units[0], "it is sharded here"), (ran, "it runs here"), (again, "it runs again here")],
            )
        elif ran is None:
            yield from _before_first_pass(trace, cast, units[0])


def _before_first_pass(trace: Trace, cast: Cast, shard: Shard) -> Iterator[Finding]:
    for build in trace.every(BuildOptimizer):
        held = [of for params in build.optimizer.holds for of in params.of]
        # A cast under a test of its own is an option that the user has.
        chosen = set(cast.guards) - set(build.guards) - set(shard.guards)
        if chosen or exclusive(build.guards, cast.guards) or not any(touches(of, cast.value) for of in held):
            continue
        yield Finding(
            at=cast,
            message=f"`{called(cast.value)}` is cast to {cast.dtype} after it was sharded: `{called(build.optimizer)}` "
            f"updates {cast.dtype} weights",
            because=[(shard, "it is sharded here"), (build, "the optimizer gets its parameters here")],
        )
        return


def _is_frozen(trace: Trace, cast: Cast) -> bool:
    return any(touches(event.module, cast.value) for event in trace.every(Freeze))


def _is_new(trace: Trace, cast: Cast, shard: Shard) -> bool:
    """True where the model did not have that type before it was sharded."""
    return not any(
        other.dtype == cast.dtype and other.order < shard.order and touches(other.value, cast.value)
        for other in trace.every(Cast)
    )


RULE = Rule(check, code="FSDP105", severity=Severity.WARNING, since="0.1.0")
