"""The blocks are sharded, the model around them is not.

## What it finds

`fully_shard` on parts of a model that is then trained, without a `fully_shard(model)` on the model itself in any
place that the program passes.

## Why it is wrong

What lies outside the blocks (embedding, final norm, head) stays plain: its gradients are never reduced, and **the
ranks drift apart without a word**. Measured on torch 2.13.0 (two gloo ranks) and 2.11 (NCCL): the head's checksum was
506.61 on one rank and 508.57 on the other after three steps. Each block becomes a root of its own besides, and roots
are not resharded after the forward: all their parameters stay whole between forward and backward. Where an optimizer
or `clip_grad_norm_` uses its foreach form, the default on CUDA, it raises "got mixed torch.Tensor and DTensor"
instead.

## How to mend it

Call `fully_shard(model)` last, with the same keywords as for the blocks.

## When to leave it

Where every part that holds parameters is sharded by its own call, where the rest is frozen, handed to DDP or
`replicate`, or where its gradients are averaged by hand. A loop over `model.modules()` meets the model itself, too: the
rule speaks where a test of the class or of the name keeps it out. It is silent where it cannot see who shards the root.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from fsdp_lint.fix.calls import named_call, outer_call
from fsdp_lint.fix.edits import Fix, InsertAfter
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.drawing import may_shard_itself, may_shard_part
from fsdp_lint.trace.events import Freeze, Handed, LoadState, Shard
from fsdp_lint.trace.granularity import asked_to_shard, has_each, is_trained, left_over, model_of
from fsdp_lint.trace.models.frameworks import NO_SHARDERS, SHARDS
from fsdp_lint.trace.trace import Trace, called, covers, related, touches
from fsdp_lint.trace.values import Choice, Module, Value, exclusive, parts

ATTRIBUTES = frozenset({"setattr", "delattr", "getattr", "hasattr"})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each model of which only parts are sharded."""
    models: list[Value] = []
    for shard in trace.every(Shard):
        model = model_of(trace, shard.module)
        if shard.generation == 2 and model is not shard.module and not any(model is m for m in models):
            models.append(model)
    models += [model for model in _loaded(trace) if not any(model is m for m in models)]
    for model in models:
        inner = [s for s in trace.shards(model, 2) if not covers(s.module, model)]
        if (
            not inner
            or _is_asked_for_list(trace, model)
            or _is_covered(trace, model, inner)
            or _is_excused(trace, model, inner)
        ):
            continue
        rest = _rest(trace, model, inner)
        if rest == []:
            continue
        last = _in_loop(inner) or inner[-1]
        outside = ", ".join(f"`{name}`" for name in (rest or [])[:4])
        yield Finding(
            at=last,
            message=f"parts of `{called(model)}` are sharded, but not `{called(model)}` itself: "
            + (f"{outside} stay plain on every rank" if outside else "what is left of it stays plain on every rank"),
            fix=_fix(last, model, inner),
        )


def _rest(trace: Trace, model: Value, inner: list[Shard]) -> list[str] | None:
    """The parts of the model with parameters that no call shards, as far as is known; None where that is nothing."""
    rest = left_over(trace, model, inner[-1])
    if rest is None or not isinstance(model, Module):
        return rest
    return [name for name in rest if not any(may_shard_part(each, model.children.get(name, model)) for each in inner)]


def _loaded(trace: Trace) -> Iterator[Value]:
    """The models from outside the run that get their weights when parts of them are sharded, and no part that holds the
    others: whoever made them is not to be seen."""
    for load in trace.every(LoadState):
        for model in load.into:
            inner = [s for s in trace.shards(model, 2) if s.order < load.order]
            around = [s for s in inner if any(s is not o and covers(s.module, o.module) for o in inner)]
            if model.number in trace.given and inner and not around:
                yield model


def _in_loop(inner: list[Shard]) -> Shard | None:
    loops = [shard for shard in inner if shard.loops]
    return loops[-1] if loops else None


def _is_asked_for_list(trace: Trace, model: Value) -> bool:
    """True where a test asks whether it is a list of models: each of them is a root then."""
    tests = (test for shard in trace.every(Shard) for test in shard.guards if test.subject is model)
    return any({name.rpartition(".")[2] for name in test.classes} & {"list", "tuple", "Sequence"} for test in tests)


def _is_covered(trace: Trace, model: Value, inner: list[Shard]) -> bool:
    """True when some call shards the model itself on a path that the parts are sharded on, too."""
    for shard in trace.every(Shard):
        if any(covers(one, model) for one in (shard.module, *shard.group)):
            if any(not exclusive(shard.guards, part.guards) for part in inner):
                return True
    # What a name that is not known stands for may be any part, or the model itself.
    if any(part.module.key == "[?]" and part.module.owner is model for part in inner):
        return True
    return has_each(trace, model) or any(may_shard_itself(part, model) for part in inner)


def _is_excused(trace: Trace, model: Value, inner: list[Shard]) -> bool:
    if not is_trained(trace, model, inner[-1]) and not any(model is one for one in _loaded(trace)):
        return True
    if trace.replicated(model, inner[-1]):
        return True
    if any(_may_shard(event, model, inner[0]) for event in trace.handed(model, inner[-1])):
        return True
    if any(related(event.of, model) for event in asked_to_shard(trace)):
        return True
    if any(touches(event.module, model) for event in trace.every(Freeze)):
        return True
    return trace.averaged(model)


def _may_shard(event: Handed, model: Value, first: Shard) -> bool:
    """True for unknown code that may shard the model itself: not what had it before its parts were sharded, nor what
    has one part out of many, and of the model's own methods only those whose names say so."""
    if (
        event.to in ATTRIBUTES
        or all(_is_one_of_many(part, model) for part in _parts_of(model, event))
        or event.to.startswith(NO_SHARDERS)
        or (event.entry == first.entry and event.order < first.order)
    ):
        return False
    return not event.to.startswith(f"{called(model)}.") or bool(SHARDS.search(event.to.rpartition(".")[2]))


def _parts_of(model: Value, event: Handed) -> Iterator[Value]:
    """What of the model a call to unknown code gets."""
    for value in event.values:
        yield from (part for part in parts(value) if not isinstance(part, Choice) and touches(part, model))


def _is_one_of_many(part: Value, model: Value) -> bool:
    """True for what is reached through an item of a list inside the model, or through one of its children; what
    `modules()` gives may be the model itself."""
    inner = takewhile(lambda one: one is not model, part.line())
    return any(one.key.isdecimal() or (one.key == "[]" and getattr(one, "each", "") != "modules") for one in inner)


def _fix(last: Shard, model: Value, inner: list[Shard]) -> Fix | None:
    """`fully_shard(model, same keywords)` behind the loop or the last of the calls."""
    if inner[-1].stack != last.stack or any(shard.stack != last.stack for shard in inner):
        return None
    steps = list(last.module.line()).index(model) if model in last.module.line() else 0
    site = inner[-1].site if inner[-1] is not last else last.site
    name = called(model)
    names = (name, f"self.{name.rpartition('.')[2]}")
    written = next((call for each in names if (call := named_call(site, each))), None)
    written = written or (outer_call(site, steps) if steps else None)
    if written is None:
        return None
    anchor, text = written
    return Fix("Shard the model itself last", (InsertAfter(anchor, text),))


RULE = Rule(
    check,
    code="FSDP202",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
