"""Findings as plain data: what is printed, written as JSON and sent between processes."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class Severity(enum.Enum):
    """How bad a finding is: ERROR the run is wrong, WARNING it wastes, INFO advice that never changes the exit code."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Applicability(enum.Enum):
    """Who may apply a fix: SAFE `--fix`, UNSAFE `--unsafe-fixes`, DISPLAY nobody, it is only shown."""

    SAFE = "safe"
    UNSAFE = "unsafe"
    DISPLAY = "display"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a notebook: its number among all cells, from 1, and how many rows of the program stand above it."""

    number: int
    above: int


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A span of a file. `path` is absolute; rows and columns count from 1, columns in characters; the end is
    exclusive. In a notebook the rows are those of the program that its cells make, and `cell` leads to the user's."""

    path: str
    row: int
    column: int
    end_row: int
    end_column: int
    cell: Cell | None = field(default=None, compare=False)

    @property
    def rows(self) -> tuple[int, int]:
        """First and last row as the user counts them: in a notebook from the beginning of the cell."""
        above = self.cell.above if self.cell is not None else 0
        return self.row - above, self.end_row - above

    @property
    def spot(self) -> str:
        """row:column, in a notebook `cell 3:row:column`."""
        return f"{f'cell {self.cell.number}:' if self.cell is not None else ''}{self.rows[0]}:{self.column}"


@dataclass(frozen=True, slots=True)
class Related:
    """A place that makes a finding true, and what happens there."""

    place: Place
    message: str


@dataclass(frozen=True, slots=True)
class TextEdit:
    """One replacement: the text at `place` becomes `content`. An insertion has an empty span."""

    place: Place
    content: str


@dataclass(frozen=True, slots=True)
class LocatedFix:
    """Edits that stand or fall together."""

    applicability: Applicability
    message: str
    edits: tuple[TextEdit, ...]


@dataclass(frozen=True, slots=True)
class LocatedFinding:
    """One mistake at one place, with its witnesses in the order in which they happen. `statement_rows` are the first
    and last row of the statement around it."""

    place: Place
    code: str
    name: str
    severity: Severity
    message: str
    help: str
    url: str
    related: tuple[Related, ...] = ()
    fix: LocatedFix | None = None
    statement_rows: tuple[int, int] | None = None

    @property
    def sort_key(self) -> tuple[Place, str]:
        """Findings are printed in this order."""
        return self.place, self.code


@dataclass(frozen=True, slots=True)
class Unfollowed:
    """A sharding site that no run reached to its end, with the reason in a few words."""

    place: Place
    why: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one run of the tool has seen: clean and blind must not look alike.

    `files` were considered, `read` of them hold an FSDP word and were analysed, `sites` is the number of sharding
    calls seen and `followed` how many of them were reached from a root.
    """

    files: int
    read: int
    sites: int
    followed: int
    unfollowed: tuple[Unfollowed, ...] = ()


@dataclass(frozen=True, slots=True)
class Report:
    """All that one run of the tool has to say. `errors` are one line each and mean exit code 2."""

    findings: tuple[LocatedFinding, ...]
    errors: tuple[str, ...]
    coverage: Coverage
