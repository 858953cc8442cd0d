"""Calls what a package gives on, and speaks of sharding itself."""

import library
from library import build_optimizer
from torch.distributed.fsdp import fully_shard


def by_both_names(trainer):
    library.shard_model(trainer.net)
    fully_shard(trainer.net.head)  # event: Shard(module=trainer.net.head)
    return build_optimizer(trainer.net)
