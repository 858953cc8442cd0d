"""Where runs begin: scripts, functions that nobody calls, and the lives of classes that nobody makes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_lint.project.index import FileIndex, FunctionInfo
from fsdp_lint.project.resolve import Project
from fsdp_lint.source.words import any_of

CALLERS = 400
ROUNDS = 4
SHORT = 4
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


@dataclass(frozen=True, slots=True)
class Root:
    """A place where a run begins. `kind`: "script", "function" or "class"; `methods` are the class's, in order."""

    kind: str
    path: Path
    name: str = ""
    methods: tuple[str, ...] = ()


@dataclass
class Plan:
    """The files that matter, the functions and classes that reach FSDP, and the roots."""

    files: list[Path] = field(default_factory=list)
    hot: set[tuple[Path, str]] = field(default_factory=set)
    roots: list[Root] = field(default_factory=list)
    own: dict[Path, set[str]] = field(default_factory=dict)


def plan(
    project: Project,
    seeds: Iterable[Path],
    others: Iterable[Path],
    words: frozenset[str],
    reported: frozenset[Path],
) -> Plan:
    """What to run for the files that speak of FSDP (`seeds`) and for those among `others` that call into them.

    Only what can pass through a file in `reported` is run: roots in these files and in those that import them.
    """
    result = Plan()
    indexes: dict[Path, FileIndex] = {}
    for path in seeds:
        index = project.index(path)
        if index is not None:
            indexes[path] = index
    for path, index in indexes.items():
        result.own[path] = {q for q, f in index.functions.items() if (f.mentions | f.attributes) & words}
    heat = _Heat(project, words)
    heat.spread(indexes)
    rest = [path for path in others if path not in indexes]
    for _ in range(ROUNDS):
        found = _callers(project, indexes, heat, rest)
        if not found:
            break
        indexes.update(found)
        rest = [path for path in rest if path not in found]
        heat.spread(indexes)
    result.hot = heat.hot
    near = _importers(project, indexes, reported)
    result.files = sorted(near)
    result.roots = [root for root in _roots(indexes, heat) if root.path in near]
    result.own = {path: own for path, own in result.own.items() if path in reported}
    return result


def _importers(project: Project, indexes: dict[Path, FileIndex], reported: frozenset[Path]) -> set[Path]:
    """The indexed files among `reported`, and those that import them, directly or not."""
    imports = {
        path: {
            definition.path
            for table in (index.imports, index.inner_imports)
            for targets in table.values()
            for target in targets
            if (definition := project.target(path, target)) is not None and definition.path is not None
        }
        | {found for star in index.stars if (found := project.find(path, star.module, star.level)) is not None}
        for path, index in indexes.items()
    }
    near = {path for path in indexes if path in reported}
    through = set(reported)
    while True:
        more = {path for path, targets in imports.items() if path not in near and targets & through}
        if not more:
            return near
        near |= more
        through |= more


class _Heat:
    """Which functions and classes reach FSDP: by its words, or by mentioning another that does."""

    def __init__(self, project: Project, words: frozenset[str]) -> None:
        self.project = project
        self.words = words
        self.hot: set[tuple[Path, str]] = set()
        self.attributes: set[str] = set()
        self._targets: dict[tuple[Path, str], tuple[Path, str] | None] = {}

    def spread(self, indexes: dict[Path, FileIndex]) -> None:
        """Marks what reaches FSDP until nothing more does."""
        changed = True
        while changed:
            changed = False
            for path, index in indexes.items():
                for info in index.functions.values():
                    at = (path, info.qualname)
                    if at not in self.hot and not info.nested and self.reaches(path, info.mentions, info.attributes):
                        self._mark(at, info.name)
                        if info.cls is not None:
                            self._mark((path, info.cls), info.cls.rpartition(".")[2])
                        changed = True

    def _mark(self, at: tuple[Path, str], name: str) -> None:
        self.hot.add(at)
        if name not in ORDINARY:
            self.attributes.add(name)

    def reaches(self, path: Path, names: set[str], attributes: set[str]) -> bool:
        """True when one of the names or attributes is FSDP's, or stands for something that reaches it."""
        if (names | attributes) & self.words or attributes & self.attributes:
            return True
        return any(self._stands_for(path, name) in self.hot for name in names)

    def _stands_for(self, path: Path, name: str) -> tuple[Path, str] | None:
        at = (path, name)
        if at not in self._targets:
            found = self.project.lookup(path, name)
            if found is None:
                index = self.project.index(path)
                inner = index.inner_imports.get(name, []) if index is not None else []
                found = next((d for d in (self.project.target(path, t) for t in inner) if d is not None), None)
            known = found is not None and found.path is not None
            self._targets[at] = (found.path, found.name) if found is not None and known and found.path else None
        return self._targets[at]


