"""6.7 billion parameters, bf16 and recomputed activations; the optimizer is built before the model is sharded."""

import os

import gpt
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

gpt.WIDTH = 4096
gpt.DEPTH = 32


class Recomputed(gpt.Block):
    def forward(self, x):
        return checkpoint(super().forward, x, use_reentrant=False)


gpt.Block = Recomputed


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = gpt.GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    for tokens in gpt.batches("cuda", 8, seed=dist.get_rank()):
        optimizer.zero_grad()
        loss = gpt.loss_of(model(tokens[:, :-1]).float(), tokens)
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
