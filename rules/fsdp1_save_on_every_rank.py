"""Every rank writes the whole state dict of an FSDP1 model.

## What it finds

`torch.save`, safetensors' `save_file` or `pickle.dump` of `model.state_dict()` of a model that
`FullyShardedDataParallel` wraps, without a test of the rank around it and without the rank in the path.

## Why it is wrong

FSDP1 gives the full state dict to every rank, unless it is told otherwise. Measured on torch 2.13.0 with two ranks:
each of them writes the complete file (885,377 bytes). With one path for all, the ranks write into one file at the same
time, and whoever reads it meanwhile gets half of it.

## How to mend it

Call `state_dict()` on all ranks, since it is a collective, and save under `if dist.get_rank() == 0:`.

## When to leave it

On local disks, where each host wants a copy: test the local rank. Paths with the rank in them, saves that a library
guards, and sharded or local state dicts (`SHARDED_STATE_DICT`) are not reported. Where what the ranks write differs, it
is shared-checkpoint-path's business; FSDP2's state dict, which holds shards, is torch-save-sharded-state's.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html (`state_dict_type`)
- https://docs.pytorch.org/tutorials/intermediate/FSDP1_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import text_of
from fsdp_lint.fix.edits import Edit, Fix
from fsdp_lint.fix.ranks import AllRanks, Collected, by_all_ranks, on_rank_zero, opened_around
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Save, TakeState
from fsdp_lint.trace.saving import by_every_rank, is_fsdp1, rank_zero_only, raw_states, shares, state_type
from fsdp_lint.trace.trace import Trace, called, happens_inside, runs_alone
from fsdp_lint.trace.values import StateDict, parts


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each save of a full FSDP1 state dict by all ranks."""
    for save in trace.every(Save):
        if runs_alone(save) or save.path_by_rank or not by_every_rank(save) or trace.in_test(save):
            continue
        if shares(trace, save) or any(True for _ in raw_states(trace, save)):
            continue  # Something in the file is wrong whoever writes it.
        for part in parts(save.content):
            taken = _taken(trace, part) if isinstance(part, StateDict) else None
            if taken is None or not _is_full(trace, taken):
                continue
            yield Finding(
                at=save,
                message=f"every rank writes the whole state dict of `{called(taken.state.of)}`: "
                "as many copies as there are ranks, or a race for one file",
                because=[(taken, "FSDP1 gives it to every rank here")],
                fix=_fix(save, taken),
            )
            break


def _taken(trace: Trace, state: StateDict) -> TakeState | None:
    if state.form != "raw" or not is_fsdp1(state.of):
        return None
    return trace.taken(state)


def _is_full(trace: Trace, taken: TakeState) -> bool:
    told = state_type(trace, taken)
    return told is None or (told.form == "FULL_STATE_DICT" and rank_zero_only(told.config) is False)


def _fix(save: Save, taken: TakeState) -> Fix | None:
    """`if torch.distributed.get_rank() == 0:` around the save, and the state dict taken in front of it."""
    alone = on_rank_zero(save.site)
    state: tuple[Edit, ...] | None = ()
    if happens_inside(taken, save):
        if taken.stack != save.stack:
            return None
        home = opened_around(save.site)
        state = by_all_ranks([Collected(taken.site, text_of(taken.site), "full_state")], AllRanks(home, (home,)))
    if alone is None or state is None:
        return None
    return Fix("Let rank 0 write", (*state, *alone), Applicability.UNSAFE)


RULE = Rule(
    check,
    code="FSDP308",
    severity=Severity.WARNING,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
