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


@dataclass(frozen=True, slots=True)
class Root:
    """A place where a run begins. `kind`: "script", "function" or "class"; `methods` are the class's, in order."""

    kind: str
    path: Path
    name: str = ""
    methods: tuple[str, ...] = ()


@dataclass
class Plan:
    """The files that matter, the names of functions that reach FSDP, and the roots."""

    files: list[Path] = field(default_factory=list)
    hot: set[str] = field(default_factory=set)
    roots: list[Root] = field(default_factory=list)
    own: dict[Path, set[str]] = field(default_factory=dict)


def plan(project: Project, seeds: Iterable[Path], others: Iterable[Path], words: frozenset[str]) -> Plan:
    """What to run for the files that speak of FSDP (`seeds`) and for those among `others` that call into them."""
    result = Plan()
    indexes: dict[Path, FileIndex] = {}
    for path in seeds:
        index = project.index(path)
        if index is not None:
            indexes[path] = index
    for path, index in indexes.items():
        result.own[path] = {q for q, f in index.functions.items() if f.mentions & words}
    result.hot = _hot(indexes, words)
    rest = [path for path in others if path not in indexes]
    for _ in range(ROUNDS):
        found = _callers(project, indexes, result.hot, rest)
        if not found:
            break
        indexes.update(found)
        rest = [path for path in rest if path not in found]
        result.hot = _hot(indexes, words)
    result.files = sorted(indexes)
    result.roots = _roots(indexes, result.hot, words)
    return result


def _hot(indexes: dict[Path, FileIndex], words: frozenset[str]) -> set[str]:
    hot = set(words)
    changed = True
    while changed:
        changed = False
        for index in indexes.values():
            for info in index.functions.values():
                if info.name not in hot and info.mentions & hot:
                    hot.add(info.name)
                    changed = True
            for cls in index.classes.values():
                if cls.name not in hot and any(m in hot for m in cls.methods) and cls.mentions & hot:
                    hot.add(cls.name)
                    changed = True
    return hot - words


def _callers(
    project: Project, indexes: dict[Path, FileIndex], hot: set[str], rest: list[Path]
) -> dict[Path, FileIndex]:
    """Files that import a hot name from an indexed file."""
    wanted: dict[str, set[Path]] = {}
    for path, index in indexes.items():
        for name in [*index.functions, *index.classes]:
            if "." not in name and name in hot and len(name) >= SHORT:
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


def _roots(indexes: dict[Path, FileIndex], hot: set[str], words: frozenset[str]) -> list[Root]:
    mentioned: Counter[str] = Counter()
    for index in indexes.values():
        mentioned.update(index.body_mentions)
        for info in index.functions.values():
            if not info.nested:
                mentioned.update(info.mentions - {info.name})
        for cls in index.classes.values():
            mentioned.update(base.rpartition(".")[2] for base in cls.bases)
    roots: list[Root] = []
    for path, index in sorted(indexes.items()):
        if index.body_mentions & (hot | words) or index.has_script:
            roots.append(Root("script", path))
    for path, index in sorted(indexes.items()):
        for info in index.functions.values():
            if info.cls is None and not info.nested and info.name in hot and not mentioned[info.name]:
                roots.append(Root("function", path, info.qualname))
        for cls in index.classes.values():
            if cls.name in hot and not mentioned[cls.name] and "." not in cls.qualname:
                roots.append(Root("class", path, cls.qualname, life(index, cls.qualname, hot)))
    return roots


def life(index: FileIndex, cls: str, hot: set[str]) -> tuple[str, ...]:
    """The methods of a class that no other of its methods calls; those that reach FSDP first."""
    own = [info for info in index.functions.values() if info.cls == cls]
    called = {name for info in own for name in info.mentions - {info.name}}
    free = [info for info in own if info.name not in called and info.name != "__init__"]
    return tuple(info.name for info in sorted(free, key=lambda info: info.name not in hot))


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
