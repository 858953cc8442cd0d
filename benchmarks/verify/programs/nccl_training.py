"""The same on NCCL."""

import os

import torch
import torch.distributed as dist
from gpt import GPT, batches, loss_of
from torch.distributed.fsdp import fully_shard


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = GPT()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for tokens in batches("cuda", 8, seed=dist.get_rank()):
        optimizer.zero_grad()
        loss = loss_of(model(tokens[:, :-1]), tokens)
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
