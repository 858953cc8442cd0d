"""What writes values into a model, and what a random number starts from."""

import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import set_seed


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(4), persistent=False)  # event: RegisterBuffer(buffer=rows)
        self.layer = nn.Linear(4, 4)

    def refill(self):
        self.rows = torch.ones(4)  # event: Initialise


def filled(path, rank, seed):
    torch.manual_seed(seed)  # event: Seed
    torch.manual_seed(seed + rank)  # event: Seed(differs=rank)
    torch.manual_seed(seed + dist.get_rank() // 8)  # event: Seed(differs=None)
    torch.manual_seed(int(time.time()))  # event: Seed(differs=process)
    set_seed(seed, device_specific=True)  # event: Seed(differs=rank)
    model = Table()
    fully_shard(model)
    model.to_empty(device="cuda")  # event: Materialise
    model.cuda()  # event: MoveModule(device='cuda')
    nn.init.xavier_uniform_(model.layer.weight)  # event: Initialise(random=True, shaped=True)
    model.layer.weight.data.zero_()  # event: Initialise(random=False)
    model.layer.reset_parameters()  # event: Initialise
    model.layer.weight.to_local().normal_()  # event: Initialise(random=True, shaped=False)
    model.refill()
    model.rows[1:] = 3  # event: Initialise
    model.restore(path)  # event: CallMethod(method=restore)
    for buffer in model.buffers():
        buffer.fill_(1)  # event: Initialise
    state = {"model": model.state_dict()}
    dcp.load(state)  # event: LoadState
    model.load_state_dict(torch.load(path))  # event: LoadState(how=load_state_dict, into=model)


def seed_everything(number):
    torch.manual_seed(number)  # event: Seed(differs=rank)


def start(number, rank):
    seed_everything(number)
    torch.manual_seed(number + rank)  # event: Seed(differs=rank)


def by_helpers(seed, rank):
    start(seed + rank, rank)
    fully_shard(Table())


def slices():
    mesh = init_device_mesh("cuda", (2, 4), mesh_dim_names=("replicate", "shard"))
    fully_shard(Table(), mesh=mesh["shard"])
