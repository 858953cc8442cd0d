"""A package that gives on what its modules define."""

from .parallel import shard_model
from .training import *

__all__ = ["build_optimizer", "shard_model"]
