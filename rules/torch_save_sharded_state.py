"""The state dict of an FSDP2 model is saved as it is: the file holds one rank's shards.

## What it finds

`model.state_dict()` (or `get_model_state_dict` without `full_state_dict=True`) of a model sharded with `fully_shard`,
or values out of it, that reach `torch.save`, safetensors' `save_file` or `pickle.dump`; and parameters of such a
model (a moving average of them, for instance) or `optimizer.state_dict()` of its optimizer that only some ranks save.

## Why it is wrong

The entries are DTensors, and writing them writes this rank's shard. With a path per rank that gives R incomplete
files (measured: 454,421 bytes each where the whole model has 879,187); under `rank == 0` or with one path for all it
gives one file with one rank's part. Reading it back on every rank loads with no error, also with `weights_only=True`:
**every rank gets rank 0's shard, 50.27 % of the elements are right, and training goes on** (torch 2.7.1 to 2.13.0,
two ranks). Reading it in one process fails ("torch.distributed.tensor must be imported"), or gives tensors that
cannot be made whole. The state of an optimizer ends likewise: Adam's averages that rank 0 had saved were loaded on both
ranks with no error and the next step ran, with 108 of 216 entries right (torch 2.13.0).

## How to mend it

Call `get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))` on all ranks, and
save the result on rank 0. Or let `torch.distributed.checkpoint.save` write all shards, which can be loaded with any
number of ranks.

## When to leave it

A file a rank, with the rank in its name, that the same number of ranks reads again is legal, and not reported. So is
a state dict taken before sharding, and one whose entries went through `full_tensor()`.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import Fix
from fsdp_lint.fix.gathering import saved_whole
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Save
from fsdp_lint.trace.saving import (
    by_every_rank,
    lone_optimizer_state,
    loose_shards,
    optimizer_states,
    raw_states,
)
from fsdp_lint.trace.trace import Trace, called, runs_alone
from fsdp_lint.trace.values import StateDict


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each save of a raw state dict."""
    for save in trace.every(Save):
        if runs_alone(save) or save.path_by_rank:
            continue
        for state in raw_states(trace, save):
            take = trace.taken(state)
            shard = trace.sharded(state.of, take or save, 2)
            assert shard is not None
            yield Finding(
                at=save,
                message=f"the state dict of `{called(state.of)}` is saved as it is: "
                "the file holds the shards of one rank, not the model",
                because=[
                    (shard, f"`{called(shard.module)}` is sharded here"),
                    *([(take, "the state dict is taken here: its entries are DTensors")] if take else []),
                ],
                fix=_fix(trace, save),
            )
            break
        else:
            lone = None if by_every_rank(save) else lone_optimizer_state(trace, save)
            if lone is not None:
                yield _of_optimizer(trace, save, lone)
            elif not by_every_rank(save) and loose_shards(trace, save) is not None:
                yield Finding(
                    at=save,
                    message="DTensors are saved as they are, by some ranks only: the file holds their shards, "
                    "not the whole tensors",
                )


def _of_optimizer(trace: Trace, save: Save, state: StateDict) -> Finding:
    take = trace.taken(state)
    edits = saved_whole(trace, save, optimizer_states(trace, save))
    message = "Gather the optimizer's whole state on all ranks and save it on rank 0"
    return Finding(
        at=save,
        message=f"the state of `{called(state.of)}` is saved as it is, by some ranks only: "
        "the file holds the shards of one rank",
        because=[(take, "the state is taken here: its entries are DTensors")] if take else [],
        fix=Fix(message, edits, Applicability.UNSAFE) if edits is not None else None,
    )


def _fix(trace: Trace, save: Save) -> Fix | None:
    edits = saved_whole(trace, save, raw_states(trace, save))
    message = "Gather the whole state dict on all ranks and save it on rank 0"
    return Fix(message, edits, Applicability.UNSAFE) if edits is not None else None


RULE = Rule(
    check,
    code="FSDP301",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
