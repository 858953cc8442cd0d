"""All ranks write different things to one file.

## What it finds

`torch.save`, safetensors' `save_file` or `pickle.dump` that every rank reaches, with a path that holds no rank, of
something that differs from rank to rank: optimizer state of a sharded model, local shards, copies of sharded
parameters, or a gathered state dict that is empty on all ranks but one.

## Why it is wrong

The ranks overwrite each other, and the last one wins. Measured on torch 2.13.0: the file is whole, a strict load of
it passes on every rank, and the weights are wrong; every rank then holds the same shard. With
`StateDictOptions(full_state_dict=True, cpu_offload=True)` the ranks other than 0 hold an empty dict, and write that.

## How to mend it

Gather on all ranks and let rank 0 alone write. Or put the rank into the name and load with the same number of ranks, or
use `torch.distributed.checkpoint.save`.

For local shards the fix gathers each tensor where `to_local()` has cut it. The file then holds whole tensors: look at
what reads it.

## When to leave it

Where the path is a different one on each rank for a reason that the code does not show, such as local disks. The raw
state dict of an FSDP2 model is torch-save-sharded-state's business, whoever writes it.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import Fix
from fsdp_lint.fix.gathering import saved_as_whole_tensors, saved_whole
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Save
from fsdp_lint.trace.reading import cut_at
from fsdp_lint.trace.saving import by_every_rank, optimizer_states, raw_states, sharded_tensors, shares
from fsdp_lint.trace.trace import Trace, runs_alone


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each save by all ranks to one path."""
    for save in trace.every(Save):
        if (
            runs_alone(save)
            or save.path_by_rank
            or not by_every_rank(save)
            or any(True for _ in raw_states(trace, save))
        ):
            continue
        why = shares(trace, save)
        if why:
            message = f"every rank writes this file, and {why}: the last one wins"
            yield Finding(at=save, message=message, fix=_fix(trace, save))


def _fix(trace: Trace, save: Save) -> Fix | None:
    """Rank 0 alone writes, where all that is saved is whole or can be gathered."""
    tensors, states = list(sharded_tensors(trace, save)), list(optimizer_states(trace, save))
    if not tensors:
        edits = saved_whole(trace, save, states)
    elif states or any(tensor.form != "local" for tensor in tensors):
        return None
    else:
        edits = saved_as_whole_tensors(trace, save, [cut_at(tensor) for tensor in tensors])
    return Fix("Gather on all ranks and save on rank 0", edits, Applicability.UNSAFE) if edits is not None else None


RULE = Rule(
    check,
    code="FSDP302",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
