from torch.distributed.fsdp import fully_shard


def apply_units(model, mesh):
    for block in model.blocks:
        fully_shard(block, mesh=mesh)  # event: Shard(module=model.blocks[...])
    fully_shard(model, mesh=mesh)  # event: Shard(module=model)
    return model
