"""The command as users meet it: what it prints, where, and its exit code."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fsdp_lint import __version__, registry

if TYPE_CHECKING:
    from conftest import Lint

ORDER = ("--select", "FSDP101")


def test_no_path_means_the_current_folder(lint: Lint, here: Path, bad: str, good: str) -> None:
    (here / "right.py").write_text(good)
    clean = lint(*ORDER)
    assert (clean.returncode, clean.stderr) == (0, "")
    assert clean.stdout.startswith("Nothing found (1 file seen, 1 speaks of FSDP). Sharding sites: 1 seen, 1 followed")
    (here / "wrong.py").write_text(bad)
    found = lint(*ORDER)
    assert (found.returncode, found.stderr) == (1, "")
    assert "wrong.py:5:13: error FSDP101 optimizer-before-shard: " in found.stdout
    assert "     5 | optimizer = torch.optim.AdamW(model.parameters())\n       |             ^" in found.stdout
    assert "because wrong.py:6:1: " in found.stdout
    assert "\n  help: " in found.stdout
    assert "Found 1 error in 1 file (2 files seen" in found.stdout
    assert "\x1b" not in found.stdout


def test_check_may_be_spelled_out(lint: Lint, here: Path, bad: str) -> None:
    (here / "wrong.py").write_text(bad)
    assert lint("check", *ORDER, "wrong.py").stdout == lint(*ORDER, "wrong.py").stdout


def test_a_folder_named_like_a_command(lint: Lint, here: Path, bad: str) -> None:
    (here / "rules").mkdir()
    (here / "rules" / "wrong.py").write_text(bad)
    assert lint("rules").returncode == 0
    assert lint("./rules", *ORDER).returncode == 1
    assert lint(*ORDER, "rules").returncode == 1


def test_nothing_to_do_is_no_failure(lint: Lint, here: Path) -> None:
    (here / "empty.py").touch()
    done = lint("empty.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Nothing found (1 file seen, 0 speak of FSDP). No sharding sites seen.\n"


def test_formats(lint: Lint, here: Path, bad: str) -> None:
    (here / "wrong.py").write_text(bad)
    (one,) = json.loads(lint(*ORDER, "--output-format", "json").stdout)
    assert (one["code"], one["filename"], one["location"]) == (
        "FSDP101",
        str(here / "wrong.py"),
        {"row": 5, "column": 13},
    )
    assert one["url"].endswith("/docs/rules/optimizer-before-shard.md")
    assert one["related"][0]["location"] == {"row": 6, "column": 1}
    assert lint(*ORDER, "--output-format", "concise", "-q").stdout.startswith("wrong.py:5:13: error FSDP101 ")
    assert lint(*ORDER, "--output-format", "github").stdout.startswith("::error file=wrong.py,line=5,col=13,")
    assert lint("--output-format", "json", "--select", "FSDP102").stdout == "[]\n"


def test_quiet_exit_zero_and_statistics(lint: Lint, here: Path, bad: str) -> None:
    (here / "wrong.py").write_text(bad)
    assert "Found" not in lint(*ORDER, "--quiet").stdout
    assert lint(*ORDER, "--quiet", "--ignore", "FSDP101").stdout == ""
    zero = lint(*ORDER, "--exit-zero")
    assert zero.returncode == 0 and "FSDP101" in zero.stdout
    counted = lint(*ORDER, "--statistics")
    assert (counted.returncode, counted.stdout.split()) == (1, ["1", "FSDP101", "optimizer-before-shard"])


def test_selectors_may_be_listed_and_repeated(lint: Lint, here: Path, bad: str) -> None:
    (here / "wrong.py").write_text(bad)
    assert lint("--select", "FSDP102, optimizer-before-shard").returncode == 1
    assert lint("--select", "FSDP102", "--extend-select", "FSDP10").returncode == 1
    assert lint("--select", "FSDP1", "--ignore", "optimizer-before-shard").returncode == 0


def test_standard_input(lint: Lint, here: Path, bad: str, good: str) -> None:
    (here / "train.py").write_text(good)
    done = lint(*ORDER, "-", "--stdin-filename", "train.py", stdin=bad)
    assert (done.returncode, done.stderr) == (1, "")
    assert "train.py:5:13: error FSDP101" in done.stdout
    assert "     5 | optimizer = " in done.stdout, "the text that was given, not the one on disk"
    assert lint(*ORDER, "-", stdin=good).returncode == 0
    assert lint(*ORDER, "-", stdin="").returncode == 0
    nameless = lint(*ORDER, "-", stdin=bad)
    assert nameless.returncode == 1 and "stdin.py:5:13" in nameless.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-", "x.py"), "`-` stands alone"),
        (("-", "--fix"), "--fix and --diff work on files"),
        (("--fix", "--diff"), "give one of them"),
        (("--stdin-filename", "x.py"), "needs the path `-`"),
        (("--selct", "FSDP1"), "--select"),
        (("--output-format", "xml"), "'text', 'concise', 'json', 'github'"),
        (("gone.py",), "gone.py: no such file or folder"),
        (("--select", "FSDP199"), "unknown rule 'FSDP199' in `select`; did you mean 'FSDP1"),
        (("--ignore", "optimiser-before-shard"), "in `ignore`; did you mean 'optimizer-before-shard'?"),
        (("--config", "gone.toml"), "gone.toml: cannot be read"),
        (("explain", "optimizer-befor-shard"), "did you mean 'optimizer-before-shard'?"),
        (("explain",), "RULE"),
        (("rules", "--output-format", "github"), "'text', 'json'"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_has_one_line_and_exit_code_2(lint: Lint, arguments: tuple[str, ...], said: str) -> None:
    done = lint(*arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("fsdp-lint: ")


def test_settings_are_taken_from_the_project(lint: Lint, here: Path, bad: str) -> None:
    (here / "tests").mkdir()
    (here / "tests" / "wrong.py").write_text(bad)
    (here / "pyproject.toml").write_text('[tool.fsdp-lint]\nselect = ["FSDP101"]\n')
    assert lint().returncode == 1
    (here / "pyproject.toml").write_text('[tool.fsdp-lint]\nselect = ["FSDP101"]\nexclude = ["tests"]\n')
    assert lint().returncode == 0
    (here / "fsdp-lint.toml").write_text(
        'select = ["FSDP101"]\n[per-file-ignores]\n"tests/" = ["optimizer-before-shard"]\n'
    )
    assert lint().returncode == 0
    (here / "other.toml").write_text('select = ["FSDP101"]\n')
    assert lint("--config", "other.toml").returncode == 1
    (here / "fsdp-lint.toml").write_text("slect = []\n")
    wrong = lint()
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr == f"fsdp-lint: {here / 'fsdp-lint.toml'}: unknown key `slect`; did you mean `select`?\n"


def test_force_exclude_is_for_those_who_name_every_file(lint: Lint, here: Path, bad: str) -> None:
    (here / "lib").mkdir()
    (here / "lib" / "wrong.py").write_text(bad)
    (here / "fsdp-lint.toml").write_text('select = ["FSDP101"]\nexclude = ["lib/"]\n')
    assert lint("lib/wrong.py").returncode == 1
    assert lint("--force-exclude", "lib/wrong.py").returncode == 0
    assert lint("--force-exclude", "-", "--stdin-filename", "lib/wrong.py", stdin=bad).returncode == 0


@pytest.mark.parametrize(
    "comment", ["# noqa", "# noqa: FSDP101", "# fsdp-lint: ignore[optimizer-before-shard] a reason"]
)
def test_suppression(lint: Lint, here: Path, bad: str, comment: str) -> None:
    (here / "wrong.py").write_text(bad.replace("parameters())\n", f"parameters())  {comment}\n"))
    assert lint(*ORDER).returncode == 0


HOPELESS = {
    "not Python": b"fully_shard(\n",
    "not UTF-8": b"# fully_shard \xff\xfe\n",
    "an unknown coding": b"# coding: klingon\nfully_shard(model)\n",
    "1,000 deep": b"fully_shard(" * 1000 + b"model" + b")" * 1000,
    "3,000 deep": b"fully_shard(" * 3000 + b"model" + b")" * 3000,
    "10 MB": b"fully_shard(model)\n" * 550_000,
}


@pytest.mark.parametrize("kind", HOPELESS)
def test_a_file_that_cannot_be_read_is_named_and_the_others_are_analysed(
    lint: Lint, here: Path, bad: str, kind: str
) -> None:
    (here / "hopeless.py").write_bytes(HOPELESS[kind])
    (here / "wrong.py").write_text(bad)
    done = lint(*ORDER)
    assert done.returncode == 2
    assert done.stderr.startswith(f"fsdp-lint: {here / 'hopeless.py'}: ") and done.stderr.count("\n") == 1
    assert "wrong.py:5:13: error FSDP101" in done.stdout
    assert "Not complete: 1 problem on standard error." in done.stdout


@pytest.mark.parametrize("kind", ["not Python", "not UTF-8", "3,000 deep"])
def test_standard_input_that_cannot_be_read(lint: Lint, kind: str) -> None:
    done = lint("-", "--output-format", "json", stdin=HOPELESS[kind])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1 and "stdin.py: " in done.stderr


def test_a_loop_of_folders(lint: Lint, here: Path, bad: str) -> None:
    (here / "a").mkdir()
    (here / "a" / "wrong.py").write_text(bad)
    (here / "a" / "loop").symlink_to(here / "a")
    done = lint(*ORDER)
    assert done.returncode == 2
    assert "loop" in done.stderr and done.stderr.count("\n") == 1
    assert "wrong.py:5:13" in done.stdout


def test_file_names_and_text_of_any_kind(lint: Lint, here: Path, bad: str) -> None:
    (here / "名前 with space.py").write_text("# ünï\n" + bad, encoding="utf-8")
    said = lint(*ORDER, PYTHONIOENCODING="ascii", PYTHONUTF8="0").stdout
    assert ":6:13: error FSDP101" in said
    odd = os.fsencode(str(here)) + b"/\xff.py"
    Path(os.fsdecode(odd)).write_text(bad)
    done = lint(*ORDER)
    assert done.returncode == 1 and "\N{REPLACEMENT CHARACTER}.py:5:13: " in done.stdout
    assert len(json.loads(lint(*ORDER, "--output-format", "json").stdout)) == 2


def test_diff_shows_and_changes_nothing(lint: Lint, here: Path, bad: str) -> None:
    (here / "wrong.py").write_text(bad)
    done = lint(*ORDER, "--diff")
    assert done.returncode == 1
    assert done.stdout.startswith("--- wrong.py\n+++ wrong.py\n@@ ")
    assert (here / "wrong.py").read_text() == bad
    subprocess.run(["git", "apply", "-p0", "-"], input=done.stdout, text=True, check=True, cwd=here, timeout=60)
    assert lint(*ORDER).returncode == 0
    nothing = lint(*ORDER, "--diff")
    assert (nothing.returncode, nothing.stdout) == (0, "")


def test_fix_writes(lint: Lint, here: Path, bad: str, good: str) -> None:
    (here / "wrong.py").write_text(bad)
    (here / "wrong.py").chmod(0o755)
    done = lint(*ORDER, "--fix")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Fixed 1 finding in 1 file." in done.stdout
    assert (here / "wrong.py").read_text() == good
    assert (here / "wrong.py").stat().st_mode & 0o777 == 0o755
    again = lint(*ORDER, "--fix", "--output-format", "json")
    assert (again.returncode, again.stdout) == (0, "[]\n")


@pytest.mark.parametrize("arguments", ["train.py", "--diff train.py"])
def test_the_examples_of_the_readme_are_what_is_printed(lint: Lint, here: Path, bad: str, arguments: str) -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    example = readme.split(f"<!-- example: {arguments} -->\n", 1)[1].split("```")[1].partition("\n")[2]
    (here / "train.py").write_text(bad)
    assert lint(*ORDER, *arguments.split()).stdout == example


UNSAFE = """\
import torch
from torch.distributed._composable.fsdp import fully_shard

