"""Rank 0 reads the checkpoint, and each rank gets its shards of it."""

import os

import torch
import torch.distributed as dist
from gpt import GPT, batches, loss_of
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    if dist.get_rank() == 0:
        torch.save(GPT().state_dict(), "weights.pt")
    dist.barrier()
    with torch.device("meta"):
        model = GPT()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cuda")
    state = torch.load("weights.pt", map_location="cpu") if dist.get_rank() == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(model, state, options=options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for tokens in batches("cuda", 8, seed=dist.get_rank()):
        optimizer.zero_grad()
        loss = loss_of(model(tokens[:, :-1]), tokens)
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
