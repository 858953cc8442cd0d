"""Stand-ins for what a program asks of torch.cuda and torch.accelerator on a machine without a GPU.

They do nothing, hold nothing, and are as many as there are ranks; torch itself is told the truth. What has no meaning
without a GPU is refused, with the name of what was asked for.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
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
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_accumulated_host_memory_stats",
    "caching_allocator_enable",
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
    "memory_usage",
    "device_memory_used",
    "utilization",
)
_REFUSED = {
    "torch.cuda": (
        "CUDAGraph",
        "CUDAPluggableAllocator",
        "ExternalStream",
        "GreenContext",
        "MemPool",
        "caching_allocator_alloc",
        "caching_allocator_delete",
        "change_current_allocator",
        "clock_rate",
        "cudart",
        "current_blas_handle",
        "current_solver_handle",
        "get_stream_from_external",
        "graph",
        "graph_pool_handle",
        "make_graphed_callables",
        "power_draw",
        "temperature",
        "use_mem_pool",
    ),
    "torch.accelerator": ("Graph",),
    "torch.cuda.comm": ("broadcast", "broadcast_coalesced", "reduce_add", "reduce_add_coalesced", "scatter", "gather"),
    "torch.cuda.nccl": ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "unique_id"),
    "torch.cuda.tunable": (
        "get_results",
        "get_validators",
        "mgpu_tune_gemm_in_file",
        "read_file",
        "tune_gemm_in_file",
    ),
    "torch.cuda.gds": ("GdsFile", "gds_register_buffer", "gds_deregister_buffer"),
}
_OF_TUNABLE = (
    "enable",
    "record_untuned_enable",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "set_numerical_check_tolerances",
    "set_rotating_buffer_size",
    "tuning_enable",
)
_ASKED_OF_TUNABLE = {
    "is_enabled": False,
    "record_untuned_is_enabled": False,
    "tuning_is_enabled": False,
    "get_filename": "",
    "get_max_tuning_duration": 0,
    "get_max_tuning_iterations": 0,
    "get_rotating_buffer_size": 0,
}
_SUBMODULES = ("memory", "random", "streams", "graphs")  # homes of what torch.cuda has itself
_SILENT_OF_ACCELERATORS = (
    "set_device_index",
    "set_device_idx",
    "set_stream",
    "synchronize",
    "empty_cache",
    "empty_host_cache",
    "reset_peak_memory_stats",
    "reset_accumulated_memory_stats",
)
_OF_SNAPSHOTS = ("_record_memory_history", "_dump_snapshot")
_OF_NVTX = ("range_push", "range_pop", "range_start", "range_end", "mark")
_NCCL = (2, 27, 3)  # its version
_MEMORY = 80 * 2**30  # bytes of the GPU that is pretended


class Refused(RuntimeError):
    """The program asks for what a machine without a GPU cannot give."""


class _Event:
    """A CUDA event on a machine without CUDA."""

    mapping: Mapping | None = None
    name = "torch.cuda.Event"
    device = torch.device("cpu")
    event_id = cuda_event = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if self.mapping is not None and not asked_by_torch():
            self.mapping.note(self.name)

    def record(self, *args: Any) -> None: ...

    def wait(self, *args: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, other: Any) -> float:
        return 1.0

    def ipc_handle(self) -> bytes:
        raise Refused("torch.cuda.Event.ipc_handle needs a CUDA GPU")


class _Stream(_Event):
    """A CUDA stream on a machine without CUDA: all is done at once."""

    name = "torch.cuda.Stream"
    cuda_stream = stream_id = device_index = device_type = priority = 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, -1)

    def wait_stream(self, other: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def record_event(self, event: Any = None) -> Any:
        return event or _Event()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *error: Any) -> None: ...


_DEFAULT = _Stream()  # the stream in which all is done


def map_cuda(mapping: Mapping, ranks: int) -> None:
    """From here on torch.cuda answers the program as a GPU of its own would, and torch.accelerator names the CPU."""
    cuda, local = torch.cuda, int(os.environ.get("LOCAL_RANK", "0"))
    homes: list[tuple[str, Any, dict[str, Callable[..., Any]]]] = [
        ("torch.cuda", cuda, _of_cuda(ranks, local)),
        ("torch.accelerator", getattr(torch, "accelerator", None), _of_accelerators(ranks, local)),
        ("torch.cuda.memory", cuda.memory, dict.fromkeys(_OF_SNAPSHOTS, _nothing)),
        ("torch.cuda.nvtx", cuda.nvtx, {**dict.fromkeys(_OF_NVTX, _nothing), "range": _no_context}),
        ("torch.cuda.profiler", cuda.profiler, {"start": _nothing, "stop": _nothing, "profile": _no_context}),
        ("torch.cuda.tunable", cuda.tunable, _of_tunable()),
        ("torch.cuda.nccl", cuda.nccl, {"version": lambda: _NCCL}),
        ("torch.autograd.profiler", torch.autograd.profiler, {"emit_nvtx": _no_context}),
        ("torch.distributed", torch.distributed, {"is_nccl_available": lambda: True}),
        ("torch", torch, {"get_device_module": lambda *_: cuda}),
    ]
    for called, home, answers in homes:
        for name, answer in answers.items():
            _stand_in(mapping, called, home, name, answer)
    for name in _SILENT:
        setattr(cuda, name, _noting(mapping, f"torch.cuda.{name}", None))
    for name in _NONE_HELD:
        setattr(cuda, name, _noting(mapping, f"torch.cuda.{name}", 0))
    _refuse()
    _Event.mapping = mapping
    cuda.Event, cuda.Stream = _Event, _Stream
    _map_streams()
    torch.Tensor.record_stream = _nothing  # it refuses a stream of ours before any mode is asked
    accelerator = getattr(torch, "accelerator", None)
    for home, parts in ((cuda, _SUBMODULES), (accelerator, ("memory",))):
        for part in (getattr(home, name) for name in parts if hasattr(home, name)):
            for name in dir(part):
                ours = getattr(home, name, None)
                if hasattr(ours, MARK) or ours in (_Event, _Stream):
                    setattr(part, name, ours)


MARK = "_stands_in"  # what a stand-in has, and what it gives: "mapped" or "refused"


def _refuse() -> None:
    for part, names in _REFUSED.items():
        try:
            home = importlib.import_module(part)
        except ImportError:
            continue  # this torch does not have it yet
        for name in names:
            if hasattr(home, name):
                setattr(home, name, _refusing(f"{home.__name__}.{name}", getattr(home, name)))


def _refusing(what: str, real: Any) -> Callable[..., Any]:
    @functools.wraps(real, assigned=("__name__", "__doc__"), updated=())
    def asked(*args: Any, **kwargs: Any) -> Any:
        if asked_by_torch():
            return real(*args, **kwargs)
        raise Refused(f"{what} needs a CUDA GPU")

    setattr(asked, MARK, "refused")
    return asked


def _map_streams() -> None:
    """torch.Stream and torch.Event of a GPU. Those of torch's own stay what they are."""
    for name, ours in (("Stream", _Stream), ("Event", _Event)):
        kind: Any = getattr(torch, name)

        def make(cls: Any, device: Any = None, *args: Any, _real: Any = kind, _ours: Any = ours, **kwargs: Any) -> Any:
            if device is None or str(device).startswith("cuda") or isinstance(device, int):
                return _ours(device, *args, **kwargs)
            return _real(device, *args, **kwargs)

        setattr(torch, name, type(name, (_Kind,), {"__new__": make, "real": (kind, ours)}))


