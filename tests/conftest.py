"""What tests of the command share: a small wrong program, its cure, and the command in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

BAD = """\
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
fully_shard(model)
"""
GOOD = """\
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(8, 8)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
"""


def pytest_configure() -> None:
    """A shell that runs the tests in the background has them ignore SIGINT, and whatever they start would, too."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than there are cores: ranks wait for one another a good part of the time."""
    return (os.cpu_count() or 1) + 1


class Lint(Protocol):
    """Runs fsdp-lint in the test's folder."""

    def __call__(
        self, *arguments: str, stdin: str | bytes = "", **environment: str
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def bad() -> str:
    """A program in which optimizer-before-shard is found at 5:13, because of 6:1."""
    return BAD


@pytest.fixture
def good() -> str:
    """The same in the right order."""
    return GOOD


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, which is the current folder."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def lint(here: Path) -> Lint:
    """The command."""

    def run(*arguments: str, stdin: str | bytes = "", **environment: str) -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-m", "fsdp_lint", *arguments],
            cwd=here,
            input=data,
            capture_output=True,
            timeout=120,
            check=False,
            env={**os.environ, "PYTHONUTF8": "1", "XDG_CACHE_HOME": str(here / ".cache"), **environment},
        )
        out, err = done.stdout.decode("utf-8"), done.stderr.decode("utf-8")
        assert "Traceback" not in out + err, err
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    return run
