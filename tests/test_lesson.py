"""What the lesson of this project says about FSDP holds with real torch."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import ranks

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
