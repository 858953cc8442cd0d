"""What `fsdp-lint verify` says of its progress: one line that moves on a terminal, a few that stay in a log."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_lint.verify.progress import Shown, note

PROGRAM = """\
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(9):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_when_something_has_changed_and_not_too_often(tmp_path: Path) -> None:
    out, clock = io.StringIO(), Clock()
    shown = Shown(out, clock)
    shown.begin("before", tmp_path, 2)
    for second in range(1, 14):
        clock.now = float(second)
        note(tmp_path, 0, f"step {second // 4 + 1} of 6")
        shown.look()
    clock.now = 13.5
    shown.end("stopped after 6 steps")
    assert out.getvalue().splitlines() == [
        "fsdp-lint: before: 2 ranks start",
        "fsdp-lint: before: rank 0: step 2 of 6, rank 1: loading, 5 s",
        "fsdp-lint: before: rank 0: step 3 of 6, rank 1: loading, 10 s",
        "fsdp-lint: before: stopped after 6 steps, 13.5 s",
    ]


def test_a_terminal_gets_one_line_that_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")
    out, clock = Terminal(), Clock()
    shown = Shown(out, clock)
    shown.begin("after", tmp_path, 4)
    for rank in range(4):
        note(tmp_path, rank, "step 2 of 6" if rank else "behind the steps, somewhere")
    clock.now = 3.0
    shown.look()
    shown.end("stopped")
    shown.leave()
    start, look, last = out.getvalue().split("\r\x1b[K")[1:]
    assert "\n" not in out.getvalue()
    assert (start, look, last) == ("after: 4 ranks start", "after: rank 0: behind the step"[:29], "")


def test_a_dumb_terminal_gets_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not Shown(Terminal()).moving


@pytest.mark.ranks
@pytest.mark.parametrize("terminal", [False, True])
def test_the_command_tells_it_on_standard_error_only(terminal: bool, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "fsdp_lint", "verify", "train.py", "--mode", "cpu", "--output", "report.json"]
    if terminal:
        ours, theirs = pty.openpty()
        with os.fdopen(ours, "rb", buffering=0) as screen:
            done = subprocess.run(
                command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, timeout=120, check=False, env=_terminal()
            )
            os.close(theirs)
            said = _all_of(screen)
        assert b"\r\x1b[K" in said and b"before: " in said and b"step" in said
    else:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
        lines = done.stderr.decode().splitlines()
        assert lines[:2] == ["fsdp-lint: torch is loaded", "fsdp-lint: before: 2 ranks start"]
        assert all(line.startswith("fsdp-lint: ") and "\x1b" not in line for line in lines)
    assert done.returncode == 0
    assert b"ranks start" not in done.stdout
    assert "ranks start" not in (tmp_path / "report.json").read_text()


def _terminal() -> dict[str, str]:
    return {**os.environ, "TERM": "xterm"}


def _all_of(screen: io.FileIO) -> bytes:
    found = b""
    while True:
        try:
            more = screen.read(4096)
        except OSError:  # the other side has been closed
            return found
        if not more:
            return found
        found += more
