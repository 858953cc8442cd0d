"""Writes docs/rules from the rules' docstrings and fixtures; `--check` compares instead."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsdp_lint import examples, records, releases
from fsdp_lint.findings import Applicability
from fsdp_lint.registry import RegisteredRule, rules

_CHECKOUT = Path(__file__).resolve().parent.parent
_MARKS = re.compile(r"\s*# (?:expect|expect-because|known-miss|known-false|event): .*$")
_BLOCK = re.compile(r"^# /// verify$.*?^# ///$\n", re.MULTILINE | re.DOTALL)
_OPTIONS = {
    frozenset({Applicability.SAFE}): "`--fix`",
    frozenset({Applicability.UNSAFE}): "`--fix --unsafe-fixes`",
}
_COMMAND = "python -m fsdp_lint.docs"
_BY_RELEASE = "On two CPU ranks, FSDP2 made to run on older releases as it does on GPUs ([how](../torch-versions.md)):"


# How a fixture's files are shown.
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json"}


def page(each: RegisteredRule, fixtures: Path | None, measured: Path | None = None) -> str:
    """The page of a rule: what it is, its docstring, an example where fixtures are at hand, and what was measured of
    it, where there are records."""
    kinds = ", ".join(sorted(kind.value for kind in each.rule.fixes)) or "none"
    default = "on" if each.rule.on_by_default else "off"
    facts = (
        f"{each.rule.code} | {each.rule.severity.value} | fix: {kinds} | {default} by default | since {each.rule.since}"
    )
    parts = [f"# {each.name}", facts, each.doc]
    how = _OPTIONS.get(
        each.rule.fixes - {Applicability.DISPLAY}, "`--fix`, or `--fix --unsafe-fixes` as the finding says"
    )
    example = _example(fixtures / each.name.replace("-", "_"), how) if fixtures else ""
    found = records.load(measured, each.name) if measured else []
    by_release = releases.as_markdown(releases.load(measured.parent / "torch"), each.name) if measured else ""
    parts += [f"## Example\n\n{example}"] if example else []
    parts += [f"## By release of torch\n\n{_BY_RELEASE}\n\n{by_release}"] if by_release else []
    parts += [f"## Measured\n\n{records.as_markdown(found)}"] if found else []
    return "\n\n".join(parts).rstrip() + "\n"


def stripped(text: str) -> str:
    """A fixture's text as readers see it, without marks for the tests."""
    return "\n".join(_MARKS.sub("", line) for line in _BLOCK.sub("", text).split("\n"))


def example_of(folder: Path) -> tuple[Path, Path | None] | None:
    """The bad program that stands on a rule's page, and its twin: `bad_inline`, else the first that shows a cure."""
    found = examples.mistakes(folder)
    return (found[0], examples.twin(found[0])) if found else None


def _example(folder: Path, how: str) -> str:
    found = example_of(folder)
    if found is None:
        return ""
    bad, twin = found
    old = _texts(bad)
    parts = [_code(_LANGUAGES.get(Path(name).suffix, "python"), text, name) for name, text in old.items()]
    if twin is not None:
        parts.append(f"{f'Fixed by {how}' if twin.name.startswith('fixed_') else 'Mended by hand'}:")
        parts.append(_code("diff", _diff(old, _texts(twin))))
    return "\n\n".join(parts)


def _texts(program: Path) -> dict[str, str]:
    """The files of a program by their name within it; a program of one file needs none."""
    if program.is_file():
        return {"": stripped(program.read_text(encoding="utf-8"))}
    files = sorted(each for each in program.rglob("*") if each.suffix in _LANGUAGES)
    return {each.relative_to(program).as_posix(): stripped(each.read_text(encoding="utf-8")) for each in files}


def _diff(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    lines: list[str] = []
    for name in sorted({*old, *new}):
        before, after = old.get(name, "").splitlines(), new.get(name, "").splitlines()
        hunks = list(difflib.unified_diff(before, after, lineterm=""))[2:]
        lines += [f"{name}:", *hunks] if name and hunks else hunks
    return "\n".join(lines)


def _code(language: str, text: str, title: str = "") -> str:
    fence = "```" if "```" not in text else "~~~~"
    head = f"`{title}`:\n\n" if title else ""
    return f"{head}{fence}{language}\n{text.strip()}\n{fence}"


def _index(known: Sequence[RegisteredRule]) -> str:
    rows = [
        f"| {each.rule.code} | [{each.name}]({each.name}.md) | {each.rule.severity.value} "
        f"| {', '.join(sorted(kind.value for kind in each.rule.fixes)) or '-'} | {each.summary} |"
        for each in known
    ]
    head = ["# Rules", "", f"Written by `{_COMMAND}` from `rules/`, `fixtures/` and `docs/records/`.", ""]
    return (
        "\n".join([*head, "| code | name | severity | fix | what it finds |", "| --- | --- | --- | --- | --- |", *rows])
        + "\n"
    )


def pages(known: Sequence[RegisteredRule], fixtures: Path | None, measured: Path | None = None) -> dict[str, str]:
    """All files of docs/rules by name."""
    return {"README.md": _index(known)} | {f"{each.name}.md": page(each, fixtures, measured) for each in known}


def measured() -> Path | None:
    """The folder of records of the rules, where this is a checkout: they are not installed."""
    folder = _CHECKOUT / "docs" / "records" / "rules"
    return folder if folder.is_dir() and (_CHECKOUT / "rules").is_dir() else None


def differences(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """One line for each file of the folder that is not as it would be written."""
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    lines = [
        f"{folder / name}: {'differs' if name in there else 'is missing'}"
        for name in wanted
        if there.get(name) != wanted[name]
    ]
    return lines + [f"{folder / name}: belongs to no rule" for name in sorted(there.keys() - wanted.keys())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or compare the pages of this checkout."""
    parser = argparse.ArgumentParser(prog=_COMMAND, description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing, exit 1 on a difference")
    check = parser.parse_args(arguments).check
    if not (_CHECKOUT / "fixtures").is_dir():
        print(f"{_COMMAND}: needs a checkout, with rules/ and fixtures/", file=sys.stderr)
        return 2
    folder = _CHECKOUT / "docs" / "rules"
    wanted = pages(rules(), examples.folder(), measured())
    if not check:
        folder.mkdir(parents=True, exist_ok=True)
        for name in {path.name for path in folder.glob("*.md")} - wanted.keys():
            (folder / name).unlink()
        for name, text in wanted.items():
            (folder / name).write_text(text, encoding="utf-8")
        return 0
    lines = differences(folder, wanted)
    print("\n".join([*lines, f"run `{_COMMAND}`"]) if lines else f"{folder}: as written by `{_COMMAND}`")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
