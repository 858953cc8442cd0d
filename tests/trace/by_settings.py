"""Frameworks that shard as their settings say, and wrap policies that are named elsewhere."""

import os

import lightning as L
import torch
import torch.nn as nn
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from lightning.pytorch.strategies import FSDPStrategy
from torch.distributed.fsdp.wrap import ModuleWrapPolicy, wrap
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def configure_model(self):
        self.layer = wrap(self.layer)  # event: Shard(generation=1)

    def training_step(self, batch, index):
        return None


def prepare(name):
    plugin = FullyShardedDataParallelPlugin()  # event: ConfigureFSDP
    accelerator = Accelerator(fsdp_plugin=plugin)
    model = AutoModelForCausalLM.from_pretrained(name)  # event: ReadCheckpoint
    return accelerator.prepare(model)  # event: ShardBySettings(model=model)


def later(name):
    plugin = FullyShardedDataParallelPlugin()  # event: ConfigureFSDP
    accelerator = Accelerator(fsdp_plugin=plugin)
    accelerator.state.fsdp_plugin.auto_wrap_policy = ModuleWrapPolicy({nn.Linear})  # event: SetWrapPolicy
    model = AutoModelForCausalLM.from_pretrained(name)  # event: ReadCheckpoint
    plugin.set_auto_wrap_policy(model)  # event: SetWrapPolicy


def environment():
    # In two parts: what a file says of the launcher's option is taken for how it is started.
    os.environ["FSDP_AUTO" + "_WRAP_POLICY"] = "TRANSFORMER_BASED_WRAP"  # event: SetWrapPolicy
    return FullyShardedDataParallelPlugin()  # event: ConfigureFSDP


def train(folder, rows):
    args = TrainingArguments(folder, fsdp=True)  # event: ConfigureFSDP
    trainer = Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), args, train_dataset=rows)  # event: ReadCheckpoint
    trainer.train()  # event: ShardBySettings


def fit(loader):
    trainer = L.Trainer(strategy=FSDPStrategy())  # event: ConfigureFSDP
    trainer.fit(Net(), loader)  # event: ShardBySettings(by=trainer)  # event: ConfigureFSDP


def read(trainer, path):
    AutoModelForCausalLM.from_pretrained(path)  # event: ReadCheckpoint
    net = Net.load_from_checkpoint(path)  # event: ReadCheckpoint(how=load_from_checkpoint)
    strategy = FSDPStrategy()  # event: ConfigureFSDP
    return net, strategy, torch.load(path)  # event: ReadCheckpoint(how=torch.load)


def fabric(name):
    fabric = L.Fabric(strategy=FSDPStrategy())  # event: ConfigureFSDP
    model = AutoModelForCausalLM.from_pretrained(name)  # event: ReadCheckpoint
    return fabric.setup_module(model)  # event: ShardBySettings(model=model)
