"""What earlier runs have found, kept in the user's cache folder; whatever is wrong with it, it is only empty."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# So much is kept, in bytes; beyond it the entries that were written first go.
LIMIT = 100_000_000
_DIGEST = hashlib.sha256().digest_size


def default_folder() -> Path:
    """The folder for fsdp-lint where the platform keeps caches."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "fsdp-lint" / "Cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "fsdp-lint"
    # What is not absolute is to be ignored: https://specifications.freedesktop.org/basedir-spec
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if os.path.isabs(given) else home / ".cache") / "fsdp-lint"


class Cache:
    """Values by key, one file each. Entries appear whole or not at all, so that runs may share the folder."""

    def __init__(self, folder: Path, limit: int = LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def get(self, key: str) -> Any:
        """The value of a key; None where there is none, or none that can be read."""
        try:
            data = (self.folder / f"{key}.entry").read_bytes()
            # Only what was written whole is unpickled, and only from the user's own folder.
            if hashlib.sha256(data[_DIGEST:]).digest() != data[:_DIGEST]:
                return None
            return pickle.loads(data[_DIGEST:])
        except Exception:  # an entry of another version may fail in any way
            return None

    def put(self, key: str, value: Any) -> None:
        """Keeps a value, if that can be done."""
        with contextlib.suppress(OSError):
            body = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.folder, suffix=".new")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(hashlib.sha256(body).digest() + body)
                os.replace(name, self.folder / f"{key}.entry")
            except OSError:
                os.unlink(name)
                raise
            self._shrink()

    def clean(self) -> int:
        """Removes all entries; how many bytes these were."""
        freed = 0
        for path, _, size in self._entries():
            with contextlib.suppress(OSError):
                path.unlink()
                freed += size
        with contextlib.suppress(OSError):
            self.folder.rmdir()
        return freed

    def _shrink(self) -> None:
        entries = sorted(self._entries(), key=lambda entry: entry[1])
        left = sum(size for _, _, size in entries)
        for path, _, size in entries:
            if left <= self.limit:
                return
            with contextlib.suppress(OSError):
                path.unlink()
                left -= size

    def _entries(self) -> Iterator[tuple[Path, int, int]]:
        """Path, time of writing and size of our files, also of those that a run left unfinished."""
        try:
            found = list(os.scandir(self.folder))
        except OSError:
            return
        for entry in found:
            if entry.name.endswith((".entry", ".new")):
                with contextlib.suppress(OSError):
                    stat = entry.stat()
                    yield Path(entry.path), stat.st_mtime_ns, stat.st_size
