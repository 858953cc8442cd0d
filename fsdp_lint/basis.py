"""What a result rests on besides the program: the tool, its rules and settings; and how files are told apart."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from fsdp_lint.settings import Settings, declaring

GROUP = "fsdp_lint.rules"


def stamp(path: str | Path) -> tuple[int, int] | None:
    """Size and time of the last change of a file or folder; None where there is none."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def stamps(paths: Iterable[str | Path]) -> list[tuple[str, tuple[int, int] | None]]:
    """The stamp of each path."""
    return [(str(path), stamp(path)) for path in paths]


def unchanged(known: Iterable[tuple[str, tuple[int, int] | None]]) -> bool:
    """Whether all stamps are still the same."""
    return all(stamp(path) == old for path, old in known)


def digest(*parts: object) -> str:
    """A name for what has this representation."""
    return hashlib.sha256("\0".join(map(repr, parts)).encode("utf-8", "surrogateescape")).hexdigest()


def ground(settings: Settings) -> str:
    """A name for what findings rest on besides the program: fsdp-lint, rules, libraries, settings, torch's range."""
    entries = sorted({(entry.name, entry.value) for entry in importlib.metadata.entry_points(group=GROUP)})
    folders = [Path(__file__).parent, *(folder for _, package in entries for folder in _folders(package))]
    code = [stamps(sorted(folder.rglob("*.py"))) for folder in folders]
    return digest(
        entries,
        code,
        sys.version_info[:3],
        sys.implementation.name,
        _version("libcst"),
        settings,
        stamps(declaring(settings.root)),
    )


def _folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
