"""Findings in one line each."""

from __future__ import annotations

from fsdp_lint.findings import Applicability, LocatedFix, Report
from fsdp_lint.report.lines import closing, fixable, mark, spot

_OTHERS = {Applicability.UNSAFE: "[unsafe fix] ", Applicability.DISPLAY: "[suggestion] "}


def render(report: Report, quiet: bool = False, unsafe: bool = False) -> str:
    """The whole report. `[*]` marks what --fix mends, with --unsafe-fixes where `unsafe`."""
    said = [
        f"{spot(each.place)}: {each.severity.value} {each.code} {each.name}: {_mark(each.fix, unsafe)}{each.message}\n"
        for each in report.findings
    ]
    return "".join(said) + ("" if quiet else f"{fixable(report, unsafe)}{closing(report)}\n")


def _mark(fix: LocatedFix | None, unsafe: bool) -> str:
    return mark(fix, unsafe) or (_OTHERS[fix.applicability] if fix is not None else "")
