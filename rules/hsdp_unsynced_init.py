"""The replicas of a hybrid sharded model start from different weights.

## What it finds

A model with random values that is sharded over a mesh of two dimensions (replicate, shard), or by FSDP1 with
`HYBRID_SHARD`, when the seed before it is made has the rank in it, or when there is no seed at all; and nothing makes
the values the same afterwards: no checkpoint, no broadcast, no initialisation after sharding.

## Why it is wrong

`fully_shard` never broadcasts. Gradients are averaged over the replicas, so that all of them take the same steps from
different starts: **the replicas stay different for good, and nothing says so** (measured with torch 2.13.0 on a mesh
of (2, 1)). Each rank computes with its own replica; a checkpoint holds one of them. Without any seed torch draws one
for each process: `torch.rand(1)` differs from process to process on the CPU.

## How to mend it

Call `torch.manual_seed(seed)` with one seed on all ranks before the model is made. Or load a checkpoint after sharding,
or broadcast the parameters over the replicate dimension of the mesh; with FSDP1, pass `sync_module_states=True`.

## When to leave it

Where a checkpoint is loaded, or the parameters are broadcast, in code that the rule cannot see: it is silent when the
model goes there, when unknown code may have set a seed, and when the model is not called in what it can follow. With
one dimension of sharding it is seed-differs-by-rank's finding.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (mesh)
- https://github.com/allenai/OLMo-core/issues/319
- https://github.com/pytorch/torchtitan/issues/670
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import UseCuda
from fsdp_lint.trace.filling import Start, is_hybrid, own_starts
from fsdp_lint.trace.trace import Trace, called

WHY = {"rank": "this seed has the rank in it", "process": "this seed is another one in each process"}


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each hybrid sharded model whose replicas start apart."""
    for start in own_starts(trace):
        if not is_hybrid(start.shard):
            continue
        model = called(start.model)
        if start.seed is not None and start.seed.differs:
            yield Finding(
                at=start.seed.passed or start.seed,
                message=f"{WHY[start.seed.differs]}: the replicas of `{model}` start from different weights, and stay "
                "different",
                because=[
                    *([(start.seed, "it becomes torch's seed here")] if start.seed.passed else []),
                    (
                        start.shard,
                        f"`{called(start.shard.module)}` is sharded and replicated here, without a broadcast",
                    ),
                ],
            )
        elif start.seed is None and _on_cpu(trace, start):
            yield Finding(
                at=start.shard,
                message=f"no seed is set before `{model}` is made: its replicas start from different weights, and stay "
                "different",
            )


def _on_cpu(trace: Trace, start: Start) -> bool:
    """False where the model may be made on a GPU, whose first seed is the same in every process."""
    if any(use.how.startswith("set_default_device") for use in trace.every(UseCuda)):
        return False
    return not any(name.startswith("torch.device") for name in start.model.within)


RULE = Rule(check, code="FSDP606", severity=Severity.ERROR, since="0.1.0")
