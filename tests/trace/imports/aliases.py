"""One function under many names."""

import torch
import torch.distributed.fsdp
import torch.distributed.fsdp as fsdp
from torch.distributed import fsdp as also_fsdp
from torch.distributed.fsdp import fully_shard as shard
from torch.distributed._composable.fsdp import fully_shard as old_shard

wrap = shard


def by_alias(model):
    shard(model)  # event: Shard(module=model)


def by_module(model):
    torch.distributed.fsdp.fully_shard(model)  # event: Shard(module=model)


def by_module_alias(model):
    fsdp.fully_shard(model)  # event: Shard(module=model)
    also_fsdp.fully_shard(model)  # event: Shard(module=model)


def by_old_path(model):
    old_shard(model)  # event: Shard(module=model)


def by_assignment(model):
    wrap(model)  # event: Shard(module=model)
    local = shard
    local(model)  # event: Shard(module=model)


def inside_a_function(model):
    from torch.distributed.fsdp import fully_shard as inner

    inner(model)  # event: Shard(module=model)


def a_name_that_hides(model):
    def shard(part):
        return part

    shard(model)  # no-event: Shard


def a_parameter_that_hides(model, shard):
    shard(model)  # no-event: Shard
