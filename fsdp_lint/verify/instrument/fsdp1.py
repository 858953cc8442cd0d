"""Lets FSDP1 wrap a model on the CPU as it would on a GPU: its device, its offloads, its states that rank 0 gives."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed.fsdp

from fsdp_lint.verify.instrument.mapping import Mapping


def map_fsdp1(mapping: Mapping) -> None:
    """From here on FullyShardedDataParallel takes the CPU for the GPU that it wants."""
    _map_init(mapping)
    _map_offloads(mapping)


def _map_init(mapping: Mapping) -> None:
    wrapper = torch.distributed.fsdp.FullyShardedDataParallel
    start = wrapper.__init__
    signature = inspect.signature(start)
    # It broadcasts what rank 0 has over the group, whatever that is made of; only this check wants a GPU.
    parts: Any = importlib.import_module("torch.distributed.fsdp._init_utils")
    parts._check_module_states_for_sync_module_states = lambda states: None

    @functools.wraps(start)
    def init(*args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        # Without a device it looks for an accelerator, and raises where there is none.
        mapping.note("FullyShardedDataParallel(device_id=...)")
        if given.arguments.get("cpu_offload") is not None:  # that asks for a GPU's streams; all is on the CPU as it is
            mapping.note("FullyShardedDataParallel(cpu_offload=...)")
        if given.arguments.get("sync_module_states"):
            mapping.note("FullyShardedDataParallel(sync_module_states=...)")
        given.arguments.update(cpu_offload=None, device_id=torch.device("cpu"))
        start(*given.args, **given.kwargs)

    wrapper.__init__ = init


def _map_offloads(mapping: Mapping) -> None:
    """FSDP1 offloads what it has gathered from the GPU; on the CPU it frees what it has just gathered, and stops."""
    for kind in (torch.distributed.fsdp.FullStateDictConfig, torch.distributed.fsdp.ShardedStateDictConfig):
        kind.__init__ = _not_offloading(kind.__init__, kind.__name__, mapping)
    handle: Any = importlib.import_module("torch.distributed.fsdp._flat_param").FlatParamHandle

    @contextlib.contextmanager
    def to_cpu(self: Any) -> Iterator[None]:
        mapping.note("summon_full_params(offload_to_cpu=...)")
        yield

    handle.to_cpu = to_cpu


def _not_offloading(start: Any, name: str, mapping: Mapping) -> Any:
    @functools.wraps(start)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        if self.offload_to_cpu:
            mapping.note(f"{name}(offload_to_cpu=...)")
            self.offload_to_cpu = False

    return init
