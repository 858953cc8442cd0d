"""What a fix promises: nothing else changes, it is done once and whole, files and rules in any order give the same."""

from __future__ import annotations

import ast
import functools
import itertools
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from fsdp_lint import engine, settings
from fsdp_lint.findings import Applicability, LocatedFix, Place, TextEdit
from fsdp_lint.fix.apply import choose, edit_text
from fsdp_lint.fix.writing import write_all

if TYPE_CHECKING:
    from conftest import Lint

FIXTURES = Path(__file__).parents[1] / "fixtures"
MARK = re.compile(r"[ \t]*#\s*(?:expect|expect-because|known-miss|known-false):[^\n]*")
EXPECTED = re.compile(r"# expect: ([a-z0-9-]+)")
TWINS = sorted(path for path in FIXTURES.glob("*/fixed_*.py"))


def plain(path: Path) -> str:
    """A program without its marks."""
    return MARK.sub("", path.read_text(encoding="utf-8"))


def bad_of(fixed: Path) -> Path:
    return fixed.with_name(fixed.name.replace("fixed_", "bad_", 1))


def named(path: Path) -> str:
    return path.relative_to(FIXTURES).as_posix()


def fix(folder: Path, *paths: Path) -> engine.FixResult:
    """Safe fixes or, where there are none, unsafe ones too, as the fixtures have it."""
    known = settings.Settings(root=folder)
    result = engine.fix_files(paths, known)
    return result if result.changed else engine.fix_files(paths, known, unsafe=True)


def disguised(text: str) -> bytes:
    """The same program with a byte order mark, tabs, CRLF and no last line end."""
    tabs = re.sub(r"^(?: {4})+", lambda found: "\t" * (len(found[0]) // 4), text, flags=re.MULTILINE)
    return b"\xef\xbb\xbf" + tabs.rstrip("\n").replace("\n", "\r\n").encode()


def wrong(twin: Path) -> set[str]:
    """The rules that find something in the bad program and nothing in its fixed twin, by the marks."""
    return {*EXPECTED.findall(bad_of(twin).read_text(encoding="utf-8"))} - {*EXPECTED.findall(twin.read_text("utf-8"))}


@pytest.mark.parametrize("twin", TWINS, ids=named)
def test_a_fix_changes_what_it_must_and_no_other_byte(twin: Path, tmp_path: Path) -> None:
    """Byte order mark, tabs, CRLF, missing line end and mode stay; it parses; the finding is gone; none has come."""
    file = tmp_path / "train.py"
    file.write_bytes(disguised(plain(bad_of(twin))))
    file.chmod(0o754)
    result = fix(tmp_path, file)
    assert (result.errors, len(result.changed)) == ((), 1)
    assert write_all(result.changed, tmp_path, result.together) == ([file], [])
    after = file.read_bytes()
    assert after == disguised(plain(twin))
    assert stat.S_IMODE(file.stat().st_mode) == 0o754
    ast.parse(after)
    assert result.fixed > 0 and not wrong(twin) & {finding.name for finding in result.report.findings}
    again = engine.fix_files([file], settings.Settings(root=tmp_path), unsafe=True)
    assert (again.changed, again.errors) == ({}, ())


MANY = """\
import torch
import torch.distributed as dist
from torch.distributed._composable.fsdp import CPUOffloadPolicy, fully_shard


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(8, 64)
        self.blocks = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(64, 4) for _ in range(4))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x


dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
model = Net()
optimizer = torch.optim.AdamW(model.parameters())  # all of them
for block in model.blocks:
    fully_shard(block, offload_policy=CPUOffloadPolicy())
for step in range(3):
    loss = model.forward(torch.randn(8, 8, 8)).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    total = sum(p.grad.norm().item() for p in model.parameters())
    optimizer.step()
torch.save(model.state_dict(), "model.pt")
"""
MENDED = """\
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(8, 64)
        self.blocks = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(64, 4) for _ in range(4))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return x


dist.init_process_group("cpu:gloo,cuda:nccl", device_id=torch.device("cuda", 0))
model = Net()
for block in model.blocks:
    fully_shard(block, offload_policy=CPUOffloadPolicy())
fully_shard(model, offload_policy=CPUOffloadPolicy())
optimizer = torch.optim.AdamW(model.parameters())  # all of them
for step in range(3):
    loss = model(torch.randn(8, 8, 8)).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    total = sum(p.grad.norm().full_tensor().item() for p in model.parameters())
    optimizer.step()
model_state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if dist.get_rank() == 0:
    torch.save(model_state, "model.pt")
"""
SOME = "FSDP101", "FSDP109", "FSDP202", "FSDP301", "FSDP402", "FSDP602", "FSDP901"


def test_many_fixes_of_one_file_settle(here: Path, lint: Lint) -> None:
    (here / "train.py").write_text(MANY)
    done = lint("--select", ",".join(SOME), "--fix", "--unsafe-fixes", "--show-fixes")
    assert (here / "train.py").read_text() == MENDED, done.stdout
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"train.py: {code} " in done.stdout for code in SOME)


# Order does not matter.


@functools.cache
def alone(bad: Path, unsafe: bool) -> str:
    """What fixing makes of a program by itself."""
    changed = engine.fix_files([bad], settings.Settings(root=bad.parent), unsafe).changed
    return changed[bad][1] if bad in changed else bad.read_text(encoding="utf-8")


@examples(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([bad_of(twin) for twin in TWINS]), min_size=2, max_size=3, unique=True), st.booleans())
def test_a_project_of_any_programs_is_fixed_as_each_of_them_alone(
    tmp_path_factory: pytest.TempPathFactory, programs: list[Path], unsafe: bool
) -> None:
    """Whatever else is in the project, and in whatever order its files are named."""
    folder = tmp_path_factory.mktemp("project")
    files = [folder / f"{bad.parent.name}_{bad.name}" for bad in programs]
    for file, bad in zip(files, programs, strict=True):
        file.write_text(bad.read_text(encoding="utf-8"), encoding="utf-8")
    known = settings.Settings(root=folder)
    results = [engine.fix_files(order, known, unsafe) for order in (files, files[::-1], [folder])]
    assert [result.errors for result in results] == [(), (), ()]
    assert results[0].changed == results[1].changed == results[2].changed
    assert {result.report for result in results} == {results[0].report}
    for file, bad in zip(files, programs, strict=True):
        text = results[0].changed[file][1] if file in results[0].changed else file.read_text(encoding="utf-8")
        assert text == alone(bad, unsafe)


