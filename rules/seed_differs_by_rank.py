"""Each rank makes another model, because the seed has the rank in it.

## What it finds

`torch.manual_seed(seed + rank)`, or a seed from the clock or the number of the process, before a model with random
values is made and sharded, where nothing makes the ranks' values the same afterwards: no other seed, no checkpoint, no
broadcast, no initialisation after sharding. It is reported where the rank comes in: at `set_seed(seed + rank)`, not in
the helper that only hands the number on.

## Why it is wrong

`fully_shard` cuts each rank's own parameters and sends nothing. The model is a patchwork: measured with torch 2.13.0 on
two ranks, the first half of every parameter was rank 0's, the second half rank 1's (DistributedDataParallel takes all
of rank 0's; FSDP1 does so with `sync_module_states=True` only). No error says so. Nobody has asked for that model: it
depends on the number of ranks, so that no run can be repeated or compared with one on fewer GPUs; and it is broken
wherever entries belong together (orthogonal or identity matrices, buffers and parameters that are not sharded, which
then differ between ranks for good).

## How to mend it

Make the model with one seed on all ranks, and seed by rank after it is made. Dropout and data may differ between ranks;
the model may not.

## When to leave it

Where a checkpoint is loaded later in code that the rule cannot see. It is silent when the model goes there, when the
rank in the seed is one within a group (`tp_rank`, `rank // 8`), and when the model is not called in what it can follow.
With a mesh of two dimensions the replicas diverge, which is hsdp-unsynced-init's finding.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://github.com/pytorch/torchtitan/issues/670
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.filling import is_hybrid, own_starts
from fsdp_lint.trace.trace import Trace, called

WHY = {"rank": "this seed has the rank in it", "process": "this seed is another one in each process"}


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each seed that gives every rank a model of its own."""
    starts = list(own_starts(trace))
    of_replicas = [start.seed for start in starts if is_hybrid(start.shard)]
    for start in starts:
        seed = start.seed
        if seed is None or not seed.differs or seed in of_replicas:
            continue
        yield Finding(
            at=seed.passed or seed,
            message=f"{WHY[seed.differs]}: every rank makes another `{called(start.model)}`, and sharding takes a part "
            "of each",
            because=[
                *([(seed, "it becomes torch's seed here")] if seed.passed else []),
                (start.shard, f"`{called(start.shard.module)}` is sharded here, each rank's own values"),
            ],
        )


RULE = Rule(check, code="FSDP613", severity=Severity.ERROR, since="0.1.0")
