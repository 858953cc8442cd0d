from base import BaseTrainer
from torch.distributed.fsdp import fully_shard


class ShardedTrainer(BaseTrainer):
    def wrap(self, model):
        fully_shard(model)  # event: Shard(module=net)
        return model
