"""Code that is not known: what is handed to it, and what is known by name alone."""

import accelerate
import torch
import wandb
from somewhere import Trainer, helper, prepare
from torch import nn
from torch.distributed.fsdp import fully_shard


def handed(model: nn.Module):  # event: Handed(to='return')
    optimizer = torch.optim.AdamW(model.parameters())
    model, optimizer = prepare(model, optimizer)  # event: Handed(values=(model, optimizer), to=somewhere.prepare)
    fully_shard(model)
    return optimizer


def handed_in_a_list(model: nn.Module):
    fully_shard(model)
    helper([model], {"model": model})  # event: Handed(to=somewhere.helper)


def handed_to_a_method(model: nn.Module, accelerator):
    fully_shard(model)
    accelerator.prepare(model)  # event: Handed(values=model, to=accelerator.prepare)


def handed_to_an_object_of_a_library(model: nn.Module):
    fully_shard(model)
    accelerator = accelerate.Accelerator()
    accelerator.prepare(model)  # event: Handed(values=model, to=accelerator.prepare)


def handed_by_keyword(model: nn.Module):
    fully_shard(model)
    Trainer(model=model, epochs=3)  # event: Handed(values=(model, 3), to=somewhere.Trainer)


def handed_to_a_parameter(model: nn.Module, callback):
    fully_shard(model)
    callback(model)  # event: Handed(values=model, to=callback)


def harmless(model: nn.Module):
    fully_shard(model)
    print(model)  # event: Handed(to=print)
    len(list(model.parameters()))
    wandb.watch(model)


def library_decorators(model: nn.Module):
    fully_shard(model)
    compiled = torch.compile(model)  # event: Compile(module=model)
    fully_shard(compiled)


def without_values(step):
    helper(step)  # event: Handed(values=step)
    fully_shard(nn.Linear(2, 2))
