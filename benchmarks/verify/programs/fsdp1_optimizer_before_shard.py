"""FSDP1: the optimizer is built before the model is wrapped."""

import functools
import os

import torch
import torch.distributed as dist
from gpt import GPT, Block, batches, loss_of
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = GPT()
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={Block})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    model = FSDP(model, auto_wrap_policy=policy)
    for tokens in batches("cuda", 8, seed=dist.get_rank()):
        optimizer.zero_grad()
        loss = loss_of(model(tokens[:, :-1]), tokens)
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
