"""Programs that were written for CUDA run on the CPU: each row of the table in docs/verify.md is tried."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import ranks

VERIFY = (Path(__file__).parents[1] / "docs" / "verify.md").read_text(encoding="utf-8")
SECTION = VERIFY[VERIFY.index("### What is mapped") : VERIFY.index("### What else was tried")]
ROWS = re.findall(r"^\| (`.*`) \| (.*) \|$", SECTION, re.MULTILINE)

pytestmark = pytest.mark.ranks


def words(cell: str) -> list[str]:
    """The pieces of code in a cell of the table."""
    return re.findall(r"`([^`]+)`", cell)


def try_all() -> Mapping[str, Any]:
    """What comes of each piece of code in a rank whose CUDA is mapped: "" where it runs, else the error."""
    import torch
    import torch.distributed as dist
    import torch.nn as nn

    from fsdp_lint.verify.instrument import devices
    from fsdp_lint.verify.instrument.mapping import Mapping as Mapped
    from fsdp_lint.verify.instrument.sites import Sites

    devices.map_to_cpu(Mapped(Sites(os.path.abspath("train.py"))), 2)
    found: dict[str, Any] = {}
    rank = int(os.environ["RANK"])

    found["unnamed"], found["autocast"], found["batch norm"] = _unnamed(), _autocast(), _batch_norm(rank)

    def train(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = torch.ones_like(parameter)
        optimizer.step()

    for cell, _ in ROWS:
        for code in words(cell):
            saved = io.BytesIO()
            torch.save(torch.ones(2), saved)
            saved.seek(0)
            space = {"torch": torch, "dist": dist, "nn": nn, "os": os, "rank": rank, "saved": saved, "train": train}
            space |= {"model": nn.Linear(4, 4), "x": torch.ones(2, 4), "__name__": "program"}
            try:
                value = eval(code, space)
                if hasattr(value, "__enter__") and not isinstance(value, torch.Tensor):
                    with value:
                        space["model"](space["x"])
                bad = [each for each in _tensors(value) if each.device.type != "cpu"]
                found[code] = f"{len(bad)} tensors are not on the CPU" if bad else ""
            except BaseException as error:
                found[code] = f"{type(error).__name__}: {error}"[:200]
            torch.set_default_device("cpu")
    return found


# The same with and without a GPU: errors and their kinds, what torch.cuda imports, and types, which are the CPU's.
HARMLESS = re.compile(
    r"\w+(Tensor|Storage|Error)$|cudaStatus|check_error|device_of|cast|lru_cache|classproperty|NewType|deprecated"
    r"|amp_definitely_not_available|autocast|custom_[bf]wd|GradScaler|Event|Stream|Graph"
)
PARTS = (
    *("cuda", "cuda.memory", "cuda.random", "cuda.streams", "cuda.graphs", "cuda.nvtx", "cuda.profiler", "cuda.comm"),
    *("cuda.nccl", "cuda.tunable", "cuda.gds", "cuda.amp", "accelerator", "accelerator.memory"),
)


def _unnamed() -> str:
    """Public callables of torch's that have no stand-in, are not refused, and are not harmless."""
    import importlib

    from fsdp_lint.verify.instrument.stand_ins import MARK

    missing = []
    for part in PARTS:
        try:
            home = importlib.import_module(f"torch.{part}")
        except ImportError:
            continue
        for name in getattr(home, "__all__", dir(home)):
            value = getattr(home, name, None)
            of_torch = str(getattr(value, "__module__", "")).startswith("torch")
            if name.startswith("_") or not callable(value) or (not of_torch and not hasattr(value, MARK)):
                continue
            if not hasattr(value, MARK) and not HARMLESS.fullmatch(name):
                missing.append(f"{part}.{name}")
    return ", ".join(missing)


def _autocast() -> list[str]:
    """What torch says of autocast of CUDA outside it, in it, and in an operation that casts its inputs."""
    import torch

    def double(ctx: Any, x: Any) -> Any:
        said.append(f"{x.dtype} {torch.is_autocast_enabled()}")
        return x * 2

    forward = torch.amp.custom_fwd(double, device_type="cuda", cast_inputs=torch.float16)
    backward = torch.amp.custom_bwd(lambda ctx, grad: grad * 2, device_type="cuda")
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    doubled: Any = type("Doubled", (torch.autograd.Function,), methods)
    said = [f"{torch.get_autocast_dtype('cuda')} {torch.is_autocast_enabled('cuda')}"]
    for dtype in (None, torch.bfloat16):
        with torch.autocast("cuda", dtype=dtype):
            said.append(f"{torch.get_autocast_gpu_dtype()} {torch.is_autocast_enabled()}")
            doubled.apply(torch.ones(2, requires_grad=True)).sum().backward()
    return said


def _batch_norm(rank: int) -> float:
    """How far SyncBatchNorm of two ranks, with one and five samples, is from BatchNorm of all six."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    plain, synced = torch.nn.BatchNorm2d(3).double(), torch.nn.SyncBatchNorm(3).double()
    every, pull = torch.randn(6, 3, 2, 2).double() + 1, torch.randn(6, 3, 2, 2).double()
    mine = slice(0, 1) if rank == 0 else slice(1, None)
    made = []
    for layer, part in ((plain, slice(None)), (synced, mine)):
        x = every[part].clone().requires_grad_()
        y = layer.cuda()(x)
        (y * pull[part]).sum().backward()
        gradient = layer.weight.grad
        if layer is synced:
            dist.all_reduce(gradient)
        made.append((y, x.grad, gradient, layer.running_mean, layer.running_var))
    dist.destroy_process_group()
    (y, back, *whole), (part_y, part_back, *others) = made
    pairs = [(y[mine], part_y), (back[mine], part_back), *zip(whole, others, strict=True)]
    return max(float((one - other).abs().max()) for one, other in pairs)


def _tensors(value: Any) -> list[Any]:
    import torch

    if isinstance(value, torch.nn.Module):
        return list(value.parameters())
    return [value] if isinstance(value, torch.Tensor) else []


def test_each_row_of_the_table_is_as_it_says(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    run = ranks.fork_ranks(try_all, 2, tmp_path / "run")
    assert run.trouble is None, run.ranks[0].output[-2000:]
    assert len(ROWS) > 20
    assert not run.ranks[0].measured["unnamed"], "each public function of torch.cuda is mapped or refused"
    halves = ["torch.float16 False", "torch.float16 True", "torch.float16 False"]
    assert run.ranks[0].measured["autocast"] == [*halves, "torch.bfloat16 True", "torch.float16 False"]
    assert max(rank.measured["batch norm"] for rank in run.ranks) < 1e-12
    for cell, told in ROWS:
        for code in words(cell):
            for rank in run.ranks:
                said = rank.measured[code]
                assert bool(said) == told.startswith("refused"), f"{code}: {said or 'it runs'}"
