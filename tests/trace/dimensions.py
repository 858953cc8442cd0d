"""Tests of how many dimensions a tensor has."""

import torch.nn as nn
from torch.distributed.fsdp import fully_shard


def filtered(model: nn.Module):
    fully_shard(model)
    return [p for p in model.parameters() if p.ndim >= 2]  # event: CompareDimensions


def in_a_function(model: nn.Module):
    fully_shard(model)

    def is_matrix(p):
        return p.dim() > 1  # event: CompareDimensions

    return [p for p in model.parameters() if is_matrix(p)]


def by_length(model: nn.Module):
    fully_shard(model)
    for _, p in model.named_parameters():
        if len(p.shape) == 1:  # event: CompareDimensions
            print(p.shape)


def by_size(model: nn.Module):
    fully_shard(model)
    return [p for p in model.parameters() if p.numel() > 100 and len(p) > 2]
