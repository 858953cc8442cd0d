"""CPU offload with a process group that knows NCCL only.

## What it finds

`fully_shard(..., offload_policy=CPUOffloadPolicy())` in a program whose process group is made with the backend "nccl"
alone (or with a `device_id` and no backend), and that clips gradients or gathers a full state dict.

## Why it is wrong

Offloaded gradients live on the CPU, and NCCL cannot reduce their norm: the first `clip_grad_norm_` raises "No backend
type associated with device type cpu" (torch 2.4 to 2.13; six public reports). Where no backend is named, torch takes
that of the accelerator alone since 2.6 (measured on 2.11 with NCCL, the same error; 2.6 to 2.13 read the same); up to
2.5 it took gloo for the CPU as well. With a `device_id` the message says so, and the rule goes by the newest release
that your project allows.

## How to mend it

Name a backend for each device: `init_process_group("cpu:gloo,cuda:nccl")`. With a `device_id` besides it works the same
(measured on torch 2.11, two H200: the norm is equal on both ranks).

## When to leave it

Where nothing is ever reduced on the CPU. Where the backend is a variable the rule is silent, and so it is where neither
a backend nor a `device_id` is given: which backends there are then depends on the release and the machine (none but
NCCL with CUDA since 2.6).

## References

- https://docs.pytorch.org/docs/stable/distributed.html (backends; "if neither backend nor device_id is provided, c10d
  will detect the accelerator on the run-time machine and use a backend registered for that detected accelerator")
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (CPUOffloadPolicy)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, text_of
from fsdp_lint.fix.edits import ChangeCall, Fix, Replace
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Collective, InitProcessGroup, Shard
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import Const, Object, exclusive, options_of
from fsdp_lint.trace.versions import newest_is_below

ONE = ("nccl", "cuda:nccl")
BOTH = "cpu:gloo,cuda:nccl"
ONE_BACKEND_SINCE = "2.6"
ON_CPU = frozenset({"clip_grad_norm_", "get_model_state_dict", "get_state_dict", "full_tensor"})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each process group that offloaded gradients cannot use."""
    needs = [event for event in trace.every(Collective) if event.op in ON_CPU]
    for start in trace.every(InitProcessGroup):
        if not _only_nccl(trace, start):
            continue
        left_out = f" (since torch {ONE_BACKEND_SINCE}, if none is named)" if _is_left_out(start) else ""
        for shard in trace.every(Shard):
            policy = _offload(shard, start)
            need = next((n for n in needs if not exclusive(n.guards, shard.guards)), None)
            if policy is not None and need is not None:
                yield Finding(
                    at=start,
                    message=f"this process group knows NCCL only{left_out}, and gradients that are offloaded to the "
                    "CPU need gloo",
                    because=[
                        (policy.site or shard.site, "parameters and gradients are to be offloaded to the CPU"),
                        (shard, f"`{called(shard.module)}` is sharded with this policy"),
                        (need, f"`{need.op}` reduces them here"),
                    ],
                    fix=_fix(start),
                )
                break


def _offload(shard: Shard, start: InitProcessGroup) -> Object | None:
    """The policy that offloads, on a path that the process group is made on, too."""
    policy = shard.kwargs.get("offload_policy")
    for option, guards in options_of(policy) if policy is not None else ():
        if isinstance(option, Object) and option.cls == "CPUOffloadPolicy":
            if not exclusive((*shard.guards, *guards), start.guards):
                return option
    return None


def _is_left_out(start: InitProcessGroup) -> bool:
    return start.backend is None or (isinstance(start.backend, Const) and start.backend.value is None)


def _only_nccl(trace: Trace, start: InitProcessGroup) -> bool:
    if not start.kwargs_known:
        return False
    if _is_left_out(start):
        return _names_a_device(start) and not newest_is_below(trace.torch, ONE_BACKEND_SINCE)
    return isinstance(start.backend, Const) and start.backend.value in ONE


def _names_a_device(start: InitProcessGroup) -> bool:
    device = start.device_id
    return device is not None and not (isinstance(device, Const) and device.value is None)


def _fix(start: InitProcessGroup) -> Fix | None:
    """The backend's string, where it stands in the call itself, or a new keyword."""
    message = f"Name a backend for the CPU, too: {BOTH}"
    backend = argument(start.site, "backend", 0)
    if backend is None:
        return Fix(message, (ChangeCall(start.site, put={"backend": f'"{BOTH}"'}),))
    text = text_of(backend)
    if text[1:-1] not in ONE:
        return None
    return Fix(message, (Replace(backend, f"{text[0]}{BOTH}{text[-1]}"),))


RULE = Rule(
    check,
    code="FSDP602",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
