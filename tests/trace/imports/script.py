"""A script: its top level runs, and what it calls in the file beside it."""

import beside
from torch.distributed.fsdp import fully_shard

model, optimizer = beside.make()
fully_shard(model)  # event: Shard(module=net, calls=0)

if __name__ == "__main__":
    fully_shard(model)  # event: Shard(module=net, calls=0)
