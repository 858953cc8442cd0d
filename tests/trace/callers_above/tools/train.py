"""Two files above it: the order is wrong here, and no file alone shows it."""

import torch
from package.setup import prepare_model

if __name__ == "__main__":
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(net.parameters())  # event: BuildOptimizer(of=net, sharding=later)
    net = prepare_model(net)
