"""Calls what a package gives on; it does not name the file that shards, and is not found as a caller."""

import library
from library import build_optimizer, shard_model


def right(model):
    shard_model(model)
    return build_optimizer(model)


def wrong(model):
    optimizer = library.build_optimizer(model)
    library.shard_model(model)
    return optimizer
