"""A branch that some ranks take and others do not, around what all of them must do together.

## What it finds

An `if` (or a `continue`, `break` or `return` under one) that looks at this rank's own loss, outputs or batch, and
decides on a forward or backward of a sharded model, on its optimizer's step, or on another collective: `if
torch.isnan(loss): continue`, `if batch is None: continue`, `if val_loss < best: save()`; and a `break` that stands at
the end of the round: `if val_loss > best: break`. So it is with the backward that a framework makes: by
`accelerator.backward`, by `fabric.backward`, by Lightning's Trainer where `training_step` returns None under such a
test. A generator that passes over some batches counts where the training
loop goes through all that it yields.

## Why it is wrong

Each rank has another batch, so one of them may skip what the others do. Forward and backward of a sharded model gather
and reduce with all ranks: measured on torch 2.13.0 with gloo, the others wait until the timeout; on 2.11 with NCCL
until the watchdog ends the job, or one rank's all-gather is paired with another's all-reduce. Where only the step is
skipped nothing hangs, and the shards of that rank stay behind those of the others, silently.

## How to mend it

Let the ranks agree first: make the outcome a tensor, `all_reduce` it with `ReduceOp.MAX`, and branch on the result. Or
drop the branch: multiply the loss by zero where it is to be skipped.

## When to leave it

Where the value was reduced or broadcast before, where the other branch makes the same calls, or where the branch ends
the run by an error. Norms from `clip_grad_norm_` are the same on all ranks (from torch 2.10 on), and so are shapes and
the structure of batches, as a rule. The rule sees these. A number that is read from a sharded tensor is
dtensor-scalar-read's business.

The rule does not see what a loop carries over from one round to the next: a flag that is first set in the second
round.

## References

- https://docs.pytorch.org/docs/stable/distributed.html
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity, Site
from fsdp_lint.trace.agreement import BY_MODEL, last_asked, own_values
from fsdp_lint.trace.events import Backward, Event, Forward, Shard, Step
from fsdp_lint.trace.together import collective_of, launch_of
from fsdp_lint.trace.trace import Stop, Trace, called
from fsdp_lint.trace.values import Literal, exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each test on a rank's own values that decides on something common."""
    reported: set[Site] = set()
    for event in trace.events:
        guards = [one for one in last_asked(event.guards) if one.site is not None and one.site not in reported]
        what = _common(trace, event) if guards and not trace.in_test(event) else ""
        for literal in guards if what else ():
            words = own_values(trace, literal, event.order)
            if not words or _is_paired(trace, event, literal) or _fails(trace, literal):
                continue
            assert literal.site is not None
            reported.add(literal.site)
            yield Finding(
                at=literal.site,
                message=f"this test looks at {words}, and decides on {what}, which all ranks must do alike",
                because=[(event, f"{what} is here"), *launch_of(trace, event)],
            )
    yield from _early_ends(trace, reported)


def _early_ends(trace: Trace, reported: set[Site]) -> Iterator[Finding]:
    """One finding for each test on a rank's own outputs that ends a loop over something common. What a batch holds may
    be a total that the sampler counted for all ranks."""
    for stop in trace.stops:
        for literal in last_asked(stop.guards):
            site = literal.site
            if site is None or site in reported or own_values(trace, literal, stop.order) != BY_MODEL:
                continue
            event = next((event for event in trace.events if _comes_again(trace, event, stop, literal)), None)
            if event is None or _fails(trace, literal):
                continue
            what = _common(trace, event)
            reported.add(site)
            yield Finding(
                at=site,
                message=f"this test looks at {BY_MODEL}, and ends the loop: {what} of its next round is for all ranks",
                because=[(event, f"{what} is here")],
            )


def _comes_again(trace: Trace, event: Event, stop: Stop, literal: Literal) -> bool:
    """True when the event is something common in each round of the loop that the stop ends for some ranks."""
    if stop.loop not in event.loops or event.order >= stop.order or trace.in_test(event):
        return False
    if any(one.key == literal.key for one in event.guards) or exclusive(event.guards, stop.guards):
        return False
    return bool(_common(trace, event))


def _common(trace: Trace, event: Event) -> str:
    """What the event is called when ranks must not differ in it; empty for other events."""
    if isinstance(event, Shard):
        return ""
    if isinstance(event, Backward):
        return "the backward" if _trains_sharded(trace, event) else ""
    if isinstance(event, Step):
        modules = [module for params in event.optimizer.holds for module in params.of]
        sharded = any(trace.sharded(module, event) is not None for module in modules)
        return f"the step of `{called(event.optimizer)}`" if sharded else ""
    return collective_of(trace, event)


def _trains_sharded(trace: Trace, backward: Backward) -> bool:
    return any(
        event.order < backward.order and trace.covering(event.module, event) is not None
        for event in trace.every(Forward)
    )


def _is_paired(trace: Trace, event: Event, literal: Literal) -> bool:
    """True when the ranks for which the test comes out the other way do the same."""
    return any(
        type(other) is type(event)
        and any(one.key == literal.key and one.holds != literal.holds for one in other.guards)
        and _common(trace, other)
        for other in trace.events
    )


def _fails(trace: Trace, literal: Literal) -> bool:
    """True when the other outcome ends the run by an error."""
    return any(
        leave.failed and any(one.key == literal.key and one.holds != literal.holds for one in leave.guards)
        for leave in trace.leaves
    )


RULE = Rule(check, code="FSDP502", severity=Severity.ERROR, since="0.1.0")
