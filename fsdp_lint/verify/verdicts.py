"""The verdict on each finding, from the run before the fix and the run after it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fsdp_lint.findings import LocatedFinding, Place, Severity
from fsdp_lint.verify.evidence import Case, Evidence
from fsdp_lint.verify.measures import Run
from fsdp_lint.verify.probes import probe_of

CONFIRMED, SEEN, NOT_SEEN, NOT_OBSERVABLE, NOT_RUN = "confirmed", "seen", "not seen", "not observable", "not run"


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one finding."""

    finding: LocatedFinding
    verdict: str
    because: str

    @property
    def open(self) -> bool:
        """Whether a mistake was seen and its fix is not proved. Advice is no mistake."""
        return self.verdict in (SEEN, NOT_RUN) and self.finding.severity is not Severity.INFO


@dataclass(frozen=True)
class After:
    """The run after the fix: the texts that stood in for files, and why it does not count if one was not loaded.
    `aside` are the paths of replaced files that neither run has loaded."""

    run: Run
    texts: Mapping[str, tuple[str, str]]
    not_loaded: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()

    def not_loaded_for(self, finding: LocatedFinding) -> tuple[str, ...]:
        """The files without which the run says nothing of this finding."""
        own = os.path.realpath(finding.place.path)
        return self.not_loaded or ((os.path.relpath(own),) if own in self.aside else ())


def judge(findings: Sequence[LocatedFinding], before: Run, after: After | None) -> list[Verdict]:
    """One verdict a finding."""
    return [_judge(finding, before, after) for finding in findings]


def _judge(finding: LocatedFinding, before: Run, after: After | None) -> Verdict:
    probe = probe_of(finding.name)
    if probe is None:
        return Verdict(finding, NOT_OBSERVABLE, "a run does not show it")
    not_loaded = after.not_loaded_for(finding) if after is not None else ()
    other = after.run if after is not None and not not_loaded else None
    was = probe(Case(before, _sites(finding, {}), other))
    if was.seen is None:
        return Verdict(finding, NOT_OBSERVABLE, was.text)
    if not was.seen and before.troubles and not before.hung:
        return Verdict(finding, NOT_OBSERVABLE, f"{was.text}, but the run ends early: {before.ended}")
    if not was.seen:
        return Verdict(finding, NOT_SEEN, was.text)
    if after is None:
        return Verdict(finding, SEEN, was.text)
    if not_loaded:
        return Verdict(finding, NOT_RUN, f"{was.text}; the fixed {', '.join(not_loaded)} was not loaded")
    if after.run.cannot:
        return Verdict(finding, NOT_OBSERVABLE, f"before: {was.text}; after: {after.run.cannot}")
    sites = _sites(finding, after.texts)
    now = probe(Case(after.run, sites, before, fixed=True, new=_new_lines(after.texts)))
    return _compared(finding, was, now, after.run)


def _compared(finding: LocatedFinding, was: Evidence, now: Evidence, after: Run) -> Verdict:
    told = f"before: {was.text}; after: {now.text}"
    if now.seen is False and not after.troubles and not after.hung:
        return Verdict(finding, CONFIRMED, told)
    if now.seen is False:
        told += ", but the ranks hang" if after.hung else f", but the run ends early: {after.ended}"
    return Verdict(finding, SEEN, told)


def _sites(finding: LocatedFinding, texts: Mapping[str, tuple[str, str]]) -> frozenset[str]:
    """The lines of the finding and its witnesses, as path:line, in the fixed texts where there are such."""
    places = [finding.place, *(related.place for related in finding.related)]
    if finding.statement_rows is not None:
        first, last = finding.statement_rows
        places.append(Place(finding.place.path, first, 1, last, 1))
    return frozenset(f"{place.path}:{row}" for place in places for row in _rows(place, texts))


def _new_lines(texts: Mapping[str, tuple[str, str]]) -> frozenset[str]:
    """The lines that the fixed texts have and the others have not, as path:line."""
    found = set()
    for path, (before, after) in texts.items():
        for kind, _, _, c, d in _changes(before, after):
            found |= {f"{path}:{row}" for row in range(c + 1, d + 1) if kind != "equal"}
    return frozenset(found)


def _changes(before: str, after: str) -> list[tuple[str, int, int, int, int]]:
    lines = before.splitlines(), after.splitlines()
    return list(difflib.SequenceMatcher(None, *lines, autojunk=False).get_opcodes())


def _rows(place: Place, texts: Mapping[str, tuple[str, str]]) -> set[int]:
    rows = set(range(place.row, place.end_row + 1))
    if place.path not in texts:
        return rows
    moved: set[int] = set()
    for kind, a, b, c, d in _changes(*texts[place.path]):
        inside = {row for row in rows if a < row <= b}
        if kind == "equal":
            moved |= {row - a + c for row in inside}
        elif inside:
            moved |= set(range(c + 1, d + 1))
    return moved
