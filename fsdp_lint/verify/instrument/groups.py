"""The process group that the program asks for: with a time limit, on gloo, or one that pretends its other ranks."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

from fsdp_lint.verify.instrument import one_gpu
from fsdp_lint.verify.instrument.mapping import Mapping
from fsdp_lint.verify.instrument.spawned import spawn_here
from fsdp_lint.verify.plan import Plan

_WITH_NCCL = ("nccl", "cuda")
_SIZES_COME = ("broadcast_object_list", "recv_object_list")  # into memory that nobody wrote to


def lead(plan: Plan, mapping: Mapping) -> None:
    """From here on `init_process_group` makes the group that the mode wants, and `spawn` runs in the rank that asks."""
    real, new_group = dist.init_process_group, dist.new_group

    @functools.wraps(real)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> None:
        _take_our_port(args, kwargs, mapping)
        if plan.mode == "simulate":
            mapping.note("process group: a fake one")
            real("fake", rank=0, world_size=plan.ranks)
            return
        kwargs["timeout"] = timedelta(seconds=plan.timeout)  # to the meeting a rank may come late
        if plan.mode != "nccl":
            kwargs.pop("device_id", None)
            if backend is None or any(word in str(backend) for word in _WITH_NCCL):
                mapping.note(f"backend {backend} to gloo" if backend else "backend to gloo")
                backend = "gloo"
            backend = one_gpu.BACKEND if plan.mode == "shared" else backend
        real(backend, *args, **kwargs)
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=plan.patience))

    @functools.wraps(new_group)
    def group(*args: Any, **kwargs: Any) -> Any:
        if plan.mode != "nccl":
            for name in ("backend", "device_id"):
                kwargs.pop(name, None)
        kwargs["timeout"] = timedelta(seconds=plan.patience)
        return new_group(*args[:1], **kwargs)

    dist.init_process_group = dist.distributed_c10d.init_process_group = init_process_group
    dist.new_group = dist.distributed_c10d.new_group = group
    spawn_here(mapping)
    if plan.mode == "simulate":
        _receive_nothing()


class _Zeros(TorchFunctionMode):
    """Memory of which nobody said what is in it holds zeros."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (torch.zeros if func is torch.empty else func)(*args, **(kwargs or {}))


def _receive_nothing() -> None:
    """An object of a rank that is pretended has 0 bytes, not as many as whatever lies in memory would make it."""
    for name in _SIZES_COME:
        setattr(dist.distributed_c10d, name, _in_zeros(getattr(dist, name)))
        setattr(dist, name, getattr(dist.distributed_c10d, name))


def _in_zeros(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def received(*args: Any, **kwargs: Any) -> Any:
        with _Zeros():
            return real(*args, **kwargs)

    return received


def _take_our_port(args: Any, kwargs: dict[str, Any], mapping: Mapping) -> None:
    """Whatever address the program names, its ranks meet where nobody else listens."""
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        ours = os.environ[f"FSDP_LINT_{name}"]
        if os.environ.get(name) != ours:
            mapping.note(f"{name} to a free one")
            os.environ[name] = ours
    method = kwargs.get("init_method")
    if isinstance(method, str) and method.startswith("tcp://"):
        mapping.note("init_method to a free port")
        kwargs["init_method"] = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
