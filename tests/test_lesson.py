"""What the lesson of this project says about FSDP holds with real torch."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import ranks

from fsdp_lint.verify import runner
from fsdp_lint.verify.measures import Run, collective_totals
from fsdp_lint.verify.plan import Plan, Target

LESSON = Path(__file__).parents[1] / "fixtures" / "lesson"

pytestmark = pytest.mark.ranks


@pytest.fixture(autouse=True)
def torch_is_there() -> None:
    pytest.importorskip("torch", reason="needs torch")
    ranks.load_torch()


def program(name: str) -> ranks.Program:
    (found,) = (known for known in ranks.programs(LESSON.parent) if known.name == f"lesson/{name}")
    return found


def one_step(shard_layers: bool) -> Mapping[str, Any]:
    """The sizes of the all-gathers and reduce-scatters of one training step, in bytes."""
    torch = ranks.load_torch()
    dist = importlib.import_module("torch.distributed")
    fsdp = importlib.import_module("torch.distributed.fsdp")
    dispatch = importlib.import_module("torch.utils._python_dispatch")
    sizes: dict[str, list[int]] = {"gathers": [], "scatters": []}
    kinds = {"_allgather_base_": "gathers", "_reduce_scatter_base_": "scatters"}

    class Counting(dispatch.TorchDispatchMode):  # type: ignore[misc, name-defined]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kind = kinds.get(func._schema.name.partition("::")[2])
            if kind is not None:
                sizes[kind].append(max(a.numel() * a.element_size() for a in args if isinstance(a, torch.Tensor)))
            return func(*args, **(kwargs or {}))

    dist.init_process_group("gloo")
    model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(4)])
    elements = sum(parameter.numel() for parameter in model.parameters())
    if shard_layers:
        for layer in model:
            fsdp.fully_shard(layer)
    fsdp.fully_shard(model)
    with Counting():
        model(torch.randn(2, 16)).sum().backward()
    dist.destroy_process_group()
    return {**sizes, "elements": elements}


def test_each_of_four_ranks_keeps_a_quarter_of_the_elements(tmp_path: Path) -> None:
    run = ranks.run_program(program("good_cpu_shards"), tmp_path / "run", ranks=4)
    assert run.trouble is None
    total = 4 * (256 * 256 + 256)
    assert sorted(line for rank in run.ranks for line in rank.output.splitlines()) == [
        f"rank {number} holds {total // 4} of {total} elements" for number in range(4)
    ]


def test_sharding_only_the_root_gathers_the_whole_model_at_once(tmp_path: Path) -> None:
    run = ranks.fork_ranks(lambda: one_step(shard_layers=False), 2, tmp_path / "run")
    assert run.trouble is None
    for rank in run.ranks:
        whole = 4 * rank.measured["elements"]
        assert rank.measured["gathers"] == [whole]
        assert rank.measured["scatters"] == [whole]


def test_sharding_each_layer_gathers_one_layer_at_a_time(tmp_path: Path) -> None:
    run = ranks.fork_ranks(lambda: one_step(shard_layers=True), 2, tmp_path / "run")
    assert run.trouble is None
    for rank in run.ranks:
        layer = rank.measured["elements"]  # a quarter of the elements, four bytes each
        assert rank.measured["gathers"] == [layer] * 8  # in the forward, and again in the backward
        assert rank.measured["scatters"] == [layer] * 4


TRAINING = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64, bias=False) for _ in range(4)]).cuda()
for layer in model:
    fully_shard(layer, reshard_after_forward=True)
fully_shard(model, reshard_after_forward=True)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    optimizer.zero_grad()
    model(torch.randn(4, 64, device="cuda")).sum().backward()
    optimizer.step()
"""
ELEMENTS = 4 * 64 * 64


def simulated(folder: Path, count: int) -> Run:
    """One rank of so many."""
    (folder / "train.py").write_text(TRAINING, encoding="utf-8")
    return runner.run(Plan(Target(str(folder / "train.py")), "simulate", count, on_cpu=True, timeout=60))


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_training_with_adam_takes_sixteen_bytes_a_parameter_over_the_ranks(count: int, tmp_path: Path) -> None:
    held = simulated(tmp_path, count).held
    assert held is not None
    assert held.parameters == held.gradients == 4 * ELEMENTS // count
    steps = 4 * 4  # each parameter's optimizer state counts its steps, in four bytes
    assert held.optimizer_state == 8 * ELEMENTS // count + steps
    assert held.training - steps == 16 * ELEMENTS // count


def test_the_traffic_is_one_and_a_half_times_that_of_ddp(tmp_path: Path) -> None:
    """An all-reduce moves its bytes twice, an all-gather and a reduce-scatter once each."""
    run = simulated(tmp_path, 4)
    moved = {kind: size for kind, _, size in collective_totals(run.collectives or ())}
    assert moved == {"all_gather": 2 * 4 * ELEMENTS, "reduce_scatter": 4 * ELEMENTS}
    assert sum(moved.values()) == 1.5 * (2 * 4 * ELEMENTS)
