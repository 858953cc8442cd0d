"""A list or dict of modules is sharded, which has no forward.

## What it finds

`fully_shard(model.layers)` or `FullyShardedDataParallel(model.layers)` where `layers` is an `nn.ModuleList` or an
`nn.ModuleDict`, or a class of the project that is one.

## Why it is wrong

FSDP gathers the parameters of a unit around the unit's forward, and a list has none: nobody calls it. Measured on torch
2.4 to 2.13: `fully_shard` raises "ValueError: fully_shard does not support containers that do not implement forward";
up to 2.11 it says so of a subclass that has a forward, too. FSDP1 warns only, and its unit is never gathered by a
forward of its own.

## How to mend it

Shard each element of the list: `for layer in model.layers: fully_shard(layer)`.

## When to leave it

`nn.Sequential` is called and may be a unit, and so may, from torch 2.12 on, a subclass of `nn.ModuleList` that defines
a forward: the rule is silent about these where the newest torch that your project allows takes them. It is silent where
it does not know what the module is. `model.apply(fully_shard)` is shard-every-leaf's business.

## References

- https://github.com/pytorch/pytorch/issues/113794
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, is_path, text_of
from fsdp_lint.fix.blocks import is_statement
from fsdp_lint.fix.calls import for_each
from fsdp_lint.fix.edits import Fix, Rewrite
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.granularity import last_name
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import Module
from fsdp_lint.trace.versions import newest_is_below

WITHOUT_FORWARD = ("ModuleList", "ModuleDict")
FORWARD_COUNTS_SINCE = "2.12"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each container that is sharded."""
    for shard in trace.every(Shard):
        for module in shard.group or (shard.module,):
            if not isinstance(module, Module) or module.library is None or not module.library.startswith("torch.nn."):
                continue
            kind = last_name(module.library)
            refused = shard.generation == 2 and newest_is_below(trace.torch, FORWARD_COUNTS_SINCE)
            if kind not in WITHOUT_FORWARD or (module.forward and not refused) or _is_tested(shard, module):
                continue
            why = "it has no forward around which FSDP could gather it"
            if module.forward:
                why = f"before torch {FORWARD_COUNTS_SINCE} `fully_shard` refuses it in spite of its forward"
            yield Finding(
                at=shard,
                message=f"`{called(module)}` is an `nn.{kind}`: {why}",
                fix=_fix(shard, kind) if not module.forward and not _shards_others(trace, shard) else None,
            )


def _is_tested(shard: Shard, module: Module) -> bool:
    """True where a test of the module, of which the outcome is not known, may keep containers away from the call."""
    return any(guard.subject is module or module.number in guard.about for guard in shard.guards)


def _shards_others(trace: Trace, shard: Shard) -> bool:
    """True where the same call shards other modules, too."""
    return any(other is not shard and other.site == shard.site for other in trace.every(Shard))


def _fix(shard: Shard, kind: str) -> Fix | None:
    """A loop over the elements in place of the call."""
    container = argument(shard.site, "module", 0)
    if shard.generation == 1 or shard.group or container is None or not is_path(container):
        return None
    items = f"{text_of(container)}.values()" if kind == "ModuleDict" else text_of(container)
    text = for_each(shard.site, [items]) if is_statement(shard.site) else None
    return Fix("Shard each of its modules", (Rewrite(shard.site, text),)) if text is not None else None


RULE = Rule(
    check,
    code="FSDP204",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