def _callers(project: Project, indexes: dict[Path, FileIndex], heat: _Heat, rest: list[Path]) -> dict[Path, FileIndex]:
    """Files that import a hot name from an indexed file."""
    wanted: dict[str, set[Path]] = {}
    for path, name in heat.hot:
        if "." not in name and len(name) >= SHORT:
            wanted.setdefault(name, set()).add(path)
    if not wanted:
        return {}
    pattern = any_of(wanted)
    stems = re.compile(b"|".join(sorted({re.escape(_stem(p).encode()) for ps in wanted.values() for p in ps})))
    found: dict[Path, FileIndex] = {}
    for path in rest:
        if len(found) >= CALLERS:
            break
        try:
            data = path.read_bytes()
        except OSError:
            continue
        if pattern.search(data) is None or stems.search(data) is None:
            continue
        caller = project.index(path)
        if caller is not None and _imports_any(project, caller, wanted):
            found[path] = caller
    return found


def _stem(path: Path) -> str:
    return path.parent.name if path.stem == "__init__" else path.stem


def _imports_any(project: Project, index: FileIndex, wanted: dict[str, set[Path]]) -> bool:
    files = {path for paths in wanted.values() for path in paths}
    for table in (index.imports, index.inner_imports):
        for targets in table.values():
            for target in targets:
                definition = project.target(index.path, target)
                if definition is not None and definition.path in files:
                    if definition.kind == "file" or definition.name in wanted:
                        return True
    return False


def _roots(indexes: dict[Path, FileIndex], heat: _Heat) -> list[Root]:
    mentioned: Counter[str] = Counter()
    for index in indexes.values():
        mentioned.update(index.body_mentions | index.body_attributes)
        for info in index.functions.values():
            if not info.nested:
                mentioned.update((info.mentions | info.attributes) - {info.name})
        for cls in index.classes.values():
            mentioned.update(base.rpartition(".")[2] for base in cls.bases)
    roots: list[Root] = []
    for path, index in sorted(indexes.items()):
        if heat.reaches(path, index.body_mentions, index.body_attributes):
            roots.append(Root("script", path))
    for path, index in sorted(indexes.items()):
        for info in index.functions.values():
            if info.cls is None and not info.nested and (path, info.qualname) in heat.hot and not mentioned[info.name]:
                roots.append(Root("function", path, info.qualname))
        for cls in index.classes.values():
            if (path, cls.qualname) in heat.hot and not mentioned[cls.name] and "." not in cls.qualname:
                roots.append(Root("class", path, cls.qualname, life(index, cls.qualname, heat.hot)))
    return roots


def life(index: FileIndex, cls: str, hot: set[tuple[Path, str]]) -> tuple[str, ...]:
    """The methods of a class that no other of its methods calls; those that reach FSDP first."""
    own = [info for info in index.functions.values() if info.cls == cls]
    called = {name for info in own for name in (info.mentions | info.attributes) - {info.name}}
    free = [info for info in own if info.name not in called and info.name != "__init__"]
    return tuple(info.name for info in sorted(free, key=lambda info: (index.path, info.qualname) not in hot))


def leftovers(plan: Plan, indexes: dict[Path, FileIndex], entered: set[tuple[Path, str]]) -> list[Root]:
    """Roots for the functions that speak of FSDP and that no run has entered."""
    roots: list[Root] = []
    for path, own in sorted(plan.own.items()):
        index = indexes.get(path)
        if index is None:
            continue
        methods: dict[str, list[str]] = {}
        for qualname in sorted(own, key=lambda q: index.functions[q].row):
            info: FunctionInfo = index.functions[qualname]
            if info.nested or (path, qualname) in entered:
                continue
            if info.cls is None:
                roots.append(Root("function", path, qualname))
            else:
                methods.setdefault(info.cls, []).append(info.name)
        for cls, names in methods.items():
            roots.append(Root("class", path, cls, tuple(n for n in names if n != "__init__")))
    return roots
