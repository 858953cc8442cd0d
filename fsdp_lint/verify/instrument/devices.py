"""Lets a program that was written for CUDA run on the CPU, unedited: each CUDA device that it names becomes the CPU.

Everything that was mapped is noted with the line that asked for it.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.device_mesh
from torch.overrides import TorchFunctionMode

from fsdp_lint.verify.instrument.autocasts import map_autocast
from fsdp_lint.verify.instrument.batch_norm import map_batch_norm
from fsdp_lint.verify.instrument.cuda_types import map_types, of_cpu
from fsdp_lint.verify.instrument.fsdp1 import map_fsdp1
from fsdp_lint.verify.instrument.mapping import Mapping, asked_by_torch
from fsdp_lint.verify.instrument.stand_ins import map_cuda


def map_to_cpu(mapping: Mapping, ranks: int) -> None:
    """From here on CUDA is the CPU for the program; torch itself still knows that there is no GPU."""
    _Devices(mapping).__enter__()
    map_cuda(mapping, ranks)
    _map_meshes(mapping)
    map_autocast(mapping)
    map_batch_norm(mapping)
    map_types(mapping, ranks)
    _map_contexts(mapping)
    _map_ddp(mapping)
    _map_profilers(mapping)
    map_fsdp1(mapping)
    map_gloo(mapping)
    _map_load(mapping)
    _prefer_foreach()


def _is_cuda(value: Any) -> bool:
    if isinstance(value, torch.device):
        return bool(value.type == "cuda")
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _is_number(value: Any) -> bool:
    """Whether it is a GPU's number."""
    return isinstance(value, int) and not isinstance(value, bool)


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
            self.mapping.note("pinned memory")
            return args[0]
        if func is torch.Tensor.to and len(args) > 1 and _is_number(args[1]):
            args = (args[0], "cuda", *args[2:])
        if func is torch._C._nn._parse_to:  # what a module's `to` makes of its arguments
            args = tuple("cuda" if _is_number(each) else each for each in args)
        if func is torch.Tensor.type:
            args = tuple(of_cpu(each, self.mapping) for each in args)
            kwargs = {name: of_cpu(each, self.mapping) for name, each in kwargs.items()}
        if func is torch.device and any(_is_cuda(each) or _is_number(each) for each in (*args, *kwargs.values())):
            if not asked_by_torch():  # which asks for what there is when it makes a group
                self.mapping.note("device cuda")
            return torch.device("cpu")  # a CPU with the GPU's number is no place that torch.load knows
        if any(map(_is_cuda, args)) or any(map(_is_cuda, kwargs.values())):
            args = tuple(cpu_for(each, self.mapping) for each in args)
            kwargs = {name: cpu_for(each, self.mapping) for name, each in kwargs.items()}
        if _is_number(kwargs.get("device")):
            self.mapping.note("device cuda")
            kwargs = {**kwargs, "device": "cpu"}
        if kwargs.get("pin_memory") is True:
            self.mapping.note("pinned memory")
            kwargs = {**kwargs, "pin_memory": False}
        return func(*args, **kwargs)


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
    """What takes a device and is no function of tensors: the default device, generators, scalers."""
    default = torch.set_default_device
    torch.set_default_device = lambda device: default(cpu_for(device, mapping))
    generator: Any = torch.Generator

    class Generator(generator):
        def __new__(cls, device: Any = "cpu") -> Any:
            return generator.__new__(cls, "cpu" if _is_number(device) else cpu_for(device, mapping))

    torch.Generator = Generator
    fork = torch.random.fork_rng

    @functools.wraps(fork)
    def fork_rng(devices: Any = None, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("device_type", None)
        return fork([], *args[:1], **kwargs)

    torch.random.fork_rng = fork_rng
    scaler = torch.amp.GradScaler.__init__

    @functools.wraps(scaler)
    def init_scaler(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        scaler(self, cpu_for(device, mapping), *args, **kwargs)  # one for CUDA would be off, and scale nothing

    torch.amp.GradScaler.__init__ = init_scaler


def _map_ddp(mapping: Mapping) -> None:
    parallel: Any = torch.nn.parallel.DistributedDataParallel
    begin = parallel.__init__

    @functools.wraps(begin)
    def init_ddp(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.pop("device_ids", None) is not None or kwargs.pop("output_device", None) is not None:
            mapping.note("DistributedDataParallel(device_ids=...)")
        kwargs.pop("output_device", None)
        begin(self, *args, **kwargs)

    parallel.__init__ = init_ddp
    check = parallel._check_comm_hook

    @functools.wraps(check)
    def check_hook(self: Any, hook: Any) -> None:
        try:
            check(self, hook)
        except TypeError as error:
            if "NCCL" not in str(error):
                raise
            mapping.note(f"register_comm_hook({hook.__name__})")  # it asks which NCCL there is; gloo sums bfloat16 too

    parallel._check_comm_hook = check_hook


def _map_profilers(mapping: Mapping) -> None:
    """What they would see of the GPU, they see of the CPU."""
    for kind in (torch.profiler._KinetoProfile, torch.profiler.profile):
        kind.__init__ = _of_cpu_activity(kind.__init__, mapping)


def _of_cpu_activity(start: Any, mapping: Mapping) -> Any:
    cpu, cuda = torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA

    @functools.wraps(start)
    def init(self: Any, *args: Any, activities: Any = None, **kwargs: Any) -> None:
        wanted = list(activities or ())
        if any(each == cuda or (isinstance(each, dict) and cuda in each) for each in wanted):
            mapping.note("ProfilerActivity.CUDA")
            activities = [each for each in wanted if each == cpu or (isinstance(each, dict) and cuda not in each)] or [
                cpu
            ]
        start(self, *args, activities=activities, **kwargs)

    return init


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
