"""Files that the program would overwrite are set aside before its save, and put back when the run has been read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_move = os.replace  # the program's calls of it are followed
SUFFIX = ".kept-by-fsdp-lint"
_PATIENCE = 10.0  # seconds in which the rank that came first has set a file aside
_OF_A_CHECKPOINT = (".metadata", "*.distcp")


def set_aside(path: str, notes: Path) -> None:
    """Makes room for a save at `path`. Of all ranks and saves of a run only the first does it; the others wait."""
    claim = notes / f"claim-{hashlib.sha256(path.encode()).hexdigest()[:24]}"
    ready = claim.with_suffix(".ready")
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        deadline = time.monotonic() + _PATIENCE
        while not ready.exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        return
    moved = []
    for own in _own_files(path):
        _move(own, own + SUFFIX)
        moved.append(own)
    unfinished = claim.with_suffix(".part")
    unfinished.write_text(json.dumps({"path": path, "new": not os.path.exists(path), "kept": moved}), encoding="utf-8")
    unfinished.rename(ready)


def _own_files(path: str) -> list[str]:
    if os.path.isdir(path):
        return [str(file) for pattern in _OF_A_CHECKPOINT for file in Path(path).glob(pattern)]
    return [path] if os.path.isfile(path) else []


def restore(notes: Path) -> None:
    """Takes away what the program has saved, and puts back what was there, once."""
    for ready, claim in _claims(notes):
        path = Path(claim["path"])
        with contextlib.suppress(OSError):
            if path.is_dir() and claim["new"]:
                shutil.rmtree(path)
            else:
                for file in _own_files(str(path)):
                    os.unlink(file)
        for own in claim["kept"]:
            _move(own + SUFFIX, own)
        ready.unlink()


def _claims(notes: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for ready in sorted(notes.glob("claim-*.ready")):
        yield ready, json.loads(ready.read_text(encoding="utf-8"))
