"""The function that shards is known by a name in a table; what calls it, and with which model, is not to be seen."""

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


def recompute(model: nn.Module) -> None:
    for name, block in model.layers.named_children():
        model.layers.register_module(name, checkpoint_wrapper(block))


def apply_fsdp(model: nn.Module, mesh) -> None:
    for block in model.layers.values():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def parallelize_decoder(model: nn.Module, mesh, activation_checkpointing: bool) -> None:
    weights = model.state_dict()
    if activation_checkpointing:
        recompute(model)
    apply_fsdp(model, mesh)
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))


PARALLELIZE = {"decoder": parallelize_decoder}
