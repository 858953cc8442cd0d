"""What the reports that people read share: source lines, short paths and the closing line."""

from __future__ import annotations

import os
import re
import tokenize
from collections import Counter
from collections.abc import Mapping, Sequence

from fsdp_lint.findings import Applicability, Coverage, LocatedFinding, LocatedFix, Place, Report, Severity

_SHOWN_UNFOLLOWED = 10


class Lines:
    """The lines of files, read when first asked for; `given` are texts that are not on disk as they were analysed."""

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        self._lines = {path: _split(text) for path, text in (given or {}).items()}

    def line(self, path: str, row: int) -> str | None:
        """One line without its end; None if the file has changed so that it is not there any more."""
        if path not in self._lines:
            self._lines[path] = _read(path)
        lines = self._lines[path]
        return lines[row - 1] if 0 < row <= len(lines) else None


def _read(path: str) -> list[str]:
    try:
        with tokenize.open(path) as file:
            return _split(file.read())
    except (OSError, SyntaxError, UnicodeDecodeError):
        return []


def _split(text: str) -> list[str]:
    """Lines as Python counts them; str.splitlines also splits at form feeds and the like."""
    return re.split(r"\r\n|\r|\n", text)


def short(path: str) -> str:
    """The path as seen from here, if it lies below; bytes that are no text are replaced."""
    here = os.getcwd() + os.sep
    path = path.removeprefix(here) if here != os.sep * 2 else path
    return os.fsencode(path).decode("utf-8", "replace")


def spot(place: Place) -> str:
    """path:row:column, in a notebook path:cell 3:row:column."""
    return f"{short(place.path)}:{place.spot}"


def counted(count: int, word: str) -> str:
    """1 file, 2 files."""
    return f"{count} {word}" if count == 1 or word == "info" else f"{count} {word}s"


def mark(fix: LocatedFix | None, unsafe: bool) -> str:
    """`[*] ` where the fix is applied by --fix with the options that were given, as ruff marks it."""
    if fix is None or fix.applicability is Applicability.DISPLAY:
        return ""
    return "[*] " if unsafe or fix.applicability is Applicability.SAFE else ""


def fixable(report: Report, unsafe: bool) -> str:
    """A line that says how many findings the tool can mend, and with which options; empty where it can mend none."""
    kinds = Counter(finding.fix.applicability for finding in report.findings if finding.fix is not None)
    safe, more = kinds[Applicability.SAFE], kinds[Applicability.UNSAFE]
    if unsafe and more:
        return f"[*] {safe + more} fixable with --fix --unsafe-fixes.\n"
    said = f"[*] {safe} fixable with --fix" if safe else ""
    if more:
        said += f", {more} more with --unsafe-fixes" if said else f"{more} fixable with --fix --unsafe-fixes"
    return f"{said}.\n" if said else ""


def applied(fixes: Sequence[LocatedFinding], fixed: int, files: int, show: bool) -> str:
    """What --fix has done; with `show`, each fix with its file."""
    said = f"Fixed {counted(fixed, 'finding')} in {counted(files, 'file')}{':' if show and fixes else '.'}\n"
    if show:
        for finding in fixes:
            what = finding.fix.message if finding.fix is not None else ""
            said += f"  {short(finding.place.path)}: {finding.code} {finding.name}: {what}\n"
    return said


def closing(report: Report) -> str:
    """What was found and how much was seen, so that clean and blind do not look alike."""
    severities = Counter(finding.severity for finding in report.findings)
    found = ", ".join(counted(severities[each], each.value) for each in Severity if severities[each])
    files = len({finding.place.path for finding in report.findings})
    said = f"Found {found} in {counted(files, 'file')}" if found else "Nothing found"
    missed = f" Not complete: {counted(len(report.errors), 'problem')} on standard error." if report.errors else ""
    return f"{said} ({_seen(report.coverage)}). {_sites(report.coverage)}{missed}"


def _seen(coverage: Coverage) -> str:
    speak = "speaks" if coverage.read == 1 else "speak"
    return f"{counted(coverage.files, 'file')} seen, {coverage.read} {speak} of FSDP"


def _sites(coverage: Coverage) -> str:
    if not coverage.sites:
        return "No sharding sites seen."
    said = f"Sharding sites: {coverage.sites} seen, {coverage.followed} followed"
    places = [f"{spot(each.place).rpartition(':')[0]} ({each.why})" for each in coverage.unfollowed]
    if len(places) > _SHOWN_UNFOLLOWED:
        places[_SHOWN_UNFOLLOWED:] = [f"and {len(places) - _SHOWN_UNFOLLOWED} more"]
    return f"{said}; not followed: {', '.join(places)}." if places else f"{said}."
