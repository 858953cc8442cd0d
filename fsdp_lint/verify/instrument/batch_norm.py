"""SyncBatchNorm on the CPU: torch has kernels for GPUs only, so here are others; the collectives are torch's."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from fsdp_lint.verify.instrument.mapping import Mapping

_KERNELS = torch.library.Library("aten", "IMPL")  # kernels go when this does


def map_batch_norm(mapping: Mapping) -> None:
    """From here on SyncBatchNorm takes the statistics of the batches of all ranks, also of tensors on the CPU."""
    for kernel in (_stats, _gather_stats_with_counts, _elemt, _backward_reduce, _backward_elemt):
        _KERNELS.impl(f"batch_norm{kernel.__name__}", kernel, "CPU")
    kind: Any = torch.nn.SyncBatchNorm
    real = kind.forward
    home: Any = importlib.import_module("torch.nn.modules._functions")
    home.dist = _Flat()

    @functools.wraps(real)
    def forward(self: Any, input: Tensor) -> Any:
        if not self.training or input.device.type != "cpu" or not dist.is_initialized():
            return real(self, input)
        mapping.note("SyncBatchNorm")
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        factor = self.momentum or 0.0
        if self.track_running_stats:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / self.num_batches_tracked.item()
        mean, var = (self.running_mean, self.running_var) if self.track_running_stats else (None, None)
        group = self.process_group or dist.group.WORLD
        ranks = dist.get_world_size(group)
        if ranks == 1:
            return torch.nn.functional.batch_norm(input, mean, var, self.weight, self.bias, True, factor, self.eps)
        return home.SyncBatchNorm.apply(input, self.weight, self.bias, mean, var, self.eps, factor, group, ranks)

    kind.forward = forward


class _Flat:
    """torch.distributed, which gathers into a tensor of one dimension: a group that is pretended takes no other."""

    def __getattr__(self, name: str) -> Any:
        real = getattr(dist, name)
        if name not in ("all_gather_into_tensor", "all_gather_single"):
            return real
        return lambda output, *args, **kwargs: real(output.view(-1), *args, **kwargs)


def _stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    var, mean = torch.var_mean(_wide(input), _all_but_channels(input), correction=0)
    return mean, (var + eps).rsqrt()


def _gather_stats_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    share = counts[:, None].to(mean.dtype)
    total = share.sum()
    middle = (mean * share).sum(0) / total
    squares = ((invstd.pow(-2) - eps + (mean - middle).square()) * share).sum(0)
    if running_mean is not None:
        running_mean.lerp_(middle.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((squares / (total - 1)).to(running_var.dtype), momentum)
    return middle, (squares / total + eps).rsqrt()


def _elemt(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    scale = invstd if weight is None else invstd * weight
    made = (_wide(input) - _along(mean, input)) * _along(scale, input)
    return (made if bias is None else made + _along(bias, input)).to(input.dtype)


def _backward_reduce(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dims, grad = _all_but_channels(input), _wide(grad_out)
    sum_dy, sum_dy_xmu = grad.sum(dims), (grad * (_wide(input) - _along(mean, input))).sum(dims)
    kind = sum_dy.dtype if weight is None else weight.dtype
    return sum_dy, sum_dy_xmu, (sum_dy_xmu * invstd).to(kind), sum_dy.to(kind, copy=True)


def _backward_elemt(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    total = count.sum()
    scale = invstd if weight is None else invstd * weight
    tilt = _along(sum_dy_xmu / total * invstd.square(), input)
    level = _wide(grad_out) - _along(sum_dy / total, input) - (_wide(input) - _along(mean, input)) * tilt
    return (level * _along(scale, input)).to(grad_out.dtype)


def _wide(value: Tensor) -> Tensor:
    """In the type in which a GPU sums up."""
    return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value


def _all_but_channels(input: Tensor) -> list[int]:
    return [0, *range(2, input.dim())]


def _along(value: Tensor, input: Tensor) -> Tensor:
    """A value a channel, as wide as the input."""
    return value.view(1, -1, *[1] * (input.dim() - 2))
