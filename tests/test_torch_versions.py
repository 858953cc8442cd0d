"""What is wrong on some releases of torch only is found where the project's torch is one of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_lint import engine, releases, settings

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures"
TABLE = ROOT / "benchmarks" / "torch_versions" / "table.py"
MESH_AFTER_GROUP = """\
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
model = torch.nn.Linear(8, 8).to("cuda")
fully_shard(model, mesh=mesh)
"""


def said(path: Path, name: str, torch: str) -> list[str]:
    """The messages of one rule about a program whose project runs this torch."""
    report = engine.analyse([path], settings.Settings(root=path.parent, torch=torch))
    return [finding.message for finding in report.findings if finding.name == name]


@pytest.mark.parametrize(
    ("program", "torch", "words"),
    [
        ("container_sharded/good_with_forward", "2.11", "before torch 2.12 `fully_shard` refuses it"),
        ("container_sharded/good_with_forward", ">=2.11", None),
        ("blocks_in_one_unit/bad_list", "2.4", "torch 2.4 takes no list, and raises an AttributeError"),
        ("blocks_in_one_unit/bad_list", ">=2.4", "(torch 2.4 takes no list, and raises an AttributeError)"),
        ("blocks_in_one_unit/bad_list", "2.5", "each rank holds all of them whole at once"),
        ("blocks_in_one_unit/bad_sequential", "2.4", "each rank holds all of them whole at once"),
        ("cpu_offload_needs_gloo/bad_device_id_given", "2.5", None),
        ("cpu_offload_needs_gloo/bad_device_id_given", "2.6", "(since torch 2.6, if none is named)"),
        ("cpu_offload_needs_gloo/bad_inline", "2.5", "knows NCCL only, and"),
        ("dtensor_scalar_read/good_clip_result", "2.4", "the norm that torch 2.4 to 2.9 give"),
        ("dtensor_scalar_read/good_clip_result", "2.10", None),
        ("dtensor_scalar_read/bad_nan_check", "2.4", "torch 2.4 has no `any` of a sharded tensor"),
        ("dtensor_scalar_read/bad_nan_check", ">=2.4", "(torch 2.4 has no `any`, and raises a NotImplementedError)"),
        ("dtensor_scalar_read/bad_nan_check", "2.5", "is this rank's part of the value, not the whole"),
        ("dtensor_scalar_read/bad_float_of_sum", "2.4", "is this rank's part of the value, not the whole"),
        ("ignored_params_unsynced/bad_inline", "2.6", None),
        ("ignored_params_unsynced/bad_inline", "2.7", "each rank trains its own"),
        ("optimizer_after_forward/good_root_reshards", "2.7", "(before torch 2.8 `reshard_after_forward`"),
        ("optimizer_after_forward/good_root_reshards", ">=2.4", None),
        ("optimizer_after_forward/bad_inline", "2.7", "will never be trained"),
        ("tied_weights_split/bad_both_alone", ">=2.4", "and before torch 2.12 it unties them without an error"),
        ("tied_weights_split/bad_both_alone", "2.11", ", and torch before 2.12 unties them without an error"),
        ("tied_weights_split/bad_both_alone", "2.12", ": torch 2.12 and later raise a ValueError at the first forward"),
    ],
)
def test_a_finding_holds_for_the_torch_of_the_project(program: str, torch: str, words: str | None) -> None:
    found = said(FIXTURES / f"{program}.py", program.partition("/")[0].replace("_", "-"), torch)
    assert [words in message for message in found] == [True] if words is not None else not found


@pytest.mark.parametrize(("torch", "mended"), [(">=2.4", False), (">=2.5", True)])
@pytest.mark.parametrize("rule", ["load-plain-state-dict", "param-hook-never-fires"])
def test_no_fix_is_offered_that_does_nothing_on_a_release(rule: str, torch: str, mended: bool) -> None:
    path = FIXTURES / rule.replace("-", "_") / "bad_inline.py"
    found = engine.analyse([path], settings.Settings(root=path.parent, torch=torch)).findings
    assert [finding.fix is not None for finding in found if finding.name == rule] == [mended]


def test_the_page_of_releases_is_what_was_kept() -> None:
    done = subprocess.run([sys.executable, TABLE, "--check"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_release_has_run_the_same_programs() -> None:
    kept = releases.load(ROOT / "docs" / "records" / "torch")
    assert "2.13.0" in kept and len(kept) > 1
    assert {frozenset(found) for found in kept.values()} == {frozenset(kept["2.13.0"])}
    wrong = {bad for bad in kept["2.13.0"] if "/bad_" in bad}
    seen = {bad: releases.shown(kept["2.13.0"], bad).kind for bad in wrong}
    assert not {bad for bad, kind in seen.items() if kind in (releases.HOLDS, releases.ENDS, releases.UNKNOWN)}


@pytest.mark.parametrize(("torch", "wrong"), [("2.7", True), ("2.8", False)])
def test_a_mesh_chooses_the_device_of_a_group_that_exists(tmp_path: Path, torch: str, wrong: bool) -> None:
    (tmp_path / "train.py").write_text(MESH_AFTER_GROUP)
    assert bool(said(tmp_path / "train.py", "missing-set-device", torch)) == wrong
