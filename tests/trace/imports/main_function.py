"""A script in the usual shape: functions, and one call at the end."""

import argparse

from library.parallel import shard_model as shard
from library.training.optimizers import build_optimizer
from torch import nn


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fsdp", action="store_true")
    return parser.parse_args()


def main():
    args = parse()
    model = nn.Transformer()
    if args.fsdp:
        shard(model)
    optimizer = build_optimizer(model)
    optimizer.step()


if __name__ == "__main__":
    main()
