"""What is yielded comes with the tests that it has passed, where all of it is gone through."""

from torch import nn
from torch.distributed.fsdp import fully_shard


def usable(batches):
    for batch in batches:
        if batch.isnan().any():
            continue
        yield batch


def with_tests_of_what_is_yielded(model: nn.Module, data):
    fully_shard(model)
    for x in usable(data):
        model(x)  # event: Forward(module=model, guards=1)
    for _, x in zip(range(3), usable(data), strict=False):
        model(x)  # event: Forward(module=model, guards=0)
    for x in usable(data):
        model(x)  # event: Forward(module=model, guards=0)
        if x.sum() > 3:
            break
