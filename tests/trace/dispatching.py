"""Which of several functions is run: by the class of an argument, and inside what a decorator puts around it."""

from contextlib import ContextDecorator, contextmanager
from functools import singledispatch

import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel


@singledispatch
def accumulate(model, last):
    model.forward_only(last)


@accumulate.register
def _(model: DistributedDataParallel, last):
    model.require_backward_grad_sync = last


@accumulate.register(FSDPModule)
def _(model, last):
    model.set_requires_gradient_sync(last)  # event: SetSync


def sharded(last):
    model = nn.Sequential(nn.Linear(4, 4))
    fully_shard(model)  # event: Shard
    accumulate(model, last)


class Distributed(ContextDecorator):
    def __enter__(self):
        dist.init_process_group("nccl")  # event: InitProcessGroup
        return self

    def __exit__(self, *error):
        dist.barrier()  # event: Collective(ranks=all)


@Distributed()
def around(rows):
    print(len(rows) % dist.get_world_size())  # event: ShareOut
    fully_shard(nn.Sequential(nn.Linear(4, 4)))  # event: Shard


@contextmanager
def told():
    yield
    dist.barrier()  # event: Collective(ranks=all)


@told()
def told_of():
    fully_shard(nn.Sequential(nn.Linear(4, 4)))  # event: Shard


def later(model: nn.Module):
    fully_shard(model)  # event: Shard
    whole = (each.full_tensor() for each in model.parameters())
    # event: Collective(ranks=all), Collective(ranks=zero)
    if dist.get_rank() == 0:
        print(list(whole))


if __name__ == "__main__":
    sharded(True)
    around([1, 2, 3])
    told_of()
