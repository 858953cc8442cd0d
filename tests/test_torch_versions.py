"""What is wrong on some releases of torch only is found where the project's torch is one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_lint import engine, settings

FIXTURES = Path(__file__).parents[1] / "fixtures"
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
        ("cpu_offload_needs_gloo/bad_backend_left_out", "2.5", None),
        ("cpu_offload_needs_gloo/bad_backend_left_out", "2.6", "(since torch 2.6, if none is named)"),
        ("cpu_offload_needs_gloo/bad_device_id_given", "2.5", None),
        ("cpu_offload_needs_gloo/bad_inline", "2.5", "knows NCCL only, and"),
        ("dtensor_scalar_read/good_clip_result", "2.4", "the norm that torch 2.4 to 2.9 give"),
        ("dtensor_scalar_read/good_clip_result", "2.10", None),
        ("ignored_params_unsynced/bad_inline", "2.6", None),
        ("ignored_params_unsynced/bad_inline", "2.7", "each rank trains its own"),
        ("optimizer_after_forward/good_root_reshards", "2.7", "(before torch 2.8 `reshard_after_forward`"),
        ("optimizer_after_forward/good_root_reshards", ">=2.4", None),
        ("optimizer_after_forward/bad_inline", "2.7", "will never be trained"),
    ],
)
def test_a_finding_holds_for_the_torch_of_the_project(program: str, torch: str, words: str | None) -> None:
    found = said(FIXTURES / f"{program}.py", program.partition("/")[0].replace("_", "-"), torch)
    assert [words in message for message in found] == [True] if words is not None else not found


@pytest.mark.parametrize(("torch", "wrong"), [("2.7", True), ("2.8", False)])
def test_a_mesh_chooses_the_device_of_a_group_that_exists(tmp_path: Path, torch: str, wrong: bool) -> None:
    (tmp_path / "train.py").write_text(MESH_AFTER_GROUP)
    assert bool(said(tmp_path / "train.py", "missing-set-device", torch)) == wrong
