"""Whole tensors that a rank takes into its memory: state dicts that it gathers, and files that it reads."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from fsdp_lint.verify.instrument.saves import tensors_in
from fsdp_lint.verify.instrument.sites import Sites
from fsdp_lint.verify.measures import Whole

_GATHERING = ("get_model_state_dict", "get_optimizer_state_dict", "get_state_dict")


class Wholes:
    """By line: the bytes of whole tensors that a state dict or a file has brought, the most of one call."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self._most: dict[tuple[str, str], int] = {}
        self._inside = False

    def install(self) -> None:
        """Follows both from here on."""
        home: Any = importlib.import_module("torch.distributed.checkpoint.state_dict")
        for name in _GATHERING:
            setattr(home, name, self._following("state", getattr(home, name)))
        wrapper: Any = torch.distributed.fsdp.FullyShardedDataParallel
        for name in ("state_dict", "optim_state_dict", "full_optim_state_dict"):
            real = wrapper.__dict__.get(name)
            if isinstance(real, staticmethod):
                setattr(wrapper, name, staticmethod(self._following("state", real.__func__)))
            else:
                setattr(wrapper, name, self._following("state", getattr(wrapper, name)))
        torch.load = torch.serialization.load = self._following("file", torch.load)

    def _following(self, how: str, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def followed(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return real(*args, **kwargs)
            self._inside = True
            try:
                result = real(*args, **kwargs)
            finally:
                self._inside = False
            site = self.sites.here()
            if site and not (how == "file" and kwargs.get("mmap")):
                self._most[site, how] = max(self._most.get((site, how), 0), _whole_bytes(result))
            return result

        return followed

    @property
    def told(self) -> list[Whole]:
        """What was taken, in the order of the calls."""
        return [Whole(site, how, size) for (site, how), size in self._most.items()]


def _whole_bytes(content: Any) -> int:
    whole = {}
    for _, tensor in tensors_in(content):
        if not isinstance(tensor, DTensor) and type(tensor).__name__ != "ShardedTensor":
            if tensor.device.type != "meta":
                whole[id(tensor)] = tensor.numel() * tensor.element_size()
    return sum(whole.values())
