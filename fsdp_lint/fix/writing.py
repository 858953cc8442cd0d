"""Writes fixed files: each whole or not at all, those of one fix together; what a kill cuts off is finished later."""

from __future__ import annotations

import io
import json
import os
import tempfile
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fsdp_lint.source.text import Unreadable, decode

# In the project's folder while several files are being replaced; gone once all of them are.
JOURNAL = ".fsdp-lint-unfinished.json"


class NotWritten(Exception):
    """A file was left as it was; the message says why in one line, without the file's name."""


@dataclass(frozen=True)
class _Staged:
    """A new text on the disk beside the file that it will replace."""

    path: Path
    real: Path
    temporary: str
    before: str
    after: str


def write(path: Path, text: str, inside: Path, was: str | None = None) -> None:
    """Replaces a file's text in one step; its encoding, byte order mark and mode stay. Raises NotWritten.

    A link is followed only to a file under `inside`, the project's folder. Where `was` is given and is not what the
    file holds, somebody else has changed it and nothing is written.
    """
    _put(_stage(path, text, inside, was))


def write_all(
    changed: Mapping[Path, tuple[str, str]], inside: Path, together: Iterable[frozenset[Path]] = ()
) -> tuple[list[Path], list[str]]:
    """Replaces the texts of several files (before, after). Gives those written, and a line for each other one.

    All new texts are on the disk before the first file is replaced, so that a full disk changes nothing. The files of
    one set in `together` are all replaced or none. Where several are replaced, a journal says so until the last one
    is: `resume` then does what a kill has cut off.
    """
    errors: list[str] = []
    staged: list[_Staged] = []
    for group in _groups(changed, together):
        try:
            staged += _stage_group(group, changed, inside, errors)
        except BaseException:
            _discard(staged)
            raise
    try:
        if len(staged) > 1:
            _write_journal(inside, staged)
    except NotWritten as error:
        _discard(staged)
        return [], [*errors, f"{inside / JOURNAL}: {error}; nothing was fixed"]
    written = []
    for one in staged:
        try:
            _put(one)
            written.append(one.path)
        except NotWritten as error:
            errors.append(f"{one.path}: {error}")
    with suppress(FileNotFoundError):
        os.unlink(inside / JOURNAL)
    return written, errors


def resume(inside: Path) -> list[str]:
    """Finishes what a killed run has left: files of its journal that still are as they were get their new text.

    Gives one line for each that cannot be finished, because somebody has changed it or it cannot be written.
    """
    journal = inside / JOURNAL
    try:
        entries = json.loads(journal.read_text(encoding="utf-8"))
        changed = {inside / each["path"]: (str(each["before"]), str(each["after"])) for each in entries}
        temporary = [inside / each["temporary"] for each in entries if each["temporary"].endswith(".tmp")]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{journal}: cannot be read ({error}); delete it and see what has changed in your files"]
    errors = []
    for path, (before, after) in sorted(changed.items()):
        try:
            if decode(path.read_bytes()) != after:
                write(path, after, inside, before)
        except (OSError, Unreadable, NotWritten) as error:
            errors.append(f"{path}: a fix was cut off and could not be finished: {error}")
    for path in (*temporary, journal):
        with suppress(OSError):
            os.unlink(path)
    return errors


def unfinished(inside: Path) -> str | None:
    """One line where a killed run has left some files of a fix written and others not."""
    if not (inside / JOURNAL).exists():
        return None
    return f"{inside / JOURNAL}: an earlier fix was cut off between two files; --fix finishes it"


def _groups(changed: Mapping[Path, object], together: Iterable[frozenset[Path]]) -> list[list[Path]]:
    """The files in sets that must be written together, each file in one."""
    group = {path: {path} for path in changed}
    for paths in together:
        joined = set().union(*(group[path] for path in paths if path in group))
        for path in joined:
            group[path] = joined
    unique = {id(paths): paths for paths in group.values()}
    return sorted(sorted(paths) for paths in unique.values())


def _stage_group(
    group: Sequence[Path], changed: Mapping[Path, tuple[str, str]], inside: Path, errors: list[str]
) -> list[_Staged]:
    staged: list[_Staged] = []
    try:
        for path in group:
            before, after = changed[path]
            staged.append(_stage(path, after, inside, before))
    except NotWritten as error:
        _discard(staged)
        failed = path
        errors.append(f"{failed}: {error}")
        errors += [f"{path}: is not fixed without {failed}" for path in group if path != failed]
        return []
    except BaseException:
        _discard(staged)
        raise
    return staged


def _stage(path: Path, text: str, inside: Path, was: str | None) -> _Staged:
    """The new text as a complete file, on the disk, in the old one's folder. Raises NotWritten."""
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
        return _Staged(path, real, _temporary(real, text.encode(encoding)), decode(old), text)
    except (OSError, UnicodeEncodeError, SyntaxError, Unreadable) as error:
        raise _not_written(error) from error


def _not_written(error: Exception) -> NotWritten:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return NotWritten(f"could not be written: {reason}")


def _temporary(real: Path, data: bytes) -> str:
    """A complete file with the old one's mode and owner beside it, on the disk."""
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
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    return name


def _put(staged: _Staged) -> None:
    """Whoever reads the file sees the old text or the new one, never a part. Raises NotWritten."""
    try:
        os.replace(staged.temporary, staged.real)
    except OSError as error:
        _discard([staged])
        raise _not_written(error) from error
    _sync(staged.real.parent)


def _sync(folder: Path) -> None:
    """A new name itself must reach the disk too; not every system can open a folder."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _discard(staged: Iterable[_Staged]) -> None:
    for one in staged:
        with suppress(OSError):
            os.unlink(one.temporary)


def _write_journal(inside: Path, staged: Sequence[_Staged]) -> None:
    """Raises NotWritten; then nothing of it is left."""
    entries = [
        {
            "path": os.path.relpath(one.path, inside),
            "temporary": os.path.relpath(one.temporary, inside),
            "before": one.before,
            "after": one.after,
        }
        for one in staged
    ]
    try:
        handle, name = tempfile.mkstemp(prefix=JOURNAL, suffix=".tmp", dir=inside)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(entries, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, inside / JOURNAL)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise _not_written(error) from error
    _sync(inside)
