"""Findings as workflow commands, which GitHub shows beside the lines of a pull request."""

from __future__ import annotations

from fsdp_lint.findings import LocatedFinding, Report, Severity
from fsdp_lint.report.lines import closing, short, spot

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}


def render(report: Report, quiet: bool = False) -> str:
    """One command for each finding; the closing line is for the log."""
    said = "".join(_finding(each) + "\n" for each in report.findings)
    return said + ("" if quiet else closing(report) + "\n")


def _finding(finding: LocatedFinding) -> str:
    place = finding.place
    where: dict[str, object] = {"file": short(place.path)}
    if place.cell is None:
        where |= {"line": place.row, "col": place.column, "endLine": place.end_row}
    # GitHub takes an end column only within one line, and counts it as part of the span.
    if place.cell is None and place.end_row == place.row:
        where["endColumn"] = max(place.column, place.end_column - 1)
    where["title"] = f"{finding.code} ({finding.name})"
    properties = ",".join(f"{key}={_property(str(value))}" for key, value in where.items())
    witnesses = [f"because {spot(each.place)}: {each.message}" for each in finding.related]
    advice = [f"help: {finding.help}"] if finding.help else []
    # GitHub shows a notebook's lines of JSON, which no row in a cell names.
    found = finding.message if place.cell is None else f"{place.spot}: {finding.message}"
    message = "\n".join([found, *witnesses, *advice])
    return f"::{_COMMANDS[finding.severity]} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
