"""Every way in which an optimizer is made."""

import functools

import torch
from lion_pytorch import Lion
from torch import nn, optim
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW

CLASSES = {"adamw": torch.optim.AdamW, "sgd": optim.SGD}


class Own(torch.optim.AdamW):
    def __init__(self, params, extra):
        super().__init__(params)
        self.extra = extra


def classes(model: nn.Module):
    fully_shard(model)
    AdamW(model.parameters())  # event: BuildOptimizer(of=model)
    optim.SGD(params=model.parameters(), lr=0.1)  # event: BuildOptimizer(of=model)
    Lion(model.parameters())  # event: BuildOptimizer(of=model)
    Own(model.parameters(), extra=3)  # event: BuildOptimizer(of=model)


def chosen(model: nn.Module, name, flag):
    fully_shard(model)
    CLASSES[name](model.parameters())  # event: BuildOptimizer(of=model)
    (AdamW if flag else optim.SGD)(model.parameters())  # event: BuildOptimizer(of=model, guards=1)
    by_name(name, model.parameters())


def by_name(name, params):
    if name == "adamw":
        return AdamW(params)  # event: BuildOptimizer(of=model, guards=1)
    return optim.SGD(params)  # event: BuildOptimizer(of=model, guards=1)


def given_by_partial(model: nn.Module):
    make = functools.partial(AdamW, lr=1e-3)
    fully_shard(model)
    make(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def groups(model):
    AdamW([{"params": model.body.parameters()}, {"params": model.head.parameters()}])
    # event: BuildOptimizer(of=(model.body, model.head), sharding=later)
    fully_shard(model)


def of_several_models(one: nn.Module, other: nn.Module):
    fully_shard(one)
    AdamW([p for model in (one, other) for p in model.parameters()])  # event: BuildOptimizer(of=(one, other))


def steps(model: nn.Module, scheduler):
    fully_shard(model)
    optimizer = AdamW(model.parameters())  # event: BuildOptimizer
    optimizer.step()  # event: Step(of=model)
    optimizer.param_groups[0]["params"] = list(model.parameters())  # event: RepointOptimizer
    optimizer.add_param_group({"params": model.parameters()})  # event: RepointOptimizer


def by_attribute(model: nn.Module, name):
    fully_shard(model)
    getattr(torch.optim, name)(model.parameters())  # known-miss: BuildOptimizer(of=model)


def not_an_optimizer(parameters, model: nn.Module):
    fully_shard(model)
    AdamW.description(parameters)  # no-event: BuildOptimizer


def two_lists(model: nn.Module):
    both = list(model.embed.parameters()) + list(model.head.parameters())
    fully_shard(model)
    return torch.optim.AdamW(both)  # event: BuildOptimizer(of=(model.embed, model.head), sharding=earlier)


def held_by_an_optimizer(model: nn.Module, x):
    fully_shard(model)
    optimizer = AdamW(model.parameters())  # event: BuildOptimizer
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.data = x  # event: UseParameters(of=model, how=data)
    kept = {parameter: x for group in optimizer.param_groups for parameter in group["params"]}
    for parameter, value in kept.items():
        parameter.data = value  # event: UseParameters(of=model, how=data)
    optimizer.param_groups[0]["params"].clear()  # event: RepointOptimizer


class Descent(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    def all(self):
        for group in self.param_groups:
            yield from group["params"]

    def step(self, closure=None):
        for parameter in self.all():
            parameter.data = parameter - parameter.grad  # event: UseParameters(how=data)


def of_the_project():
    model = nn.Linear(8, 8)
    fully_shard(model)
    optimizer = Descent(model.parameters())  # event: BuildOptimizer(of=model)
    optimizer.step()  # event: Step(of=model)
