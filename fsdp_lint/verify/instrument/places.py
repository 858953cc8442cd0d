"""Where a rank's model lies: on which GPUs, over which dimensions of a mesh, and which backend moves its data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from fsdp_lint.verify.instrument.models import Models, local
from fsdp_lint.verify.measures import Layout


def gpus_used() -> dict[str, int]:
    """By its number, the most bytes that this process had at once on each GPU that it touched."""
    if not torch.cuda.is_initialized():
        return {}
    peaks = {str(number): torch.cuda.max_memory_allocated(number) for number in range(torch.cuda.device_count())}
    return {number: peak for number, peak in peaks.items() if peak}


def backend_of(models: Models) -> str:
    """The backend of the default group for the device that the parameters are on, as "gloo for cuda"; "" without a
    group or a model."""
    device = next((local(p).device.type for _, p in models.parameters()), "")
    if not device or not dist.is_initialized():
        return ""
    told = dict(pair.split(":", 1) for pair in str(dist.get_backend_config()).split(",") if ":" in pair)
    return f"{told.get(device, dist.get_backend())} for {device}"


def layouts(models: Models) -> list[Layout]:
    """The different ways in which parameters lie on a mesh: each dimension's name, size, and whether it shards."""
    found = {*_of_dtensors(models), *_of_fsdp1(models)}
    return sorted(found, key=lambda each: each.dimensions)


def _of_dtensors(models: Models) -> Iterator[Layout]:
    for _, parameter in models.parameters():
        if isinstance(parameter, DTensor):
            yield _layout(parameter.device_mesh, [kind.is_shard() for kind in parameter.placements])


def _of_fsdp1(models: Models) -> Iterator[Layout]:
    """FSDP1 keeps its mesh in private state, read guarded; its first dimension of two replicates."""
    for root in models.roots:
        for part in root.modules():
            mesh = getattr(part, "_device_mesh", None)
            if isinstance(part, torch.distributed.fsdp.FullyShardedDataParallel) and mesh is not None:
                with contextlib.suppress(AttributeError):
                    yield _layout(mesh, [dim == mesh.ndim - 1 for dim in range(mesh.ndim)])


def _layout(mesh: Any, shards: list[bool]) -> Layout:
    names = mesh.mesh_dim_names or ("",) * mesh.ndim
    return Layout(tuple(zip(map(str, names), mesh.shape, shards, strict=True)))
