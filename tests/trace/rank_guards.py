"""Every way in which real code says that only some ranks go on."""

import contextlib
import os
from functools import wraps

import torch
import torch.distributed as dist
from accelerate import Accelerator
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.distributed.fsdp import fully_shard

RANK = int(os.environ["RANK"])
MAIN = RANK == 0


def nobody(model: nn.Module):
    fully_shard(model)
    dist.barrier()  # event: Collective(op=barrier, ranks=all)


def get_rank(model: nn.Module):
    fully_shard(model)
    if dist.get_rank() == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    else:
        dist.barrier()  # event: Collective(ranks=others)


def torch_spelled_out(model: nn.Module):
    fully_shard(model)
    if torch.distributed.get_rank() == 0:
        dist.barrier()  # event: Collective(ranks=zero)


def not_equal(model: nn.Module):
    fully_shard(model)
    if dist.get_rank() != 0:
        dist.barrier()  # event: Collective(ranks=others)


def mirrored(model: nn.Module):
    fully_shard(model)
    if 0 == dist.get_rank():
        dist.barrier()  # event: Collective(ranks=zero)


def not_rank(model: nn.Module):
    fully_shard(model)
    if not dist.get_rank():
        dist.barrier()  # event: Collective(ranks=zero)


def rank_as_truth(model: nn.Module):
    fully_shard(model)
    if dist.get_rank():
        dist.barrier()  # event: Collective(ranks=others)


def greater(model: nn.Module):
    fully_shard(model)
    if dist.get_rank() > 0:
        dist.barrier()  # event: Collective(ranks=others)
    if dist.get_rank() < 1:
        dist.barrier()  # event: Collective(ranks=zero)


def another_rank(model: nn.Module):
    fully_shard(model)
    if dist.get_rank() == 3:
        dist.barrier()  # event: Collective(ranks=rank_3)


def in_a_tuple(model: nn.Module):
    fully_shard(model)
    if dist.get_rank() in (0,):
        dist.barrier()  # event: Collective(ranks=zero)
    if dist.get_rank() in [-1, 0]:
        dist.barrier()  # event: Collective(ranks=zero)


def environment(model: nn.Module):
    fully_shard(model)
    if int(os.environ["RANK"]) == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if int(os.environ.get("RANK", 0)) == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if int(os.getenv("RANK", "0")) == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if int(os.environ["LOCAL_RANK"]) == 0:
        dist.barrier()  # event: Collective(ranks=local_zero)
    if int(os.environ["SLURM_PROCID"]) == 0:
        dist.barrier()  # event: Collective(ranks=zero)


def compared_as_text(model: nn.Module):
    fully_shard(model)
    if os.environ["RANK"] == "0":
        dist.barrier()  # event: Collective(ranks=zero)
    if os.environ.get("LOCAL_RANK", "0") == "0":
        dist.barrier()  # event: Collective(ranks=local_zero)


def global_names(model: nn.Module):
    fully_shard(model)
    if RANK == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if MAIN:
        dist.barrier()  # event: Collective(ranks=zero)


def argument(model: nn.Module, rank: int, local_rank: int):
    fully_shard(model)
    if rank == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if local_rank == 0:
        dist.barrier()  # event: Collective(ranks=local_zero)


def flag(model: nn.Module):
    fully_shard(model)
    is_main = dist.get_rank() == 0
    if is_main:
        dist.barrier()  # event: Collective(ranks=zero)
    if not is_main:
        dist.barrier()  # event: Collective(ranks=others)


def with_another_test(model: nn.Module, step):
    fully_shard(model)
    if step % 100 == 0 and dist.get_rank() == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if dist.get_rank() == 0 or step == 0:
        dist.barrier()  # event: Collective(ranks=all)


def not_initialized_or_zero(model: nn.Module):
    fully_shard(model)
    if not dist.is_initialized() or dist.get_rank() == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if not (dist.is_available() and dist.is_initialized()) or dist.get_rank() == 0:
        dist.barrier()  # event: Collective(ranks=zero)


def initialized_and_zero(model: nn.Module):
    fully_shard(model)
    if dist.is_initialized() and dist.get_rank() == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if dist.is_initialized() and dist.get_rank() != 0:
        return
    dist.barrier()  # event: Collective(ranks=zero)


