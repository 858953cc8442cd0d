"""Lets ranks share one GPU: each GPU that the program names becomes the first, and its collectives go through gloo.

NCCL refuses two ranks on one device. What was mapped is noted with the line that asked for it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from fsdp_lint.verify.instrument.devices import map_gloo
from fsdp_lint.verify.instrument.mapping import Mapping, asked_by_torch

BACKEND = "cpu:gloo,cuda:gloo"
_OF_A_DEVICE = (  # functions of torch.cuda whose first argument is a device
    "set_device", "synchronize", "current_stream", "default_stream", "get_device_name", "get_device_properties",
    "get_device_capability", "mem_get_info", "memory_allocated", "max_memory_allocated", "memory_reserved",
    "max_memory_reserved", "memory_stats", "memory_summary", "reset_peak_memory_stats", "utilization",
    "get_rng_state",
)  # fmt: skip


def share(mapping: Mapping, ranks: int) -> None:
    """From here on the first GPU is the only one; the program still counts one a rank."""
    _FirstGpu(mapping).__enter__()
    _share_cuda(mapping, ranks)
    _share_wrappers(mapping)
    map_gloo(mapping)
    _follow_load(mapping)


def first(value: Any, mapping: Mapping) -> Any:
    """The first GPU for another one, anything else itself."""
    if isinstance(value, torch.device) and value.type == "cuda" and value.index:
        mapping.note("other GPUs to the first")
        return torch.device("cuda", 0)
    if isinstance(value, str) and value.startswith("cuda:") and value != "cuda:0":
        mapping.note("other GPUs to the first")
        return "cuda:0"
    return value


def number(value: Any, mapping: Mapping) -> Any:
    """The same where a device may be a number."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        mapping.note("other GPUs to the first")
        return 0
    return first(value, mapping)


class _FirstGpu(TorchFunctionMode):
    """Maps the devices that are given to torch's functions and to methods of tensors."""

    def __init__(self, mapping: Mapping) -> None:
        super().__init__()
        self.mapping = mapping

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        args = tuple(first(each, self.mapping) for each in args)
        kwargs = {name: first(each, self.mapping) for name, each in kwargs.items()}
        if func in (torch.Tensor.cuda, torch.Tensor.to) and len(args) > 1:
            args = (args[0], number(args[1], self.mapping), *args[2:])
        if func is torch.device:
            args = tuple(number(each, self.mapping) for each in args)
            kwargs = {name: number(each, self.mapping) for name, each in kwargs.items()}
        if "device" in kwargs:
            kwargs["device"] = number(kwargs["device"], self.mapping)
        return func(*args, **kwargs)


def _share_cuda(mapping: Mapping, ranks: int) -> None:
    cuda = torch.cuda
    for name in _OF_A_DEVICE:
        setattr(cuda, name, _on_the_first(getattr(cuda, name), mapping))
    real, enter = cuda.device_count, cuda.device.__init__

    def device_count() -> int:
        if asked_by_torch():
            return int(real())
        mapping.note("torch.cuda.device_count")
        return ranks

    cuda.device_count = device_count
    # The class stays what it is: torch itself asks whether something is an instance of it.
    cuda.device.__init__ = lambda self, device: enter(self, number(device, mapping))


def _on_the_first(real: Callable[..., Any], mapping: Mapping) -> Callable[..., Any]:
    @functools.wraps(real)
    def asked(*args: Any, **kwargs: Any) -> Any:
        return real(*(number(each, mapping) for each in args), **{n: number(v, mapping) for n, v in kwargs.items()})

    return asked


def _share_wrappers(mapping: Mapping) -> None:
    """FSDP1 and DDP take the number of their GPU."""
    wrapper, parallel = torch.distributed.fsdp.FullyShardedDataParallel, torch.nn.parallel.DistributedDataParallel
    start, begin = wrapper.__init__, parallel.__init__

    @functools.wraps(start)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if "device_id" in kwargs:
            kwargs["device_id"] = number(kwargs["device_id"], mapping)
        start(self, *args, **kwargs)

    @functools.wraps(begin)
    def init_ddp(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("device_ids"):
            kwargs["device_ids"] = [number(each, mapping) for each in kwargs["device_ids"]]
        if kwargs.get("output_device") is not None:
            kwargs["output_device"] = number(kwargs["output_device"], mapping)
        begin(self, *args, **kwargs)

    wrapper.__init__, parallel.__init__ = init, init_ddp


def _follow_load(mapping: Mapping) -> None:
    load = torch.load

    @functools.wraps(load)
    def to_first(*args: Any, **kwargs: Any) -> Any:
        args = (*args[:1], *(first(each, mapping) for each in args[1:]))
        return load(*args, **{name: first(value, mapping) for name, value in kwargs.items()})

    torch.load = torch.serialization.load = to_first
