"""Applies fixes to texts: chooses those that do not meet, and undoes what did not do what it should."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdp_lint.findings import Applicability, LocatedFinding, LocatedFix, Place, Report, Severity, TextEdit
from fsdp_lint.fix.lines import Lines
from fsdp_lint.source.notebook import program, with_program
from fsdp_lint.source.text import Unreadable, parse


@dataclass(frozen=True)
class Settled:
    """What fixing came to: the texts, what is still found in them, how many findings went, and what went wrong.

    `applied` are the fixes that stayed, each with a finding that it mended, in order.
    """

    texts: Mapping[Path, str]
    report: Report
    fixed: int
    errors: tuple[str, ...]
    applied: tuple[LocatedFinding, ...] = ()


def choose(fixes: Iterable[LocatedFix], unsafe: bool) -> list[LocatedFix]:
    """The fixes that may be applied together: no two share a place or touch. The later ones wait for the next round.

    The choice does not depend on the order in which the fixes come.
    """
    allowed = {Applicability.SAFE, Applicability.UNSAFE} if unsafe else {Applicability.SAFE}
    wanted = {fix for fix in fixes if fix.applicability in allowed and fix.edits}
    chosen: list[LocatedFix] = []
    taken: dict[tuple[str, int], list[Place]] = defaultdict(list)  # by path and row
    for fix in sorted(wanted, key=_order):
        places = [(edit.place, at) for edit in fix.edits for at in _rows(edit.place)]
        if not any(_meet(place, other) for place, at in places for other in taken[at]):
            chosen.append(fix)
            for place, at in places:
                taken[at].append(place)
    return chosen


def _rows(place: Place) -> Iterator[tuple[str, int]]:
    return ((place.path, row) for row in range(place.row, place.end_row + 1))


def _order(fix: LocatedFix) -> tuple[list[Place], list[str], str, str]:
    edits = sorted(fix.edits, key=lambda edit: (edit.place, edit.content))
    return [edit.place for edit in edits], [edit.content for edit in edits], fix.message, fix.applicability.value


def _meet(a: Place, b: Place) -> bool:
    return (a.row, a.column) <= (b.end_row, b.end_column) and (b.row, b.column) <= (a.end_row, a.end_column)


def edit_text(text: str, edits: Sequence[TextEdit]) -> str:
    """`text` with all edits made; insertions at one place stand in the order given. Raises ValueError on an overlap."""
    rows = Lines(Path(), text).rows
    starts = [0, *itertools.accumulate(len(row) for row in rows)]
    pieces: list[str] = []
    done = 0
    for edit in sorted(edits, key=lambda edit: edit.place):
        start = starts[edit.place.row - 1] + edit.place.column - 1
        end = starts[edit.place.end_row - 1] + edit.place.end_column - 1
        if not done <= start <= end <= len(text):
            raise ValueError(f"edits overlap or leave the text at {edit.place.row}:{edit.place.column}")
        pieces += text[done:start], edit.content
        done = end
    return "".join([*pieces, text[done:]])


def settle(
    texts: Mapping[Path, str],
    analyse: Callable[[Mapping[Path, str]], Report],
    unsafe: bool,
    rounds: int = 10,
    report: Report | None = None,
    read: Callable[[Path], str] | None = None,
) -> Settled:
    """Fixes until nothing changes. A fix that does not do what it should is undone and has its line in `errors`.

    `report` is what is found in `texts`, where that is known already; `read` gives the text of a file that is not among
    `texts` and that a fix turns out to change.
    """
    report = analyse(texts) if report is None else report
    fixed = 0
    errors: list[str] = []
    applied: list[LocatedFinding] = []
    failed: set[object] = set()
    batch: int | None = None  # how many fixes are tried at once; halved until the one that fails is found
    while True:
        owners = _owners(report, texts, failed)
        chosen = choose(owners, unsafe)
        if not chosen:
            return Settled(texts, report, fixed, tuple(errors), tuple(applied))
        if rounds == 0:
            places = ", ".join(sorted({_named(finding) for fix in chosen for finding in owners[fix]}))
            errors.append(f"fixes do not come to an end: {places}")
            return Settled(texts, report, fixed, tuple(errors), tuple(applied))
        tried = chosen[:batch]
        owned = [finding for fix in tried for finding in owners[fix]]
        if read is not None:
            others = {Path(edit.place.path) for fix in tried for edit in fix.edits} - texts.keys()
            texts = {**texts, **{path: read(path) for path in others}}
        after = _Attempt(analyse, unsafe).make(texts, report, tried, owned)
        if not isinstance(after, str):
            gone = Counter(map(_kind, report.findings)) - Counter(map(_kind, after[1].findings))
            texts, report, more = after
            fixed += gone.total() + len(more)
            applied += [*(owners[fix][0] for fix in tried), *more]
            # Each success leaves fewer findings, so parts of a round need not count as rounds.
            rounds -= 1 if batch is None else 0
            batch = None
        elif len(tried) > 1:
            batch = len(tried) // 2
        else:
            failed.update(_lasting(finding, texts) for finding in owned)
            errors.append(f"{_named(owned[0])}: the fix was undone: {after}")
            batch = None


def _owners(report: Report, texts: Mapping[Path, str], failed: set[object]) -> dict[LocatedFix, list[LocatedFinding]]:
    """The fixes that are to be had, each with the findings that it mends."""
    owners: dict[LocatedFix, list[LocatedFinding]] = defaultdict(list)
    for finding in report.findings:
        if finding.fix is not None and _lasting(finding, texts) not in failed:
            owners[finding.fix].append(finding)
    return owners


def _named(finding: LocatedFinding) -> str:
    place = finding.place
    return f"{place.path}:{place.spot}: {finding.name}"


def _kind(finding: LocatedFinding) -> tuple[str, str, str]:
    """What a finding is, wherever its line went."""
    return finding.code, finding.place.path, finding.message


def _lasting(finding: LocatedFinding, texts: Mapping[Path, str]) -> object:
    """A mark of one finding that stays when other fixes move its line."""
    path = Path(finding.place.path)
    rows = Lines(path, program(path, texts[path]) if path in texts else "").rows
    line = rows[finding.place.row - 1] if finding.place.row <= len(rows) else ""
    return *_kind(finding), finding.place.column, line


# What a fix lays bare may be mended along with it, and what that lays bare, and no more.
_FOLLOWED = 2


@dataclass(frozen=True)
class _Attempt:
    """One try of some fixes. What they lay bare is mended in the same try, where there are fixes for all of it."""

    analyse: Callable[[Mapping[Path, str]], Report]
    unsafe: bool
    followed: int = _FOLLOWED

    def make(
        self,
        texts: Mapping[Path, str],
        report: Report,
        fixes: Sequence[LocatedFix],
        owned: Sequence[LocatedFinding],
    ) -> tuple[Mapping[Path, str], Report, list[LocatedFinding]] | str:
        """The texts after the fixes, what is found in them, and what else was mended; or why they must not stay."""
        fresh = _edited(texts, fixes)
        if isinstance(fresh, str):
            return fresh
        after = self.analyse(fresh)
        broken = Counter(after.errors) - Counter(report.errors)
        if broken:
            return min(broken)
        expected = Counter(map(_kind, report.findings))
        expected.subtract(map(_kind, owned))
        extra = Counter(map(_kind, after.findings)) - expected
        if any(_kind(finding) in extra for finding in owned):
            return "the finding is still there"
        # Advice is no mistake: what is said of a model may well change with the way in which it is sharded.
        brought = [f for f in after.findings if _kind(f) in extra and f.severity is not Severity.INFO]
        if not brought:
            return fresh, after, []
        others = choose([finding.fix for finding in brought if finding.fix is not None], self.unsafe)
        if self.followed and all(finding.fix in others for finding in brought):
            further = dataclasses.replace(self, followed=self.followed - 1).make(fresh, after, others, brought)
            if not isinstance(further, str):
                return further[0], further[1], [*brought, *further[2]]
        code, path, message = min(map(_kind, brought))
        return f"it brought {code} in {path}: {message}"


def _edited(texts: Mapping[Path, str], fixes: Sequence[LocatedFix]) -> dict[Path, str] | str:
    """The texts after the fixes, each of which can be parsed, or why not."""
    edits: dict[Path, list[TextEdit]] = defaultdict(list)
    for fix in fixes:
        for edit in fix.edits:
            edits[Path(edit.place.path)].append(edit)
    fresh = dict(texts)
    for path, theirs in edits.items():
        if path not in texts:
            return f"it edits {path}, which is not being fixed"
        try:
            fresh[path] = _with_edits(path, texts[path], theirs)
            parse(program(path, fresh[path]))
        except (ValueError, Unreadable) as error:
            return f"{path} {error}"
    return fresh


def _with_edits(path: Path, text: str, edits: Sequence[TextEdit]) -> str:
    """A file's text with all edits made in its program. Raises ValueError, Unreadable."""
    return with_program(path, text, edit_text(program(path, text), edits))


def preview(fix: LocatedFix, texts: Mapping[Path, str]) -> dict[Path, tuple[str, str]]:
    """What one fix would change: the files' texts before and after. Raises KeyError for a file that is not given."""
    edits: dict[Path, list[TextEdit]] = defaultdict(list)
    for edit in fix.edits:
        edits[Path(edit.place.path)].append(edit)
    return {path: (texts[path], _with_edits(path, texts[path], theirs)) for path, theirs in edits.items()}
