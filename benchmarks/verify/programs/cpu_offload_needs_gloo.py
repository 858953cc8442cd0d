"""Gradients are offloaded to the CPU, and the group knows NCCL only."""

import os

import torch
import torch.distributed as dist
from gpt import GPT, batches, loss_of
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = GPT()
    offload = CPUOffloadPolicy()
    for block in model.blocks:
        fully_shard(block, offload_policy=offload)
    fully_shard(model, offload_policy=offload)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for tokens in batches("cuda", 8, seed=dist.get_rank()):
        optimizer.zero_grad()
        loss = loss_of(model(tokens[:, :-1]), tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
