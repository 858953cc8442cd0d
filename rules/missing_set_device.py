"""CUDA is used before this process has chosen its GPU.

## What it finds

In a program that starts a process group and shards a model: `.cuda()`, `.to("cuda")` or `device="cuda"` without an
index, before anything has told this rank which GPU is its own.

## Why it is wrong

Without a choice every rank uses GPU 0: its memory holds one copy a rank, and NCCL refuses ("Duplicate GPU detected")
or hangs.

## How to mend it

Call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` first, before the process group is made.

## When to leave it

Where a launcher shows each process one GPU only (`CUDA_VISIBLE_DEVICES`). `init_process_group(device_id=...)` and
`init_device_mesh("cuda", ...)` choose the device, too, and Accelerate, Fabric and Lightning do it for you; the rule
knows these.

## References

- https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import InitProcessGroup, SetDevice, Shard, UseCuda
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import Const


def check(trace: Trace) -> Iterator[Finding]:
    """At most one finding a run: the first use of CUDA without an index, when no device was chosen before."""
    starts = [start for start in trace.every(InitProcessGroup) if _uses_cuda(start)]
    shards = list(trace.every(Shard))
    if not starts or not shards or trace.calls_unknown_setup(min(starts[0].order, shards[0].order)):
        return
    chosen = min((e.order for e in trace.every(SetDevice)), default=len(trace.events))
    chosen = (
        min(chosen, *(s.order for s in shards if s.generation == 2))
        if any(s.generation == 2 for s in shards)
        else chosen
    )
    for use in trace.every(UseCuda):
        if use.order < chosen and use.entry == starts[0].entry:
            yield Finding(
                at=use,
                message=f"`{use.how}` before this rank has chosen its GPU: every rank uses GPU 0",
                because=[(starts[0], "the process group is made here")],
            )
            return


def _uses_cuda(start: InitProcessGroup) -> bool:
    if not start.kwargs_known or start.device_id is not None:
        return False
    if start.backend is None:
        return True
    return isinstance(start.backend, Const) and (start.backend.value is None or "nccl" in str(start.backend.value))


RULE = Rule(check, code="FSDP601", severity=Severity.ERROR, since="0.1.0")
