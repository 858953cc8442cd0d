"""The host memory that ranks need which each read a whole checkpoint, and which share what they read.

    python benchmarks/memory/whole_checkpoint.py [--ranks 4] [--mib 512]

Each rank is a process that fills a model from one file, by `torch.load` or with `mmap=True`, and then by
`load_state_dict`, which copies, or with `assign=True`. Linux only: the memory is the proportional set size of all ranks
(/proc/self/smaps_rollup), in MiB, in which a page that several processes share counts once.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn

WIDTH = 2048  # a layer of 16 MiB
WAYS = {
    "torch.load": {"mmap": False, "assign": False},
    "torch.load, assign=True": {"mmap": False, "assign": True},
    "torch.load(mmap=True), assign=True": {"mmap": True, "assign": True},
}


def model(mib: int) -> nn.Module:
    """A model with so many MiB of weights."""
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(mib // 16)))


def resident() -> float:
    """The proportional set size of this process, in MiB."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def rank(path: str, mib: int, way: dict[str, bool], barrier: Any, told: Any) -> None:
    """Fills a model as one rank does, and tells what it holds while all ranks do: behind the read, and at the end."""
    before = resident()
    with torch.device("meta" if way["assign"] else "cpu"):
        net = model(mib)
    state = torch.load(path, mmap=way["mmap"], weights_only=True)
    net.load_state_dict(state, assign=way["assign"])
    sum(weight.sum() for weight in net.parameters())  # a page that nobody has asked for is not there
    barrier.wait()
    most = resident() - before
    barrier.wait()
    del state
    barrier.wait()
    told.put((most, resident() - before))
    barrier.wait()


def measure(path: str, ranks: int, mib: int, way: dict[str, bool]) -> tuple[float, float]:
    """What all ranks hold at most, and what they keep, in MiB."""
    context = multiprocessing.get_context("spawn")
    barrier, told = context.Barrier(ranks), context.Queue()
    processes = [context.Process(target=rank, args=(path, mib, way, barrier, told)) for _ in range(ranks)]
    for process in processes:
        process.start()
    found = [told.get() for _ in processes]
    for process in processes:
        process.join()
    return sum(most for most, _ in found), sum(kept for _, kept in found)


def main() -> None:
    """Prints a line for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--mib", type=int, default=512, help="the size of the checkpoint")
    args = parser.parse_args()
    print(f"torch {torch.__version__}, {args.ranks} ranks, a checkpoint of {args.mib} MiB")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "model.pt"))
        torch.save(model(args.mib).state_dict(), path)
        for name, way in WAYS.items():
            most, kept = measure(path, args.ranks, args.mib, way)
            print(f"{name:36} at most {most:6.0f} MiB, behind load_state_dict {kept:6.0f} MiB")


if __name__ == "__main__":
    main()