model = torch.nn.Linear(8, 8)
fully_shard(model)
"""


def test_unsafe_fixes_are_applied_on_request_only(lint: Lint, here: Path) -> None:
    (here / "fsdp-lint.toml").write_text('torch = ">=2.4"\nselect = ["FSDP901"]\n')
    (here / "wrong.py").write_text(UNSAFE)
    found = lint()
    assert "old-fsdp2-import: `torch" in found.stdout and "(`--fix --unsafe-fixes` does it" in found.stdout
    assert "\n1 fixable with --fix --unsafe-fixes.\n" in found.stdout
    assert "old-fsdp2-import: [*] `torch" in lint("--unsafe-fixes").stdout
    assert (here / "wrong.py").read_text() == UNSAFE
    safe = lint("--fix")
    assert safe.returncode == 1 and "Fixed 0 findings in 0 files." in safe.stdout
    assert (lint("--diff").returncode, lint("--diff").stdout) == (0, "")
    assert (here / "wrong.py").read_text() == UNSAFE
    shown = lint("--diff", "--unsafe-fixes")
    assert shown.returncode == 1 and "\n+from torch.distributed.fsdp import fully_shard\n" in shown.stdout
    done = lint("--fix", "--unsafe-fixes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Fixed 1 finding in 1 file." in done.stdout
    assert (here / "wrong.py").read_text() == UNSAFE.replace("_composable.", "")


def test_show_fixes_shows_changes_and_lists_what_was_done(lint: Lint, here: Path, bad: str) -> None:
    (here / "wrong.py").write_text(bad)
    found = lint(*ORDER, "--show-fixes")
    assert found.returncode == 1
    assert "\n    +fully_shard(model)\n     optimizer = torch.optim.AdamW(model.parameters())\n" in found.stdout
    assert (here / "wrong.py").read_text() == bad
    piped = lint(*ORDER, "--show-fixes", "-", stdin=bad)
    assert "\n    -fully_shard(model)\n" in piped.stdout
    done = lint(*ORDER, "--fix", "--show-fixes")
    assert done.stdout.startswith(
        "Fixed 1 finding in 1 file:\n"
        "  wrong.py: FSDP101 optimizer-before-shard: Build the optimizer after the model is sharded\n"
    )


def test_fix_only_lists_nothing(lint: Lint, here: Path, bad: str, good: str) -> None:
    (here / "wrong.py").write_text(bad)
    hopeless = bad.replace(
        "fully_shard(model)\n", "optimizer.load_state_dict({})\nfully_shard(model)\noptimizer.step()\n"
    )
    (here / "left.py").write_text(hopeless)
    done = lint(*ORDER, "--fix-only")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Fixed 1 finding in 1 file.\n", "")
    assert (here / "wrong.py").read_text() == good
    assert lint(*ORDER, "--fix-only", "-q").stdout == ""
    assert lint(*ORDER).returncode == 1
    (here / "broken.py").write_text("fully_shard(\n")
    assert lint(*ORDER, "--fix-only").returncode == 2
    assert lint("--diff", "--fix-only").returncode == 2


def test_only_files_that_are_asked_about_are_changed(lint: Lint, here: Path, bad: str) -> None:
    """The mistake is found through the file that was named, but lies in the other."""
    (here / "parts.py").write_text(bad.replace("model = ", "def build():\n    model = ").replace("\nopt", "\n    opt")
                                   .replace("\nfully", "\n    fully") + "    return model, optimizer\n")  # fmt: skip
    (here / "train.py").write_text("from parts import build\nmodel, optimizer = build()\nmodel(1)\n")
    old = (here / "parts.py").read_text()
    lint(*ORDER, "--fix", "train.py")
    assert (here / "parts.py").read_text() == old
    assert lint(*ORDER, "--fix").returncode == 0
    assert (here / "parts.py").read_text() != old


def test_what_a_kill_cut_off_is_reported_and_finished(lint: Lint, here: Path, bad: str, good: str) -> None:
    for name in ("a.py", "b.py"):
        (here / name).write_text(bad)
    journal = here / ".fsdp-lint-unfinished.json"
    entries = [{"path": name, "temporary": f".{name}.1.tmp", "before": bad, "after": good} for name in ("a.py", "b.py")]
    journal.write_text(json.dumps(entries))
    (here / "a.py").write_text(good)
    said = lint(*ORDER)
    assert said.returncode == 2 and "an earlier fix was cut off between two files; --fix finishes it" in said.stderr
    assert lint(*ORDER, "--fix").returncode == 0
    assert (here / "b.py").read_text() == good and not journal.exists()
    journal.write_text(json.dumps(entries))
    (here / "b.py").write_text("mine = 1\n")
    said = lint(*ORDER, "--fix")
    assert said.returncode == 2 and "b.py: a fix was cut off and could not be finished: was changed by" in said.stderr
    assert (here / "b.py").read_text() == "mine = 1\n"
    assert lint(*ORDER).returncode == 0


def test_rules_lists_them(lint: Lint) -> None:
    known = registry.rules()
    done = lint("rules")
    assert (done.returncode, done.stderr) == (0, "")
    rows = done.stdout.splitlines()
    assert [row.split()[:3] for row in rows[1:]] == [[r.rule.code, r.name, r.rule.severity.value] for r in known]
    assert [row.endswith(" (off by default)") for row in rows[1:]] == [not r.rule.on_by_default for r in known]
    facts = json.loads(lint("rules", "--output-format", "json").stdout)
    assert [(each["code"], each["name"]) for each in facts] == [(r.rule.code, r.name) for r in known]


@pytest.mark.parametrize("word", ["FSDP101", "fsdp101", "optimizer-before-shard"])
def test_explain(lint: Lint, word: str) -> None:
    done = lint("explain", word)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# optimizer-before-shard\n\nFSDP101 | error")
    assert "\n## How to mend it\n" in done.stdout


def test_version_and_help(lint: Lint) -> None:
    assert lint("--version").stdout == f"fsdp-lint {__version__}\n"
    for flag in ("--help", "-h"):
        said = lint(flag).stdout
        assert all(word in said for word in ("--select", "--diff", "--stdin-filename", "explain", "Exit code"))
    assert "--select" in lint("check", "--help").stdout


def on_a_terminal(here: Path, **environment: str) -> str:
    """What the command prints to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fsdp_lint", *ORDER],
        cwd=here,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if name != "NO_COLOR"} | {"TERM": "xterm"} | environment,
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        said += part
    os.close(ours)
    process.wait(timeout=60)
    return said.decode()


def test_colour_only_on_a_terminal_and_never_with_no_color(here: Path, bad: str) -> None:
    (here / "wrong.py").write_text(bad)
    assert "\x1b[31m" in on_a_terminal(here)
    assert "\x1b" not in on_a_terminal(here, NO_COLOR="1")
    assert "\x1b" not in on_a_terminal(here, TERM="dumb")


def test_a_reader_that_leaves_early(here: Path, bad: str) -> None:
    for number in range(40):
        (here / f"wrong{number}.py").write_text(bad)
    process = subprocess.Popen(
        [sys.executable, "-m", "fsdp_lint", *ORDER], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    said = process.stderr.read().decode()
    process.stderr.close()
    assert process.wait(timeout=120) == 2
    assert said == ""


def test_an_interrupt_leaves_quietly(here: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "fsdp_lint", "-"],
        cwd=here,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(1.5)  # until it waits for its input
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, b"", b"")
