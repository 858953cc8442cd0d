"""The whole model is one FSDP unit.

## What it finds

A sharding call on the root of a model as the only one, where the model is known to hold a list of blocks, or is
one of transformers'. Where the model comes from a registry or from a caller that is not to be seen, its blocks are
known by the class that a signature names for it, by a call of `gradient_checkpointing_enable()`, or by a loop in which
each is compiled, recomputed or split over ranks. With FSDP1 also where no wrap policy is passed, among them a policy
that was built and forgotten.

## Why it is wrong

One unit means one all-gather of the whole model before the forward: all parameters are whole at once, so that the peak
saves nothing, and no communication overlaps with computing. Numbers and results are right, and what is held between
steps is as small as with units per block: only the peak shows it. Measured with torch 2.11 on two H200 with NCCL, 937
million parameters, AdamW: peak 14.5 GiB with one unit, 8.9 GiB with one unit a block.

## How to mend it

Shard each block first, then the root. With FSDP1 pass `auto_wrap_policy=ModuleWrapPolicy({Block})`.

## When to leave it

Where the model is small: one unit is the fastest choice if everything fits. The rule is silent below 1,000,000
parameters where it can count them. A wrap policy that is passed to `fully_shard` is fsdp1-kwargs-on-fully-shard's
business; the settings of a framework that makes the call for you are wrap-policy-missing's.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://github.com/facebookresearch/fairscale/issues/971
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fsdp_lint.fix.arguments import argument, is_path, text_of
from fsdp_lint.fix.calls import for_each
from fsdp_lint.fix.edits import ChangeCall, Edit, Fix, InsertBefore
from fsdp_lint.fix.spelling import spelled, spelled_here
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.granularity import (
    asked_to_shard,
    block_classes,
    block_lists,
    block_paths,
    handed_to_shard,
    has_each,
    is_container,
    is_leaf,
    is_loaded,
    is_trained,
    recomputes_blocks,
    treated_blocks,
)
from fsdp_lint.trace.models.frameworks import has_blocks
from fsdp_lint.trace.models.sizes import parameter_count
from fsdp_lint.trace.trace import Trace, called, touches
from fsdp_lint.trace.values import Choice, Const, Module, Unknown, Value, exclusive, options_of, origins

SMALL = 1_000_000


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each model that is sharded as a whole and nowhere else."""
    for shard in trace.every(Shard):
        if (
            trace.in_test(shard)
            or shard.group
            or shard.declared
            or _may_be_for_others(shard)
            or (shard.generation == 2 and "auto_wrap_policy" in shard.kwargs)
            or _has_other_units(trace, shard)
            or is_container(shard.module)
            or is_leaf(shard.module)
        ):
            continue
        count = parameter_count(shard.module)
        if count is not None and count < SMALL:
            continue
        name = called(shard.module)
        if shard.generation == 1:
            if _has_policy(shard) or not _is_model(trace, shard.module):
                continue
            yield Finding(
                at=shard,
                message=f"`{name}` is wrapped without a policy: all of it is one FSDP unit, whole on each rank at once",
                fix=_policy(shard),
            )
            continue
        treated = treated_blocks(trace, shard.module, shard)
        used = is_trained(trace, shard.module, shard) or is_loaded(trace, shard.module, shard)
        blocks = _blocks(trace, shard, name) if used else ""
        if blocks or treated is not None:
            yield Finding(
                at=shard,
                message=f"`{name}` is one FSDP unit, whole on every rank at once: "
                + (blocks or "none of its blocks is sharded"),
                because=[(treated, "its blocks are made ready one by one here")] if treated and not blocks else [],
                fix=_loop(trace, shard),
            )


def _may_be_for_others(shard: Shard) -> bool:
    """True where a test of the module's class stands around the call whose outcome is not known."""
    return any(_asks_for_class(test.key, shard.module) for test in shard.guards)


def _asks_for_class(key: tuple[Any, ...], module: Value) -> bool:
    if key[0] == "all":
        return any(_asks_for_class(inner, module) for inner, _ in key[1])
    return key[:2] in (("named", module.number), ("isinstance", module.number))


def _blocks(trace: Trace, shard: Shard, name: str) -> str:
    """What is said of the blocks of a model; empty where it is not known to have any."""
    for model in (shard.module, shard.like):
        if model is None:
            continue
        for path, blocks in block_lists(model):
            return f"{_how_many(blocks)} of `{name}{'.' if path else ''}{path}` are not sharded one by one"
        if isinstance(model, Module) and model.library is not None and has_blocks(model.library):
            return "none of its blocks is sharded"
    return "none of its blocks is sharded" if recomputes_blocks(trace, shard.module, shard) else ""


def _is_model(trace: Trace, module: Value) -> bool:
    """True for what is a whole model by its structure or, where nothing else is known, by its name."""
    if isinstance(module, Choice):
        return all(_is_model(trace, option) for option, _ in module.options)
    if isinstance(module, Module):
        return not module.each
    return "model" in module.name.lower() or "net" in module.name.lower()


def _how_many(blocks: Module) -> str:
    counts = [child.count for child in blocks.items()]
    if all(count is not None for count in counts):
        return f"the {sum(count or 0 for count in counts)} blocks"
    return "the blocks"


def _has_other_units(trace: Trace, shard: Shard) -> bool:
    if has_each(trace, shard.module) or trace.replicated(shard.module, shard):
        return True
    # Behind this call nobody can shard a part: FSDP1 wraps from the inside out, and with FSDP2 the forward raises.
    if any(True for _ in handed_to_shard(trace, shard.module, shard)):
        return True
    for event in asked_to_shard(trace):
        if touches(event.of, shard.module) and trace.may_precede(event, shard, shard.module):
            return True
    return any(
        other.module is not shard.module and _may_be_part(other, shard) and not exclusive(other.guards, shard.guards)
        for other in trace.every(Shard)
    )


def _may_be_part(other: Shard, shard: Shard) -> bool:
    """True when another call shards a part of the module, or something of which nobody knows whether it is one."""
    if touches(other.module, shard.module) or shard.module.number in origins(other.module):
        return True
    return isinstance(other.module, Unknown) and bool(other.loops) and other.stack == shard.stack


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