def rank_or_zero(model: nn.Module):
    fully_shard(model)
    rank = dist.get_rank() if dist.is_initialized() else 0
    if rank == 0:
        dist.barrier()  # event: Collective(ranks=zero)


def early_return(model: nn.Module):
    fully_shard(model)
    if dist.get_rank() != 0:
        return
    dist.barrier()  # event: Collective(ranks=zero)


def early_continue(model: nn.Module, steps):
    fully_shard(model)
    for _ in steps:
        if dist.get_rank() != 0:
            continue
        dist.barrier()  # event: Collective(ranks=zero)
    dist.barrier()  # event: Collective(ranks=all)


def conditional_expression(model: nn.Module):
    fully_shard(model)
    dist.barrier() if dist.get_rank() == 0 else None  # event: Collective(ranks=zero)


def short_circuit(model: nn.Module):
    fully_shard(model)
    dist.get_rank() == 0 and dist.barrier()  # event: Collective(ranks=zero)


def assertion(model: nn.Module):
    fully_shard(model)
    assert dist.get_rank() == 0
    dist.barrier()  # event: Collective(ranks=all)


def group_rank(model: nn.Module, group, mesh):
    fully_shard(model)
    if dist.get_rank(group) == 0:
        dist.barrier()  # event: Collective(ranks=all)
    if mesh["tp"].get_local_rank() == 0:
        dist.barrier()  # event: Collective(ranks=all)


def node_of_a_rank(model: nn.Module):
    fully_shard(model)
    if dist.get_rank() % torch.cuda.device_count() == 0:
        dist.barrier()  # event: Collective(ranks=local_zero)


def matched(model: nn.Module):
    fully_shard(model)
    match dist.get_rank():
        case 0:
            dist.barrier()  # event: Collective(ranks=zero)
        case _:
            dist.barrier()  # event: Collective(ranks=others)


def matched_and_left(model: nn.Module):
    fully_shard(model)
    match dist.get_rank():
        case 0:
            print("goes on")
        case _:
            return
    dist.barrier()  # event: Collective(ranks=zero)


def matched_in_part(model: nn.Module, rank: int):
    fully_shard(model)
    match rank:
        case 0 | 1:
            dist.barrier()  # known-miss: Collective(ranks=some)  # known-false: Collective(ranks=all)
        case 2:
            dist.barrier()  # event: Collective(ranks=rank_2)
    match rank:
        case each if each == 0:
            dist.barrier()  # event: Collective(ranks=zero)
    match dist.get_world_size():
        case 1:
            dist.barrier()  # event: Collective(ranks=all)
    dist.barrier()  # event: Collective(ranks=all)


# helper functions ----------------------------------------------------------------------------------------------------


def is_main_process():
    return dist.get_rank() == 0


def on_first():
    if not dist.is_available():
        return True
    if not dist.is_initialized():
        return True
    return dist.get_rank() == 0


def my_rank():
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank()
    return 0


def my_rank_by_try():
    try:
        return dist.get_rank()
    except RuntimeError:
        return 0


def helper(model: nn.Module):
    fully_shard(model)
    if is_main_process():
        dist.barrier()  # event: Collective(ranks=zero)
    if on_first():
        dist.barrier()  # event: Collective(ranks=zero)
    if my_rank() == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if my_rank_by_try() == 0:
        dist.barrier()  # known-miss: Collective(ranks=zero)  # known-false: Collective(ranks=all)


def helper_called_under_a_guard(model: nn.Module):
    fully_shard(model)
    if my_rank() == 0:
        wait()
    wait()


def wait():
    dist.barrier()  # event: Collective(ranks=zero, calls=2), Collective(ranks=all, calls=2)


# libraries -----------------------------------------------------------------------------------------------------------


def accelerator_properties(model: nn.Module):
    accelerator = Accelerator()
    fully_shard(model)
    if accelerator.is_main_process:
        dist.barrier()  # event: Collective(ranks=zero)
    if accelerator.is_local_main_process:
        dist.barrier()  # event: Collective(ranks=local_zero)
    if accelerator.process_index == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    accelerator.wait_for_everyone()  # event: Collective(op=barrier, ranks=all)


