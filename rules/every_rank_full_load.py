"""Every rank reads the whole checkpoint before the model is sharded.

## What it finds

`torch.load(path)` without `mmap=True`, whose content goes into a model by `load_state_dict`, and
`from_pretrained(...)`, on all ranks, where the model is sharded afterwards, by `fully_shard` or by
`FullyShardedDataParallel`.

## Why it is wrong

The result is right, but each process of a host holds the whole model in memory before it keeps its share. Measured on
torch 2.13.0, four ranks and a checkpoint of 512 MiB (`python benchmarks/memory/whole_checkpoint.py`): all of them hold
4,104 MiB while `load_state_dict` copies, 8 times the weights, and 2,055 MiB behind it; with `mmap=True` and
`assign=True` 519 MiB, because they share the pages of the file. A checkpoint of 70 G parameters in 16 bits is 140 GB; 8
times that is more than the memory of most hosts, and the job is killed before its first step. The ranks also read the
same file at once.

## How to mend it

Build the model on the meta device, shard it, and let `set_model_state_dict` cut what rank 0 has read, with
`StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)`. Or keep a checkpoint that
torch.distributed.checkpoint has written, from which each rank reads its part; or pass `mmap=True`, by which the
processes of a host share the pages of the file.

## When to leave it

For models that fit into the host's memory as many times as it has GPUs. Where only some ranks read, where the path
holds the rank, with `mmap=True`, safetensors' `load_file`, which maps the file, and with a `device_map` or
`low_cpu_mem_usage` that may be given where the model is sharded, the rule is silent; so it is for an adapter that is
read for a model in memory, and within `with torch.device(device)` where the device is not known, or `with
init_empty_weights():` and its like, by which some ranks may have the meta device, or where another branch than that
of the read is such a block. It does not look at models that are built whole and never read a file.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.load.html (`mmap`)
- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`broadcast_from_rank0`)
- https://docs.pytorch.org/tutorials/recipes/recipes/module_load_state_dict_tips.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import LoadState, OnMeta, ReadWhole, Shard
from fsdp_lint.trace.trace import Trace, called, rank_guard, related, runs_alone
from fsdp_lint.trace.values import Loaded, Module, Value, exclusive

PLACES = re.compile(r"init|empty|meta|torch\.device\((?!cpu|cuda)", re.IGNORECASE)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each checkpoint that every rank reads whole for a model that is then sharded."""
    for read in trace.every(ReadWhole):
        if rank_guard(read) is not None or runs_alone(read) or trace.in_test(read) or _may_be_elsewhere(trace, read):
            continue
        for model in _models(trace, read):
            shard = _sharded_after(trace, model, read)
            if shard is not None:
                yield Finding(
                    at=read,
                    message=f"every rank reads the whole of `{called(model)}` into memory before it is sharded",
                    because=[(shard, f"`{called(shard.module)}` is sharded here")],
                )
                break


def _may_be_elsewhere(trace: Trace, read: ReadWhole) -> bool:
    """True within a block that may put what is made there on the meta device of some ranks, and where a branch that is
    not taken for this read does so: the test between them may be one of the rank."""
    if any(PLACES.search(name) for name in read.contexts):
        return True
    return any(one.entry == read.entry and exclusive(one.guards, read.guards) for one in trace.every(OnMeta))


def _models(trace: Trace, read: ReadWhole) -> Iterator[Value]:
    """The models that get what was read, on all ranks."""
    if isinstance(read.value, Module):
        yield read.value
    elif isinstance(read.value, Loaded) and not read.value.path_by_rank:
        for load in trace.every(LoadState):
            if load.how == "load_state_dict" and load.state is not None and rank_guard(load) is None:
                if any(one is read.value for one in load.state.line()):
                    yield load.into[0]


def _sharded_after(trace: Trace, model: Value, read: ReadWhole) -> Shard | None:
    for shard in trace.every(Shard):
        if related(shard.module, model) and trace.before(read, shard, model) and rank_guard(shard) is None:
            return shard
    return None


RULE = Rule(check, code="FSDP307", severity=Severity.WARNING, since="0.1.0")
