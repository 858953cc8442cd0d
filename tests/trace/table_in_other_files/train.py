# What stands in a table was put there by another file, which the run imports for that alone.
import sys

import torch
import torch.nn as nn

import ways  # noqa: F401
from table import SPECS, WAYS


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(int(sys.argv[1]))])


def main():
    model = Net()
    WAYS["fsdp"](model)
    torch.optim.SGD(model.parameters(), lr=0.1)  # event: BuildOptimizer(of=model, sharding=earlier)
    net = Net()
    SPECS[0].shard(net)
    torch.optim.SGD(net.parameters(), lr=0.1)  # event: BuildOptimizer(of=net, sharding=earlier)


if __name__ == "__main__":
    main()
