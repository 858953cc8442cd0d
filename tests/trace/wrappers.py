"""FSDP1, DDP and other wrappers."""

from functools import partial

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffload, ShardingStrategy, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.nn.parallel import DistributedDataParallel as DDP


def fsdp1(model: nn.Module):
    wrapped = FSDP(model, use_orig_params=True)  # event: Shard(module=model, generation=1, use_orig_params=True)
    return torch.optim.AdamW(wrapped.parameters())  # event: BuildOptimizer(sharding=earlier)


def fsdp1_too_late(model: nn.Module):
    optimizer = torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
    model = FSDP(model)  # event: Shard(module=model, generation=1, result=model)
    return optimizer


def fsdp1_positional(model: nn.Module):
    return FSDP(model, None, ShardingStrategy.FULL_SHARD)
    # event: Shard(process_group=None, sharding_strategy=FULL_SHARD)


def fsdp1_kwargs(model: nn.Module, offload):
    policy = partial(size_based_auto_wrap_policy, min_num_params=1_000_000)
    kwargs = {"auto_wrap_policy": policy}
    if offload:
        kwargs["cpu_offload"] = CPUOffload(offload_params=True)
    FSDP(model, **kwargs)  # event: Shard(module=model, auto_wrap_policy=policy, kwargs_known=True)


def fsdp1_inside(model):
    model.encoder = FSDP(model.encoder)  # event: Shard(module=model.encoder, generation=1)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def unwrapped(model: nn.Module):
    wrapped = FSDP(model)  # event: Shard(module=model, generation=1)
    return torch.optim.AdamW(wrapped.module.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def one_or_the_other(model: nn.Module, strategy):
    if strategy == "fsdp":
        model = FSDP(model)  # event: Shard(module=model, generation=1)
    elif strategy == "ddp":
        model = DDP(model)  # event: Replicate(module=model)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(sharding=earlier)


def both_generations(model: nn.Module):
    for layer in model.children():
        fully_shard(layer)  # event: Shard(generation=2)
    return FSDP(model)  # event: Shard(generation=1)


def checkpointed(model: nn.Module):
    model = checkpoint_wrapper(model)
    fully_shard(model)  # event: Shard(module=model, generation=2)


def compiled(model: nn.Module):
    compiled = torch.compile(model)  # event: Compile(module=model)
    fully_shard(compiled)  # event: Shard(module=model)
    return torch.optim.AdamW(model.parameters())  # event: BuildOptimizer(of=model, sharding=earlier)


def policies(model: nn.Module):
    from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy as by_size
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    transformer_auto_wrap_policy(transformer_layer_cls={nn.Linear})
    # event: CallPolicy(policy=transformer_auto_wrap_policy)
    by_size(min_num_params=10)  # event: CallPolicy(policy=size_based_auto_wrap_policy)
    by_size(model, False, 10, min_num_params=10)
    FSDP(model, auto_wrap_policy=partial(by_size, min_num_params=10))  # event: Shard(module=model)
