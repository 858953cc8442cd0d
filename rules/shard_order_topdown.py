"""A module is sharded before its own parts.

## What it finds

`fully_shard(model)` (or on any module) that comes before `fully_shard` on a part of it, and a loop over
`model.modules()` that shards two classes of which one holds the other: `modules()` gives the outer one first.

## Why it is wrong

The outer call takes all parameters that are not yet in a unit, those of the parts included, and the later calls find
what is sharded already. Measured: torch 2.10 to 2.13 raise "TypeError: Invariant encountered: value was None when it
should not be", 2.5 to 2.9 "AssertionError: FSDP requires named DeviceMesh dims for ND parallelism", 2.4
"AssertionError: FSDP requires the DP and TP mesh to have the same parent mesh"; none says what is wrong. Where the
error is caught and ignored, the whole model is one unit.

## How to mend it

Shard from the inside out: the parts (blocks) first, the model last. Go through `modules()` backwards, with
`for module in reversed(list(model.modules())):`.

## When to leave it

The rule is silent for parts that are put into the model after it was sharded, for calls that exclude each other, and
for FSDP1, which wraps from the inside out by itself. A loop that shards each and every module is shard-every-leaf's
business.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html ("bottom-up")
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import Fix, MoveAfter
from fsdp_lint.fix.moves import can_move_call_after
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Attach, Shard
from fsdp_lint.trace.granularity import nested_classes
from fsdp_lint.trace.trace import Trace, called, covers, related, touches, visible_from
from fsdp_lint.trace.values import Value


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each module that is sharded too early."""
    units = [shard for shard in trace.every(Shard) if shard.generation == 2]
    for parent in units:
        late = [s for s in units if s.order > parent.order and trace.before(parent, s) and _is_part(trace, parent, s)]
        if late and not (_is_chosen(parent) and all(_is_chosen(s) for s in late)):
            yield Finding(
                at=parent,
                message=f"`{called(parent.module)}` is sharded before its part `{called(late[0].module)}`",
                because=[(late[0], f"`{called(late[0].module)}` is sharded here, when the outer call has taken it")],
                fix=_fix(parent, late[-1]),
            )
        nested = nested_classes(parent)
        if nested is not None:
            outer, inner = nested
            yield Finding(
                at=parent,
                message=f"`modules()` gives each `{outer}` before the `{inner}` in it: it is sharded before its part",
            )


def _is_chosen(shard: Shard) -> bool:
    """True where a test of the module decides on it: of a module and its part, the one that passes is not known."""
    number = shard.module.number
    return any(g.kind == "other" and (number in g.about or g.subject is shard.module) for g in shard.guards)


def _is_part(trace: Trace, parent: Shard, child: Shard) -> bool:
    """True when all that the later call shards lies inside what the earlier one has sharded."""
    holds = [one for one in (parent.module, *parent.group) if covers(one, child.module)]
    if not holds or any(related(one, child.module) for one in holds) or _is_wrapped(parent, child.module):
        return False
    return not any(
        attach.content is not None and parent.order < attach.order and touches(attach.content, child.module)
        for attach in trace.every(Attach)
    )


def _is_wrapped(parent: Shard, part: Value) -> bool:
    """True when the part is what the earlier call sharded, inside a wrapper."""
    return covers(part, parent.module)


def _fix(parent: Shard, last: Shard) -> Fix | None:
    anchor = visible_from(last, parent)
    if anchor is None or not can_move_call_after(parent.site, anchor):
        return None
    return Fix("Shard the outer module last", (MoveAfter((parent.site,), anchor),))


RULE = Rule(
    check,
    code="FSDP103",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
