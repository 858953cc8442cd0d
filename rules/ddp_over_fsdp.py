"""DistributedDataParallel goes around a sharded model.

## What it finds

`DistributedDataParallel(model)` where the model, or a part of it, is sharded by FSDP already.

## Why it is wrong

DDP takes every parameter for a whole one that all ranks share: it broadcasts rank 0's and averages all gradients. With
FSDP each rank holds its own part. Measured on torch 2.13.0: around an FSDP2 model the constructor raises ("This
operation would remove or reshape sharded dimension 0"; 2.4 to 2.12 raise other errors, see below),
also where only the blocks are sharded ("got mixed torch.Tensor and DTensor"). Around an FSDP1 model it is made without
a word, and the first step raises in the backward pass.

## How to mend it

Leave DDP away: FSDP averages the gradients itself. To shard inside a host and replicate across hosts, give
`fully_shard` a mesh with two dimensions (HSDP).

## When to leave it

DDP or `replicate` on another module, which is not sharded, is fine; so is DDP in the branch where FSDP is not used.

## References

- https://github.com/facebookresearch/fairscale/issues/791
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (mesh)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, text_of
from fsdp_lint.fix.blocks import wraps_itself
from fsdp_lint.fix.edits import Fix, RemoveStatement, Replace
from fsdp_lint.fix.names import names_of
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Replicate, Shard
from fsdp_lint.trace.models.fsdp import OF_DDP_ALONE
from fsdp_lint.trace.trace import Trace, called, touches


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each DDP wrapper around what is sharded."""
    for wrap in trace.every(Replicate):
        if not wrap.wrapper:
            continue
        for shard in trace.every(Shard):
            if shard.order < wrap.order and trace.before(shard, wrap) and touches(shard.module, wrap.module):
                yield Finding(
                    at=wrap,
                    message=f"DDP goes around `{called(wrap.module)}`, which FSDP has sharded",
                    because=[(shard, f"`{called(shard.module)}` is sharded here")],
                    fix=_fix(trace, wrap),
                )
                break


def _fix(trace: Trace, wrap: Replicate) -> Fix | None:
    # `ddp.module` and `ddp.no_sync()` would raise where `ddp` is the model.
    sources = {event.site.source for event in trace.events}
    if any(OF_DDP_ALONE & names_of(source.tree).attributes for source in sources):
        return None
    model = argument(wrap.site, "module", 0)
    if wraps_itself(wrap.site):
        return Fix("Leave DDP away", (RemoveStatement(wrap.site),))
    return Fix("Leave DDP away", (Replace(wrap.site, text_of(model)),)) if model is not None else None


RULE = Rule(
    check,
    code="FSDP107",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
