"""`fsdp-lint verify --rule`: a rule is proved with the programs that are shipped, and what was measured is kept."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fsdp_lint import docs, examples, records, registry
from fsdp_lint.records import Measured, Record
from fsdp_lint.verify.probes import probe_of

ROOT = Path(__file__).parents[1]
RULES = registry.rules()


def command(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_lint", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


@pytest.mark.ranks
def test_a_rule_is_proved_and_the_record_has_what_was_measured(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    done = command("verify", "--rule", "FSDP101", "--mode", "cpu", "--record", "kept", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        "optimizer-before-shard: confirmed, the look-alike is quiet (2 CPU ranks, gloo, torch "
    )
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["kept", "optimizer-before-shard-cpu.json"]
    (record,) = records.load(tmp_path / "kept", "optimizer-before-shard")
    mistake, fix, other = record.programs
    assert (mistake.what, fix.what, other.what) == ("mistake", "fix", "look-alike")
    assert (mistake.parameters_changed, fix.parameters_changed, other.parameters_changed) == (0, 1, 1)
    assert (mistake.found, other.found) == (True, False)
    assert record.holds and len(record.date) == len("2026-01-31")
    shown = records.as_markdown([record])
    assert f"{mistake.held:,} | {mistake.peak_bytes:,}" in shown and "**confirmed**" in shown


def test_programs_that_need_gpus_have_a_record_that_names_their_mode(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    done = command("verify", "--rule", "missing-set-device", "--mode", "cpu", "--record", "kept", folder=tmp_path)
    (record,) = records.load(tmp_path / "kept", "missing-set-device")
    assert record.verdict == "not observable" and record.programs[0].ended == "not run"
    assert "--mode nccl on two GPUs shows it" in records.as_markdown([record])
    assert "ranks start" not in done.stderr, "nothing is run"


@pytest.mark.ranks
def test_a_mode_that_cannot_know_leaves_the_figure_out(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs torch")
    done = command("verify", "--rule", "shard-every-leaf", "--mode", "simulate", "--record", "kept", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (record,) = records.load(tmp_path / "kept", "shard-every-leaf")
    assert (record.mode, record.ranks) == ("simulate", 8)
    assert all(one.parameters_changed is None and one.peak_bytes for one in record.programs)
    assert ", parameters changed: not measured" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--rule", "optimizer-befor-shard"], "unknown rule 'optimizer-befor-shard'; did you mean"),
        (["--rule", "FSDP101", "train.py"], "--rule runs programs of its own"),
        (["--record", "kept", "train.py"], "--record keeps what --rule measures"),
        (["--rule", "old-fsdp2-import"], "old-fsdp2-import: a run does not show this mistake"),
    ],
)
def test_what_cannot_be_done_has_a_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    done = command("verify", *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("rule", [each.name for each in RULES if probe_of(each.name)])
def test_each_rule_that_a_run_can_show_has_programs_for_it(rule: str) -> None:
    programs = examples.of_rule(rule)
    assert programs is not None
    bad = examples.mistakes(programs)
    assert bad and examples.look_alikes(programs)
    measured = records.load(ROOT / "docs" / "records" / "rules", rule)
    can = any(examples.runs(each) or examples.needs_gpus(each) for each in bad)
    assert bool(measured) == can, "fsdp-lint verify --rule RULE --mode cpu --record DIR"


def test_a_page_shows_the_records(tmp_path: Path) -> None:
    rule = next(each for each in RULES if each.name == "optimizer-before-shard")
    assert "## Measured" not in docs.page(rule, None, tmp_path)
    figures = (1024, None, {"all_gather": 3}, None, "stopped")
    programs = (
        Measured("mistake", "bad_a.py", True, "a | b", *figures),
        Measured("fix", "bad_a.py", False, "c", *figures),
    )
    record = Record(rule.name, "simulate", 8, "NVIDIA H200", "2.11.0", "2026-11-30", "confirmed", None, programs)
    assert record.save(tmp_path).name == "optimizer-before-shard-simulate-nvidia-h200.json"
    page = docs.page(rule, None, tmp_path)
    assert "One rank of 8, the others are pretended, NVIDIA H200, torch 2.11.0, 2026-11-30" in page
    assert "| `bad_a.py`, the mistake | a \\| b | 1,024 | - | 3 all_gather | - |" in page


def test_the_programs_are_in_the_wheel_and_are_found_there(tmp_path: Path) -> None:
    """Built from a copy, so that nothing is left in the checkout, and without asking a package index."""
    pytest.importorskip("setuptools", reason="needs setuptools 77 or newer to build without an index", minversion="77")
    listed = subprocess.run(
        ["git", "ls-files", "-zco", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout
    names = [name for name in listed.split("\0") if name] or pytest.skip("needs a git checkout")
    for name in names:
        if (ROOT / name).is_file():
            target = tmp_path / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
    pip = "pip wheel -q --no-deps --no-build-isolation --no-index -w wheels ./source"
    built = subprocess.run(
        [sys.executable, "-m", *pip.split()], cwd=tmp_path, capture_output=True, text=True, timeout=180, check=False
    )
    assert built.returncode == 0, built.stderr
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {name.partition("/")[2] for name in archive.namelist() if name.startswith("fsdp_lint_fixtures/")}
        archive.extractall(tmp_path / "installed")
    wanted = {name.partition("/")[2] for name in names if name.startswith("fixtures/")}
    assert wanted <= inside, sorted(wanted - inside)[:5]
    program = (
        "import fsdp_lint; from fsdp_lint import examples; print(fsdp_lint.__file__);"
        "print(examples.mistakes(examples.of_rule('root-only-shard'))[0])"
    )
    here = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    python = [sys.executable, "-c", program]
    done = subprocess.run(python, cwd=tmp_path, env=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for path in done.stdout.splitlines():
        assert Path(path).is_relative_to(tmp_path / "installed")
