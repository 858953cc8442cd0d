"""What is made once and asked for often, and what modules around the model do to it when they are called."""

import functools
from functools import cached_property

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)

    def features(self, x):
        return self.body(x)  # event: Forward(module=shell.model.body), Forward(module=shell.model.body)

    def forward(self, x):
        return self.features(x)


class Lazily:
    @cached_property
    def net(self):
        return Net()

    @property
    def another(self):
        return Net()


def cached_property_is_one():
    lazily = Lazily()
    optimizer = torch.optim.AdamW(lazily.net.parameters())  # event: BuildOptimizer(sharding=later)
    fully_shard(lazily.net)
    return optimizer


def property_is_another():
    lazily = Lazily()
    optimizer = torch.optim.AdamW(lazily.another.parameters())  # event: BuildOptimizer(sharding=none)
    fully_shard(lazily.another)
    return optimizer


@functools.lru_cache(maxsize=None)
def get_net(name):
    return Net()


def cached_function_gives_one():
    optimizer = torch.optim.AdamW(get_net("a").parameters())  # event: BuildOptimizer(sharding=later)
    fully_shard(get_net("a"))
    return optimizer


def cached_function_of_another_argument():
    optimizer = torch.optim.AdamW(get_net("b").parameters())  # event: BuildOptimizer(sharding=none)
    fully_shard(get_net("c"))
    return optimizer


class Loss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.held = [model]

    def forward(self, x):
        return self.held[0].features(x).sum()


class Shell(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model.features(x).sum()


def called_around_the_model(x):
    model = Net()
    fully_shard(model)
    loss, shell = Loss(model), Shell(model)
    loss(x)  # event: Forward(module=loss)
    shell(x)  # event: Forward(module=shell)


def called_around_what_is_not_sharded(x):
    model = Net()
    shell = Shell(model)
    shell(x)  # event: Forward(module=shell)
    fully_shard(Net())
    return model


def sharded_as_a_whole(x):
    shell = Shell(Net())
    fully_shard(shell)
    shell(x)  # event: Forward(module=shell)
