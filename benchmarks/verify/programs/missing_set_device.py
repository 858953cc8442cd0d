"""No rank chooses its GPU: each builds the model on GPU 0."""

import torch
import torch.distributed as dist
from gpt import GPT, batches, loss_of
from torch.distributed.fsdp import fully_shard


def main():
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    model = GPT().cuda()
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
