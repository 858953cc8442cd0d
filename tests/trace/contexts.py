"""Contexts: what happens when they are entered, and what when they are left."""

from contextlib import ExitStack, contextmanager, nullcontext

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


@contextmanager
def sharded_behind(model):
    dist.barrier()  # event: Collective(op=barrier)
    try:
        yield model
    finally:
        fully_shard(model)  # event: Shard(module=model)


@contextmanager
def sharded_before(model):
    fully_shard(model)  # event: Shard(module=model)
    yield model


class Whole:
    def __init__(self, model):
        self.model = model

    def __enter__(self):
        return self.model

    def __exit__(self, *error):
        fully_shard(self.model)  # event: Shard(module=model)


@contextmanager
def on_the_first():
    if dist.get_rank() == 0:
        yield True
    else:
        yield False


def generators():
    model = nn.Linear(8, 8)
    with sharded_behind(model) as inner:
        torch.optim.SGD(inner.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def sharded_first():
    model = nn.Linear(8, 8)
    with sharded_before(model) as inner:
        torch.optim.SGD(inner.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def kept_and_entered_later():
    model = nn.Linear(8, 8)
    context = sharded_before(model)
    torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    with context:
        torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def never_entered():
    model = nn.Linear(8, 8)
    sharded_before(model)
    torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=none)


def entered_by_hand():
    model = nn.Linear(8, 8)
    context = sharded_behind(model)
    context.__enter__()
    torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    context.__exit__(None, None, None)
    torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def left_by_a_return(model):
    with sharded_behind(model):
        return torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)


def objects():
    model = nn.Linear(8, 8)
    with Whole(model) as inner:
        torch.optim.SGD(inner.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def stacks():
    model = nn.Linear(8, 8)
    with ExitStack() as stack:
        inner = stack.enter_context(sharded_behind(model))
        torch.optim.SGD(inner.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def callbacks():
    model = nn.Linear(8, 8)
    with ExitStack() as stack:
        stack.callback(fully_shard, model)  # event: Shard(module=model)
        torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)


def closed():
    model = nn.Linear(8, 8)
    stack = ExitStack()
    stack.enter_context(Whole(model))
    torch.optim.SGD(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    stack.close()


def nothing_around():
    model = nn.Linear(8, 8)
    with nullcontext(model) as inner:
        torch.optim.SGD(inner.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    fully_shard(model)  # event: Shard(module=model)


def one_of_two(model: nn.Module, flag):
    with sharded_before(model) if flag else nullcontext():
        dist.barrier()  # event: Collective(guards=0)


def one_of_two_values(model: nn.Module):
    fully_shard(model)  # event: Shard(module=model)
    with on_the_first() as first:
        if first:
            dist.barrier()  # event: Collective(ranks=zero)