LETTERS = "abcdefghij"
spans = st.tuples(st.integers(0, 10), st.integers(0, 10)).map(sorted)
located = st.lists(st.tuples(spans, st.sampled_from(["", "X", "YZ"])), min_size=1, max_size=3)


def fix_at(edits: list[tuple[list[int], str]], kind: Applicability) -> LocatedFix:
    places = [(Place("a.py", 1, start + 1, 1, end + 1), content) for (start, end), content in edits]
    return LocatedFix(kind, "mend", tuple(TextEdit(place, content) for place, content in places))


def apart(fix: LocatedFix) -> bool:
    """Edits of one fix never overlap: `locate` sees to it."""
    places = sorted(edit.place for edit in fix.edits)
    return all(a.end_column <= b.column and a != b for a, b in itertools.pairwise(places))


fixes = st.lists(st.builds(fix_at, located, st.sampled_from(Applicability)).filter(apart), max_size=8)


@examples(max_examples=150, deadline=None, derandomize=True)
@given(fixes, st.randoms(use_true_random=False), st.booleans())
def test_the_choice_of_fixes_does_not_depend_on_their_order(
    found: list[LocatedFix], random: object, unsafe: bool
) -> None:
    chosen = choose(found, unsafe)
    shuffled = list(found)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert choose(shuffled, unsafe) == chosen
    assert {fix.applicability for fix in chosen} <= {Applicability.SAFE, *([Applicability.UNSAFE] if unsafe else [])}
    allowed = [fix for fix in found if fix.applicability in (Applicability.SAFE, Applicability.UNSAFE)[: 1 + unsafe]]
    assert bool(chosen) == bool(allowed)
    edits = [edit for fix in chosen for edit in fix.edits]
    expected = LETTERS
    for edit in sorted(edits, key=lambda edit: edit.place, reverse=True):
        expected = expected[: edit.place.column - 1] + edit.content + expected[edit.place.end_column - 1 :]
    assert edit_text(LETTERS, edits) == expected


# Files are whole, whatever happens.

RULE_THAT_BREAKS = '''"""Finds calls of fully_shard and writes what is no Python.

## What it finds

## Why it is wrong

## How to mend it

Do not.

## When to leave it

## References
"""

from fsdp_lint.fix.edits import Fix, Replace
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Shard


def check(trace):
    for shard in trace.every(Shard):
        yield Finding(at=shard, message="it is called", fix=Fix("Break it", (Replace(shard.site, "f(("),)))


RULE = Rule(check, code="BRK001", severity=Severity.ERROR, fixes=frozenset({Applicability.SAFE}), since="1")
'''


