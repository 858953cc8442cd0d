"""What the program asks for that may come to nothing: hooks on parameters, assignments to a DTensor's `data`, the state
of an optimizer, and a load into one that has none yet."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from fsdp_lint.verify.instrument.models import fsdp1_pieces
from fsdp_lint.verify.instrument.sites import Sites
from fsdp_lint.verify.instrument.values import checksum


class Attempts:
    """By line and kind: how often it was asked for, and how often something came of it.

    "hook" works if it is called, "data" if the values change, "state" (an optimizer's state dict) if it is that of
    whole parameters, "load" (a distributed checkpoint into an optimizer's state dict) if there is state to be filled.
    """

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self.made: dict[tuple[str, str], list[int]] = {}
        self._loading = False

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
        self._follow_state()
        self._follow_loads()

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

    def _follow_state(self) -> None:
        real = torch.optim.Optimizer.state_dict

        @functools.wraps(real)
        def state_dict(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            given = real(optimizer, *args, **kwargs)
            if self._loading:
                self._count("load", bool(given.get("state")))
            elif self.sites.own(sys._getframe(1).f_code.co_filename):
                self._count("state", not fsdp1_pieces(p for g in optimizer.param_groups for p in g["params"]))
            return given

        torch.optim.Optimizer.state_dict = state_dict

    def _follow_loads(self) -> None:
        home: Any = importlib.import_module("torch.distributed.checkpoint.state_dict_loader")
        package: Any = importlib.import_module("torch.distributed.checkpoint")
        real = home.load

        @functools.wraps(real)
        def load(*args: Any, **kwargs: Any) -> Any:
            content = args[0] if args else kwargs.get("state_dict")
            for state in _optimizer_states(content):
                self._count("load", bool(state["state"]))
            self._loading = True
            try:
                return real(*args, **kwargs)
            finally:
                self._loading = False

        home.load = package.load = load

    def _count(self, how: str, worked: bool) -> list[int]:
        one = self.made.setdefault((self.sites.here(), how), [0, 0])
        one[0] += 1
        one[1] += worked
        return one

    def told(self, backward: bool) -> list[tuple[str, str, int, int]]:
        """Line, kind, how often asked for and how often it worked. Hooks only if gradients were made: before that none
        can be called."""
        return [(site, how, *counts) for (site, how), counts in self.made.items() if backward or how != "hook"]  # type: ignore[misc]


def _optimizer_states(content: Any) -> Iterator[Mapping[str, Any]]:
    """The optimizers' state dicts in what is to be loaded into."""
    if isinstance(content, Mapping):
        if {"state", "param_groups"} <= content.keys():
            yield content
        else:
            for each in content.values():
                yield from _optimizer_states(each)
