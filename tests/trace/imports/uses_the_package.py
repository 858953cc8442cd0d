"""Calls what a package gives on, and names neither the file that shards nor the word."""

import library
from library import build_optimizer, shard_model


def right(model):
    shard_model(model)
    return build_optimizer(model)


def wrong(model):
    optimizer = library.build_optimizer(model)
    library.shard_model(model)
    return optimizer
