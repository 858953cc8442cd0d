"""Two plugins, of which the settings choose one."""

from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from plugin import Plugin


class Parallel(Plugin):
    pass


@Parallel("fsdp").register()
def shard(model, mesh):
    for block in model.blocks:
        # Nobody calls it by its name, so it is run by itself, too.
        fully_shard(block, mesh=mesh)
        # event: Shard(module=model.blocks[0], guards=2), Shard(module=model.blocks[...], guards=0)
    fully_shard(model, mesh=mesh)  # event: Shard(module=model, guards=2), Shard(module=model, guards=0)
    return model


@Parallel("fsdp").register("whole")
def whole(model):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(model, options=options)  # event: TakeState(of=model, sharding=earlier)


@Parallel("ddp").register()
def replicate(model, mesh):
    return DistributedDataParallel(model)


@Parallel("ddp").register("whole")
def module(model):
    return model.module.state_dict()
    # event: TakeState(of=model.module, sharding=none), TakeState(of=model, sharding=none)
