"""Findings as JSON with the keys of ruff's, and a few of our own."""

from __future__ import annotations

import json
from typing import TypeAlias

from fsdp_lint.findings import LocatedFinding, LocatedFix, Place, Report

_Json: TypeAlias = dict[str, object]


def render(report: Report) -> str:
    """A list of findings."""
    return json.dumps([_finding(each) for each in report.findings], indent=2) + "\n"


def _finding(finding: LocatedFinding) -> _Json:
    return {
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "severity": finding.severity.value,
        **_place(finding.place),
        "fix": _fix(finding.fix) if finding.fix else None,
        "url": finding.url,
        "related": [{**_place(each.place), "message": each.message} for each in finding.related],
    }


def _place(place: Place) -> _Json:
    return {
        "filename": place.path,
        "cell": place.cell.number if place.cell is not None else None,
        "location": {"row": place.rows[0], "column": place.column},
        "end_location": {"row": place.rows[1], "column": place.end_column},
    }


def _fix(fix: LocatedFix) -> _Json:
    return {
        "applicability": fix.applicability.value,
        "message": fix.message,
        "edits": [{"content": edit.content, **_place(edit.place)} for edit in fix.edits],
    }
