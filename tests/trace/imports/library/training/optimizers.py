import torch


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters())
    # event: BuildOptimizer(of=model, sharding=earlier), BuildOptimizer(of=trainer.net, sharding=earlier)
    # known-miss: BuildOptimizer(of=model, sharding=later)
