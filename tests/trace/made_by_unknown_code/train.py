# The class is handed out and made elsewhere: no call of it is to be seen, and it is run all the same.
import ray
import torch
from sharding import apply_units


class Worker:
    def __init__(self, model, mesh):
        self.model = model
        self.optimizer = torch.optim.AdamW(self.model.parameters())  # event: BuildOptimizer(of=model, sharding=later)
        self.model = apply_units(self.model, mesh)

    def step(self, batch):
        self.model(batch).sum().backward()
        self.optimizer.step()  # event: Step(of=model, sharding=none)


def worker_class(kind):
    return Worker if kind == "train" else None


Remote = ray.remote(num_gpus=1)(Worker)
