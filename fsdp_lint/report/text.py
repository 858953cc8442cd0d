"""Findings for people: where, what, the source with the span marked, the witnesses, and what to do."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping

from click import style

from fsdp_lint.findings import Applicability, LocatedFinding, LocatedFix, Place, Report, Severity
from fsdp_lint.report.lines import Lines, closing, fixable, mark, spot

_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_WIDTH = 160


def render(
    report: Report,
    lines: Lines,
    quiet: bool = False,
    unsafe: bool = False,
    changes: Mapping[LocatedFix, str] | None = None,
) -> str:
    """The whole report; styled, the caller takes colours off where they are not wanted.

    `unsafe` says that unsafe fixes count as those that are applied; `changes` are the diffs to show of fixes.
    """
    blocks = ["\n".join(_finding(finding, lines, unsafe, changes or {})) + "\n" for finding in report.findings]
    if not quiet:
        blocks.append(f"{fixable(report, unsafe)}{closing(report)}\n")
    return "\n".join(blocks)


def _finding(finding: LocatedFinding, lines: Lines, unsafe: bool, changes: Mapping[LocatedFix, str]) -> Iterator[str]:
    colour = _COLOURS[finding.severity]
    severity = style(finding.severity.value, fg=colour, bold=True)
    rule = f"{style(finding.code, bold=True)} {finding.name}"
    fix = finding.fix
    yield f"{style(spot(finding.place), bold=True)}: {severity} {rule}: {mark(fix, unsafe)}{finding.message}"
    yield from _excerpt(finding.place, lines, colour)
    for related in finding.related:
        yield f"  {style('because', bold=True)} {spot(related.place)}: {related.message}"
        yield from _excerpt(related.place, lines, "blue")
    if finding.help:
        yield f"  {style('help', bold=True)}: {finding.help}"
    if fix:
        name = "suggestion" if fix.applicability is Applicability.DISPLAY else "fix"
        yield f"  {style(name, bold=True)}: {_fix(fix)}"
        yield from _change(changes.get(fix, ""))


def _fix(fix: LocatedFix) -> str:
    how = {
        Applicability.SAFE: "`--fix` does it",
        Applicability.UNSAFE: "`--fix --unsafe-fixes` does it: see what else it changes",
        Applicability.DISPLAY: "not applied by the tool",
    }
    return f"{fix.message} ({how[fix.applicability]})"


def _change(diff: str) -> Iterator[str]:
    for row in re.split(r"\r\n|\r|\n", diff.rstrip("\r\n")) if diff else ():
        colour = None if row.startswith(("---", "+++")) else {"-": "red", "+": "green"}.get(row[:1])
        yield f"    {style(_printable(row), fg=colour)}".rstrip()


def _excerpt(place: Place, lines: Lines, colour: str) -> Iterator[str]:
    """The first line of the span, and carets under it."""
    line = lines.line(place.path, place.row)
    if line is None:
        return
    start = place.column - 1
    end = place.end_column - 1 if place.end_row == place.row else len(line.rstrip())
    cut = max(0, min(start - 40, len(line) - _WIDTH))
    before = _printable(line[cut:start])
    marked = _printable(line[start:end])
    after = _printable(line[end : cut + _WIDTH])
    gutter = f"{place.rows[0]:>6} | "
    yield f"{gutter}{before}{marked[:_WIDTH]}{after}"
    carets = "^" * max(1, _cells(marked[:_WIDTH]))
    yield f"{' ' * (len(gutter) - 2)}| {_blank(before)}{style(carets, fg=colour, bold=True)}"


def _printable(text: str) -> str:
    """A file must not steer the terminal."""
    return "".join(
        each if each.isprintable() else " " if each.isspace() else "\N{REPLACEMENT CHARACTER}"
        for each in text.expandtabs(4)
    )


def _cells(text: str) -> int:
    """How many columns of a terminal the text takes."""
    return sum(0 if unicodedata.combining(each) else 1 + (unicodedata.east_asian_width(each) in "WF") for each in text)


def _blank(text: str) -> str:
    return " " * _cells(text)
