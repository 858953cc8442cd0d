"""Every fixture program is linted with all rules: findings lie where it says, and nowhere else."""

from __future__ import annotations

import functools
import re
from collections import Counter
from pathlib import Path

import pytest

from fsdp_lint import docs, engine, registry, settings
from fsdp_lint.findings import Report

ROOT = Path(__file__).parent.parent / "fixtures"
MARK = re.compile(r"#\s*(expect|expect-because|known-miss|known-false):\s*([a-z0-9-]+(?:\s*,\s*[a-z0-9-]+)*)")
Marks = Counter[tuple[str, int, str]]


def programs(prefix: str = "") -> list[Path]:
    """The programs of all rules: files, and folders of several files."""
    return [
        path
        for rule in sorted(ROOT.iterdir())
        if rule.is_dir() and rule.name != "__pycache__"
        for path in sorted(rule.iterdir())
        if path.name.startswith(prefix or ("bad_", "good_", "fixed_")) and path.name != "__pycache__"
    ]


def name_of(path: Path) -> str:
    """A program's name in the output of pytest."""
    return path.relative_to(ROOT).as_posix()


@functools.cache
def lint(path: Path) -> Report:
    """The report on one program alone."""
    return engine.analyse([path], settings_for(path))


def settings_for(path: Path) -> settings.Settings:
    """All rules that are on by default, and the one whose program it is."""
    own = path.parent.name.replace("_", "-")
    named = any(rule.name == own for rule in registry.rules())
    root = path if path.is_dir() else path.parent
    return settings.Settings(root=root, extend_select=(own,) if named else ())


def files(path: Path) -> list[Path]:
    """The files of a program, its settings among them."""
    if not path.is_dir():
        return [path]
    return sorted(each for each in path.rglob("*") if each.suffix in (".py", ".yaml", ".json"))


def marks(path: Path, kind: str) -> Marks:
    """The marks of one kind: file, row, rule name."""
    found: Marks = Counter()
    for file in files(path):
        for row, line in enumerate(file.read_text().splitlines(), 1):
            for mark in MARK.finditer(line):
                if mark[1] == kind:
                    for name in mark[2].split(","):
                        found[file.name, row, name.strip()] += 1
    return found


@pytest.mark.parametrize("path", programs(), ids=name_of)
def test_findings_are_where_the_program_says(path: Path) -> None:
    report = lint(path)
    assert report.errors == ()
    found: Marks = Counter(
        (Path(f.place.path).name, f.place.row, f.name) for f in report.findings if Path(f.place.path) in files(path)
    )
    assert found == marks(path, "expect") + marks(path, "known-false")


@pytest.mark.parametrize("path", [path for path in programs() if marks(path, "expect-because")], ids=name_of)
def test_findings_bring_the_witnesses_that_the_program_names(path: Path) -> None:
    places = {
        (Path(related.place.path).name, related.place.row, finding.name)
        for finding in lint(path).findings
        for related in finding.related
    }
    assert set(marks(path, "expect-because")) <= places


@pytest.mark.parametrize("path", programs("good_"), ids=name_of)
def test_right_programs_have_advice_only(path: Path) -> None:
    assert [f for f in lint(path).findings if f.severity.value != "info" and not marks(path, "known-false")] == []


@pytest.mark.parametrize("path", programs("fixed_"), ids=name_of)
def test_fixes_give_the_fixed_program_byte_for_byte(path: Path) -> None:
    """What `--fix` makes of its bad twin, or `--fix --unsafe-fixes` where there is nothing for `--fix` alone."""
    bad = path.with_name(path.name.replace("fixed_", "bad_", 1))
    known = settings.Settings(root=bad if bad.is_dir() else bad.parent)
    result = engine.fix_files([bad], known)
    if not result.changed:
        result = engine.fix_files([bad], known, unsafe=True)
    assert result.errors == ()
    for file in files(bad):
        wanted = path / file.relative_to(bad) if path.is_dir() else path
        text = result.changed[file][1] if file in result.changed else file.read_text()
        assert without_marks(text) == without_marks(wanted.read_text())


def without_marks(text: str) -> str:
    """A program without what it says about itself."""
    return re.sub(r"[ \t]*#\s*(?:expect|expect-because|known-miss|known-false):[^\n]*", "", text)


@pytest.mark.parametrize("rule", registry.rules(), ids=lambda rule: rule.name)
def test_each_rule_has_wrong_and_right_programs(rule: registry.RegisteredRule) -> None:
    folder = ROOT / rule.name.replace("-", "_")
    names = [path.name for path in folder.iterdir()]
    assert any(name.startswith("bad_") for name in names)
    assert any(name.startswith("good_") for name in names)
    assert any(marks(path, "expect") for path in programs("bad_") if path.parent == folder)


@pytest.mark.parametrize("rule", registry.rules(), ids=lambda rule: rule.name)
def test_a_rule_fixes_what_it_declares(rule: registry.RegisteredRule) -> None:
    folder = ROOT / rule.name.replace("-", "_")
    kinds = {
        finding.fix.applicability
        for path in programs("bad_")
        if path.parent == folder
        for finding in lint(path).findings
        if finding.name == rule.name and finding.fix is not None
    }
    assert kinds <= rule.rule.fixes
    assert bool(kinds) == bool(rule.rule.fixes)


@pytest.mark.parametrize("rule", [r for r in registry.rules() if r.rule.fixes], ids=lambda rule: rule.name)
def test_a_page_says_which_option_makes_its_example(rule: registry.RegisteredRule) -> None:
    found = docs.example_of(ROOT / rule.name.replace("-", "_"))
    if found is None or found[1] is None or not found[1].name.startswith("fixed_"):
        assert "Fixed by" not in docs.page(rule, ROOT)
        return
    bad = found[0]
    safe = engine.fix_files([bad], settings.Settings(root=bad if bad.is_dir() else bad.parent)).changed
    assert ("Fixed by `--fix --unsafe-fixes`:" if safe else "Fixed by `--fix`:") not in docs.page(rule, ROOT)
