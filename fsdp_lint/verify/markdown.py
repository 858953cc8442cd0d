"""A proof as Markdown, for a comment on a pull request."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from fsdp_lint.verify import report
from fsdp_lint.verify.proof import Proof
from fsdp_lint.verify.verdicts import CONFIRMED

_OF_A_LOG = 20  # lines of a rank's output
_GOOD, _BAD, _OPEN = ":white_check_mark:", ":x:", ":grey_question:"
_KEPT = {True: _GOOD, False: _BAD, None: _OPEN}


def to_markdown(proof: Proof) -> str:
    """The whole of it."""
    return "\n".join(_lines(proof)).rstrip() + "\n"


def _lines(proof: Proof) -> Iterator[str]:
    yield f"### fsdp-lint verify: {_code(proof.plan.target.name)}"
    yield ""
    yield report.conclusion(proof)
    yield ""
    for verdict in proof.verdicts:
        place = verdict.finding.place
        site = f"{os.path.relpath(place.path)}:{place.row}"
        sign = _BAD if verdict.open else _GOOD if verdict.verdict == CONFIRMED else _OPEN
        yield f"- {sign} **{verdict.verdict}**: {verdict.finding.code} {verdict.finding.name}, {_code(site)}  "
        yield f"  {_plain(verdict.because)}"
    for kept in proof.kept:
        told = f"{report.in_words(kept.holds)} ({report.number(kept.value)})"
        yield f"- {_KEPT[kept.holds]} expected {_code(kept.text)}: {told}"
    for each in (proof, *proof.beside):
        yield ""
        yield from _mode(each)


def _mode(proof: Proof) -> Iterator[str]:
    first = proof.before.first
    device = f", {first.device}, torch {first.torch}" if first is not None else ""
    yield f"Mode {proof.plan.mode}, {report.ranks(proof)}{device}"
    yield ""
    if not proof.ran_here:
        yield f"It could not be run in this mode: {_plain(proof.obstacle)}"
        yield ""
    if not proof.before.records:
        return
    runs = [proof.before] + ([proof.after.run] if proof.after is not None else [])
    names = ("before", "after")[: len(runs)]
    table = [[name, *(cell.text for cell in cells)] for name, cells in report.rows(proof.before, runs)]
    known = [row for row in table if any(cell != report.UNKNOWN for cell in row[1:])]
    yield from _table(["", *names], known)
    missing = [row[0] for row in table if row not in known]
    if missing:
        yield ""
        yield f"Not measured in this mode: {', '.join(missing)}."
    for run, name in zip(runs, names, strict=True):
        if run.hung:
            yield ""
            yield f"{name}: the ranks hang: {_plain(run.difference or run.ended)}"
        for trouble in run.troubles[: 0 if run.hung else 1]:
            yield ""
            yield f"{name}: rank {trouble.rank} {_plain(trouble.text + trouble.place)}"
            yield from _log(trouble.log)
    units = report.units(runs)
    if units:
        yield ""
        yield "<details><summary>Collectives by FSDP unit</summary>"
        yield ""
        yield from _table(["FSDP unit", "collective", *names], units)
        yield ""
        yield "</details>"


def _log(text: str) -> Iterator[str]:
    """The last lines of what a rank has printed, as they are."""
    lines = text.rstrip().splitlines()[-_OF_A_LOG:]
    if lines:
        fence = "`" * max(3, 1 + max((len(found) for found in re.findall("`+", text)), default=0))
        yield from ("", fence, *lines, fence)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "| --- " + "| ---: " * (len(head) - 1) + "|"
    for row in rows:
        yield "| " + " | ".join(map(_plain, row)) + " |"


def _plain(text: str) -> str:
    """Text that Markdown takes for nothing else."""
    for sign in "\\`*_|<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())


def _code(text: str) -> str:
    return f"`{text.replace('`', chr(39))}`"
