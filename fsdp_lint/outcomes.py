"""What the run from each root came to: plain data, which later runs take over while what it rests on is the same."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_lint.findings import LocatedFinding
from fsdp_lint.project.index import FileIndex
from fsdp_lint.project.resolve import Project
from fsdp_lint.project.roots import Root


@dataclass(frozen=True)
class Outcome:
    """All that is wanted of one run: findings of the rules, in order; the files and rows of sharding calls that it
    reached; the functions that it entered; what it took, in statements and in lines of files that had to be parsed;
    and whether it came to its end."""

    findings: tuple[LocatedFinding, ...] = ()
    reached: frozenset[tuple[Path, int]] = frozenset()
    entered: frozenset[tuple[Path, str]] = frozenset()
    statements: int = 0
    lines: dict[Path, int] = field(default_factory=dict)
    finished: bool = True


@dataclass(frozen=True)
class _Basis:
    """What an outcome rests on: the contents of files, which of their functions reach FSDP, and where imports and names
    led to, also where they led nowhere."""

    contents: dict[Path, str]
    hot: str
    found: dict[tuple[Path, str, int], Path | None]
    submodules: dict[tuple[Path, str], Path | None]


class Outcomes:
    """The outcomes of earlier runs, and those of this one for later ones."""

    def __init__(self) -> None:
        self.indexes: dict[Path, tuple[str, FileIndex]] = {}
        self._known: dict[Root, tuple[_Basis, Outcome]] = {}

    def recall(self, root: Root, project: Project, hot: Iterable[tuple[Path, str]]) -> Outcome | None:
        """The outcome of an earlier run from `root`, if a new one would come to the same."""
        basis, outcome = self._known.get(root, (None, None))
        if basis is None or any(project.content(path) != content for path, content in basis.contents.items()):
            return None
        if basis.hot != _hot_in(basis.contents, hot):
            return None
        if any(project.find(*key) != path for key, path in basis.found.items()):
            return None
        if any(project.submodule(*key) != path for key, path in basis.submodules.items()):
            return None
        return outcome

    def keep(self, root: Root, outcome: Outcome, project: Project, hot: Iterable[tuple[Path, str]]) -> None:
        """Keeps what a run came to, with what it asked of the project. One that met errors is to be made again."""
        notes = project.notes
        contents = {path: project.content(path) for path in notes.files}
        if not contents.keys() & project.errors.keys():
            basis = _Basis(contents, _hot_in(contents, hot), notes.found, notes.submodules)
            self._known[root] = (basis, outcome)

    def close(self, project: Project, universe: Iterable[Path]) -> None:
        """Takes over the indexes of this run, and drops what belongs to files that are no more."""
        self.indexes.update(project.indexes_by_content())
        left = {*universe, *project.seen}
        self.indexes = {path: kept for path, kept in self.indexes.items() if path in left}
        self._known = {root: kept for root, kept in self._known.items() if root.path in left}


def _hot_in(files: Iterable[Path], hot: Iterable[tuple[Path, str]]) -> str:
    known = _hot_by_file(frozenset(hot))
    return _digest(f"{path}\0{known[path]}" for path in files if path in known)


@functools.lru_cache(maxsize=1)
def _hot_by_file(hot: frozenset[tuple[Path, str]]) -> dict[Path, str]:
    """For each file a name for what reaches FSDP in it; asked for each of a thousand roots, of the same `hot`."""
    names: dict[Path, list[str]] = {}
    for path, name in hot:
        names.setdefault(path, []).append(name)
    return {path: _digest(inside) for path, inside in names.items()}


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode("utf-8", "surrogateescape")).hexdigest()
