"""Counts collectives by kind, bytes and FSDP unit, and logs each one before it begins with the user's line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from fsdp_lint.verify.instrument import gloo
from fsdp_lint.verify.instrument.sites import Sites
from fsdp_lint.verify.instrument.storages import Storages
from fsdp_lint.verify.instrument.timeline import Timeline

_SPACES = ("c10d", "_c10d_functional", "_c10d_functional_autograd")
_KINDS = {
    "_allgather_base_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "allgather_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "all_gather_into_tensor": "all_gather",
    "all_gather_into_tensor_out": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "reduce_scatter_tensor": "reduce_scatter",
    "reduce_scatter_tensor_out": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "all_reduce": "all_reduce",
    "all_reduce_": "all_reduce",
    "all_reduce_coalesced": "all_reduce",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "all_to_all_single": "all_to_all",
    "broadcast_": "broadcast",
    "broadcast": "broadcast",
    "monitored_barrier_": "barrier",
}
_NOT_COLLECTIVE = ("wait_tensor", "_wrap_tensor_autograd", "send", "recv_", "recv_any_source_")
_ONLY_ON_THE_HOST = ("all_gather_into_tensor", "all_gather_into_tensor_coalesced")
_MAKERS = ("unshard", "post_backward", "_unshard", "_post_backward_hook", "_reduce_grad", "pre_unshard")


class Collectives(TorchDispatchMode):
    """Sees every operation below autograd in this thread and in autograd's. Off, it only passes them on."""

    def __init__(
        self, sites: Sites, log: Path, storages: Storages | None, backward: Callable[[], str], shared: bool = False
    ) -> None:
        super().__init__()
        self.shared = shared
        self.sites = sites
        self.storages = storages
        self.on = True
        self._backward = backward
        self.timeline = Timeline(self._allocated)
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._counts: dict[tuple[str, str], list[int]] = {}
        self.made_at: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes again, as what the DTensor makes of it
        space, _, name = func._schema.name.partition("::")
        if self.on and space in _SPACES and name not in _NOT_COLLECTIVE:
            self._begin(_KINDS.get(name, name.strip("_")), args, space == "c10d")
        if self.shared and name in _ONLY_ON_THE_HOST and _device_of(args) != "cpu":
            result = through_the_host(func, args)
        else:
            result = func(*args, **(kwargs or {}))
        if self.on and self.storages is not None:
            self.storages.see(result)
            if space in _SPACES:
                self.storages.carry(args)
                if name not in _NOT_COLLECTIVE or name == "wait_tensor":
                    gloo.finish(name, result)
        if self.on:
            self.timeline.see()
        return result

    def _allocated(self) -> int:
        return self.storages.live if self.storages is not None else int(torch.cuda.memory_allocated())

    def _begin(self, kind: str, args: Any, asked: bool) -> None:
        """`asked` by name, as programs and FSDP do it, and not what a DTensor's operation takes."""
        size = max((_bytes(arg) for arg in args), default=0)
        if kind in ("barrier", "monitored_barrier"):
            size = 0
        site = self.sites.here() or self._backward()
        unit = _unit()
        if asked and not unit:
            self.made_at[site] = self.made_at.get(site, 0) + 1
        self.timeline.collective(kind, unit, size)
        one = self._counts.setdefault((kind, unit), [0, 0, 0])
        one[0] += 1
        one[1] += size
        one[2] = max(one[2], size)
        os.write(self._log, f"{kind}\t{size}\t{_group(args)}\t{site}\n".encode())

    def take(self) -> list[tuple[str, str, int, int, int]]:
        """Kind, unit, count, bytes and largest of what was counted since the last time."""
        taken = [(*key, *value) for key, value in sorted(self._counts.items())]
        self._counts.clear()
        return taken  # type: ignore[return-value]


def through_the_host(func: Any, args: Any) -> Any:
    """What a functional collective makes of its tensors, by copies on the host: gloo takes each for one that is there,
    and a rank whose tensors are on a GPU is ended by SIGSEGV (seen with torch 2.11)."""
    first, wait = args[0], torch.ops._c10d_functional.wait_tensor
    if isinstance(first, (list, tuple)):
        made = func([each.cpu() for each in first], *args[1:])
        return [wait(each).to(one.device) for each, one in zip(made, first, strict=True)]
    return wait(func(first.cpu(), *args[1:])).to(first.device)


def _device_of(args: Any) -> str:
    first = args[0] if args else None
    one = first[0] if isinstance(first, (list, tuple)) and first else first
    return str(one.device.type) if isinstance(one, torch.Tensor) else "cpu"


def _bytes(value: Any) -> int:
    if isinstance(value, torch.Tensor):
        return int(value.numel() * value.element_size())
    return sum(map(_bytes, value)) if isinstance(value, (list, tuple)) else 0


def _unit() -> str:
    """The module whose parameters FSDP gathers or reduces here; "" where it is not FSDP. Reads private names, guarded:
    without them the unit is unknown and nothing else changes."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name in _MAKERS and "/fsdp/" in frame.f_code.co_filename:
            owner = frame.f_locals.get("self") or frame.f_locals.get("handle")
            name = getattr(owner, "_module_fqn", None)
            if name is not None or hasattr(owner, "fsdp_params"):
                return name or "(root)"
            if hasattr(owner, "flat_param"):
                # Blocks of one class are units of their own: FSDP1 numbers them.
                kind = getattr(owner, "_fully_sharded_module", None).__class__.__name__
                return f"{kind} {getattr(owner, '_handle_index', '')}".rstrip()
        frame = frame.f_back
    return ""


def _group(args: Any) -> str:
    """The global ranks of the collective's group, or its name."""
    for arg in args:
        if isinstance(arg, str):
            return arg
        if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in str(arg._type()):
            try:
                return str(torch.distributed.ProcessGroup.unbox(arg).group_name)
            except (AttributeError, RuntimeError, TypeError):
                return ""
    return ""
