"""A sharded model is trained on a process group that knows gloo only.

## What it finds

`init_process_group("gloo")` in a program that shards a model and trains it, where no backend for GPUs is named in any
branch of the file, and either the code speaks of CUDA or the project's torch does not average gradients on gloo. Tests
and folders of examples are not reported.

## Why it is wrong

What gloo can do depends on torch (measured on the CPU with two ranks). FSDP1 trains rightly on 2.5 to 2.13. FSDP2 does
not run up to 2.6; on **2.7 and 2.8 it sums gradients instead of averaging them, without an error**, so that every
gradient is R times too large; from 2.9 on it is right. The message says which of these the project's range of torch
admits. On any torch gloo moves GPU tensors through the host's memory, where NCCL goes from GPU to GPU.

## How to mend it

Name a backend for each device: `init_process_group("cpu:gloo,cuda:nccl")`, or require torch 2.9 for training on the
CPU.

## When to leave it

In tests, in examples, and where there is no GPU and torch is 2.9 or newer: a program that does not speak of CUDA is not
reported there.

## References

- https://github.com/pytorch/pytorch/issues/162338
- https://docs.pytorch.org/docs/stable/distributed.html (backends)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Backward, InitProcessGroup, Shard, Step
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import Const, exclusive
from fsdp_lint.trace.versions import newest_is_below, oldest_is_below

BACKENDS = re.compile(r"nccl|xccl|hccl|rccl|cncl", re.IGNORECASE)
DEVICES = re.compile(r"\bcuda\b")
EXAMPLES = frozenset({"examples", "example", "tests", "test", "testing", "benchmarks"})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each process group that is only gloo and under which a sharded model is trained."""
    starts = list(trace.every(InitProcessGroup))
    for start in starts:
        # Another group may be the one that is used.
        if any(other.site is not start.site and not exclusive(other.guards, start.guards) for other in starts):
            continue
        if not isinstance(start.backend, Const) or start.backend.value != "gloo" or not start.kwargs_known:
            continue
        if BACKENDS.search(start.site.source.text) or trace.in_test(start) or _is_example(trace, start):
            continue
        shard = next((s for s in trace.every(Shard) if not exclusive(s.guards, start.guards)), None)
        step = next((e for e in trace.events if isinstance(e, Step | Backward) and e.order > start.order), None)
        if shard is None or step is None:
            continue
        found = _by_version(trace, shard) or _by_device(start, shard)
        if found is None:
            continue
        what, severity = found
        yield Finding(
            at=start,
            message=f"`{called(shard.module)}` is trained on a process group that knows gloo only: {what}",
            because=[(shard, f"`{called(shard.module)}` is sharded here"), (step, "it is trained here")],
            severity=severity,
        )


def _is_example(trace: Trace, start: InitProcessGroup) -> bool:
    path = start.site.source.path
    return trace.root in path.parents and bool(EXAMPLES & set(path.relative_to(trace.root).parts[:-1]))


def _by_version(trace: Trace, shard: Shard) -> tuple[str, Severity] | None:
    """What gloo does wrong with a torch release that the project admits, and how bad that is."""
    if shard.generation == 2 and newest_is_below(trace.torch, "2.7"):
        return "fully_shard does not run on it before torch 2.7", Severity.ERROR
    if shard.generation == 2 and oldest_is_below(trace.torch, "2.9"):
        return (
            "with torch 2.7 and 2.8, which the project allows, gradients are summed instead of averaged",
            RULE.severity,
        )
    return None


def _by_device(start: InitProcessGroup, shard: Shard) -> tuple[str, Severity] | None:
    if any(DEVICES.search(event.site.source.text) for event in (start, shard)):
        return "what is on a GPU goes through the host's memory each time", RULE.severity
    return None


RULE = Rule(check, code="FSDP610", severity=Severity.WARNING, since="0.1.0")
