"""The script that uses the trainer."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from trainer import Trainer


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        return x + self.second(torch.relu(self.first(x)))


class Net(nn.Module):
    def __init__(self, width=8192, depth=32):
        super().__init__()
        self.blocks = nn.ModuleList([Residual(width) for _ in range(depth)])
        self.out = nn.Linear(width, width)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.out(x)


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    torch.manual_seed(0)
    trainer = Trainer(Net().cuda(), mesh, lr=1e-4)
    for _ in range(100):
        batch = torch.randn(8, 8192, device="cuda")
        trainer.step(batch, batch)
    print(trainer.weight_norm())
    trainer.save("net.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
