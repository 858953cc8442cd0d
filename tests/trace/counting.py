"""What a loop counts is a number in its first round alone, and so is what a method counts for its object."""

import torch
from somewhere import batches
from torch import nn
from torch.distributed.fsdp import fully_shard


class State:
    def __init__(self):
        self.step = 0


class Accumulator:
    def __init__(self, optimizer, every):
        self.optimizer = optimizer
        self.every = every
        self.count = 0

    @property
    def boundary(self):
        return (self.count + 1) % self.every == 0

    def advance(self):
        if self.boundary:
            self.optimizer.step()  # event: Step(guards=1)
        self.count += 1


def by_a_name(model):
    optimizer = torch.optim.AdamW(fully_shard(model).parameters())
    count = 0
    for _ in batches():
        if (count + 1) % 4 == 0:
            optimizer.step()  # event: Step(guards=1)
        count += 1


def by_a_name_of_a_while(model):
    optimizer = torch.optim.AdamW(fully_shard(model).parameters())
    count = 0
    while count < 100:
        if count == 8:
            optimizer.step()  # event: Step(guards=1)
        count = count + 1


def by_an_attribute(model):
    optimizer, state = torch.optim.AdamW(fully_shard(model).parameters()), State()
    for _ in batches():
        if state.step == 8:
            optimizer.step()  # event: Step(guards=1)
        state.step += 1


def by_a_method():
    optimizer = torch.optim.AdamW(fully_shard(nn.Linear(8, 8)).parameters())
    accumulator = Accumulator(optimizer, every=4)
    for _ in batches():
        accumulator.advance()
