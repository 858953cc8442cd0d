# The class is made by a registry: its methods are run all the same, also those that say no word of FSDP.
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

ENGINES = {}


def register(name):
    def note(cls):
        ENGINES[name] = cls
        return cls

    return note


@register("fsdp")
class Engine:
    def __init__(self, model):
        self.model = model

    def initialize(self, mesh):
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh)  # event: Shard(module=model.blocks[...])
        fully_shard(self.model, mesh=mesh)  # event: Shard(module=model)

    def save(self, path, whole=True):
        if whole:
            self._save_whole(path)

    def _save_whole(self, path):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_model_state_dict(self.model, options=options)  # event: Collective(on=model)
        if dist.get_rank() == 0:
            torch.save(state, path)
