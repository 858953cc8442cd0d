"""Lets a program that was written for CUDA run on the CPU, unedited: each CUDA device that it names becomes the CPU.

Everything that was mapped is noted with the line that asked for it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh
from torch.overrides import TorchFunctionMode

from fsdp_lint.verify.instrument.sites import Sites

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
_MEMORY = 80 * 2**30  # bytes of the GPU that is pretended


class Mapping:
    """What was mapped, each with the line that asked for it first."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self._noted: dict[str, str] = {}

    def note(self, what: str) -> None:
        """This was asked for here."""
        if what not in self._noted:
            self._noted[what] = self.sites.here()

    @property
    def told(self) -> list[str]:
        """One line each: what, and where."""
        return [f"{what}\t{site}" for what, site in self._noted.items() if site]


def map_to_cpu(mapping: Mapping, ranks: int) -> None:
    """From here on CUDA is the CPU for the program; torch itself still knows that there is no GPU."""
    _Devices(mapping).__enter__()
    _map_cuda(mapping, ranks)
    _map_meshes(mapping)
    _map_contexts(mapping)
    map_gloo(mapping)
    _map_load(mapping)
    _prefer_foreach()


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return bool(value.type == "cuda")
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def cpu_for(value: Any, mapping: Mapping) -> Any:
    """The CPU for a CUDA device, anything else itself."""
    if not _is_cuda(value):
        return value
    mapping.note("device cuda")
    return torch.device("cpu") if isinstance(value, torch.device) else "cpu"


class _Devices(TorchFunctionMode):
    """Maps the devices that are given to torch's functions and to methods of tensors."""

    def __init__(self, mapping: Mapping) -> None:
        super().__init__()
        self.mapping = mapping

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.cuda:
            self.mapping.note("device cuda")
            return args[0]
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], int) and not isinstance(args[1], bool):
            args = (args[0], "cuda", *args[2:])
        if func is torch.device and any(map(_is_cuda, (*args, *kwargs.values()))):
            self.mapping.note("device cuda")
            return torch.device("cpu")  # a CPU with the GPU's number is no place that torch.load knows
        if any(map(_is_cuda, args)) or any(map(_is_cuda, kwargs.values())):
            args = tuple(cpu_for(each, self.mapping) for each in args)
            kwargs = {name: cpu_for(each, self.mapping) for name, each in kwargs.items()}
        device = kwargs.get("device")
        if isinstance(device, int) and not isinstance(device, bool):
            self.mapping.note("device cuda")
            kwargs = {**kwargs, "device": "cpu"}
        if kwargs.get("pin_memory") is True:
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)


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


def _map_cuda(mapping: Mapping, ranks: int) -> None:
    cuda = torch.cuda
    local = int(os.environ.get("LOCAL_RANK", "0"))
    properties = types.SimpleNamespace(
        name="CPU", total_memory=_MEMORY, major=9, minor=0, multi_processor_count=1, gcnArchName=""
    )

    def stand_in(name: str, value: Callable[..., Any]) -> None:
        real = getattr(cuda, name, None)

        def asked(*args: Any, **kwargs: Any) -> Any:
            if asked_by_torch() and real is not None:
                return real(*args, **kwargs)
            mapping.note(f"torch.cuda.{name}")
            return value(*args, **kwargs)

        setattr(cuda, name, asked)

    for name in _SILENT:
        setattr(cuda, name, _noting(mapping, f"torch.cuda.{name}", None))
    for name in _NONE_HELD:
        setattr(cuda, name, _noting(mapping, f"torch.cuda.{name}", 0))
    stand_in("is_available", lambda: True)
    stand_in("is_initialized", lambda: True)
    stand_in("device_count", lambda: ranks)
    stand_in("current_device", lambda: local)
    stand_in("get_device_name", lambda *_: "CPU")
    stand_in("get_device_properties", lambda *_: properties)
    stand_in("get_device_capability", lambda *_: (9, 0))
    stand_in("is_bf16_supported", lambda *_, **__: True)
    stand_in("mem_get_info", lambda *_: (_MEMORY, _MEMORY))
    stand_in("memory_stats", lambda *_: _Zeros())
    stand_in("memory_summary", lambda *_, **__: "")
    stand_in("get_rng_state", lambda *_: torch.get_rng_state())
    stand_in("get_rng_state_all", lambda *_: [torch.get_rng_state()])
    stand_in("set_rng_state", lambda *_: None)
    stand_in("set_rng_state_all", lambda *_: None)
    stand_in("current_stream", lambda *_: _Stream())
    stand_in("default_stream", lambda *_: _Stream())
    stand_in("stream", lambda *_: contextlib.nullcontext())
    stand_in("device", lambda *_: contextlib.nullcontext())
    cuda.Event, cuda.Stream = _Event, _Stream


