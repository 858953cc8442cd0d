"""The pages of the rules: made from docstrings and fixtures, committed, and equal to what would be written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_lint import docs, examples, registry
from fsdp_lint.registry import RegisteredRule, section
from fsdp_lint.rule import Applicability, Rule, Severity

ROOT = Path(__file__).parents[1]
SECTIONS = ["What it finds", "Why it is wrong", "How to mend it", "When to leave it", "References"]
RULES = registry.rules()

BAD = '''\
"""A program."""
# /// verify
# ranks = 2
# ///

optimizer = AdamW(model.parameters())  # expect: optimizer-before-shard
fully_shard(model)  # expect-because: optimizer-before-shard
a = "# a string"  # a comment that stays
'''
FIXED = '''\
"""A program."""
# /// verify
# ranks = 2
# ///

fully_shard(model)
optimizer = AdamW(model.parameters())
a = "# a string"  # a comment that stays
'''


def test_the_committed_pages_are_those_that_would_be_written() -> None:
    wanted = docs.pages(RULES, examples.folder(), docs.measured())
    assert docs.differences(ROOT / "docs" / "rules", wanted) == []


@pytest.mark.parametrize("each", RULES, ids=lambda each: each.name)
def test_a_rule_has_one_name_everywhere_and_a_whole_page(each: RegisteredRule) -> None:
    module = each.name.replace("-", "_")
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", each.name)
    assert (ROOT / "rules" / f"{module}.py").is_file()
    kinds = {path.name.split("_")[0] for path in (ROOT / "fixtures" / module).iterdir()} - {"", "README.md"}
    assert {"bad", "good"} <= kinds <= {"bad", "good", "fixed"}
    assert re.fullmatch(r"FSDP\d{3}", each.rule.code)
    assert re.findall(r"^## (.+)$", each.doc, re.MULTILINE) == SECTIONS
    assert all(section(each.doc, title) for title in SECTIONS)
    assert each.summary.endswith(".") and each.help


def rule() -> RegisteredRule:
    made = Rule(lambda trace: iter(()), "FSDP101", Severity.ERROR, "0.1", frozenset({Applicability.SAFE}))
    return RegisteredRule("optimizer-before-shard", made, "It is early.\n\n## What it finds\n\nThis.")


def test_a_page_has_facts_text_and_an_example_without_marks(tmp_path: Path) -> None:
    folder = tmp_path / "optimizer_before_shard"
    folder.mkdir()
    (folder / "bad_inline.py").write_text(BAD)
    (folder / "fixed_inline.py").write_text(FIXED)
    (folder / "bad_a.py").write_text("no_twin()\n")
    assert docs.page(rule(), tmp_path) == (
        "# optimizer-before-shard\n\n"
        "FSDP101 | error | fix: safe | on by default | since 0.1\n\n"
        "It is early.\n\n## What it finds\n\nThis.\n\n"
        "## Example\n\n"
        '```python\n"""A program."""\n\noptimizer = AdamW(model.parameters())\nfully_shard(model)\n'
        'a = "# a string"  # a comment that stays\n```\n\n'
        "Fixed by `--fix`:\n\n"
        '```diff\n@@ -1,5 +1,5 @@\n """A program."""\n \n+fully_shard(model)\n optimizer = AdamW(model.parameters())\n'
        '-fully_shard(model)\n a = "# a string"  # a comment that stays\n```\n'
    )


def test_an_example_of_several_files(tmp_path: Path) -> None:
    for kind, line in (("bad", "early()"), ("good", "late()")):
        folder = tmp_path / "optimizer_before_shard" / f"{kind}_across_files"
        folder.mkdir(parents=True)
        (folder / "train.py").write_text(f"{line}\n")
        (folder / "model.py").write_text("class Net: ...\n")
    page = docs.page(rule(), tmp_path)
    assert "`model.py`:\n\n```python\nclass Net: ...\n```" in page
    assert "Mended by hand:\n\n```diff\ntrain.py:\n@@ -1 +1 @@\n-early()\n+late()\n```" in page


def test_a_page_without_fixtures_is_the_docstring(tmp_path: Path) -> None:
    assert "## Example" not in docs.page(rule(), None)
    assert "## Example" not in docs.page(rule(), tmp_path)


def test_differences_are_named(tmp_path: Path) -> None:
    (tmp_path / "same.md").write_text("a")
    (tmp_path / "other.md").write_text("b")
    (tmp_path / "old.md").write_text("c")
    said = docs.differences(tmp_path, {"same.md": "a", "other.md": "x", "new.md": "y"})
    assert [line.split(": ") for line in said] == [
        [str(tmp_path / "other.md"), "differs"],
        [str(tmp_path / "new.md"), "is missing"],
        [str(tmp_path / "old.md"), "belongs to no rule"],
    ]


def test_check_writes_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fsdp_lint.docs", "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
