"""Builds, shards by a helper of another file, trains, saves each rank's own part."""

import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from model import Encoder
from parallel import apply_fsdp


def save_parts(model, folder):
    """Each rank writes a file of its own."""
    rank = dist.get_rank()
    torch.save({"rank": rank, "weights": model.state_dict()}, f"{folder}/part_{rank}.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--words", type=int, default=32_000)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--depth", type=int, default=24)
    parser.add_argument("--tie-word-embeddings", action="store_true")
    parser.add_argument("--folder", default="parts")
    config = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl")
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = Encoder(config).to("cuda")
    model = apply_fsdp(model, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(100):
        tokens = torch.randint(config.words, (2, 128), device="cuda")
        loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    save_parts(model, config.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
