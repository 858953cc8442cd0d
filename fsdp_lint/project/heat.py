"""Which functions and classes of a project can lead to FSDP."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fsdp_lint.project.index import ClassInfo, FileIndex, Import
from fsdp_lint.project.resolve import Definition, Project
from fsdp_lint.source.discover import SUFFIXES

# A method whose name has more definitions than this is not known by its name.
AMBIGUOUS = 4
# Methods of containers, strings, modules and tensors: as attributes these names say nothing.
ORDINARY = frozenset(
    {
        "__init__",
        "__call__",
        "__enter__",
        "__exit__",
        "append",
        "extend",
        "get",
        "pop",
        "items",
        "keys",
        "values",
        "update",
        "copy",
        "close",
        "join",
        "split",
        "format",
        "forward",
        "backward",
        "step",
        "to",
        "add",
        "apply",
        "state_dict",
        "load_state_dict",
        "parameters",
        "named_parameters",
        "size",
        "shape",
        "device",
        "dtype",
        "mesh",
        "model",
        "module",
        "config",
        "name",
    }
)


class Heat:
    """Which functions and classes reach FSDP: by its words, or by mentioning another that does."""

    def __init__(self, project: Project, words: frozenset[str]) -> None:
        self.project = project
        self.words = words
        self.hot: set[tuple[Path, str]] = set()
        self.attributes: set[str] = set()
        self.names: set[str] = set()
        self.functions: set[str] = set()
        self.heirs: set[tuple[Path, str]] = set()
        self.defined: Counter[str] = Counter()
        self._targets: dict[tuple[Path, str, Import | None], Definition | None] = {}
        self._through: dict[Path, dict[str, set[tuple[Path, str]]]] = {}

    def spread(self, indexes: dict[Path, FileIndex]) -> None:
        """Marks what reaches FSDP until nothing more does. Files whose tables others fill join `indexes`."""
        self.defined = Counter(info.name for index in indexes.values() for info in index.functions.values())
        self.attributes = {name for name in self.attributes if self.defined[name] <= AMBIGUOUS}
        changed = True
        while changed:
            changed = False
            for path, index in list(indexes.items()):
                for info in index.functions.values():
                    at = (path, info.qualname)
                    if at in self.hot or info.nested:
                        continue
                    if self.reaches(path, info.mentions, info.attributes) or self.calls_hot(index, info.qualname):
                        self._mark(at, info.name)
                        if info.cls is not None:
                            self._mark((path, info.cls), info.cls.rpartition(".")[2])
                        changed = True
                for cls in index.classes.values():
                    if (path, cls.qualname) not in self.heirs and self._inherits(index, cls):
                        self.heirs.add((path, cls.qualname))
                        self.names.add(cls.name)
                        changed = True
                    # Whoever makes settings may get what shards as the default of a field, or FSDP's own settings.
                    if (path, cls.qualname) not in self.hot and (
                        any(self.stands_for_hot(index, d) for d in cls.defaults)
                        or any(base.rpartition(".")[2] in self.words for base in cls.bases)
                    ):
                        self._mark((path, cls.qualname), cls.name)
                        changed = True
                for name, held in index.contents.items():
                    if any(self.stands_for_hot(index, one) for one in held):
                        changed |= self._mark_holders(index, name, indexes)

    def _inherits(self, index: FileIndex, cls: ClassInfo) -> bool:
        """True when a base of the class reaches FSDP, so that whoever makes one may call what it inherits."""
        for base in cls.bases:
            module, _, name = base.rpartition(".")
            home = self._file(index, module) if module else index.path
            if home is not None and self._is_hot_in(home, name):
                return True
        return False

    def _mark_holders(self, index: FileIndex, name: str, indexes: dict[Path, FileIndex]) -> bool:
        """Marks the global variables that hold something which reaches FSDP under `name`: a table, a partial, an object
        whose method decorates it, or the tables of a function or the class that does."""
        found = self.project.lookup(index.path, name)
        home = self.project.index(found.path) if found is not None and found.path is not None else None
        if found is None or home is None:
            return False
        names = {found.name} if found.kind in ("variable", "class") else home.tables(found.name)
        fresh = {(home.path, one) for one in names} - self.hot
        if fresh:
            indexes[home.path] = home
        self.hot |= fresh
        self.names |= {one for _, one in fresh}
        return bool(fresh)

    def _mark(self, at: tuple[Path, str], name: str) -> None:
        self.hot.add(at)
        self.names.add(name)
        if "." not in at[1]:
            self.functions.add(name)
        if name not in ORDINARY and self.defined[name] <= AMBIGUOUS:
            self.attributes.add(name)

    def reaches(self, path: Path, names: set[str], attributes: set[str]) -> bool:
        """True when one of the names or attributes is FSDP's, or stands for something that reaches it."""
        if not (names.isdisjoint(self.words) and attributes.isdisjoint(self.words)):
            return True
        if not attributes.isdisjoint(self.attributes):
            return True
        index = self.project.index(path)
        return index is not None and any(self.stands_for_hot(index, name) for name in names)

    def calls_hot(self, index: FileIndex, function: str) -> bool:
        """True when a function of a file, or its top level (""), calls by `module.name` what reaches FSDP."""
        if index.path not in self._through:
            self._through[index.path] = self._calls_through(index)
        return any(self._is_hot_in(home, name) for home, name in self._through[index.path].get(function, ()))

    def _is_hot_in(self, path: Path, name: str) -> bool:
        home = self.project.index(path) if name in self.names else None
        return home is not None and self.stands_for_hot(home, name)

    def _calls_through(self, index: FileIndex) -> dict[str, set[tuple[Path, str]]]:
        """For each function of a file its calls by `module.name`, where the module is a file: file and name."""
        homes: dict[str, Path | None] = {}
        found: dict[str, set[tuple[Path, str]]] = {}
        for call in index.calls:
            module, _, name = call.name.rpartition(".")
            if not module:
                continue
            if module not in homes:
                homes[module] = self._file(index, module)
            home = homes[module]
            if home is not None:
                found.setdefault(call.function.partition(".<locals>")[0], set()).add((home, name))
        return found

    def _file(self, index: FileIndex, module: str) -> Path | None:
        """The file that a name of another file, with dots or without, stands for."""
        head, dot, _ = module.partition(".")
        for target in index.imports.get(head, []) + index.inner_imports.get(head, []):
            if dot and target.attribute is None and target.module == head:
                path = self.project.find(index.path, module, 0)
            else:
                found = self.project.target(index.path, target) if not dot else None
                path = found.path if found is not None and found.kind == "file" else None
            if path is not None and path.suffix in SUFFIXES:
                return path
        return None

    def begins(self, index: FileIndex) -> bool:
        """True when running the top level of a file reaches FSDP: by its main part, or by what it calls."""
        if self.calls_hot(index, ""):
            return True
        if index.has_main:
            attributes = index.body_attributes & (self.words | self.functions)
            return self.reaches(index.path, index.body_mentions, attributes)
        called = {call.name for call in index.calls if not call.function}
        heads = index.handed | {name.partition(".")[0] for name in called}
        for name in called & index.assigned:
            heads |= index.contents.get(name, set())
        tails = {name.rpartition(".")[2] for name in called if "." in name}
        return self.reaches(index.path, heads, tails & (self.words | self.functions))

    def stands_for_hot(self, index: FileIndex, name: str) -> bool:
        """True when a name of a file stands for something that reaches FSDP."""
        if name in self.names and ((index.path, name) in self.hot or (index.path, name) in self.heirs):
            return True
        if name in index.functions or name in index.classes:
            return False
        targets = index.imports.get(name, []) + index.inner_imports.get(name, [])
        if not targets:
            return bool(index.stars) and name in self.names and self._leads_to_hot(index, name, None)
        return any(self._leads_to_hot(index, name, target) for target in targets)

    def _leads_to_hot(self, index: FileIndex, name: str, target: Import | None) -> bool:
        at = (index.path, name, target)
        if at not in self._targets:
            project = self.project
            self._targets[at] = project.target(index.path, target) if target else project.lookup(index.path, name)
        found = self._targets[at]
        if found is None:
            return False
        if found.kind == "external":
            return found.name.rpartition(".")[2] in self.words
        if found.path is None:
            return False
        return (found.path, found.name) in self.hot or (found.path, found.name) in self.heirs
