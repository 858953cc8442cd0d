"""Gradients are accumulated over microbatches, and reduced in each of them.

## What it finds

A loop that calls an FSDP2 model and `backward()` several times for one `optimizer.step()`, without
`set_requires_gradient_sync`.

## Why it is wrong

It is right, and slower than it need be: each backward reduces the gradients of all units. Measured on torch 2.13.0
(4 blocks, 4 microbatches): 36 all-gathers and 20 reduce-scatters a step. With `set_requires_gradient_sync(False)` in
all microbatches but the last 36 and 5, with `set_reshard_after_backward(False)` as well 21 and 5. The numbers come out
the same. The price is memory: what is not reduced is held unsharded, 4 bytes a parameter in fp32. So this is advice.

## How to mend it

Call `model.set_requires_gradient_sync(is_last_microbatch)` before each backward, where the memory allows it.

## When to leave it

Where the unsharded gradients do not fit, as torchtitan decided. The rule does not see accumulation that is spread over
calls from code that it does not know.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`FSDPModule.set_requires_gradient_sync`)
- https://github.com/pytorch/torchtitan/issues/292 (what it saves, and what it costs)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Backward, CheckClass, Event, Forward, SetFlag, SetSync, UseFSDP1
from fsdp_lint.trace.gradients import may_go_through
from fsdp_lint.trace.trace import Trace, called, fsdp2_only, stepped, touches
from fsdp_lint.trace.values import Value, exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each backward of an accumulation, at the backward."""
    for forward in trace.every(Forward):
        model = forward.module
        shard = fsdp2_only(trace, model, forward)
        if shard is None or forward.bypass or trace.in_test(forward) or _is_managed(trace, model):
            continue
        for backward in trace.every(Backward):
            if backward.order < forward.order or backward.loops != forward.loops or "no_sync" in backward.contexts:
                continue
            if not may_go_through(backward, forward):
                continue
            steps = list(stepped(trace, model))
            step = next((s for s in steps if _once_for_several(backward, s)), None)
            if step is not None and any(
                _every_time(backward, s) and not exclusive(s.guards, step.guards) for s in steps
            ):
                continue  # What the witness takes once in a while comes from another backward.
            if step is not None:
                yield Finding(
                    at=backward,
                    message=f"every microbatch reduces the gradients of `{called(model)}`, the optimizer uses the sum "
                    "of several",
                    because=[(step, "one step for several backward passes")],
                )
                return


def _once_for_several(backward: Backward, step: Event) -> bool:
    """True when the step is made once for several rounds of the loop that the backward stands in."""
    if exclusive(backward.guards, step.guards) or backward.entry != step.entry or step.order < backward.order:
        return False
    if backward.loops == step.loops:
        return any(g.kind == "turn" and g not in backward.guards for g in step.guards)
    inner = len(backward.loops) == len(step.loops) + 1
    return inner and bool(step.loops) and backward.loops[: len(step.loops)] == step.loops


def _every_time(backward: Backward, step: Event) -> bool:
    """True when a step is made in every round of the loop that the backward stands in."""
    if exclusive(backward.guards, step.guards) or backward.entry != step.entry or backward.loops != step.loops:
        return False
    return all(g.kind != "turn" or g in backward.guards for g in step.guards)


def _is_managed(trace: Trace, model: Value) -> bool:
    for event in trace.events:
        match event:
            case CheckClass(then=then, names=names):
                speaks = "no_sync" in then | {*names}
            case UseFSDP1(api=api, contexts=contexts):
                # It ends the run with FSDP2, and fsdp1-api-on-fsdp2 says so.
                speaks = "no_sync" in api and "AttributeError" not in contexts
            case SetSync() | SetFlag():
                speaks = True
            case _:
                continue
        if speaks and touches(event.value, model):
            return True
    return False


RULE = Rule(check, code="FSDP706", severity=Severity.INFO, since="0.1.0")
