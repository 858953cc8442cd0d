"""Kinds of training programs through `verify`: FSDP1, HSDP, accumulation, checkpointing, compile, offload.

Each is run on CPU ranks, where it must train, and as one rank of eight, where it must hold an eighth.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import ranks

from fsdp_lint.verify import runner
from fsdp_lint.verify.measures import Run, collective_totals
from fsdp_lint.verify.plan import Plan, Target

PROGRAM = """\
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import CPUOffload, CPUOffloadPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group({backend})
torch.manual_seed(0)
model = nn.Sequential(*[Block() for _ in range(3)], nn.Linear(32, 1)).cuda()
{shard}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
{late}
torch.manual_seed(rank)
for step in range(8):
    optimizer.zero_grad()
    {loop}
    optimizer.step()
"""
ELEMENTS = 3 * (32 * 64 + 64 + 64 * 32 + 32) + 33
FSDP2 = "for block in model[:3]:\n    fully_shard(block{0})\nfully_shard(model{0})"
MESH = "mesh = dist.init_device_mesh('cuda', (2, dist.get_world_size() // 2), mesh_dim_names=('a', 'b'))\n"
STEP = "model(torch.randn(4, 32, device='cuda')).pow(2).mean().backward()"
CHECKPOINT = (
    "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing as ac\n"
    "ac(model, check_fn=lambda module: isinstance(module, Block))\n"
)
MICRO = "for micro in range(3):\n        model.set_requires_gradient_sync(micro == 2)\n        " + STEP
NO_SYNC = f"with model.no_sync():\n        {STEP}\n    {STEP}"
KINDS: dict[str, dict[str, str]] = {
    "fsdp2": {},
    "fsdp1": {"shard": "model = FSDP(model, device_id=local_rank, sync_module_states=True)"},
    "scaler of fsdp1": {
        "shard": "model = FSDP(model, device_id=local_rank)",
        "late": "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler as Scaler\nscaler = Scaler()",
        "loop": "scaler.scale(model(torch.randn(4, 32, device='cuda')).pow(2).mean()).backward()",
    },
    "fsdp1 by blocks": {
        "shard": "policy = ModuleWrapPolicy({Block})\n"
        "model = FSDP(model, auto_wrap_policy=policy, device_id=torch.cuda.current_device(), use_orig_params=True)"
    },
    "hsdp": {"shard": MESH + FSDP2.format(", mesh=mesh")},
    "hsdp of fsdp1": {
        "shard": MESH + "model = FSDP(model, device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD)"
    },
    "accumulation": {"loop": MICRO},
    "accumulation of fsdp1": {"shard": "model = FSDP(model, device_id=local_rank)", "loop": NO_SYNC},
    "checkpointing": {"shard": CHECKPOINT + FSDP2.format("")},
    "compile": {"late": "model.compile(backend='eager')"},
    "offload": {
        "backend": "'cpu:gloo,cuda:nccl'",
        "shard": "policy = CPUOffloadPolicy()\n" + FSDP2.format(", offload_policy=policy"),
    },
    "offload of fsdp1": {"shard": "model = FSDP(model, cpu_offload=CPUOffload(True), device_id=local_rank)"},
}
KINDS["state of fsdp1"] = {
    "shard": "model = FSDP(model, device_id=local_rank)",
    "late": "import warnings\nfrom torch.distributed.fsdp import FullStateDictConfig, StateDictType\n"
    "warnings.simplefilter('ignore')  # that this is deprecated\n"
    "whole = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)\n"
    "with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, whole):\n    state = model.state_dict()\n"
    "assert rank or (state and all(each.abs().sum() > 0 for each in state.values()))",
}
GATHERS = {
    "state of fsdp1": 1,
    "fsdp1": 1,
    "hsdp of fsdp1": 1,
    "offload of fsdp1": 1,
    "accumulation of fsdp1": 2,
    "scaler of fsdp1": 1,
    "accumulation": 21,
}
SCATTERS = {
    "state of fsdp1": 1,
    "fsdp1": 1,
    "hsdp of fsdp1": 1,
    "offload of fsdp1": 1,
    "accumulation of fsdp1": 1,
    "scaler of fsdp1": 1,
}
Running = Callable[[str, str, int], Run]

pytestmark = pytest.mark.ranks


@pytest.fixture
def running(tmp_path: Path) -> Running:
    pytest.importorskip("torch", reason="needs torch")
    ranks.load_torch()

    def run(kind: str, mode: str, count: int) -> Run:
        parts = {"backend": "'nccl'", "shard": FSDP2.format(""), "late": "", "loop": STEP, **KINDS[kind]}
        path = tmp_path / "train.py"
        path.write_text(PROGRAM.format(**parts), encoding="utf-8")
        done = runner.run(Plan(Target(str(path)), mode, count, on_cpu=True, steps=3, timeout=60, patience=10))
        assert done.steps == 3 and not done.troubles, [trouble.log for trouble in done.troubles]
        return done

    return run


@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_on_cpu_ranks(kind: str, running: Running) -> None:
    run = running(kind, "cpu", 4 if kind.startswith("hsdp") else 2)
    assert run.parameters_changed == 1 and run.losses is not None and len(run.losses) == 3
    assert all(loss is not None and loss < 100 for loss in run.losses), "none is told as a scaler has made it"
    counts = {name: count for name, count, _ in collective_totals(run.collectives or ())}
    assert counts["all_gather"] == GATHERS.get(kind, 7)
    assert counts["reduce_scatter"] == SCATTERS.get(kind, 4)
    assert ("all_reduce" in counts) == kind.startswith("hsdp"), "replicas average what shards have summed"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "fsdp1" not in kind or kind == "hsdp of fsdp1"])
def test_one_rank_of_eight_holds_its_share(kind: str, running: Running) -> None:
    run = running(kind, "simulate", 8)
    shards = 4 if kind.startswith("hsdp") else 8
    assert run.held is not None and run.losses is None
    assert run.held.parameters == run.held.gradients
    assert 4 * ELEMENTS / shards <= run.held.parameters < 4 * ELEMENTS / shards * 1.03, "padding takes a little"
    assert run.held.optimizer_state >= 2 * run.held.parameters and run.held.optimizer_only == 0


def test_a_program_that_needs_a_gpu_says_which_line_does(running: Running, tmp_path: Path) -> None:
    text = PROGRAM.format(backend="'nccl'", shard="graph = torch.cuda.CUDAGraph()", late="", loop=STEP)
    (tmp_path / "graph.py").write_text(text, encoding="utf-8")
    run = runner.run(Plan(Target(str(tmp_path / "graph.py")), "cpu", 2, on_cpu=True, timeout=60))
    assert run.steps == 0 and run.troubles[0].site.endswith("graph.py:24") and "CUDAGraph" in run.troubles[0].text


STARTS = """\
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.fsdp import fully_shard


