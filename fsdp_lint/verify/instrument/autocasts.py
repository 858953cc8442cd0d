"""Autocast of CUDA on the CPU: it casts to the same types, and what asks for its state is told as on a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from fsdp_lint.verify.instrument.mapping import Mapping, asked_by_torch


def map_autocast(mapping: Mapping) -> None:
    """From here on autocast of CUDA is autocast of the CPU."""
    start, enabled, type_of = torch.autocast.__init__, torch.is_autocast_enabled, torch.get_autocast_dtype

    def dtype_of_cuda() -> torch.dtype:
        return type_of("cpu") if enabled("cpu") else type_of("cuda")  # outside it is the default of CUDA: float16

    @functools.wraps(start)
    def init(self: Any, device_type: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        if _is_cuda(device_type):
            mapping.note("autocast of CUDA")
            device_type, dtype = "cpu", dtype or dtype_of_cuda()
        start(self, device_type, dtype, *args, **kwargs)

    torch.autocast.__init__ = init
    _map_state(mapping, dtype_of_cuda)
    for name in ("custom_fwd", "custom_bwd"):
        ours = _of_the_cpu(getattr(torch.amp, name), mapping, f"torch.amp.{name}")
        setattr(torch.amp, name, ours)
        setattr(torch.amp.autocast_mode, name, ours)


def _map_state(mapping: Mapping, dtype_of_cuda: Callable[[], torch.dtype]) -> None:
    """Torch asks for it too, and for the same device: a checkpoint does."""
    asks: dict[str, Callable[..., Any]] = {
        "is_autocast_enabled": functools.partial(torch.is_autocast_enabled, "cpu"),
        "get_autocast_dtype": dtype_of_cuda,
        "get_autocast_gpu_dtype": dtype_of_cuda,
        "set_autocast_enabled": functools.partial(torch.set_autocast_enabled, "cpu"),
        "set_autocast_dtype": functools.partial(torch.set_autocast_dtype, "cpu"),
        "set_autocast_gpu_dtype": functools.partial(torch.set_autocast_dtype, "cpu"),
    }
    for name, answer in asks.items():
        setattr(torch, name, _for_cuda(getattr(torch, name), answer, mapping, f"torch.{name}"))


def _for_cuda(real: Any, answer: Callable[..., Any], mapping: Mapping, name: str) -> Callable[..., Any]:
    """The answer where CUDA is asked for, which is where no device is."""

    @functools.wraps(real)
    def asked(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.get("device_type", args[0] if args else None)
        if isinstance(device, str) and not _is_cuda(device):
            return real(*args, **kwargs)
        if not asked_by_torch():
            mapping.note(name)
        return answer(*(each for each in args if not isinstance(each, str)))

    return asked


def _of_the_cpu(real: Any, mapping: Mapping, name: str) -> Callable[..., Any]:
    @functools.wraps(real)
    def decorating(*args: Any, device_type: str, **kwargs: Any) -> Any:
        if _is_cuda(device_type):
            mapping.note(name)
            device_type = "cpu"
        return real(*args, device_type=device_type, **kwargs)

    return decorating


def _is_cuda(device_type: Any) -> bool:
    return isinstance(device_type, str) and device_type.partition(":")[0] == "cuda"
