"""A trainer class: sharding, optimizer, steps and checkpoints in methods of their own."""

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard


class Trainer:
    def __init__(self, model, mesh, lr):
        self.mesh = mesh
        self.model = model
        self._shard_model()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr)

    def _shard_model(self):
        for block in self.model.blocks:
            fully_shard(block, mesh=self.mesh)
        fully_shard(self.model, mesh=self.mesh)

    def step(self, inputs, targets):
        loss = torch.nn.functional.mse_loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def weight_norm(self):
        total = 0.0
        for weight in self.model.parameters():
            whole = weight.full_tensor()
            total += whole.norm().item() ** 2
        return total**0.5

    def save(self, path):
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        weights = get_model_state_dict(self.model, options=options)
        if dist.get_rank() == 0:
            torch.save({"model": weights}, path)
        dist.barrier()
