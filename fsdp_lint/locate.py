"""Rule findings with nodes become plain data with places."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fsdp_lint.findings import Applicability, Cell, LocatedFinding, LocatedFix, Place, Related, Report
from fsdp_lint.fix.blocks import statement_of
from fsdp_lint.fix.lines import Lines
from fsdp_lint.fix.locate import locate
from fsdp_lint.registry import RegisteredRule
from fsdp_lint.rule import Finding
from fsdp_lint.source.discover import NOTEBOOK
from fsdp_lint.source.file import Site
from fsdp_lint.source.notebook import cell_at
from fsdp_lint.trace.events import Event


def located(finding: Finding, rule: RegisteredRule) -> LocatedFinding:
    """The finding as plain data."""
    site = _site(finding.at)
    statement = statement_of(site)
    rows = statement.source.span(statement.node)
    head = _place(site)
    last = rows.end_row if _is_simple(statement) else head.end_row
    return LocatedFinding(
        place=head,
        code=rule.rule.code,
        name=rule.name,
        severity=finding.severity or rule.rule.severity,
        message=finding.message,
        help=rule.help,
        url=rule.url,
        related=tuple(Related(_place(_site(at)), message) for at, message in finding.because),
        fix=locate(finding.fix) if finding.fix is not None else None,
        statement_rows=(min(rows.row, head.row), max(last, head.end_row)),
    )


def _is_simple(statement: Site) -> bool:
    return type(statement.node).__name__ == "SimpleStatementLine"


def _site(at: Event | Site) -> Site:
    return at.site if isinstance(at, Event) else at


def _place(site: Site) -> Place:
    span = site.source.span(site.node)
    return Place(str(site.source.path), span.row, span.column, span.end_row, span.end_column)


_Found = TypeVar("_Found")


def in_cells(report: Report, text: Callable[[Path], str]) -> Report:
    """The report with the cell of each place in a notebook. `text` gives the programs of files. Fixes that would reach
    from one cell into another are only shown."""

    def placed(place: Place) -> Place:
        if not place.path.endswith(NOTEBOOK):
            return place
        return dataclasses.replace(place, cell=Cell(*cell_at(text(Path(place.path)), place.row)))

    report = _with_places(report, placed)
    return dataclasses.replace(report, findings=tuple(_within_cells(finding, text) for finding in report.findings))


def _with_places(value: _Found, placed: Callable[[Place], Place]) -> _Found:
    """The value with another place in each place of it."""
    if isinstance(value, Place):
        return placed(value)  # type: ignore[return-value]
    if isinstance(value, tuple):
        return tuple(_with_places(each, placed) for each in value)  # type: ignore[return-value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        return dataclasses.replace(value, **{name: _with_places(getattr(value, name), placed) for name in names})
    return value


def _within_cells(finding: LocatedFinding, text: Callable[[Path], str]) -> LocatedFinding:
    fix = finding.fix
    if fix is None or not _leaves_its_cell(fix, text):
        return finding
    return dataclasses.replace(finding, fix=dataclasses.replace(fix, applicability=Applicability.DISPLAY))


def _leaves_its_cell(fix: LocatedFix, text: Callable[[Path], str]) -> bool:
    """Whether an edit of a notebook spans two cells, or takes rows from one and puts them into another."""
    edits = [edit for edit in fix.edits if edit.place.cell is not None]
    for edit in edits:
        place, program = edit.place, text(Path(edit.place.path))
        if place.cell is not None and cell_at(program, place.end_row)[0] != place.cell.number:
            return True
        rows = Lines(Path(place.path), program).rows[place.row - 1 : place.end_row]
        taken = {row.strip() for row in rows[: place.end_row - place.row]} - {""}
        others = [other.content for other in edits if other.place.cell != place.cell]
        if not edit.content and any(row.strip() in taken for content in others for row in content.splitlines()):
            return True
    return False
