"""Stand-ins for what a program asks of torch.cuda and torch.accelerator on a machine without a GPU.

They do nothing, hold nothing, and are as many as there are ranks; torch itself is told the truth.
"""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Callable
from typing import Any

import torch

from fsdp_lint.verify.instrument.mapping import Mapping, asked_by_torch

_SILENT = (
    "set_device",
    "set_stream",
    "synchronize",
    "empty_cache",
    "ipc_collect",
    "init",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "reset_peak_memory_stats",
    "reset_max_memory_allocated",
    "reset_accumulated_memory_stats",
    "set_per_process_memory_fraction",
    "set_sync_debug_mode",
)
_NONE_HELD = (
    "memory_allocated",
    "max_memory_allocated",
    "memory_reserved",
    "max_memory_reserved",
    "memory_cached",
    "max_memory_cached",
    "utilization",
)
_SILENT_OF_ACCELERATORS = (
    "set_device_index",
    "set_device_idx",
    "set_stream",
    "synchronize",
    "empty_cache",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
)
_OF_SNAPSHOTS = ("_record_memory_history", "_dump_snapshot")
_OF_NVTX = ("range_push", "range_pop", "range_start", "range_end", "mark")
_MEMORY = 80 * 2**30  # bytes of the GPU that is pretended


class _Event:
    """A CUDA event on a machine without CUDA."""

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def record(self, *args: Any) -> None: ...

    def wait(self, *args: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 1.0


class _Stream(_Event):
    """A CUDA stream on a machine without CUDA: all is done at once."""

    def wait_stream(self, other: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: Any) -> None: ...


def map_cuda(mapping: Mapping, ranks: int) -> None:
    """From here on torch.cuda answers the program as a GPU of its own would, and torch.accelerator names the CPU."""
    cuda, local = torch.cuda, int(os.environ.get("LOCAL_RANK", "0"))
    homes: list[tuple[str, Any, dict[str, Callable[..., Any]]]] = [
        ("torch.cuda", cuda, _of_cuda(ranks, local)),
        ("torch.accelerator", getattr(torch, "accelerator", None), _of_accelerators(ranks, local)),
        ("torch.cuda.memory", cuda.memory, dict.fromkeys(_OF_SNAPSHOTS, _nothing)),
        ("torch.cuda.nvtx", cuda.nvtx, {**dict.fromkeys(_OF_NVTX, _nothing), "range": _no_context}),
        ("torch.cuda.profiler", cuda.profiler, dict.fromkeys(("start", "stop"), _nothing)),
        ("torch", torch, {"get_device_module": lambda *_: cuda}),
    ]
    for called, home, answers in homes:
        for name, answer in answers.items():
            _stand_in(mapping, called, home, name, answer)
    for name in _SILENT:
        setattr(cuda, name, _noting(mapping, f"torch.cuda.{name}", None))
    for name in _NONE_HELD:
        setattr(cuda, name, _noting(mapping, f"torch.cuda.{name}", 0))
    cuda.Event, cuda.Stream = _Event, _Stream
    torch.Tensor.record_stream = _nothing  # it refuses a stream of ours before any mode is asked


def _stand_in(mapping: Mapping, called: str, home: Any, name: str, answer: Callable[..., Any]) -> None:
    real = getattr(home, name, None)
    if home is None or (real is None and home is not torch.cuda):
        return  # this torch does not have it yet

    @functools.wraps(answer if real is None or isinstance(real, type) else real)
    def asked(*args: Any, **kwargs: Any) -> Any:
        if asked_by_torch() and real is not None:
            return real(*args, **kwargs)
        mapping.note(f"{called}.{name}")
        return answer(*args, **kwargs)

    setattr(home, name, asked)


def _nothing(*args: Any, **kwargs: Any) -> None: ...


def _no_context(*args: Any, **kwargs: Any) -> Any:
    return contextlib.nullcontext()


def _of_cuda(ranks: int, local: int) -> dict[str, Callable[..., Any]]:
    properties = types.SimpleNamespace(
        name="CPU", total_memory=_MEMORY, major=9, minor=0, multi_processor_count=1, gcnArchName=""
    )
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: ranks,
        "current_device": lambda: local,
        "get_device_name": lambda *_: "CPU",
        "get_device_properties": lambda *_: properties,
        "get_device_capability": lambda *_: (9, 0),
        "can_device_access_peer": lambda *_: True,
        "is_bf16_supported": lambda *_, **__: True,
        "is_current_stream_capturing": lambda: False,
        "mem_get_info": lambda *_: (_MEMORY, _MEMORY),
        "memory_stats": lambda *_: _Zeros(),
        "memory_snapshot": lambda *_: [],
        "memory_summary": lambda *_, **__: "",
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "get_rng_state_all": lambda *_: [torch.get_rng_state()],
        "set_rng_state": _nothing,
        "set_rng_state_all": _nothing,
        "current_stream": lambda *_: _Stream(),
        "default_stream": lambda *_: _Stream(),
        "stream": _no_context,
        "device": _no_context,
    }


def _of_accelerators(ranks: int, local: int) -> dict[str, Callable[..., Any]]:
    return {
        **dict.fromkeys(_SILENT_OF_ACCELERATORS, _nothing),
        **dict.fromkeys(_NONE_HELD, lambda *_: 0),
        "is_available": lambda: True,
        "device_count": lambda: ranks,
        "current_accelerator": lambda *_, **__: torch.device("cpu"),
        "current_device_index": lambda: local,
        "current_device_idx": lambda: local,
        "current_stream": lambda *_: _Stream(),
    }


class _Zeros(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0


def _noting(mapping: Mapping, what: str, value: Any) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        if not asked_by_torch():
            mapping.note(what)
        return value

    return asked
