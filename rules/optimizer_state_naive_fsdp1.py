"""The state dict of an FSDP1 optimizer is saved or loaded as it is.

## What it finds

`optimizer.state_dict()` of an optimizer over a model that `FullyShardedDataParallel` wraps, saved by some ranks
(`rank == 0`); and `optimizer.load_state_dict(torch.load(path))` of a file that all ranks share.

## Why it is wrong

FSDP1 flattens the parameters and gives each rank a piece, and the optimizer's state is that of the piece. The file of
rank 0 holds rank 0's moments, and nobody else's. Measured on torch 2.13.0 with two ranks, AdamW: with
`use_orig_params=False` **the load succeeds on every rank and rank 1 goes on with rank 0's moments**; with
`use_orig_params=True` the next step raises "The size of tensor a (2080) must match the size of tensor b (2016)".

## How to mend it

Call `FSDP.optim_state_dict(model, optimizer)` on all ranks and save that on rank 0; load it through
`FSDP.optim_state_dict_to_load(model, optimizer, state)`. Or use `get_optimizer_state_dict` and
`set_optimizer_state_dict` of torch.distributed.checkpoint.

## When to leave it

A file a rank, with the rank in its name, which the same number of ranks reads again, is right and not reported; nor is
`ShardingStrategy.NO_SHARD`. Where every rank writes to one path, it is shared-checkpoint-path's business.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html (`optim_state_dict`)
- https://github.com/huggingface/transformers/issues/23034
- https://github.com/Lightning-AI/pytorch-lightning/issues/16815
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import Fix
from fsdp_lint.fix.gathering import as_load_of_whole_fsdp1_state, as_whole_fsdp1_state
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Event, LoadState, Save, Shard
from fsdp_lint.trace.saving import by_every_rank, raw_optimizer_states, shards_of
from fsdp_lint.trace.trace import Trace, called, gives_whole_gradients, runs_alone
from fsdp_lint.trace.values import Loaded, Optimizer, Value


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each save of one rank's state, or for each load of one where none is saved."""
    saves = [(save, optimizer) for save in trace.every(Save) for _, optimizer in raw_optimizer_states(save.content)]
    for save, optimizer in saves:
        shard = _shard_of(trace, optimizer, save)
        if shard is None or by_every_rank(save) or save.path_by_rank or runs_alone(save) or trace.in_test(save):
            continue
        yield Finding(
            at=save,
            message=f"`{called(optimizer)}.state_dict()` is this rank's piece of the optimizer's state, "
            "and no other rank's is saved",
            because=[(shard, f"`{called(shard.module)}` is wrapped by FSDP1 here")],
            fix=_fix(trace, save, optimizer),
        )
    saved = any(_shard_of(trace, optimizer, save) is not None for save, optimizer in saves)
    for load in trace.every(LoadState):
        into = load.into[0]
        shard = _shard_of(trace, into, load) if isinstance(into, Optimizer) else None
        if shard is None or saved or load.how != "load_state_dict" or not _is_shared_file(load.state):
            continue
        if runs_alone(load) or trace.in_test(load):
            continue
        yield Finding(
            at=load,
            message=f"every rank loads one file into `{called(into)}`, whose state is a different piece on each",
            because=[(shard, f"`{called(shard.module)}` is wrapped by FSDP1 here")],
        )


def _fix(trace: Trace, save: Save, optimizer: Optimizer) -> Fix | None:
    """The whole state is saved, and each rank's piece cut out of it where the program loads one."""
    states = [state for state, of in raw_optimizer_states(save.content) if of is optimizer]
    edits = as_whole_fsdp1_state(trace, save, states[0], optimizer) if len(states) == 1 else None
    for load in trace.every(LoadState):
        into = load.into[0]
        if edits is None or load.how != "load_state_dict" or not isinstance(into, Optimizer):
            continue
        made = as_load_of_whole_fsdp1_state(trace, load, into)
        edits = (*edits, *made) if made is not None and _shard_of(trace, into, load) is not None else None
    return Fix("Save the whole state", edits, Applicability.UNSAFE) if edits is not None else None


def _shard_of(trace: Trace, optimizer: Optimizer, at: Event) -> Shard | None:
    return next((s for s in shards_of(trace, optimizer, at, 1) if not gives_whole_gradients(s)), None)


def _is_shared_file(state: Value | None) -> bool:
    file = next((one for one in state.line() if isinstance(one, Loaded)), None) if state is not None else None
    return file is not None and not file.path_by_rank


RULE = Rule(
    check,
    code="FSDP305",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