def test_a_fix_that_breaks_a_file_is_undone_and_named(here: Path, lint: Lint, bad: str, tmp_path: Path) -> None:
    """The fix of a rule from another package writes what is no Python: the other fixes stay, and nobody is misled."""
    pack = tmp_path / "packs"
    (pack / "breaking").mkdir(parents=True)
    (pack / "breaking" / "__init__.py").touch()
    (pack / "breaking" / "called_at_all.py").write_text(RULE_THAT_BREAKS)
    (pack / "breaking-1.dist-info").mkdir()
    (pack / "breaking-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: breaking\nVersion: 1\n")
    (pack / "breaking-1.dist-info" / "entry_points.txt").write_text("[fsdp_lint.rules]\nbreaking = breaking\n")
    (here / "wrong.py").write_text(bad)
    done = lint("--select", "BRK001,FSDP101", "--fix", "wrong.py", PYTHONPATH=str(pack))
    assert done.returncode == 2
    assert done.stderr.startswith(f"fsdp-lint: {here / 'wrong.py'}:") and done.stderr.count("\n") == 1
    assert "called-at-all: the fix was undone: " in done.stderr and "is not valid Python" in done.stderr
    lines = bad.splitlines(keepends=True)
    assert (here / "wrong.py").read_text() == "".join([*lines[:4], lines[5], lines[4]])


def test_a_link_out_of_the_project_is_not_followed(
    here: Path, lint: Lint, bad: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("elsewhere") / "wrong.py"
    outside.write_text(bad)
    (here / "link.py").symlink_to(outside)
    done = lint("--select", "FSDP101", "--fix", "link.py")
    assert done.returncode == 2
    assert "link.py: is a link that leads out of the project" in done.stderr
    assert outside.read_text() == bad and (here / "link.py").is_symlink()


def two_files(folder: Path) -> dict[Path, tuple[str, str]]:
    changed = {folder / "a.py": ("x = 1\n", "x = 2\n"), folder / "b.py": ("y = 1\n", "y = 2\n" * 2000)}
    for path, (before, _) in changed.items():
        path.write_text(before)
    return changed


WRITE = """
import json, os, resource, signal, sys
from pathlib import Path
from fsdp_lint.fix.writing import write_all
folder = Path(sys.argv[1])
changed = {folder / name: tuple(texts) for name, texts in json.load(sys.stdin).items()}
paths = [frozenset(changed)]
"""


def in_a_process(folder: Path, changed: dict[Path, tuple[str, str]], program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WRITE + program, folder],
        input=json.dumps({path.name: texts for path, texts in changed.items()}),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_full_disk_changes_none_of_the_files_of_a_fix(tmp_path: Path) -> None:
    """The system refuses to write the second file, as on a full disk: the first is not replaced either."""
    changed = two_files(tmp_path)
    done = in_a_process(
        tmp_path,
        changed,
        """
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
print(*write_all(changed, folder, paths))
""",
    )
    assert "b.py: could not be written: File too large" in done.stdout, done.stderr
    assert f"a.py: is not fixed without {tmp_path / 'b.py'}" in done.stdout
    assert {path: path.read_text() for path in changed} == {path: before for path, (before, _) in changed.items()}
    assert sorted(os.listdir(tmp_path)) == ["a.py", "b.py"]


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_kill_between_two_files_leaves_each_whole_and_is_made_good(
    here: Path, lint: Lint, bad: str, good: str, renames: int
) -> None:
    """Killed by the system before the journal stands, before the first file is replaced, and before the second."""
    changed = {here / name: (bad, good) for name in ("a.py", "b.py")}
    for path in changed:
        path.write_text(bad)
    done = in_a_process(
        here,
        changed,
        f"""
left = [{renames}]
def stop(event, arguments):
    if event == "os.rename":
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        left[0] -= 1
sys.addaudithook(stop)
write_all(changed, folder, paths)
""",
    )
    assert done.returncode == -9, done.stderr
    assert [path.read_text() for path in changed] == [good if renames > 1 else bad, bad]
    said = lint("--select", "FSDP101", "a.py")
    assert ("an earlier fix was cut off" in said.stderr) == (renames > 0)
    assert lint("--select", "FSDP101", "--fix").returncode == 0
    assert [path.read_text() for path in changed] == [good, good]
    assert lint("--select", "FSDP101").returncode == 0
    if renames:
        assert sorted({*os.listdir(here)} - {".git", ".cache"}) == ["a.py", "b.py"]
