"""What a rule is: a question to a trace, and the findings that answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fsdp_lint.findings import Applicability as Applicability
from fsdp_lint.findings import Severity as Severity
from fsdp_lint.fix.edits import Fix
from fsdp_lint.source.file import Site as Site
from fsdp_lint.trace.events import Event
from fsdp_lint.trace.trace import Trace


@dataclass(frozen=True)
class Finding:
    """One mistake. `because` names the places that make it true, in the order in which they happen; `severity` is
    given where it is another than the rule's."""

    at: Event | Site
    message: str
    because: Sequence[tuple[Event | Site, str]] = ()
    fix: Fix | None = None
    severity: Severity | None = None


@dataclass(frozen=True)
class Rule:
    """A rule's code and nature. Its name is its module's, its page its module's docstring."""

    check: Callable[[Trace], Iterator[Finding]]
    code: str
    severity: Severity
    since: str
    fixes: frozenset[Applicability] = field(default_factory=frozenset)
    on_by_default: bool = True