def note(queue):
    queue.put(1)


def begin(rank, count):
    dist.init_process_group("nccl", rank=rank, world_size=count)


def worker(rank, count):
    queue = mp.get_context("fork").Queue()
    other = mp.get_context("fork").Process(target=note, args=(queue,))
    other.start()
    queue.get()
    begin(rank, count)
    model = torch.nn.Linear(4, 4)
    fully_shard(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in torch.utils.data.DataLoader([torch.ones(4)] * 8, num_workers=1):
        model(x).sum().backward()
        optimizer.step()


if __name__ == "__main__":
    if sys.argv[1] == "spawn":
        context = mp.start_processes(worker, args=(2,), nprocs=2, join=False, start_method="fork")
        while not context.join():
            pass
    for rank in range(2):
        mp.get_context("spawn").Process(target=worker, args=(rank, 2)).start()
"""


@pytest.mark.parametrize("how", ["spawn", "processes"])
def test_ranks_are_not_started_twice(how: str, running: Running, tmp_path: Path) -> None:
    """What `spawn` starts runs in our ranks; other processes that would be ranks are refused, and none else is."""
    (tmp_path / "start.py").write_text(STARTS, encoding="utf-8")
    target = Target(str(tmp_path / "start.py"), arguments=(how,))
    run = runner.run(Plan(target, "cpu", 2, on_cpu=True, steps=3, timeout=60))
    assert run.steps == (3 if how == "spawn" else 0)
    if how == "processes":
        assert run.troubles[0].site.endswith("start.py:38") and "verify starts the ranks" in run.troubles[0].text
