"""Loops over the part of some data that a rank picks for itself."""

import itertools

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, Subset


def by_hand(model: nn.Module, data, files):
    fully_shard(model)
    rank, size = dist.get_rank(), dist.get_world_size()
    for x in data[rank::size]:  # event: LoopOverPart(may_stop=False)
        model(x)
    for at in range(rank, len(data), size):  # event: LoopOverPart
        model(data[at])
        if at > 10:
            break
    for name in [name for at, name in enumerate(files) if at % size == rank]:  # event: LoopOverPart
        model(name)
    for x in DataLoader(Subset(data, range(rank, len(data), size))):  # event: LoopOverPart
        model(x)
    for x in DataLoader(data.shard(num_shards=size, index=rank)):  # event: LoopOverPart
        model(x)
    for x in torch.load(f"part-{rank}.pt"):  # event: LoopOverPart
        model(x)


def counted(model: nn.Module, data):
    fully_shard(model)
    mine = data[dist.get_rank() :: dist.get_world_size()]
    for at in range(0, len(mine), 4):  # event: LoopOverPart
        model(mine[at : at + 4])
    for x in mine[4:]:  # event: LoopOverPart
        model(x)
    for x in mine[: len(data) // dist.get_world_size()]:  # no-event: LoopOverPart
        model(x)
    for x in mine[:100]:  # no-event: LoopOverPart
        model(x)


def evenly(model: nn.Module, data):
    fully_shard(model)
    rank, size = dist.get_rank(), dist.get_world_size()
    even = len(data) // size * size
    for x in data[rank:even:size]:  # no-event: LoopOverPart
        model(x)
    for x in DataLoader(data, sampler=DistributedSampler(data, rank=rank)):  # no-event: LoopOverPart
        model(x)
    for x in [torch.ones(4) + rank for _ in range(4)]:  # no-event: LoopOverPart
        model(x)


# what goes through generators and objects ----------------------------------------------------------------------------


def mine(batches):
    for at, batch in enumerate(batches):
        if at % dist.get_world_size() == dist.get_rank():
            yield batch


def on_device(batches):
    for batch in batches:  # event: LoopOverPart
        yield batch.cuda()


def first_of(batches):
    for at, batch in enumerate(batches):  # event: LoopOverPart(may_stop=True)
        if at == 10:
            return
        yield batch


def without_end(batches):
    while True:
        yield from batches


class Rows(IterableDataset):
    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return itertools.islice(self.rows, dist.get_rank(), None, dist.get_world_size())


class EvenRows(Rows):
    def __iter__(self):
        world = dist.get_world_size()
        return itertools.islice(self.rows, dist.get_rank(), len(self.rows) // world * world, world)


def through_generators(model: nn.Module, data):
    fully_shard(model)
    for x in mine(data):  # event: LoopOverPart
        model(x)
    for x in on_device(mine(data)):  # event: LoopOverPart
        model(x)
    for x in on_device(data):  # no-event: LoopOverPart
        model(x)
    for x in first_of(mine(data)):  # no-event: LoopOverPart
        model(x)
    for x in without_end(mine(data)):  # no-event: LoopOverPart
        model(x)


def through_objects(model: nn.Module, data):
    fully_shard(model)
    for x in Rows(data):  # event: LoopOverPart
        model(x)
    for x in DataLoader(Rows(data), batch_size=4):  # event: LoopOverPart
        model(x)
    for x in DataLoader(EvenRows(data), batch_size=4):  # no-event: LoopOverPart
        model(x)
