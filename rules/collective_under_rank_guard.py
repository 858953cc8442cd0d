"""A collective that only some ranks reach.

## What it finds

Under a test of the rank (`rank == 0`, `is_main_process`, an early return of the other ranks, a `rank_zero_only`
function): a call that all ranks must make together. These are the collectives of torch.distributed, `full_tensor()`,
`get_model_state_dict` and its like, `torch.distributed.checkpoint.save` and `load`, `clip_grad_norm_`, forward,
backward and optimizer step of a sharded model, `fully_shard` itself, and FSDP1's `state_dict()` and
`summon_full_params`. Of frameworks: Lightning's `trainer.save_checkpoint` and `fabric.save`; `get_state_dict`,
`save_state`, `save_model`, `gather` and the like, and `wait_for_everyone` of accelerate where it has an FSDP plugin, or
where a file for its launcher that asks for FSDP lies with the program; `save_model` of a transformers Trainer whose
arguments switch FSDP on and ask for `FULL_STATE_DICT`, or say nothing of the type of state dicts and do not ask for
`version` 2, with which it depends on the release; `evaluate`, `predict` and `trainer.accelerator.get_state_dict` of a
Trainer with FSDP. Its `args.should_save` is a test of the rank. The callbacks that a Trainer is given are run,
transformers' and Lightning's. Helper functions are followed.

## Why it is wrong

The other ranks never come, and the call waits: measured with gloo (torch 2.13.0) until the timeout, with NCCL (2.11)
until the watchdog (10 minutes by default). Worse, if the other ranks go on to the next collective, NCCL pairs the two,
and **`full_tensor()` under `rank == 0` returns a wrong tensor first** and hangs later.

## How to mend it

Make the call on all ranks, in front of the test, and keep only the writing of the file inside it.

## When to leave it

Where the ranks that the test leaves out make the same call elsewhere (both branches broadcast, a barrier on each
side), where the call has a process group of its own, or where the state dict is FSDP2's `state_dict()`, which asks
nobody. The rule sees these. A test of `distributed_type`, or of whether FSDP is on, silences it for frameworks; so does
FSDP that only the command line switches on.

## References

- https://docs.pytorch.org/docs/stable/distributed.html
- https://github.com/pytorch/pytorch/issues/148756
- https://huggingface.co/docs/accelerate/usage_guides/fsdp (`save_state` and `get_state_dict` on all processes)
- https://lightning.ai/docs/pytorch/stable/common/checkpointing_basic.html (all ranks must call `save_checkpoint`)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity, Site
from fsdp_lint.trace.events import Event, Shard
from fsdp_lint.trace.together import collective_of, gathering_of, has_counterpart, is_alone, launch_of
from fsdp_lint.trace.trace import Trace, rank_guard, site_at_depth


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each call under a rank test that all ranks must make."""
    shards = any(True for _ in trace.every(Shard))
    reported: set[Site] = set()
    for event in trace.events:
        guard = rank_guard(event)
        what = _called(trace, event, shards) if guard is not None else ""
        if guard is None or not what or has_counterpart(trace, event, what, guard) or is_alone(event):
            continue
        at = site_at_depth(event, guard.depth)
        if at in reported:
            continue
        reported.add(at)
        yield Finding(
            at=at,
            message=f"only some ranks reach {what}, and it waits for all of them",
            because=[*_inner(event, at, what), *launch_of(trace, event)],
        )


def _called(trace: Trace, event: Event, shards: bool) -> str:
    """What an event is called that needs all ranks; where the run shards nothing, the values must tell of sharding."""
    return collective_of(trace, event) if shards else gathering_of(trace, event)


def _inner(event: Event, at: Site, what: str) -> list[tuple[Event | Site, str]]:
    return [] if event.site == at else [(event, f"{what} is here")]


RULE = Rule(check, code="FSDP501", severity=Severity.ERROR, since="0.1.0")
