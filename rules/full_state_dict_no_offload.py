"""The full state dict is gathered on every rank, and one rank uses it.

## What it finds

`get_model_state_dict`, `get_optimizer_state_dict` or `get_state_dict` with `StateDictOptions(full_state_dict=True)` and
without `cpu_offload=True`, and FSDP1's `FULL_STATE_DICT` without `rank0_only=True` and `offload_to_cpu=True`, where the
state dict is saved under a test of the rank and goes nowhere else.

## Why it is wrong

Every rank builds the whole model on its GPU, beside its shards, to drop it again. Measured on torch 2.13.0 with two
ranks: without `cpu_offload` all ranks hold all entries; with it rank 0 holds them, in CPU memory, and the others hold
none. For 16-bit weights of 70 G parameters that is 140 GB a GPU, which is where the job dies: at the first save. With
FSDP1's `offload_to_cpu=True` alone each rank of a host holds all of it in the memory of that host.

## How to mend it

Pass `StateDictOptions(full_state_dict=True, cpu_offload=True)`; with FSDP1
`FullStateDictConfig(offload_to_cpu=True, rank0_only=True)`.

## When to leave it

Where all ranks need the whole weights, as when they are sent to an inference engine. The rule speaks only where it sees
that some ranks save the state dict, and that nothing else is done with it. Where only some ranks gather it, that is
collective-under-rank-guard's business. There is no fix for FSDP1 in a run on CPUs alone: torch 2.13.0 stops there when
it is to offload to the CPU (measured: a segmentation fault).

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (`StateDictOptions`)
- https://docs.pytorch.org/docs/stable/fsdp.html (`FullStateDictConfig`)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import keywords, positionals
from fsdp_lint.fix.edits import ChangeCall, Edit, Fix
from fsdp_lint.fix.spelling import spelled
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import InitProcessGroup, TakeState
from fsdp_lint.trace.saving import is_fsdp1, missing_flags, model_of, saves_by_some, state_type
from fsdp_lint.trace.trace import Trace, called, rank_guard
from fsdp_lint.trace.values import Const, Object, Value


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each state dict that is gathered on every rank for one."""
    for taken in trace.every(TakeState):
        config, flags = _told(trace, taken)
        saves = saves_by_some(trace, taken.state) if flags and not trace.in_test(taken) else []
        model = model_of(taken.state)
        if not saves or rank_guard(taken) is not None or trace.sharded(model, taken) is None:
            continue
        where = "on its device" if flags != ["rank0_only"] else "in CPU memory"
        yield Finding(
            at=taken,
            message=f"every rank gathers the whole state of `{called(model)}` {where}, and only some save it",
            because=[(saves[0], "it is saved here")],
            fix=_fix(trace, taken, config, flags),
        )


def _told(trace: Trace, taken: TakeState) -> tuple[Value | None, list[str]]:
    """What the gathering was told, and which flags are missing there."""
    if taken.state.form == "full":
        return taken.options, ["cpu_offload"]
    told = state_type(trace, taken)
    if told is None or told.form != "FULL_STATE_DICT" or not is_fsdp1(taken.state.of):
        return None, []
    return told.config, missing_flags(told.config, ("offload_to_cpu", "rank0_only"))


def _fix(trace: Trace, taken: TakeState, config: Value | None, flags: list[str]) -> Fix | None:
    if taken.state.form != "full" and _on_cpu_only(trace):
        return None  # FSDP1 stops when it offloads what is on the CPU already
    edits: tuple[Edit, ...] | None = None
    if isinstance(config, Object) and config.site is not None:
        edits = (ChangeCall(config.site, put=dict.fromkeys(flags, "True")),)
    elif config is None and taken.state.form != "full":
        edits = _configured(trace, taken, flags)
    return Fix("Keep it on rank 0, in CPU memory", edits) if edits is not None else None


def _on_cpu_only(trace: Trace) -> bool:
    """True where no process group of the run is for GPUs."""
    starts = [start.backend for start in trace.every(InitProcessGroup)]
    return bool(starts) and all(isinstance(one, Const) and one.value in ("gloo", "cpu:gloo", "mpi") for one in starts)


def _configured(trace: Trace, taken: TakeState, flags: list[str]) -> tuple[Edit, ...] | None:
    """A configuration for the call that asks FSDP1 for the full state dict without one."""
    told = state_type(trace, taken)
    config = spelled(told.site, "torch.distributed.fsdp", "FullStateDictConfig") if told is not None else None
    if told is None or config is None or positionals(told.site) + len(keywords(told.site)) != 2:
        return None
    text = f"{config[0]}({', '.join(f'{flag}=True' for flag in flags)})"
    return ChangeCall(told.site, put={"state_dict_config": text}), *config[1]


RULE = Rule(
    check,
    code="FSDP306",
    severity=Severity.WARNING,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
