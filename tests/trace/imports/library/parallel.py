from torch.distributed.fsdp import fully_shard

from . import settings


def shard_model(model):
    for layer in model.layers:
        fully_shard(layer, reshard_after_forward=settings.RESHARD)
        # event: Shard(module=model.layers[...], reshard_after_forward=False), Shard(module=trainer.net.layers[...])
    return fully_shard(model)  # event: Shard(module=model), Shard(module=trainer.net)
