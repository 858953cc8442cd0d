"""Imports under tests: whichever is known counts."""

import sys

import torch
from packaging import version

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None

try:
    from torch.distributed.fsdp import fully_shard as either
except ImportError:
    from torch.distributed._composable.fsdp import fully_shard as either

if version.parse(torch.__version__) >= version.parse("2.6"):
    from torch.distributed.fsdp import fully_shard as by_version
else:
    from torch.distributed._composable.fsdp import fully_shard as by_version

if sys.version_info >= (3, 11):
    from torch.distributed.fsdp import fully_shard as by_python

HAS_FSDP = False
try:
    from torch.distributed.fsdp import FSDPModule

    HAS_FSDP = True
except ImportError:
    FSDPModule = None


def guarded(model):
    fully_shard(model)  # event: Shard
    either(model)  # event: Shard
    by_version(model)  # event: Shard
    by_python(model)  # event: Shard


def guarded_inside(model):
    try:
        from torch.distributed.fsdp import fully_shard as inner
    except ImportError:
        inner = None
    if inner is not None:
        inner(model)  # event: Shard


def returned_by_a_function(model):
    wrap, policy = imports()
    wrap(model)  # event: Shard
    return policy


def imports():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    return fully_shard, MixedPrecisionPolicy
