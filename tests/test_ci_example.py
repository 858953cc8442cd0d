"""The step for CI in docs/verify.md does what it says: its own commands are run, as its own shell would run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

VERIFY = Path(__file__).parents[1] / "docs" / "verify.md"
TRAIN = """\
import argparse
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--layers", type=int, default=80)
dist.init_process_group("nccl")
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(parser.parse_args().layers)]).cuda()
{early}
for layer in model:
    fully_shard(layer)
fully_shard(model)
{late}
for step in range(1000):
    optimizer.zero_grad()
    model(torch.randn(4, 16, device="cuda")).sum().backward()
    optimizer.step()
"""
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters())"

pytestmark = pytest.mark.ranks


def steps() -> list[dict[str, str]]:
    """The steps of the example's job that are commands, without the installation."""
    (text,) = re.findall(r"```yaml\n(name: verify\n.*?)```", VERIFY.read_text(encoding="utf-8"), re.DOTALL)
    found = yaml.safe_load(text)["jobs"]["verify"]["steps"]
    return [step for step in found if "run" in step and "pip install" not in step["run"]]


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (TRAIN.format(early=OPTIMIZER, late=""), 0),  # a mistake that the tool's own fix mends is no reason to fail
        (TRAIN.format(early="raise ValueError('no data')", late=OPTIMIZER), 2),
        (TRAIN.format(early="", late=OPTIMIZER).replace("range(parser", "range(3 * parser"), 1),
    ],
    ids=["mended", "no step", "too many collectives"],
)
def test_the_example_is_what_it_says(program: str, code: int, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    pytest.importorskip("matplotlib", reason="needs matplotlib (the extra html)")
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "fsdp-lint").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fsdp_lint "$@"\n', encoding="utf-8")
    (bin_ / "fsdp-lint").chmod(0o755)
    environment = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": "summary.md"}
    verify, summary = steps()
    # The shell that GitHub's runners use for `run`.
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
    done = subprocess.run(
        [*shell, verify["run"]], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert summary["if"] == "always()"
    subprocess.run([*shell, summary["run"]], cwd=tmp_path, env=environment, check=True)
    said = (tmp_path / "summary.md").read_text(encoding="utf-8")
    if code == 2:
        assert (
            "It could not be run: train.py --layers 3 failed before its first step: ValueError: no data at train.py:10"
            in said
        )
        assert "\nValueError: no data\n```" in said, "and what it printed itself"
        told = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
        assert told["before"]["held"] is None and told["before"]["ended"] == "ValueError: no data"
        assert "ValueError: no data" in (tmp_path / "report.html").read_text(encoding="utf-8")
        return
    assert "expected `changed>=100%`: holds (1)" in said
    assert ("expected `collectives<=12`: holds" in said) == (code == 0)
    assert (tmp_path / "report.html").stat().st_size > 10_000 and (tmp_path / "report.json").is_file()
