"""The steps of the first optimizer: losses, times, what is counted in which step, and when the run has seen enough.

A program that builds no optimizer of torch's, but goes backwards, has a step with each backward."""

from __future__ import annotations

import functools
import importlib
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from fsdp_lint.verify.instrument.models import local
from fsdp_lint.verify.instrument.sites import Sites, inside

COUNTED = 1  # the first step makes what later ones find; in the second all is counted
WARM = 3  # from this step on steps are timed: nothing is counted there, and the one before has warmed up without it
_UNSCALED = "_fsdp_lint_unscaled"  # on a scaled loss, the program's own
_SCALERS = (  # FSDP1's has a `scale` of its own
    ("torch.amp.grad_scaler", "GradScaler"),
    ("torch.distributed.fsdp.sharded_grad_scaler", "ShardedGradScaler"),
)
_PRETENDED = "torch/distributed/checkpoint/state_dict.py:_init_optim_state"  # a step that only makes state


class Steps:
    """Follows optimizer steps and backwards. `after_step(number)` is called after each step of the first optimizer."""

    def __init__(
        self,
        sites: Sites,
        on_gpu: bool,
        before_first: Callable[[], None],
        before_each: Callable[[], None],
        after_step: Callable[[int], None],
    ) -> None:
        self.sites = sites
        self.on_gpu = on_gpu
        self.before_first = before_first
        self.before_each = before_each
        self.after_step = after_step
        self.made = 0
        self.times: list[Any] = []
        self.backward_site = ""
        self.backwards = 0  # in this step
        self.by_backwards = False
        self._optimizer_is_built = self._going_back = False
        self.optimizer: weakref.ref[Any] | None = None
        self._losses: list[list[Any]] = [[]]
        self._began: Any = None

    def install(self) -> None:
        """Follows steps and backwards from here on."""
        optimizers: Any = importlib.import_module("torch.optim.optimizer")
        optimizers.register_optimizer_step_pre_hook(self._before)
        optimizers.register_optimizer_step_post_hook(self._after)
        real = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            self.backward_site = self.sites.here()
            for root in tensors if isinstance(tensors, (list, tuple)) else (tensors,):
                if isinstance(root, torch.Tensor) and root.numel() == 1:
                    self._losses[-1].append(local(getattr(root, _UNSCALED, root)).detach().clone())
            inner, self._going_back = self._going_back, True  # checkpoints go backwards inside a backward
            try:
                result = real(tensors, *args, **kwargs)
            finally:
                self._going_back = inner
            if not inner:
                self.backwards += 1
                self._after_backward()
            return result

        torch.autograd.backward = backward
        self._follow_scaling()

    def _follow_scaling(self) -> None:
        """The losses that are told are the program's, not those that a gradient scaler has made of them."""
        for home, name in _SCALERS:
            kind = getattr(importlib.import_module(home), name)
            kind.scale = _remembering(kind.scale)

    @property
    def losses(self) -> list[float | None]:
        """By step, the mean of what backward began from; None for a step without."""
        return [sum(map(float, each)) / len(each) if each else None for each in self._losses[: self.made]]

    @property
    def milliseconds(self) -> list[float]:
        """Of the timed steps."""
        if self.on_gpu:
            torch.cuda.synchronize()
            return [begin.elapsed_time(end) for begin, end in self.times]
        return [(end - begin) * 1000 for begin, end in self.times]

    def optimizer_is_built(self) -> bool:
        """An optimizer is built, so its steps count; whether other steps were counted until now."""
        forgotten, self._optimizer_is_built = self.by_backwards, True
        if forgotten:
            self.by_backwards, self.made, self._losses, self.times, self._began = False, 0, [[]], [], None
        return forgotten

    def _after_backward(self) -> None:
        if self._optimizer_is_built:
            return
        if not self.by_backwards:
            self.by_backwards = True
            self.before_first()
        self._made_one()

    def _before(self, optimizer: Any, *_: Any) -> None:
        if inside(_PRETENDED):
            return
        self.before_each()
        if self.optimizer is None:
            self.optimizer = weakref.ref(optimizer)
            self.before_first()

    def _after(self, optimizer: Any, *_: Any) -> None:
        if self.optimizer is None or self.optimizer() is not optimizer or inside(_PRETENDED):
            return
        self._made_one()

    def _made_one(self) -> None:
        if self.made >= WARM and self._began is not None:
            self.times.append((self._began, self._now()))
        number = self.made
        self.made += 1
        self._losses.append([])
        self.after_step(number)
        self.backwards = 0
        self._began = self._now()

    def _now(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def _remembering(real: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def scale(scaler: Any, outputs: Any) -> Any:
        scaled = real(scaler, outputs)
        if isinstance(scaled, torch.Tensor) and scaled is not outputs:
            setattr(scaled, _UNSCALED, outputs.detach())
        return scaled

    return scale
