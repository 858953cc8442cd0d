"""CUDA is used before this process has chosen its GPU.

## What it finds

In a program that starts a process group and shards a model: `.cuda()`, `.to("cuda")` or `device="cuda"` without an
index, before anything has told this rank which GPU is its own.

## Why it is wrong

Without a choice every rank uses GPU 0: its memory holds one copy a rank, and NCCL refuses. Seen on two H200 with torch
2.11.0 and NCCL 2.28.9: "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device".

## How to mend it

Call `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` first, before the process group is made.

## When to leave it

Where a launcher shows each process one GPU only (`CUDA_VISIBLE_DEVICES`). `init_device_mesh("cuda", ...)` and
`fully_shard` choose the device, too, if nothing has used CUDA before: from torch 2.8 on; up to 2.7 only where they make
the process group themselves (read in the sources of 2.4 to 2.13). Accelerate, Fabric and Lightning do it for you. The
rule knows these, and goes by the newest release that your project allows. With `init_process_group(device_id=...)` it
is silent, though that alone does not choose the device (measured on torch 2.11, NCCL: FSDP takes GPU 0).

## References

- https://docs.pytorch.org/docs/stable/distributed.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, keywords, text_of
from fsdp_lint.fix.edits import Fix, InsertBefore
from fsdp_lint.fix.spelling import spelled_in_module
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import InitProcessGroup, SetDevice, Shard, UseCuda
from fsdp_lint.trace.trace import Trace, whenever
from fsdp_lint.trace.values import Const
from fsdp_lint.trace.versions import newest_is_below

MESH_CHOOSES_SINCE = "2.8"


def check(trace: Trace) -> Iterator[Finding]:
    """At most one finding a run: the first use of CUDA without an index, when no device was chosen before."""
    starts = [start for start in trace.every(InitProcessGroup) if _uses_cuda(start)]
    shards = list(trace.every(Shard))
    if not starts or not shards or trace.calls_unknown_setup(min(starts[0].order, shards[0].order)):
        return
    meshes = [event for event in trace.every(SetDevice) if event.how == "init_device_mesh"]
    choices = [event for event in trace.every(SetDevice) if event not in meshes]
    makers = [*meshes, *(shard for shard in shards if shard.generation == 2)]
    if newest_is_below(trace.torch, MESH_CHOOSES_SINCE):
        makers = [event for event in makers if event.order < min(start.order for start in starts)]
    chosen = min((event.order for event in (*choices, *makers)), default=len(trace.events))
    for use in trace.every(UseCuda):
        if use.order < chosen and use.entry == starts[0].entry:
            yield Finding(
                at=use,
                message=f"`{use.how}` before this rank has chosen its GPU: every rank uses GPU 0",
                because=[(starts[0], "the process group is made here")],
                fix=_fix(starts[0], use),
            )
            return


def _uses_cuda(start: InitProcessGroup) -> bool:
    if not start.kwargs_known or start.device_id is not None:
        return False
    if start.backend is None:
        return True
    return isinstance(start.backend, Const) and (start.backend.value is None or "nccl" in str(start.backend.value))


def _fix(start: InitProcessGroup, use: UseCuda) -> Fix | None:
    """`set_device` above the process group, where a launcher tells each process its number by the environment."""
    if {*keywords(start.site)} & {"rank", "world_size", "store", "init_method"} or _starts_processes(start):
        return None
    backend = argument(start.site, "backend", 0)
    cuda = spelled_in_module(start.site, "torch", "cuda")
    environment = spelled_in_module(start.site, "os", "environ")
    if cuda is None or environment is None:
        return None
    text = f'{cuda[0]}.set_device(int({environment[0]}["LOCAL_RANK"]))'
    # With a backend that is a variable, or CUDA under a condition, the same line may run where there is no GPU.
    sure = (backend is None or text_of(backend)[:1] in "'\"") and whenever(use, start)
    return Fix(
        "Choose this rank's GPU before the process group is made",
        (InsertBefore(start.site, text), *cuda[1], *environment[1]),
        Applicability.SAFE if sure else Applicability.UNSAFE,
    )


def _starts_processes(start: InitProcessGroup) -> bool:
    """True where the program starts its ranks itself: LOCAL_RANK is then not set."""
    texts = [site.source.text for site in (*start.stack, start.site)]
    return any("spawn(" in text or "MASTER_ADDR" in text for text in texts)


RULE = Rule(
    check,
    code="FSDP601",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE, Applicability.UNSAFE}),
    since="0.1.0",
)
