"""Names to definitions: imports followed through re-exports, relative imports and scripts beside each other."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_lint.project.index import FileIndex, Import, index_file
from fsdp_lint.source.discover import NOTEBOOK, SUFFIXES
from fsdp_lint.source.file import Source
from fsdp_lint.source.notebook import program
from fsdp_lint.source.text import Unreadable, decode

# A file with more star imports than this is a catalogue; what it gathers is looked for nowhere.
STARS = 20


@dataclass(frozen=True, slots=True)
class Definition:
    """What a name stands for. `kind`: "function", "class", "file", "variable" (all in `path`) or "external" (`name` is
    its dotted name)."""

    kind: str
    name: str
    path: Path | None = None


@dataclass(slots=True)
class Notes:
    """What was asked of a project: files, those of them that LibCST parsed with their lines, and what names led to."""

    files: set[Path] = field(default_factory=set)
    parsed: dict[Path, int] = field(default_factory=dict)
    found: dict[tuple[Path, str, int], Path | None] = field(default_factory=dict)
    submodules: dict[tuple[Path, str], Path | None] = field(default_factory=dict)


class Project:
    """The files under analysis and what is known of them; each is read, indexed and parsed at most once.

    `texts` are contents that stand in for what is on disk (standard input, files with fixes applied).
    `refuse` says why bytes must not be parsed. `indexes` are known from earlier, by content. `notes` may be changed for
    new ones, to tell what is asked from then on.
    """

    def __init__(
        self,
        root: Path,
        roots: Iterable[Path],
        refuse: Callable[[bytes], str | None],
        known: Callable[[str], bool],
        texts: dict[Path, str] | None = None,
        indexes: Mapping[Path, tuple[str, FileIndex]] | None = None,
    ) -> None:
        self.notes = Notes()
        self.root = root
        self.roots = tuple(roots)
        self.errors: dict[Path, str] = {}
        self._refuse = refuse
        self._known = known
        self._texts = texts or {}
        self._bytes: dict[Path, bytes | None] = {}
        self._refused: dict[Path, str | None] = {}
        self._indexes: dict[Path, FileIndex | None] = {}
        self._sources: dict[Path, Source | None] = {}
        self._contents: dict[Path, str] = {}
        self._indexed = indexes or {}
        self._found: dict[tuple[Path, str, int], Path | None] = {}
        self._listed: dict[Path, frozenset[str]] = {}

    @property
    def seen(self) -> set[Path]:
        """The files that were read, or that could not be, and the folders that were looked into."""
        return {*self._bytes, *self._listed}

    def read(self, path: Path) -> bytes | None:
        """The file's bytes; None, and an error on record, where it cannot be read."""
        if path not in self._bytes:
            try:
                self._bytes[path] = self._texts[path].encode() if path in self._texts else path.read_bytes()
            except OSError as error:
                self.errors[path] = f"cannot be read: {error.strerror or error}"
                self._bytes[path] = None
        return self._bytes[path]

    def content(self, path: Path) -> str:
        """A name for the content of a file; empty where it cannot be read."""
        if path not in self._contents:
            data = self.read(path)
            self._contents[path] = hashlib.sha256(data).hexdigest() if data is not None else ""
        return self._contents[path]

    def text(self, path: Path) -> str:
        """The text of a file that may be parsed; empty for others."""
        try:
            return self._text(path)
        except Unreadable:
            return ""

    def _text(self, path: Path) -> str:
        data = self.read(path)
        if data is None:
            raise Unreadable(self.errors[path])
        notebook = program(path, decode(data)) if path.suffix == NOTEBOOK else None
        if notebook is not None:
            data = notebook.encode("utf-8", "surrogatepass")
        if path not in self._refused:
            self._refused[path] = self._refuse(data)
        reason = self._refused[path]
        if reason:
            raise Unreadable(reason)
        if notebook is not None:
            return notebook
        return self._texts[path] if path in self._texts else decode(data)

    def index(self, path: Path) -> FileIndex | None:
        """The file's index; None, and an error on record, where it cannot be parsed."""
        self.notes.files.add(path)
        if path not in self._indexes:
            try:
                content, known = self._indexed.get(path, ("", None))
                if known is None or content != self.content(path):
                    known = index_file(path, self._text(path))
                self._indexes[path] = known
            except Unreadable as error:
                self.errors[path] = str(error)
                self._indexes[path] = None
        return self._indexes[path]

    def indexes_by_content(self) -> dict[Path, tuple[str, FileIndex]]:
        """The indexes that were made or taken over, each with the content that it is of."""
        return {path: (self.content(path), index) for path, index in self._indexes.items() if index is not None}

    def source(self, path: Path) -> Source | None:
        """The file with its LibCST tree; None, and an error on record, where it cannot be parsed."""
        source = self._source(path)
        self.notes.files.add(path)
        if source is not None and path not in self.notes.parsed:
            self.notes.parsed[path] = source.lines
        return source

    def _source(self, path: Path) -> Source | None:
        if path not in self._sources:
            try:
                source = Source(path, self._text(path))
                source.abstract  # noqa: B018  parse now, so that an error is known here
                self._sources[path] = source
            except Unreadable as error:
                self.errors[path] = str(error)
                self._sources[path] = None
            except RecursionError:
                self.errors[path] = "is nested too deeply to be parsed"
                self._sources[path] = None
        return self._sources[path]

    def _has(self, folder: Path, name: str) -> bool:
        if folder not in self._listed:
            try:
                self._listed[folder] = frozenset(entry.name for entry in folder.iterdir())
            except OSError:
                self._listed[folder] = frozenset()
        return name in self._listed[folder]

    def _below(self, folder: Path, parts: list[str]) -> Path | None:
        for part in parts[:-1]:
            if not self._has(folder, part):
                return None
            folder = folder / part
        if not parts:
            return folder / "__init__.py" if self._has(folder, "__init__.py") else folder
        last = parts[-1]
        if self._has(folder, last):
            inner = folder / last
            if self._has(inner, "__init__.py"):
                return inner / "__init__.py"
            if not self._has(folder, f"{last}.py") and inner.is_dir():
                return inner
        if self._has(folder, f"{last}.py"):
            return folder / f"{last}.py"
        return None

    def _starts(self, importer: Path) -> Iterable[Path]:
        yield importer.parent
        yield from self.roots
        folder = importer.parent
        while self._has(folder, "__init__.py") and folder != folder.parent:
            folder = folder.parent
        yield folder
        yield self.root
        yield self.root / "src"
        for parent in importer.parent.parents:
            if parent == self.root or self.root not in parent.parents:
                break
            yield parent

    def find(self, importer: Path, module: str, level: int) -> Path | None:
        """The file (or, for a namespace package, the folder) that `module` means in `importer`; None outside."""
        key = (importer.parent, module, level)
        if key not in self._found:
            self._found[key] = self._find(importer, module, level, None)
        found = self._found[key]
        if found == importer and not level:
            found = self._find(importer, module, level, importer)
        self.notes.found[(importer, module, level)] = found
        return found

    def _find(self, importer: Path, module: str, level: int, but: Path | None) -> Path | None:
        parts = [part for part in module.split(".") if part]
        if level:
            folder = importer.parent
            for _ in range(level - 1):
                folder = folder.parent
            return self._below(folder, parts)
        for start in self._starts(importer):
            found = self._below(start, parts)
            if found is not None and found != but:
                return found
        return None

    def named(self, path: Path, name: str) -> Path | None:
        """The one file of this relative name in the folder of the file at `path`, or in those above it in the project.

        None where there are several: a program is started in a folder that is not known.
        """
        folders = [path.parent, *path.parent.parents]
        inside = folders[: folders.index(self.root) + 1] if self.root in folders else folders[:1]
        candidates = list(dict.fromkeys(folder / name for folder in inside))
        self.notes.files.update(candidates)
        found = [each for each in candidates if each in self._texts or each.is_file()]
        for each in set(candidates) - set(found):
            self._bytes.setdefault(each, None)  # that it is not there is no error
        return found[0] if len(found) == 1 else None

    def lookup(self, path: Path, name: str, hops: int = 12) -> Definition | None:
        """What the global `name` of the file at `path` stands for; None when the file does not bind it."""
        index = self.index(path) if path.suffix in SUFFIXES else None
        if index is None or hops == 0:
            return self._submodule(path, name)
        if name in index.functions:
            return Definition("function", name, path)
        if name in index.classes:
            return Definition("class", name, path)
        targets = index.imports.get(name, [])
        found = [d for d in (self.target(path, t, hops - 1) for t in targets) if d is not None]
        for definition in found:
            if definition.kind != "external" or self._known(definition.name):
                return definition
        if found and name not in index.assigned:
            return found[0]
        if name in index.assigned:
            return Definition("variable", name, path)
        for star in index.stars if len(index.stars) <= STARS else ():
            inner = self.find(path, star.module, star.level)
            if inner is not None and inner != path:
                through = self.lookup(inner, name, hops - 1)
                if through is not None:
                    return through
            elif not star.level and self._known(f"{star.module}.{name}"):
                return Definition("external", f"{star.module}.{name}")
        return self._submodule(path, name)

    def names_a_module(self, path: Path, qualname: str) -> bool:
        """True when a function names a class of the project, or holds one, that by its bases is an nn.Module."""
        index = self.index(path)
        if index is None or qualname not in index.functions:
            return False
        if any(self._is_module(path, inner) for inner in index.classes if inner.startswith(f"{qualname}.<locals>.")):
            return True
        names = sorted(name for name in index.functions[qualname].mentions if name[:1].isupper())
        found = [one for name in names if (one := self.lookup(path, name)) is not None and one.kind == "class"]
        return any(one.path is not None and self._is_module(one.path, one.name) for one in found)

    def _is_module(self, path: Path, qualname: str) -> bool:
        index = self.index(path)
        cls = index.classes.get(qualname) if index is not None else None
        return cls is not None and any(base.rpartition(".")[2].endswith("Module") for base in cls.bases)

    def _submodule(self, path: Path, name: str) -> Definition | None:
        inner = self.submodule(path, name)
        return Definition("file", name, inner) if inner is not None else None

    def submodule(self, path: Path, name: str) -> Path | None:
        """The file or folder of this name in the package or folder at `path`."""
        folder = path.parent if path.name == "__init__.py" else path
        if path.suffix in SUFFIXES and path.name != "__init__.py":
            return None
        inner = self._below(folder, [name])
        self.notes.submodules[(path, name)] = inner
        return inner

    def target(self, importer: Path, target: Import, hops: int = 12) -> Definition | None:
        """What one import binds."""
        dotted = target.module if target.attribute is None else f"{target.module}.{target.attribute}"
        if not target.level and (self._known(dotted) or dotted.partition(".")[0] == "torch"):
            return Definition("external", dotted)
        found = self.find(importer, target.module, target.level)
        if found is None:
            return Definition("external", dotted) if not target.level else None
        if target.attribute is None:
            return Definition("file", target.module, found)
        return self.lookup(found, target.attribute, hops) or Definition("external", dotted)
