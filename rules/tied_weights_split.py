"""Two modules share a parameter and lie in different FSDP units.

## What it finds

A parameter that one module takes from another (`self.head.weight = self.embed.weight`), where `fully_shard` then puts
the two modules into different units: one of them, or each, is sharded on its own. Where the model ties them under a
test that the sharding does not make, it is a warning.

## Why it is wrong

A unit owns its parameters; two units cannot own the same one. Measured: torch 2.12 and 2.13 raise at the first forward,
"ValueError: Parameter 'head.weight' is shared with a parameter already managed by another FSDP group". **Torch 2.4 to
2.11 untie the two without a word**, and the model that is trained is another one (two parameters instead of one, no
longer equal; loss 31.54 instead of 29.44 after three steps of SGD, the same on each of 2.4, 2.5, 2.6, 2.8 and 2.11). So
it is on 2.13 where one of the two is sharded and the other is in no unit at all: they are untied. The message says what
the releases do that your project allows.

## How to mend it

Put both modules into one unit: leave both to the root, or call `fully_shard([model.embed, model.head])`
(a list from torch 2.5 on).

## When to leave it

Where the two are sharded by one call, where both are left to one outer module, and where they are tied again after
sharding. Whether a model from a library ties its weights is a matter of its configuration, which the rule does not see:
`if not config.tie_word_embeddings:` around the separate call is the usual way, and right.

## References

- https://github.com/huggingface/accelerate/issues/4171
- https://github.com/pytorch/torchtitan/issues/2495
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.blocks import is_statement
from fsdp_lint.fix.edits import Fix, RemoveStatement
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Shard, Tie
from fsdp_lint.trace.trace import Trace, called, covers
from fsdp_lint.trace.values import Value, exclusive
from fsdp_lint.trace.versions import newest_is_below, oldest_is_below

RAISES_SINCE = "2.12"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each tie whose ends lie in two units."""
    for tie in trace.every(Tie):
        if tie.to is None or _is_undone(trace, tie):
            continue
        ends = (tie.module, tie.to)
        units = [trace.unit_of(end, tie) for end in ends]
        if None in units and _outermost(ends[0]) is not _outermost(ends[1]):
            continue  # One that is part of no such model: it takes the place of the other.
        split = [unit for unit, other in zip(units, reversed(ends), strict=True) if unit and not _holds(unit, other)]
        split = [unit for unit in split if trace.before(tie, unit) and tie.order < unit.order]
        if units[0] is units[1] or not split or any(exclusive(unit.guards, split[0].guards) for unit in split):
            continue
        at = max(split, key=lambda unit: unit.order)
        # A tie under a test that the call does not stand under: wrong for the models that are tied.
        chosen = bool(set(tie.guards) - set(at.guards))
        yield Finding(
            at=at,
            severity=Severity.WARNING if chosen else None,
            message=f"`{called(tie.module)}` and `{called(tie.to)}` {'may ' if chosen else ''}share `{tie.key}`, but "
            f"`{called(at.module)}` is put into a unit without the other{_end(trace, together=None not in units)}",
            because=[(tie, f"the two share `{tie.key}` from here on"), *_others(units, at)],
            fix=_fix(trace, split),
        )


def _end(trace: Trace, *, together: bool) -> str:
    """What comes of it on the releases that the project allows, where both lie in units, or one in none."""
    if newest_is_below(trace.torch, RAISES_SINCE):
        return f", and torch before {RAISES_SINCE} unties them without an error"
    if not together:
        return ", which unties them without an error"
    raises = f"torch {RAISES_SINCE} and later raise a ValueError at the first forward"
    if oldest_is_below(trace.torch, RAISES_SINCE):
        return f": {raises}, and before torch {RAISES_SINCE} it unties them without an error"
    return f": {raises}"


def _outermost(module: Value) -> Value:
    return list(module.line())[-1]


def _holds(unit: Shard, module: Value) -> bool:
    """True when the unit's call covers the module, too; it may still lie in a smaller unit."""
    return any(covers(one, module) for one in (unit.module, *unit.group))


def _others(units: list[Shard | None], at: Shard) -> list[tuple[Shard, str]]:
    return [(unit, f"the other is in the unit of `{called(unit.module)}`") for unit in units if unit and unit is not at]


def _is_undone(trace: Trace, tie: Tie) -> bool:
    """True when the parameter is set again later: untied, or tied anew."""
    return any(
        later.order > tie.order and later.module is tie.module and later.key == tie.key for later in trace.every(Tie)
    )


def _fix(trace: Trace, split: list[Shard]) -> Fix | None:
    """Takes the separate calls away where an outer one takes the modules in."""
    for unit in split:
        outer = [s for s in trace.every(Shard) if s.order > unit.order and covers(s.module, unit.module)]
        if not outer or unit.group or unit.loops or not is_statement(unit.site):
            return None
    return Fix(
        "Leave both to the outer unit", tuple(RemoveStatement(unit.site) for unit in split), Applicability.UNSAFE
    )


RULE = Rule(
    check,
    code="FSDP205",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
