"""Gradients and parameters that are changed, hooked, divided and assigned."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard


def assigned_and_in_place(model: nn.Module):
    fully_shard(model)
    for p in model.parameters():
        p.data = p.data * 2  # event: UseParameters(how=data)
        setattr(p, "data", p)  # event: UseParameters(how=data)
        p.data -= p.grad  # event: UseParameters(how=update)
        p.data.mul_(2)  # event: UseParameters(how=update)


def hooked(model: nn.Module):
    fully_shard(model)
    for p in model.parameters():
        p.register_hook(print)  # event: UseParameters(how=hook)
        p.register_post_accumulate_grad_hook(print)  # event: UseParameters(how=accumulate-hook)


def divided(model: nn.Module, group, x):
    fully_shard(model)
    model.set_gradient_divide_factor(1.0)  # event: SetDivisor(module=model)
    size = dist.get_world_size()
    loss = model(x).sum()
    (loss / size).backward()  # event: DivideByWorld
    (loss / (size * 4)).backward()  # event: DivideByWorld
    (loss / dist.get_world_size(group)).backward()  # no-event: DivideByWorld
    (loss * size / 4).backward()  # no-event: DivideByWorld
    for p in model.parameters():
        p.grad /= size  # event: DivideByWorld, UseParameters(how=update)
        p.grad.div_(size)  # event: DivideByWorld, UseParameters(how=update)
