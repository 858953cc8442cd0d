"""Every rank trains on the same batches.

## What it finds

A `DataLoader` without a sampler, or with a `RandomSampler` or `SequentialSampler` of all the data, over data that is
not divided by rank, whose batches go into the forward of a sharded model in a training loop.

## Why it is wrong

Data parallel training is to give each rank another part of each batch. Without a sampler that knows the ranks, and with
one seed, all ranks get the same samples in the same order: measured on torch 2.13.0 with two gloo ranks, the result is
**bit for bit that of one process**. R GPUs do the work of one, an epoch takes R times as long as it should, and nothing
says so.

## How to mend it

Pass `sampler=DistributedSampler(dataset)` (and no `shuffle=True`), and call `sampler.set_epoch(epoch)` in each epoch.
For Hugging Face data sets, `split_dataset_by_node(dataset, rank, world_size)`.

## When to leave it

Where ranks need the same data: with tensor, context or pipeline parallelism. The rule is silent there, where a seed
has the rank in it, where the loader goes to `accelerator.prepare`, Fabric or other code that it cannot see, and where
the files that make or use it divide data by rank in a way of their own. Loaders for evaluation are not reported, nor
are data sets that come from code that the rule cannot see.

## References

- https://docs.pytorch.org/docs/stable/data.html (torch.utils.data.distributed.DistributedSampler)
- https://huggingface.co/docs/datasets/use_with_pytorch (distributed)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import BuildLoader
from fsdp_lint.trace.feeding import whole_on_each_rank
from fsdp_lint.trace.trace import Trace, called


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each loader that gives all ranks the same."""
    for build in trace.every(BuildLoader):
        if trace.in_test(build):
            continue
        forward = whole_on_each_rank(trace, build)
        if forward is not None:
            name = build.loader.name or "this loader"
            yield Finding(
                at=build,
                message=f"`{name}` has no sampler that knows the ranks: all of them train on the same batches",
                because=[(forward, f"`{called(forward.module)}`, which is sharded, is called with them")],
            )


RULE = Rule(check, code="FSDP607", severity=Severity.WARNING, since="0.1.0")
