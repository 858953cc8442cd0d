"""Numbers that the program takes from what may be a part: DTensors, their local tensors, norms, scales and states."""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from fsdp_lint.verify.instrument.models import fsdp1_pieces
from fsdp_lint.verify.instrument.sites import Sites

_SCALARS = ("item", "__float__", "__bool__", "__int__", "tolist")
_MOST = 20  # readings kept of one line


class Readings:
    """By line and kind. "to_local" is the sum of what it gave; "norm" what gradients were clipped by; "scale" a
    gradient scaler's, after an update; "restored" the sum of the state that an optimizer was given."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self.made: dict[tuple[str, str], dict[str, Any]] = {}

    def install(self) -> None:
        """Follows reads from here on."""
        for name in _SCALARS:
            self._follow_scalar(name)
        real = DTensor.to_local

        @functools.wraps(real)
        def to_local(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            part = real(tensor, *args, **kwargs)
            asked = self.sites.own(sys._getframe(1).f_code.co_filename)
            if asked and any(not kind.is_replicate() for kind in tensor.placements):
                self._note(self.sites.here(), "to_local", True, _total(part))
            return part

        DTensor.to_local = to_local
        self._follow_clipping()
        self._follow_scalers()
        self._follow_restoring()

    def _follow_clipping(self) -> None:
        home: Any = importlib.import_module("torch.nn.utils.clip_grad")
        real = home.clip_grad_norm_

        @functools.wraps(real)
        def clip_grad_norm_(parameters: Any, *args: Any, **kwargs: Any) -> Any:
            given = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            norm = real(given, *args, **kwargs)
            if fsdp1_pieces(given) and not isinstance(norm, DTensor):
                self._note(self.sites.here(), "norm", True, float(norm))
            return norm

        home.clip_grad_norm_ = torch.nn.utils.clip_grad_norm_ = clip_grad_norm_

    def _follow_scalers(self) -> None:
        for home, name in (("torch.amp.grad_scaler", "GradScaler"), ("torch.distributed.fsdp.sharded_grad_scaler", "")):
            kind = getattr(importlib.import_module(home), name or "ShardedGradScaler")
            kind.update = self._following_update(kind.update)

    def _following_update(self, real: Any) -> Any:
        @functools.wraps(real)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> None:
            real(scaler, *args, **kwargs)
            if scaler.is_enabled():
                self._note(self.sites.here(), "scale", True, float(scaler.get_scale()))

        return update

    def _follow_restoring(self) -> None:
        real = torch.optim.Optimizer.load_state_dict

        @functools.wraps(real)
        def load_state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            real(optimizer, *args, **kwargs)
            if fsdp1_pieces(p for group in optimizer.param_groups for p in group["params"]):
                moments = [v for each in optimizer.state.values() for v in each.values() if isinstance(v, torch.Tensor)]
                self._note(self.sites.here(), "restored", True, sum(map(_total, moments)))

        torch.optim.Optimizer.load_state_dict = load_state_dict

    def _follow_scalar(self, name: str) -> None:
        real = getattr(torch.Tensor, name)

        @functools.wraps(real)
        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            value = real(tensor, *args, **kwargs)
            if isinstance(tensor, DTensor):
                partial = any(not kind.is_replicate() for kind in tensor.placements)
                if isinstance(value, (int, float, bool)):
                    self._note(self.sites.here(), name.strip("_"), partial, float(value))
            return value

        setattr(torch.Tensor, name, read)

    def _note(self, site: str, how: str, partial: bool, value: float) -> None:
        one = self.made.setdefault((site, how), {"site": site, "how": how, "partial": partial, "values": []})
        one["partial"] = one["partial"] or partial
        if len(one["values"]) < _MOST:
            one["values"].append(value)


def _total(part: Any) -> float:
    """A number that differs between ranks whose parts differ."""
    with torch.no_grad():
        return float(part.detach().double().sum()) if part.numel() else 0.0
