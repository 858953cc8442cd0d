"""Findings in one line each."""

from __future__ import annotations

from fsdp_lint.findings import Report
from fsdp_lint.report.lines import closing, spot


def render(report: Report, quiet: bool = False) -> str:
    """The whole report."""
    said = [
        f"{spot(each.place)}: {each.severity.value} {each.code} {each.name}: {each.message}\n"
        for each in report.findings
    ]
    return "".join(said) + ("" if quiet else closing(report) + "\n")
