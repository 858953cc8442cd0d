"""FSDP by settings: where it is asked for, and where it is switched on later."""

import dataclasses
import os

from transformers import TrainingArguments

PREFIX = "ACCELERATE_USE_"  # in two parts: what a file says of the launcher is taken for how it is started


def filled(folder):
    args = TrainingArguments(folder, fsdp_config={"version": 2})  # event: ConfigureFSDP
    return args


def attribute(folder):
    args = TrainingArguments(folder, fsdp_config={"version": 2})  # event: ConfigureFSDP
    args.fsdp = "full_shard"  # event: SwitchOnFSDP
    args.fsdp_config = None  # event: SetWrapPolicy


def by_name(folder):
    args = TrainingArguments(folder, fsdp_config={"version": 2})  # event: ConfigureFSDP
    setattr(args, "fsdp", True)  # event: SwitchOnFSDP


def switched_off(folder):
    args = TrainingArguments(folder, fsdp_config={"version": 2})  # event: ConfigureFSDP
    args.fsdp = ""


def replaced(folder):
    args = TrainingArguments(folder, fsdp_config={"version": 2})  # event: ConfigureFSDP
    return dataclasses.replace(args, fsdp="full_shard")  # event: SwitchOnFSDP


def environment(folder):
    os.environ[PREFIX + "FSDP"] = "1"  # event: SwitchOnFSDP
    os.environ["FSDP_VERSION"] = "2"
    return TrainingArguments(folder, fsdp_config={"version": 2})  # event: ConfigureFSDP