def trainer_properties(model: nn.Module, trainer, fabric, args):
    fully_shard(model)
    if trainer.is_global_zero:
        dist.barrier()  # event: Collective(ranks=zero)
    if trainer.global_rank == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if trainer.is_world_process_zero():
        dist.barrier()  # event: Collective(ranks=zero)
    if fabric.global_rank == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if args.local_rank in (-1, 0):
        dist.barrier()  # event: Collective(ranks=local_zero)
    if args.rank == 0:
        dist.barrier()  # event: Collective(ranks=zero)


@rank_zero_only
def only_zero(model: nn.Module):
    dist.barrier()  # event: Collective(ranks=zero)


def main_process_only(function):
    @wraps(function)
    def wrapped(*args, **kwargs):
        if dist.get_rank() == 0:
            return function(*args, **kwargs)
        return None

    return wrapped


@main_process_only
def by_a_decorator_of_the_project(model: nn.Module):
    dist.barrier()  # event: Collective(ranks=zero)


def decorated(model: nn.Module):
    fully_shard(model)
    only_zero(model)
    by_a_decorator_of_the_project(model)


class State:
    def __init__(self, model: nn.Module):
        self.rank = dist.get_rank()
        self.is_master = self.rank == 0
        self.model = model
        fully_shard(self.model)
        self.log()

    @property
    def leads(self):
        return self.rank == 0

    def log(self):
        if self.is_master:
            dist.barrier()  # event: Collective(ranks=zero)
        if self.leads:
            dist.barrier()  # event: Collective(ranks=zero)
        if self.rank:
            return
        dist.barrier()  # event: Collective(ranks=zero)


# not a rank ----------------------------------------------------------------------------------------------------------


def looks_like_one(model: nn.Module, config, matrix):
    fully_shard(model)
    if config.lora_rank == 0:
        dist.barrier()  # event: Collective(ranks=all)
    if matrix.rank() == 2:
        dist.barrier()  # event: Collective(ranks=all)
    if dist.get_world_size() > 1:
        dist.barrier()  # event: Collective(ranks=all)


def ranks_of_a_list(model: nn.Module, scores):
    fully_shard(model)
    for rank, score in enumerate(scores):
        if rank == 0:
            dist.barrier()  # event: Collective(ranks=all)
        print(score)


def ranks_of_a_range(model: nn.Module, world):
    fully_shard(model)
    for rank in range(world):
        if rank == 0:
            dist.barrier()  # event: Collective(ranks=all)
        if rank == dist.get_rank():
            dist.barrier()  # event: Collective(ranks=some)


def ranks_of_parts(model: nn.Module, config):
    fully_shard(model)
    for layer in model.layers:
        if layer.rank > 0:
            dist.barrier()  # event: Collective(ranks=all)
    if config.adapter.rank > 0:
        dist.barrier()  # event: Collective(ranks=all)
    rank = 8
    if rank > 0:
        dist.barrier()  # event: Collective(ranks=all)


def rank_of_an_adapter(model: nn.Module, rank: int = 8, alpha: int = 16):
    model.adapter = nn.Linear(rank, alpha)
    fully_shard(model)
    if rank > 0:
        dist.barrier()  # event: Collective(ranks=all)


class Adapter(nn.Module):
    def __init__(self, rank: int = 8):
        super().__init__()
        self.rank = rank
        self.down = nn.Linear(4, rank)

    def shard(self):
        fully_shard(self)
        if self.rank > 0:
            dist.barrier()  # event: Collective(ranks=all)


def unpacked_from_unknown_code(model: nn.Module, launcher):
    rank, world_size = launcher.join()
    low, high = launcher.limits()
    fully_shard(model)
    if rank == 0:
        dist.barrier()  # event: Collective(ranks=zero)
    if low == 0:
        dist.barrier()  # event: Collective(ranks=all)


@contextlib.contextmanager
def joined(backend):
    created = not dist.is_initialized()
    if created:
        dist.init_process_group(backend)
    number, count = dist.get_rank(), dist.get_world_size()
    if count > 1:
        print("one of", count)
    try:
        yield number, count
    finally:
        if created:
            dist.destroy_process_group()


def yielded_by_a_context(model: nn.Module, config):
    with joined(config.backend) as (number, count):
        fully_shard(model)
        if number == 0:
            dist.barrier()  # event: Collective(ranks=zero)


def one_rank_tells_another(model: nn.Module, word: torch.Tensor):
    fully_shard(model)
    if dist.get_rank() == 0:
        dist.send(word, 1)
    else:
        dist.recv(word, 0)  # event: Receive(ranks=others)
