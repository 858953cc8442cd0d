import torch


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters())
    # event: BuildOptimizer(of=model, sharding=earlier), BuildOptimizer(of=trainer.net, sharding=earlier)
    # event: BuildOptimizer(of=model, sharding=later)
