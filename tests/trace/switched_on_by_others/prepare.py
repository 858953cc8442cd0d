"""What a library does for its users."""

from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def prepare(model, *, fsdp=False):
    if fsdp:
        model = FSDP(model)  # event: Shard(module=model, guards=1)
    return model
