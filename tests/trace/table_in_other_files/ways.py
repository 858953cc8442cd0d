"""What another file puts into the table by its decorator."""

from dataclasses import dataclass
from typing import Any

from torch.distributed.fsdp import fully_shard

from table import add, way


@way("fsdp")
def by_block(model):
    for block in model.blocks:
        # Nobody calls it by its name, so it is run by itself, too.
        fully_shard(block)
        # event: Shard(module=model.blocks[0], calls=2), Shard(module=model.blocks[...], calls=1)
    fully_shard(model)  # event: Shard(module=model, calls=2), Shard(module=model, calls=1)
    return model


def whole(net):
    fully_shard(net)  # event: Shard(module=net, calls=2)


@dataclass
class Spec:
    shard: Any


add(Spec(shard=whole))
