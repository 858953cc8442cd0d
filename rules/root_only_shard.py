"""The whole model is one FSDP unit.

## What it finds

A sharding call on the root of a model as the only one, where the model is known to hold a list of blocks, or is
one of transformers'; with FSDP1 also where no wrap policy is passed, among them a policy that was built and forgotten.

## Why it is wrong

One unit means one all-gather of the whole model before the forward: all parameters are whole at once, so that the
peak saves nothing, and no communication overlaps with computing. Numbers and results are right, and what is held
between steps is as small as with units per block: only the peak shows it. Measured on two H200 with NCCL, 937 million
parameters, AdamW: peak 14.5 GiB with one unit, 8.9 GiB with one unit a block.

## How to mend it

Shard each block first, then the root. With FSDP1 pass `auto_wrap_policy=ModuleWrapPolicy({Block})`.

## When to leave it

Where the model is small: one unit is the fastest choice if everything fits. The rule is silent below 1,000,000
parameters where it can count them.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://github.com/facebookresearch/fairscale/issues/971
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, is_path, text_of
from fsdp_lint.fix.calls import for_each
from fsdp_lint.fix.edits import ChangeCall, Edit, Fix, InsertBefore
from fsdp_lint.fix.spelling import spelled, spelled_here
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.granularity import (
    block_classes,
    block_lists,
    block_paths,
    has_each,
    is_container,
    is_leaf,
    is_trained,
)
from fsdp_lint.trace.models.frameworks import has_blocks
from fsdp_lint.trace.models.sizes import parameter_count
from fsdp_lint.trace.trace import Trace, called, touches
from fsdp_lint.trace.values import Const, Module, Value, exclusive, options_of

SMALL = 1_000_000


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each model that is sharded as a whole and nowhere else."""
    for shard in trace.every(Shard):
        if (
            trace.in_test(shard)
            or shard.group
            or shard.declared
            or _has_other_units(trace, shard)
            or is_container(shard.module)
            or is_leaf(shard.module)
        ):
            continue
        count = parameter_count(shard.module)
        if count is not None and count < SMALL:
            continue
        lists = list(block_lists(shard.module))
        name = called(shard.module)
        if shard.generation == 1:
            if _has_policy(shard) or not _is_model(trace, shard.module):
                continue
            yield Finding(
                at=shard,
                message=f"`{name}` is wrapped without a policy: all of it is one FSDP unit, whole on each rank at once",
                fix=_policy(shard),
            )
        elif lists and is_trained(trace, shard.module, shard):
            path, blocks = lists[0]
            where = f"`{name}.{path}`" if path else f"`{name}`"
            how_many = _how_many(blocks)
            yield Finding(
                at=shard,
                message=f"`{name}` is one FSDP unit, whole on every rank at once: {how_many} of {where} are not "
                "sharded one by one",
                fix=_loop(trace, shard),
            )
        elif _is_transformer(shard.module) and is_trained(trace, shard.module, shard):
            yield Finding(
                at=shard,
                message=f"`{name}` is one FSDP unit, whole on every rank at once: none of its blocks is sharded",
            )


def _is_transformer(module: Value) -> bool:
    return isinstance(module, Module) and module.library is not None and has_blocks(module.library)


def _is_model(trace: Trace, module: Value) -> bool:
    """True for what is a whole model by its structure or, where nothing else is known, by its name."""
    if isinstance(module, Module):
        return not module.each
    return "model" in module.name.lower() or "net" in module.name.lower()


def _how_many(blocks: Module) -> str:
    counts = [child.count for child in blocks.children.values()]
    if all(count is not None for count in counts):
        return f"the {sum(count or 0 for count in counts)} blocks"
    return "the blocks"


def _has_other_units(trace: Trace, shard: Shard) -> bool:
    if has_each(trace, shard.module) or trace.replicated(shard.module, shard):
        return True
    # What a caller does with the model behind a `return` matters to FSDP2 only: FSDP1 wraps from the inside out.
    if any(event.to != "return" or shard.generation == 2 for event in trace.handed(shard.module, shard)):
        return True
    return any(
        other.module is not shard.module
        and touches(other.module, shard.module)
        and not exclusive(other.guards, shard.guards)
        for other in trace.every(Shard)
    )


def _has_policy(shard: Shard) -> bool:
    """True when a policy is passed, or may be."""
    if not shard.kwargs_known:
        return True
    policy = shard.kwargs.get("auto_wrap_policy")
    if policy is None:
        return False
    return any(not (isinstance(option, Const) and option.value is None) for option, _ in options_of(policy))


def _loop(trace: Trace, shard: Shard) -> Fix | None:
    """A loop over the blocks above the call, where the call is made for this model only."""
    model = argument(shard.site, "module", 0)
    paths = block_paths(shard.module)
    if model is None or not paths or any(s.site == shard.site and s is not shard for s in trace.every(Shard)):
        return None
    name = text_of(model)
    text = for_each(shard.site, [name + path for path in paths]) if is_path(model) else None
    if text is None:
        return None
    return Fix("Shard each block first", (InsertBefore(shard.site, text),), Applicability.UNSAFE)


def _policy(shard: Shard) -> Fix | None:
    """`auto_wrap_policy` with the classes of the blocks, where they have names in this file."""
    classes = block_classes(shard.module)
    names = [spelled_here(shard.site, path, name) for path, name in classes]
    policy = spelled(shard.site, "torch.distributed.fsdp.wrap", "ModuleWrapPolicy")
    if policy is None or not names or None in names:
        return None
    put = {"auto_wrap_policy": f"{policy[0]}({{{', '.join(name for name in names if name)}}})"}
    edits: tuple[Edit, ...] = (ChangeCall(shard.site, put=put), *policy[1])
    return Fix("Make each block a unit of its own", edits, Applicability.UNSAFE)


RULE = Rule(
    check,
    code="FSDP203",
    severity=Severity.WARNING,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
