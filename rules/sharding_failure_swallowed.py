"""Sharding fails, and the program goes on with the model as it is.

## What it finds

A `try` around a sharding call whose `except Exception:` (or bare `except:`, or one of `RuntimeError` or
`AssertionError`, which sharding raises) neither raises nor ends the program, where the model is used after it. So does
`with contextlib.suppress(Exception):`, and a decorator of the project's own with such a `try` around what it decorates.

## Why it is wrong

A model that could not be sharded looks like one that was: the program trains. But then **every rank trains a whole
model of its own**: no gradient is reduced, the ranks drift apart, each holds all the memory that sharding was to save,
and which rank's weights are saved is chance. Where only some ranks fail, the others wait in their first all-gather
until the timeout. Where the blocks were sharded before the error came, the model is half sharded. Measured on torch
2.13.0 with two gloo ranks: no message, and the ranks disagree on every parameter after three steps. What raises depends
on the release: a mesh of two dimensions without names, as in the example, does so from 2.6 on; on 2.4
and 2.5 the example shards, and its handler waits for another error. So the message says what happens where it fails.

## How to mend it

Let the error end the job: leave the `try` away, or log it and `raise`.

## When to leave it

Where the handler shards or replicates the model in another way (of a decorator: where it makes anything at all), where
the error is kept and raised later, or where it is caught around the whole training, the rule is silent, and so it is
for handlers of other errors (`ImportError`, `AttributeError`), which look for a feature.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import BuildOptimizer, Event, Forward, Handed, Replicate, Shard, Swallow
from fsdp_lint.trace.trace import Trace, called, touches
from fsdp_lint.trace.values import Guards, Value, parts


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each handler that hides a sharding error."""
    for swallow in trace.every(Swallow):
        tried = [s for s in trace.every(Shard) if _is_inside(s, swallow) and s.order < swallow.order]
        if not tried or _is_handled(trace, swallow, tried):
            continue
        use = next((event for event in trace.events if _goes_on(event, swallow, tried)), None)
        if use is None or _raises_later(trace, swallow, use):
            continue
        yield Finding(
            at=swallow,
            message=f"where sharding `{called(tried[0].module)}` fails, the error is caught here, and the program "
            "goes on without sharding",
            because=[
                (tried[0], f"`{called(tried[0].module)}` is sharded here"),
                *([] if isinstance(use, Handed) else [(use, "the model is used here all the same")]),
            ],
        )


def _is_inside(event: Event, swallow: Swallow) -> bool:
    return _is_excluded(event.guards, swallow)


def _is_handled(trace: Trace, swallow: Swallow, tried: list[Shard]) -> bool:
    """True when the handler shards or replicates the model itself."""
    return any(
        isinstance(event, Shard | Replicate)
        and any(literal.key == swallow.key and literal.holds for literal in event.guards)
        and any(touches(event.module, shard.module) for shard in tried)
        for event in trace.events
    )


def _raises_later(trace: Trace, swallow: Swallow, use: Event) -> bool:
    """True when the program may end by an error of its own before it uses the model, as one that kept this one does."""
    return any(
        leave.failed
        and swallow.order < leave.order <= use.order
        and swallow.stack[: len(leave.stack)] == leave.stack
        and not _is_excluded(leave.guards, swallow)
        for leave in trace.leaves
    )


def _is_excluded(guards: Guards, swallow: Swallow) -> bool:
    return any(literal.key == swallow.key and not literal.holds for literal in guards)


def _goes_on(event: Event, swallow: Swallow, tried: list[Shard]) -> bool:
    """True when the event uses the model in a run in which sharding has failed."""
    if event.order < swallow.order or _is_inside(event, swallow) or event.entry != swallow.entry:
        return False
    used: list[Value] = []
    match event:
        case Forward(module=module):
            used = [module]
        case BuildOptimizer(optimizer=optimizer):
            used = [module for params in optimizer.holds for module in params.of]
        case Handed(values=values):
            used = [part for value in values for part in parts(value)]
    return any(touches(one, shard.module) for one in used for shard in tried)


RULE = Rule(check, code="FSDP209", severity=Severity.ERROR, since="0.1.0")
