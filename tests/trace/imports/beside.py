"""A script that lies beside the one that imports it; it holds no word of sharding itself."""

import torch


def make():
    net = torch.nn.Linear(4, 4)
    return net, torch.optim.AdamW(net.parameters())  # event: BuildOptimizer(of=net, sharding=later)
