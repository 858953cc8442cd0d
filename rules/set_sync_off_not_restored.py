"""`set_requires_gradient_sync(False)` is never taken back, so nothing trains.

## What it finds

`set_requires_gradient_sync(False)` on a model that is then trained, where no other call, with `True` or with an
expression, ever switches the reduction of its gradients on again.

## Why it is wrong

The flag stays until it is set anew. While it is off the gradients are kept unsharded and are not reduced:
`param.grad` of every sharded parameter stays None, **and `optimizer.step()` changes nothing, without a word** (measured
on torch 2.13.0, two gloo ranks: 0 parameters change). The unsharded gradients pile up besides, 4 bytes a parameter.

## How to mend it

Set it in every round: `model.set_requires_gradient_sync(is_last_microbatch)`.

## When to leave it

Where the gradients are not meant to reach an optimizer. The rule is silent where the flag is an expression, where the
model is handed to code that it does not know (a pipeline schedule), where the module is frozen, and where no
`optimizer.step()` is in sight.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`FSDPModule.set_requires_gradient_sync`)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Freeze, SetSync
from fsdp_lint.trace.trace import Trace, called, stepped, touches
from fsdp_lint.trace.values import Const, exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each call that switches the reduction off for good."""
    for off in trace.every(SetSync):
        if not _is_off(off):
            continue
        others = [o for o in trace.every(SetSync) if touches(o.value, off.value) and not o.partly]
        if any(not _is_off(other) for other in others):
            continue
        if any(touches(event.module, off.value) for event in trace.every(Freeze)) or any(trace.handed(off.value, off)):
            continue
        shard = trace.covering(off.value, off, 2) or trace.sharded(off.value, off, 2)
        step = next((s for s in stepped(trace, off.value) if not exclusive(s.guards, off.guards)), None)
        if shard is None or step is None:
            continue
        yield Finding(
            at=off,
            message=f"the gradients of `{called(off.value)}` are not reduced from here on, and nothing switches that "
            "on again: they stay None",
            because=[(step, "this step changes nothing")],
        )


def _is_off(event: SetSync) -> bool:
    return isinstance(event.flag, Const) and event.flag.value is False and not event.partly


RULE = Rule(check, code="FSDP704", severity=Severity.ERROR, since="0.1.0")