class _Zeros(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return 0


def _noting(mapping: Mapping, what: str, value: Any) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        if not asked_by_torch():
            mapping.note(what)
        return value

    return asked


def asked_by_torch() -> bool:
    """Whether torch asks for its own sake: it is told the truth."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    return bool(name == "torch" or name.startswith("torch."))


def _map_meshes(mapping: Mapping) -> None:
    meshes = torch.distributed.device_mesh
    real, start = meshes.init_device_mesh, meshes.DeviceMesh.__init__

    @functools.wraps(real)
    def init_device_mesh(device_type: str, *args: Any, **kwargs: Any) -> Any:
        return real(cpu_for(device_type, mapping), *args, **kwargs)

    @functools.wraps(start)
    def init(mesh: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        start(mesh, cpu_for(device_type, mapping), *args, **kwargs)

    meshes.init_device_mesh = dist.init_device_mesh = init_device_mesh
    meshes.DeviceMesh.__init__ = init


def _map_contexts(mapping: Mapping) -> None:
    """What takes a device and is no function of tensors: autocast, the default device, modules, FSDP1's device."""
    autocast, default = torch.autocast.__init__, torch.set_default_device
    torch.autocast.__init__ = lambda self, device_type, *args, **kwargs: autocast(
        self, cpu_for(device_type, mapping), *args, **kwargs
    )
    torch.set_default_device = lambda device: default(cpu_for(device, mapping))
    wrapper = torch.distributed.fsdp.FullyShardedDataParallel
    start = wrapper.__init__

    @functools.wraps(start)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        # Without a device it looks for an accelerator, and raises where there is none.
        mapping.note("FullyShardedDataParallel(device_id=...)")
        start(self, *args, **{**kwargs, "device_id": torch.device("cpu")})

    wrapper.__init__ = init
    parallel = torch.nn.parallel.DistributedDataParallel
    begin = parallel.__init__

    @functools.wraps(begin)
    def init_ddp(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.pop("device_ids", None) is not None or kwargs.pop("output_device", None) is not None:
            mapping.note("DistributedDataParallel(device_ids=...)")
        kwargs.pop("output_device", None)
        begin(self, *args, **kwargs)

    parallel.__init__ = init_ddp


def map_gloo(mapping: Mapping) -> None:
    """What gloo cannot do as NCCL does it: barriers of devices, and averages."""
    barrier = dist.barrier

    @functools.wraps(barrier)
    def without_devices(*args: Any, **kwargs: Any) -> Any:
        if kwargs.pop("device_ids", None) is not None:
            mapping.note("barrier(device_ids=...)")
        return barrier(*args, **kwargs)

    dist.barrier = dist.distributed_c10d.barrier = without_devices
    real = dist.all_reduce

    @functools.wraps(real)
    def all_reduce(tensor: Any, op: Any = dist.ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
        if op != dist.ReduceOp.AVG or async_op:
            return real(tensor, op, group, async_op)
        mapping.note("all_reduce(op=AVG)")
        real(tensor, dist.ReduceOp.SUM, group)
        tensor /= dist.get_world_size(group)
        return None

    dist.all_reduce = dist.distributed_c10d.all_reduce = all_reduce


def _map_load(mapping: Mapping) -> None:
    load = torch.load

    @functools.wraps(load)
    def to_cpu(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 1:
            args = (args[0], cpu_for(args[1], mapping), *args[2:])
        kwargs = {name: cpu_for(value, mapping) for name, value in kwargs.items()}
        return load(*args, **kwargs)

    torch.load = torch.serialization.load = to_cpu


def _prefer_foreach() -> None:
    """On a GPU optimizers take the foreach path by default; on the CPU they do not, and hide errors."""
    home: Any = importlib.import_module("torch.optim.optimizer")
    real = home._get_foreach_kernels_supported_devices
    home._get_foreach_kernels_supported_devices = lambda: [*real(), "cpu"]
