"""Applies fixes: chooses those that do not meet, checks what each one did, and writes files whole or not at all."""

from __future__ import annotations

import io
import itertools
import os
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fsdp_lint.findings import Applicability, LocatedFinding, LocatedFix, Place, Report, TextEdit
from fsdp_lint.fix.lines import Lines
from fsdp_lint.source.file import Source, Unreadable, decode


class NotWritten(Exception):
    """A file was left as it was; the message says why in one line, without the file's name."""


@dataclass(frozen=True)
class Settled:
    """What fixing came to: the texts, what is still found in them, how many findings went, and what went wrong."""

    texts: Mapping[Path, str]
    report: Report
    fixed: int
    errors: tuple[str, ...]


def choose(fixes: Iterable[LocatedFix], unsafe: bool) -> list[LocatedFix]:
    """The fixes that may be applied together: no two share a place or touch. The later ones wait for the next round.

    The choice does not depend on the order in which the fixes come.
    """
    allowed = {Applicability.SAFE, Applicability.UNSAFE} if unsafe else {Applicability.SAFE}
    wanted = {fix for fix in fixes if fix.applicability in allowed and fix.edits}
    chosen: list[LocatedFix] = []
    taken: dict[str, list[Place]] = defaultdict(list)
    for fix in sorted(wanted, key=_order):
        if not any(_meet(edit.place, place) for edit in fix.edits for place in taken[edit.place.path]):
            chosen.append(fix)
            for edit in fix.edits:
                taken[edit.place.path].append(edit.place)
    return chosen


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
) -> Settled:
    """Fixes until nothing changes. A fix that does not do what it should is undone and has its line in `errors`."""
    report = analyse(texts)
    fixed = 0
    errors: list[str] = []
    failed: set[object] = set()
    batch: int | None = None  # how many fixes are tried at once; halved until the one that fails is found
    while True:
        owners = _owners(report, texts, failed)
        chosen = choose(owners, unsafe)
        if not chosen:
            return Settled(texts, report, fixed, tuple(errors))
        if rounds == 0:
            places = ", ".join(sorted({_named(finding) for fix in chosen for finding in owners[fix]}))
            errors.append(f"fixes do not come to an end: {places}")
            return Settled(texts, report, fixed, tuple(errors))
        tried = chosen[:batch]
        owned = [finding for fix in tried for finding in owners[fix]]
        after = _attempt(texts, report, tried, owned, analyse)
        if not isinstance(after, str):
            fixed += len(report.findings) - len(after[1].findings)
            texts, report = after
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
    return f"{place.path}:{place.row}:{place.column}: {finding.name}"


def _kind(finding: LocatedFinding) -> tuple[str, str, str]:
    """What a finding is, wherever its line went."""
    return finding.code, finding.place.path, finding.message


def _lasting(finding: LocatedFinding, texts: Mapping[Path, str]) -> object:
    """A mark of one finding that stays when other fixes move its line."""
    rows = Lines(Path(), texts.get(Path(finding.place.path), "")).rows
    line = rows[finding.place.row - 1] if finding.place.row <= len(rows) else ""
    return *_kind(finding), finding.place.column, line


def _attempt(
    texts: Mapping[Path, str],
    report: Report,
    fixes: Sequence[LocatedFix],
    owned: Sequence[LocatedFinding],
    analyse: Callable[[Mapping[Path, str]], Report],
) -> tuple[Mapping[Path, str], Report] | str:
    """The texts after some fixes and what is found in them, or why the fixes must not stay."""
    edits: dict[Path, list[TextEdit]] = defaultdict(list)
    for fix in fixes:
        for edit in fix.edits:
            edits[Path(edit.place.path)].append(edit)
    fresh = dict(texts)
    for path, theirs in edits.items():
        if path not in texts:
            return f"it edits {path}, which is not being fixed"
        try:
            fresh[path] = edit_text(texts[path], theirs)
            Source(path, fresh[path]).tree  # noqa: B018
        except (ValueError, Unreadable) as error:
            return f"{path} {error}"
    after = analyse(fresh)
    broken = Counter(after.errors) - Counter(report.errors)
    if broken:
        return min(broken)
    expected = Counter(map(_kind, report.findings))
    expected.subtract(map(_kind, owned))
    extra = Counter(map(_kind, after.findings)) - expected
    mended = {_kind(finding) for finding in owned}
    for kind in sorted(extra):
        return "the finding is still there" if kind in mended else f"it brought {kind[0]} in {kind[1]}: {kind[2]}"
    return fresh, after


def write(path: Path, text: str, inside: Path, was: str | None = None) -> None:
    """Replaces a file's text in one step; its encoding, byte order mark and mode stay. Raises NotWritten.

    A link is followed only to a file under `inside`, the project's folder. Where `was` is given and is not what the
    file holds, somebody else has changed it and nothing is written.
    """
    try:
        real = path.resolve(strict=True)
        if not real.is_relative_to(inside.resolve()):
            raise NotWritten("is a link that leads out of the project")
        if not real.is_file():
            raise NotWritten("is not a file")
        if not os.access(real, os.W_OK):
            raise NotWritten("may not be written")
        old = real.read_bytes()
        if was is not None and decode(old) != was:
            raise NotWritten("was changed by another program meanwhile")
        # "utf-8-sig" for a file with a byte order mark, so that it is written again.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(old).readline)
        _replace(real, text.encode(encoding))
    except (OSError, UnicodeEncodeError, SyntaxError, Unreadable) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise NotWritten(f"could not be written: {reason}") from error


def _replace(real: Path, data: bytes) -> None:
    """Puts a complete file in the place of the old one: whoever reads sees one or the other, never a part."""
    status = real.stat()
    handle, name = tempfile.mkstemp(prefix=f".{real.name}.", suffix=".tmp", dir=real.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(PermissionError, AttributeError):
            os.chown(name, status.st_uid, status.st_gid)
        os.chmod(name, status.st_mode & 0o7777)
        os.replace(name, real)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    # The new name itself must reach the disk too; not every system can open a folder.
    with suppress(OSError):
        folder = os.open(real.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
