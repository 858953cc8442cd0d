"""Loops over the part of some data that a rank picks for itself."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, Subset


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
