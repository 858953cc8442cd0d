# The class, by its name, stands for whatever was registered under one of the names; the branches exclude each other.
import sys

import torch.nn as nn

from parallel import Parallel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(int(sys.argv[1]))])


def main(settings):
    model = Net()
    model = Parallel(settings.parallel)(model, None)
    return Parallel(settings.parallel).whole(model)


if __name__ == "__main__":
    main(sys.argv[2])
