"""Rule findings with nodes become plain data with places."""

from __future__ import annotations

from fsdp_lint.findings import LocatedFinding, Place, Related
from fsdp_lint.fix.blocks import statement_of
from fsdp_lint.fix.locate import locate
from fsdp_lint.registry import RegisteredRule
from fsdp_lint.rule import Finding
from fsdp_lint.source.file import Site
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
