"""FSDP1 behind a flag that the command line sets on one of two configurations."""

import functools
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


@dataclass
class TrainConfig:
    enable_fsdp: bool = False
    dim: int = 4096
    max_norm: float = 1.0


@dataclass
class ShardConfig:
    pure_bf16: bool = False


class Net(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(dim, 8) for _ in range(8)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def update(config, **given):
    if isinstance(config, (tuple, list)):
        for one in config:
            update(one, **given)
    else:
        for name, value in given.items():
            if hasattr(config, name):
                setattr(config, name, value)


def policy():
    return functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer})


def main(**given):
    train_config, shard_config = TrainConfig(), ShardConfig()
    update((train_config, shard_config), **given)
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = Net(train_config.dim)
    if shard_config.pure_bf16:
        model.to(torch.bfloat16)
    if train_config.enable_fsdp:
        model = FSDP(model, auto_wrap_policy=policy(), device_id=torch.cuda.current_device(), use_orig_params=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(10):
        x = torch.randn(8, 128, train_config.dim, device="cuda")
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        if train_config.enable_fsdp:
            model.clip_grad_norm_(train_config.max_norm)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), train_config.max_norm)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(**dict(text.lstrip("-").split("=") for text in sys.argv[1:]))
