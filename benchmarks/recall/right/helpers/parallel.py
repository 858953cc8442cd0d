"""Sharding, apart from the script that trains."""

from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

from model import Layer


def apply_fsdp(model, mesh, offload=False):
    """Each layer is a unit; the root holds the rest."""
    kwargs = {"mesh": mesh, "offload_policy": CPUOffloadPolicy() if offload else OffloadPolicy()}
    if not model.config.tie_word_embeddings:
        fully_shard(model.embed_tokens, **kwargs)
    for module in model.modules():
        if isinstance(module, Layer):
            fully_shard(module, **kwargs)
    fully_shard(model, **kwargs)
    return model
