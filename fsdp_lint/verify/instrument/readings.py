"""Numbers that the program takes from DTensors or from their local parts, with the values that this rank reads."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from fsdp_lint.verify.instrument.sites import Sites

_SCALARS = ("item", "__float__", "__bool__", "__int__", "tolist")
_MOST = 20  # readings kept of one line


class Readings:
    """Reads of a scalar from a DTensor that is not whole, and arithmetic on what `to_local()` gave."""

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
