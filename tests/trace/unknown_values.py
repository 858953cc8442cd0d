"""Values of which nothing is known: the same way leads to the same value, another way to another."""

import torch
from somewhere import build, load
from torch.distributed.fsdp import fully_shard


def same_attribute(state):
    optimizer = torch.optim.AdamW(state.model.parameters())  # event: BuildOptimizer(of=state.model, sharding=later)
    fully_shard(state.model)  # event: Shard(module=state.model)
    return optimizer


def other_attribute(state):
    optimizer = torch.optim.AdamW(state.critic.parameters())  # event: BuildOptimizer(of=state.critic, sharding=none)
    fully_shard(state.model)  # event: Shard(module=state.model)
    return optimizer


def part_of_it(state):
    optimizer = torch.optim.AdamW(state.model.parameters())  # event: BuildOptimizer(of=state.model, sharding=later)
    fully_shard(state.model.head)  # event: Shard(module=state.model.head)
    return optimizer


def attribute_bound_anew(state):
    optimizer = torch.optim.AdamW(state.model.parameters())  # event: BuildOptimizer(of=state.model, sharding=none)
    state.model = build()
    fully_shard(state.model)  # event: Shard(module=build(...))
    return optimizer


def name_bound_anew():
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=build(...), sharding=none)
    model = build()
    fully_shard(model)  # event: Shard(module=build(...))
    return optimizer


def another_item(models):
    optimizer = torch.optim.AdamW(models["one"].parameters())  # event: BuildOptimizer(of=models["one"], sharding=none)
    fully_shard(models["two"])  # event: Shard(module=models["two"])
    return optimizer


def unpacked():
    model, other = load()
    optimizer = torch.optim.AdamW(other.parameters())  # event: BuildOptimizer(sharding=none)
    fully_shard(model)  # event: Shard
    return optimizer


def one_of_two(flag, one, other):
    model = one if flag else other
    fully_shard(model)  # event: Shard(module=one, guards=1), Shard(module=other, guards=1)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def default_by_or(given):
    model = given or build()
    fully_shard(model)  # event: Shard(module=given, guards=1), Shard(module=build(...), guards=1)


class Config:
    def __init__(self):
        self.strategy = Strategy()


class Strategy:
    def apply(self, model):
        fully_shard(model)  # event: Shard(module=model, guards=0), Shard(module=model, guards=1)
        # event: Shard(module=model, guards=2)
        return model


def default_object(model, config=None):
    config = config or Config()
    return config.strategy.apply(model)


def default_object_of_a_choice(model, config=None, lr=None):
    if lr is not None:
        config = config or Config()
        config.lr = lr
    config = config or Config()
    return config.strategy.apply(model)


def applied_by_something(strategy, model):
    sharded = strategy.apply(model)
    fully_shard(sharded)  # event: Shard(module=strategy.apply(...))


def none_until_given(given=None):
    if given is None:
        given = torch.nn.Linear(2, 2)
    fully_shard(given)  # event: Shard(module=given, guards=1)


def cleared(model):
    optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    del optimizer
    fully_shard(model)  # event: Shard(module=model)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def copied(model: torch.nn.Module):
    from copy import deepcopy

    teacher = deepcopy(model)
    optimizer = torch.optim.AdamW(teacher.parameters())  # event: BuildOptimizer(sharding=none)
    fully_shard(model)  # event: Shard(module=model)
    return optimizer


def default_where_nothing_is_given(config=None):
    config = config or Config()
    model = torch.nn.Linear(2, 2)
    sharded = config.strategy.apply(model)
    return torch.optim.AdamW(sharded.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def calls_without_config():
    return default_where_nothing_is_given()
