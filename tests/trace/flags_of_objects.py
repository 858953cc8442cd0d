# Methods that unknown code calls come in no order: a flag that others of them set may have changed since `__init__`.
import torch
import torch.nn as nn
from torch.distributed.fsdp import fully_shard


class Average:
    def __init__(self):
        self.ready: bool = False
        self.fast = True

    def begin(self):
        self.ready = True


class Trainer:
    def __init__(self, model: nn.Module):
        self.average = Average()
        self.sharded = False
        self.plain = False
        self.model = model

    def shard(self):
        fully_shard(self.model)  # event: Shard(module=model)
        self.sharded = True
        if self.sharded:
            self.average.begin()

    def save(self):
        if self.average.ready:
            torch.save(self.model.state_dict(), "average.pt")  # event: Save(guards=1)
        if self.sharded:
            torch.save(self.model.state_dict(), "model.pt")  # event: Save(guards=1)
        if self.average.fast:
            torch.save(self.model.state_dict(), "fast.pt")  # event: Save(guards=0)
        if self.plain:
            torch.save(self.model.state_dict(), "plain.pt")  # no-event: Save