class _OfKind(type):
    real: tuple[Any, ...]

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.real)


class _Kind(metaclass=_OfKind):
    real: tuple[Any, ...] = ()


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

    setattr(asked, MARK, "mapped")
    setattr(home, name, asked)


def _nothing(*args: Any, **kwargs: Any) -> None: ...


def _no_context(*args: Any, **kwargs: Any) -> Any:
    return contextlib.nullcontext()


def _of_tunable() -> dict[str, Callable[..., Any]]:
    asked = {name: functools.partial(_given, value) for name, value in _ASKED_OF_TUNABLE.items()}
    return {**dict.fromkeys(_OF_TUNABLE, _nothing), **asked}


def _given(value: Any, *args: Any, **kwargs: Any) -> Any:
    return value


_PROPERTIES = types.SimpleNamespace(
    name="CPU",
    total_memory=_MEMORY,
    major=9,
    minor=0,
    multi_processor_count=132,
    gcnArchName="",
    L2_cache_size=50 * 2**20,
    warp_size=32,
    max_threads_per_block=1024,
    max_threads_per_multi_processor=2048,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    clock_rate=0,
    memory_clock_rate=0,
    memory_bus_width=0,
    is_integrated=0,
    is_multi_gpu_board=0,
    pci_bus_id=0,
    pci_device_id=0,
    pci_domain_id=0,
    uuid="00000000-0000-0000-0000-000000000000",
)


def _of_cuda(ranks: int, local: int) -> dict[str, Callable[..., Any]]:
    return {
        "StreamContext": _no_context,
        "caching_allocator_disabled": _no_context,
        "get_allocator_backend": lambda: "native",
        "get_arch_list": lambda: ["sm_90"],
        "get_gencode_flags": lambda: "",
        "get_per_process_memory_fraction": lambda *_, **__: 1.0,
        "get_sync_debug_mode": lambda: 0,
        "host_memory_stats": lambda *_: _Zeros(),
        "host_memory_stats_as_nested_dict": lambda *_: {},
        "is_tf32_supported": lambda: True,
        "list_gpu_processes": lambda *_: "",
        "memory_stats_as_nested_dict": lambda *_: {},
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: ranks,
        "current_device": lambda: local,
        "get_device_name": lambda *_: "CPU",
        "get_device_properties": lambda *_, **__: _PROPERTIES,
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
        "current_stream": lambda *_: _DEFAULT,
        "default_stream": lambda *_: _DEFAULT,
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
        "current_stream": lambda *_: _DEFAULT,
        "device_index": _no_context,
        "get_device_capability": lambda *_: {},
        "get_memory_info": lambda *_: (_MEMORY, _MEMORY),
        "memory_stats": lambda *_: _Zeros(),
    }


class _Zeros(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0


def _noting(mapping: Mapping, what: str, value: Any) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        if not asked_by_torch():
            mapping.note(what)
        return value

    setattr(asked, MARK, "mapped")
    return asked
