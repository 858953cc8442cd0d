"""What FSDP2 of releases before 2.9 needs on a CPU to do what it does on GPUs; later releases need nothing.

Up to 2.7 it asks for streams and events, which CPU builds have not: they are given ones that do nothing, as all is done
in order there. Up to 2.6 the copies out of an all-gather count as edits in place, which autograd refuses; on GPUs they
do not. Before 2.9 gloo sums where it should average: it is made to average, as NCCL does. Before 2.6 the names
of `torch.distributed.fsdp` lie in `torch.distributed._composable.fsdp`, before 2.5 those of `torch.distributed.tensor`
in `torch.distributed._tensor`: they get their later places, too, so that the same programs run.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import Any


def prepare(torch: Any) -> None:
    """Makes this torch run FSDP2 on the CPU. Before 2.4 there is none."""
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    release = (major, minor)
    if release < (2, 5):
        _also_at("torch.distributed._tensor", "torch.distributed.tensor")
    if release < (2, 6):
        _also_at("torch.distributed._composable.fsdp", "torch.distributed.fsdp")
        sys.modules["torch.distributed.fsdp._fully_shard"] = _module("torch.distributed._composable.fsdp")
    if release < (2, 7):
        _give_streams(torch.cuda)
    if release == (2, 5):
        _ask_for_no_gpu(torch.cuda, _module("torch.distributed._composable.fsdp._fsdp_param_group").FSDPCommContext)
    if release in ((2, 6), (2, 7)):
        _give_streams(torch.cpu)
    if release < (2, 7):
        _keep_versions(torch)
    if release < (2, 9):
        _average(_module("torch.distributed"))


def _module(name: str) -> Any:
    return importlib.import_module(name)


def _also_at(old: str, new: str) -> None:
    home, later = _module(old), _module(new)
    for name, value in vars(home).items():
        if not name.startswith("_") and not hasattr(later, name):
            setattr(later, name, value)


class NoStream:
    """A stream or an event where everything is done in order."""

    device_type = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def record_event(self, event: Any = None) -> NoStream:
        return NoStream()

    def record(self, *args: Any) -> None: ...

    def wait(self, *args: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True


def _give_streams(device: Any) -> None:
    device.Stream = device.Event = NoStream
    device.current_stream = lambda *_: NoStream()
    device.stream = lambda _: contextlib.nullcontext()


def _ask_for_no_gpu(cuda: Any, context: Any) -> None:
    """2.5 asks whether there is a GPU where it makes its streams, and nowhere else."""
    real, asked = context.lazy_init, cuda.is_available

    @functools.wraps(real)
    def lazy_init(*args: Any) -> Any:
        cuda.is_available = lambda: True
        try:
            return real(*args)
        finally:
            cuda.is_available = asked

    context.lazy_init = lazy_init


def _keep_versions(torch: Any) -> None:
    real = torch.split_with_sizes_copy

    @functools.wraps(real)
    def split_with_sizes_copy(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        written = [(tensor, tensor._version) for tensor in out or () if not tensor.is_inference()]
        done = real(*args, **kwargs) if out is None else real(*args, out=out, **kwargs)
        for tensor, version in written:
            torch._C._autograd._unsafe_set_version_counter(tensor, version)
        return done

    torch.split_with_sizes_copy = split_with_sizes_copy


def _average(dist: Any) -> None:
    """Only what FSDP2 calls: both with the tensor that is written as the first argument, or as `output`."""
    for name in ("reduce_scatter_tensor", "all_reduce"):
        setattr(dist, name, _averaging(getattr(dist, name), dist))


def _averaging(real: Any, dist: Any) -> Any:
    @functools.wraps(real)
    def reduce(*args: Any, **kwargs: Any) -> Any:
        group = kwargs.get("group")
        averages = kwargs.get("op") == dist.ReduceOp.AVG and dist.get_backend(group) == "gloo"
        if not averages:
            return real(*args, **kwargs)
        work = real(*args, **(kwargs | {"op": dist.ReduceOp.SUM}))
        written: Any = args[0] if args else kwargs.get("output", kwargs.get("tensor"))
        written.div_(dist.get_world_size(group))
        return work

    return reduce
