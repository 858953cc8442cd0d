"""What the program asks of parameters that may come to nothing: hooks on them, assignments to a DTensor's `data`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from fsdp_lint.verify.instrument.sites import Sites
from fsdp_lint.verify.instrument.values import checksum


class Attempts:
    """By line and kind ("hook" or "data"): how often it was asked for, and how often something came of it."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self.made: dict[tuple[str, str], list[int]] = {}

    def install(self) -> None:
        """Follows both from here on."""
        for name in ("register_hook", "register_post_accumulate_grad_hook"):
            self._follow_hooks(name)
        held: Any = torch.Tensor.data

        def assign(parameter: Any, value: Any) -> None:
            if not self.sites.own(sys._getframe(1).f_code.co_filename):
                held.__set__(parameter, value)
                return
            before, given = checksum(parameter), checksum(value)
            held.__set__(parameter, value)
            self._count("data", before == given or checksum(parameter) != before)

        DTensor.data = property(held.__get__, assign)

    def _follow_hooks(self, name: str) -> None:
        real = getattr(torch.Tensor, name)

        @functools.wraps(real)
        def register(tensor: Any, hook: Callable[..., Any]) -> Any:
            asked = self.sites.own(sys._getframe(1).f_code.co_filename)
            if not asked or not isinstance(tensor, torch.nn.Parameter):
                return real(tensor, hook)
            one = self._count("hook", False)

            def called(*args: Any) -> Any:
                one[1] += 1
                return hook(*args)

            return real(tensor, called)

        setattr(torch.Tensor, name, register)

    def _count(self, how: str, worked: bool) -> list[int]:
        one = self.made.setdefault((self.sites.here(), how), [0, 0])
        one[0] += 1
        one[1] += worked
        return one

    def told(self, backward: bool) -> list[tuple[str, str, int, int]]:
        """Line, kind, how often asked for and how often it worked. Hooks only if gradients were made: before that none
        can be called."""
        return [(site, how, *counts) for (site, how), counts in self.made.items() if backward or how != "hook"]  # type: ignore[misc]
