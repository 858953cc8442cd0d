"""Which files a run looks at: folders are walked, ignored ones are skipped, and whatever cannot be read is named."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

SKIPPED = (
    *(".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", "__pypackages__", "build", "dist"),
    *(
        "*.egg-info",
        ".eggs",
        ".tox",
        ".nox",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".pytype",
        ".ipynb_checkpoints",
    ),
    *("site-packages", ".direnv", ".pyenv", ".idea", ".vscode"),
)
NOTEBOOK = ".ipynb"
SUFFIXES = (".py", NOTEBOOK)
SETTINGS = (".yaml", ".yml", ".json")
_PROJECT_FILES = ("pyproject.toml", "fsdp-lint.toml")


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
            walk.add(absolute)
        else:
            walk.errors.append(f"{path}: neither a file nor a folder")
    return Discovery(tuple(sorted(walk.files)), tuple(walk.errors), tuple(sorted(walk.settings)))


def not_excluded(paths: Iterable[Path], root: Path, exclude: Sequence[str]) -> list[Path]:
    """The paths without those that `exclude` names: pre-commit names each file, and means no more by it."""
    walk = _Walk(Path(os.path.abspath(root)), _patterns(exclude))
    return [path for path in paths if not walk.excludes(Path(os.path.abspath(path)), path.is_dir())]


def around(paths: Iterable[Path], root: Path, exclude: Sequence[str] = ()) -> Discovery:
    """The files among which those in `paths` may find what they import, and who imports them.

    That is the whole project; where nothing marks a project (a script in a home folder, say), it is only what lies
    beside the named files and in the named folders.
    """
    if any((root / name).exists() for name in (*_PROJECT_FILES, ".git")):
        return discover([root], root, exclude)
    paths = [Path(os.path.abspath(path)) for path in paths]
    folders = {path.parent for path in paths if not path.is_dir()}
    beside = {each for folder in folders for end in SUFFIXES for each in folder.glob(f"*{end}") if each.is_file()}
    return discover([*(path for path in paths if path.is_dir()), *beside], root, exclude)


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
    root: Path
    exclude: GitIgnoreSpec | None
    files: set[Path] = field(default_factory=set)
    settings: set[Path] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)

    def start(self, folder: Path) -> None:
        """Walk a folder that was named itself: it is looked into even where it is ignored or excluded."""
        ignores: list[_Ignore] = []
        for above in reversed(_up_to_git_root(folder)):
            if _ignored(folder, True, ignores):
                ignores = []
            ignores += self._ignores_of(above)
        excluding = not self.excludes(folder, True)
        self._enter(folder, ignores, [], excluding)

    def add(self, path: Path) -> None:
        """Takes a file, as what its name says."""
        (self.settings if path.suffix in SETTINGS else self.files).add(path)

    def _enter(self, folder: Path, ignores: list[_Ignore], stack: list[str], excluding: bool) -> None:
        real = os.path.realpath(folder)
        if real in stack:
            self.errors.append(f"{folder}: a loop of folders, this link leads back to {real}")
            return
        if real in self.seen:
            return
        self.seen.add(real)
        links = []
        for entry in self._entries(folder):
            path = folder / entry.name
            try:
                is_folder = entry.is_dir()
                is_file = not is_folder and entry.name.endswith((*SUFFIXES, *SETTINGS)) and entry.is_file()
            except OSError as error:
                if entry.name.endswith(SUFFIXES) or error.errno == errno.ELOOP:
                    self.errors.append(f"{path}: {_why(error)}")
                continue
            if not (is_folder or is_file) or _skips(path, is_folder, ignores):
                continue
            if excluding and self.excludes(path, is_folder):
                continue
            if is_file:
                self.add(path)
            elif entry.is_symlink():
                links.append(path)
            else:
                self._enter(path, ignores + self._ignores_of(path), [*stack, real], excluding)
        # Links last, so that what lies in this folder too goes by its own name.
        for path in links:
            self._enter(path, ignores + self._ignores_of(path), [*stack, real], excluding)

    def _entries(self, folder: Path) -> list[os.DirEntry[str]]:
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
            lines = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        try:
            patterns = _patterns(lines)
            return [_Ignore(folder, patterns)] if patterns is not None else []
        except ValueError as error:
            self.errors.append(f"{folder / '.gitignore'}: {error}")
            return []


def _skips(path: Path, is_folder: bool, ignores: Sequence[_Ignore]) -> bool:
    return (is_folder and any(fnmatch(path.name, each) for each in SKIPPED)) or _ignored(path, is_folder, ignores)


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
