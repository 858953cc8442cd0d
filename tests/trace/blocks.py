"""Blocks that are made ready one by one, in models of which nothing else is known."""

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from transformers import LlamaForCausalLM


class Decoder(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(64, 4) for _ in range(depth)])


def recompute(model: nn.Module):
    for name, block in model.layers.named_children():
        model.layers.register_module(name, checkpoint_wrapper(block))  # event: Rework(how=checkpoint_wrapper, loops=1)


def split(model: nn.Module, mesh, plan):
    for block in model.layers.values():
        parallelize_module(block, mesh, plan)  # event: Rework(how=parallelize_module, loops=1)


def prepare(model: nn.Module, mesh, plan):
    recompute(model)
    split(model, mesh, plan)
    for block in model.layers:
        block.apply_fsdp(mesh)  # event: CallMethod(method=apply_fsdp)
    fully_shard(model, mesh=mesh)  # event: Shard(module=model, like=None)
    return model


def of_the_project(model: Decoder):
    shard(model)


def in_quotes(model: "LlamaForCausalLM"):
    fully_shard(model)  # event: Shard(module=model, like=LlamaForCausalLM)


def shard(model):
    fully_shard(model)  # event: Shard(module=model, like=Decoder)
