"""Which files a run looks at: folders are walked, ignored ones are skipped, and whatever cannot be read is named."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SKIPPED = frozenset(
    {
        *(".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", "__pypackages__", "build", "dist"),
        *(".eggs", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".pytype", ".ipynb_checkpoints"),
        *("site-packages", ".direnv", ".pyenv", ".idea", ".vscode"),
    }
)
SKIPPED_END = ".egg-info"
NOTEBOOK = ".ipynb"
SUFFIXES = (".py", NOTEBOOK)
SETTINGS = (".yaml", ".yml", ".json")
_PROJECT_FILES = ("pyproject.toml", "fsdp-lint.toml")
_IGNORES = ".gitignore"


@dataclass(frozen=True, slots=True)
class Discovery:
    """The files to look at, absolute and sorted, one line for each path that could not be looked at, and the files
    that may be settings."""

    files: tuple[Path, ...]
    errors: tuple[str, ...]
    settings: tuple[Path, ...] = ()


def project_root(path: Path) -> Path:
    """The nearest folder with a project file, else the git root, else the folder itself."""
    folder = Path(os.path.abspath(path))
    if not folder.is_dir():
        folder = folder.parent
    for above in (folder, *folder.parents):
        if any((above / name).is_file() for name in _PROJECT_FILES):
            return above
        if (above / ".git").exists():
            return above
    return folder


def discover(paths: Iterable[Path], root: Path, exclude: Sequence[str] = ()) -> Discovery:
    """The Python files, notebooks and YAML and JSON files in `paths`. A file that is named itself is taken always."""
    walk = _Walk(Path(os.path.abspath(root)), _patterns(exclude))
    for path in paths:
        absolute = Path(os.path.abspath(path))
        try:
            mode = absolute.stat().st_mode
        except OSError as error:
            walk.errors.append(f"{path}: {_why(error)}")
            continue
        if stat.S_ISDIR(mode):
            walk.start(absolute)
        elif stat.S_ISREG(mode):
            walk.add(str(absolute))
        else:
            walk.errors.append(f"{path}: neither a file nor a folder")
    return Discovery(_in_order(walk.files), tuple(walk.errors), _in_order(walk.settings))


def not_excluded(paths: Iterable[Path], root: Path, exclude: Sequence[str]) -> list[Path]:
    """The paths without those that `exclude` names: pre-commit names each file, and means no more by it."""
    walk = _Walk(Path(os.path.abspath(root)), _patterns(exclude))
    return [path for path in paths if not walk.excludes(Path(os.path.abspath(path)), path.is_dir())]


def surroundings(paths: Iterable[Path], root: Path) -> list[Path]:
    """Where the files lie among which those in `paths` may find what they import, and who imports them.

    That is the whole project; where nothing marks a project (a script in a home folder, say), it is only what lies
    beside the named files and in the named folders.
    """
    if any((root / name).exists() for name in (*_PROJECT_FILES, ".git")):
        return [root]
    paths = [Path(os.path.abspath(path)) for path in paths]
    folders = {path.parent for path in paths if not path.is_dir()}
    beside = {each for folder in folders for end in SUFFIXES for each in folder.glob(f"*{end}") if each.is_file()}
    return [*(path for path in paths if path.is_dir()), *beside]


def _in_order(paths: Iterable[str]) -> tuple[Path, ...]:
    """Sorted as paths are, folder by folder, without making paths to compare."""
    return tuple(map(Path, sorted(paths, key=lambda path: path.split(os.sep))))


def _patterns(lines: Sequence[str]) -> GitIgnoreSpec | None:
    """What the lines mean; None where there are none, so that most runs need not import the matcher."""
    if not lines:
        return None
    import pathspec

    return pathspec.GitIgnoreSpec.from_lines(lines)


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file or folder"
    return "a loop of links" if error.errno == errno.ELOOP else (error.strerror or str(error)).lower()


@dataclass(frozen=True, slots=True)
class _Ignore:
    """The patterns of one .gitignore, which speak of paths below its folder."""

    folder: Path
    patterns: GitIgnoreSpec

    def verdict(self, path: Path, is_folder: bool) -> bool | None:
        """True: ignored; False: taken back by a `!` pattern; None: says nothing."""
        relative = path.relative_to(self.folder).as_posix() + ("/" if is_folder else "")
        return self.patterns.check_file(relative).include


@dataclass
class _Walk:
    """One walk. Paths are text here: for thousands of files, objects take longer than the file system does."""

    root: Path
    exclude: GitIgnoreSpec | None
    files: set[str] = field(default_factory=set)
    settings: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def start(self, folder: Path) -> None:
        """Walk a folder that was named itself: it is looked into even where it is ignored or excluded."""
        ignores: list[_Ignore] = []
        for above in reversed(_up_to_git_root(folder)):
            if _ignored(folder, True, ignores):
                ignores = []
            if above != folder:
                ignores += self._ignores_of(above)
        excluding = self.exclude is not None and not self.excludes(folder, True)
        self._enter(str(folder), os.path.realpath(folder), ignores, [], excluding)

    def add(self, path: str) -> None:
        """Takes a file, as what its name says."""
        (self.settings if path.endswith(SETTINGS) else self.files).add(path)

    def _enter(self, folder: str, real: str, ignores: list[_Ignore], stack: list[str], excluding: bool) -> None:
        if real in stack:
            self.errors.append(f"{folder}: a loop of folders, this link leads back to {real}")
            return
        if real in self.seen:
            return
        self.seen.add(real)
        entries, links = self._entries(folder), []
        if any(entry.name == _IGNORES for entry in entries):
            ignores = ignores + self._ignores_of(Path(folder))
        for entry in entries:
            path = entry.path
            try:
                is_folder = entry.is_dir()
                is_file = not is_folder and entry.name.endswith((*SUFFIXES, *SETTINGS)) and entry.is_file()
            except OSError as error:
                if entry.name.endswith(SUFFIXES) or error.errno == errno.ELOOP:
                    self.errors.append(f"{path}: {_why(error)}")
                continue
            if not (is_folder or is_file) or (is_folder and _skips(entry.name)):
                continue
            if (ignores and _ignored(Path(path), is_folder, ignores)) or (
                excluding and self.excludes(Path(path), is_folder)
            ):
                continue
            if is_file:
                self.add(path)
            elif entry.is_symlink():
                links.append(path)
            else:
                self._enter(path, os.path.join(real, entry.name), ignores, [*stack, real], excluding)
        # Links last, so that what lies in this folder too goes by its own name.
        for path in links:
            self._enter(path, os.path.realpath(path), ignores, [*stack, real], excluding)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            self.errors.append(f"{folder}: {_why(error)}")
            return []

    def excludes(self, path: Path, is_folder: bool) -> bool:
        """Whether the user's patterns name this path."""
        if self.exclude is None or not path.is_relative_to(self.root):
            return False
        relative = path.relative_to(self.root).as_posix() + ("/" if is_folder else "")
        return self.exclude.match_file(relative)

    def _ignores_of(self, folder: Path) -> list[_Ignore]:
        try:
            lines = (folder / _IGNORES).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        try:
            patterns = _patterns(lines)
            return [_Ignore(folder, patterns)] if patterns is not None else []
        except ValueError as error:
            self.errors.append(f"{folder / _IGNORES}: {error}")
            return []


def _skips(folder: str) -> bool:
    return folder in SKIPPED or folder.endswith(SKIPPED_END)


def _ignored(path: Path, is_folder: bool, ignores: Sequence[_Ignore]) -> bool:
    """What the innermost .gitignore with an opinion says."""
    for ignore in reversed(ignores):
        verdict = ignore.verdict(path, is_folder)
        if verdict is not None:
            return verdict
    return False


def _up_to_git_root(folder: Path) -> list[Path]:
    """The folder and those above it, up to the one that holds .git; only the folder where there is none."""
    above: list[Path] = []
    for each in (folder, *folder.parents):
        above.append(each)
        if (each / ".git").exists():
            return above
    return [folder]
