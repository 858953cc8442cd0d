"""The life of a trainer, in the order of its methods; nothing here speaks of sharding."""

import torch


class BaseTrainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = self.build()
        self.model = self.wrap(self.model)

    def build(self):
        return torch.optim.AdamW(self.model.parameters())  # event: BuildOptimizer(of=net, sharding=later)

    def wrap(self, model):
        return model
