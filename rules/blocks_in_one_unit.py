"""All blocks of a model are one FSDP unit.

## What it finds

`fully_shard` on a list of all blocks (`fully_shard(list(model.layers))`), those of several lists included, or on the
`nn.Sequential` that holds them, where the blocks are not sharded one by one.

## Why it is wrong

What is sharded by one call is gathered at once: the whole stack of blocks is whole on every rank while any of them
runs, so that the peak saves nothing, and no communication overlaps with computing. Measured on torch 2.13.0, four
blocks: 3 all-gathers and 2 reduce-scatters a step instead of 9 and 5. Results are right, and what is held between
steps is as small as with units per block: only the peak shows it. Torch 2.4 takes no list and raises an AttributeError;
the message says so where your project allows that release.

## How to mend it

Call `fully_shard` on each block in a loop. A list of modules is meant for small ones that are used together, such as
the final norm and the head.

## When to leave it

Where the model is small, or where a few small blocks are grouped on purpose: the rule speaks only where one call takes
all blocks of a list, and is silent below 1,000,000 parameters where it can count them.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (module: a list is one group)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, text_of
from fsdp_lint.fix.blocks import is_statement
from fsdp_lint.fix.calls import for_each, iterated
from fsdp_lint.fix.edits import Fix, Rewrite
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.granularity import block_lists, is_leaf, is_trained, last_name, model_of
from fsdp_lint.trace.models.sizes import parameter_count
from fsdp_lint.trace.trace import Trace, called, covers, touches
from fsdp_lint.trace.values import Module, Value, exclusive
from fsdp_lint.trace.versions import newest_is_below, oldest_is_below

SMALL = 1_000_000
LISTS_SINCE = "2.5"
NO_LIST = "torch 2.4 takes no list, and raises an AttributeError"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each call that takes all blocks of a list into one unit."""
    for shard in trace.every(Shard):
        if shard.generation != 2 or shard.loops or trace.in_test(shard):
            continue
        blocks = _all_of_a_list(shard) if shard.group else _sequential(trace, shard)
        if blocks is None or _are_units(trace, shard):
            continue
        model = model_of(trace, blocks)
        count = parameter_count(model)
        if (count is not None and count < SMALL) or not is_trained(trace, model, shard):
            continue
        message = f"all blocks of `{called(blocks)}` are one FSDP unit: each rank holds all of them whole at once"
        refused = shard.group and newest_is_below(trace.torch, LISTS_SINCE)
        if refused:
            message = f"`fully_shard` gets a list, all blocks of `{called(blocks)}`: {NO_LIST}"
        elif shard.group and oldest_is_below(trace.torch, LISTS_SINCE):
            message += f" ({NO_LIST})"
        yield Finding(at=shard, message=message, fix=_fix(shard), severity=Severity.ERROR if refused else None)


def _all_of_a_list(shard: Shard) -> Value | None:
    """The list of blocks that the call takes all of; None where it takes a few modules, or where that is not known."""
    owners = {one.owner.number: one.owner for one in shard.group if one.owner is not None}
    owner = shard.group[0].owner
    if owner is None or any(is_leaf(one) for one in shard.group):
        return None
    taken = {one.number for one in shard.group}
    if all(_is_taken_whole(one, taken) for one in owners.values()):
        return owner
    if len(owners) != 1 or (isinstance(owner, Module) and owner.children):
        return None
    # Of a model that is not known: the one that stands for all that a list yields.
    one = shard.group[0]
    return owner if len(shard.group) == 1 and one.key == "[]" and not _takes_a_slice(shard) else None


def _is_taken_whole(owner: Value, taken: set[int]) -> bool:
    """True for a list of blocks of which all are among those with these numbers."""
    if not isinstance(owner, Module) or not owner.children or owner not in [one for _, one in block_lists(owner)]:
        return False
    return all(child.number in taken for child in owner.items())


def _takes_a_slice(shard: Shard) -> bool:
    given = argument(shard.site, "module", 0)
    return given is None or ":" in text_of(given) or " if " in text_of(given)


def _sequential(trace: Trace, shard: Shard) -> Value | None:
    """The `nn.Sequential` that is sharded, where it is the list of blocks of a larger model."""
    module = shard.module
    if not isinstance(module, Module) or last_name(module.library or "") != "Sequential":
        return None
    if module is model_of(trace, module):
        return None
    return module if any(blocks is module for _, blocks in block_lists(module)) else None


def _are_units(trace: Trace, shard: Shard) -> bool:
    """True when blocks, or parts of them, are sharded by other calls."""
    return any(
        other is not shard
        and not exclusive(other.guards, shard.guards)
        and any(touches(other.module, one) and not covers(other.module, one) for one in shard.group or (shard.module,))
        for other in trace.every(Shard)
    )


def _fix(shard: Shard) -> Fix | None:
    given = argument(shard.site, "module", 0)
    path = iterated(given) if given is not None and is_statement(shard.site) else None
    text = for_each(shard.site, [path]) if path is not None else None
    if text is None:
        return None
    return Fix("Shard each block", (Rewrite(shard.site, text),), Applicability.UNSAFE)


RULE = Rule(
    check,
    code="FSDP210",
    severity=Severity.WARNING,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
