"""State dicts that are read and put into modules and optimizers."""

import pickle

import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file
from somewhere import change
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
    set_optimizer_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard


def into_a_model(path):
    model = nn.Linear(8, 8)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    found = torch.load(path)
    model.load_state_dict(found["model"])  # event: LoadState(into=model, how=load_state_dict, form=own)
    optimizer.load_state_dict(found["optimizer"])  # event: LoadState(into=optimizer)


def by_options(model: nn.Module, optimizer, path):
    fully_shard(model)
    state = load_file(path)
    set_model_state_dict(model, state)  # event: LoadState(into=model, form=own)
    set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))  # event: LoadState(form=full)
    set_optimizer_state_dict(model, optimizer, state)  # event: LoadState(into=optimizer)
    set_state_dict(model, optimizer, model_state_dict=state, optim_state_dict=pickle.load(path))
    # event: LoadState(into=model), LoadState(into=optimizer)


def entries(model: nn.Module, path):
    fully_shard(model)
    state = torch.load(path)
    for name in state:
        state[name] = change(state[name])  # event: SetEntry(container=state)
    other = {}
    with safe_open(path, framework="pt") as file:
        for name in file.keys():
            other[name] = file.get_tensor(name)
    own = model.state_dict()
    own["head"] = other["head"]  # event: SetEntry
    model.load_state_dict(own)  # event: LoadState(state=model.state_dict())


class App:
    def __init__(self, model, optimizer):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        return {"model": self.model.state_dict(), "optim": self.optimizer.state_dict()}

    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])  # event: LoadState
        self.optimizer.load_state_dict(state["optim"])  # event: LoadState


def filled_in_place(path):
    model = nn.Linear(8, 8)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    dcp.load({"app": App(model, optimizer)}, checkpoint_id=path)  # event: LoadState(form=filled)
    state = {"model": model.state_dict()}
    dcp.load(state_dict=state, checkpoint_id=path)  # event: LoadState(form=filled)
