"""Where runs begin: scripts, functions that nobody calls, and the lives of classes that nobody makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_lint.project.callers import callers, stems
from fsdp_lint.project.heat import ORDINARY, Heat
from fsdp_lint.project.index import FileIndex, FunctionInfo
from fsdp_lint.project.resolve import Project

CALLERS = 400
ROUNDS = 4
FEW = 3


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
    heat = Heat(project, words)
    heat.spread(indexes)
    rest = [path for path in others if path not in indexes]
    for _ in range(ROUNDS):
        for home in sorted({path for path, _ in heat.hot} & set(rest)):  # where the tables are
            index = project.index(home)
            if index is not None:
                indexes[home] = index
        found = callers(project, indexes, heat, rest, CALLERS - len(indexes))
        if not found:
            break
        indexes.update(found)
        rest = [path for path in rest if path not in indexes]
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


def _roots(indexes: dict[Path, FileIndex], heat: Heat) -> list[Root]:
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
        if heat.begins(index):
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
    """Roots for functions that speak of FSDP and that no run has entered; with a method, what else its class does."""
    roots: list[Root] = []
    left = plan.hot - entered
    free = [
        (index, info)
        for index in indexes.values()
        for info in index.functions.values()
        if info.cls is None and not info.nested and (index.path, info.qualname) in left
    ]
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
                roots += [*_above((path, qualname), free), Root("function", path, qualname)]
            else:
                methods.setdefault(info.cls, []).append(info.name)
        for cls, names in methods.items():
            first = [name for name in names if name != "__init__"]
            rest = [name for name in _public(index, cls, plan.hot) if (path, f"{cls}.{name}") not in entered]
            roots.append(Root("class", path, cls, tuple(dict.fromkeys((*first, *rest)))))
    return roots


def _above(function: tuple[Path, str], free: list[tuple[FileIndex, FunctionInfo]]) -> list[Root]:
    """The functions that lead to one which no run has entered, the farthest first: what calls those is not known."""
    found: list[Root] = []
    level = [function]
    for _ in range(ROUNDS):
        level = [(index.path, each.qualname) for index, each in free if any(_names(index, each, at) for at in level)]
        level = [at for at in level if Root("function", *at) not in found][:FEW]
        found = [Root("function", *at) for at in level] + found
    return found


def _names(index: FileIndex, caller: FunctionInfo, function: tuple[Path, str]) -> bool:
    """True when a function of a file speaks of another one, of the same file or imported from that one's by name."""
    path, name = function
    if name not in caller.mentions or (index.path, caller.qualname) == function:
        return False
    if index.path == path:
        return True
    targets = (*index.imports.get(name, []), *index.inner_imports.get(name, []))
    return any(each.attribute == name and each.module.rpartition(".")[2] in stems(path) for each in targets)


def _public(index: FileIndex, cls: str, hot: set[tuple[Path, str]]) -> list[str]:
    """The methods that a class has for others; those that reach FSDP first."""
    own = [info for info in index.functions.values() if info.cls == cls and not info.name.startswith("_")]
    return [info.name for info in sorted(own, key=lambda info: (index.path, info.qualname) not in hot)]


def unmade(plan: Plan, indexes: dict[Path, FileIndex], entered: set[tuple[Path, str]]) -> list[Root]:
    """Roots for the classes that name what speaks of FSDP and that no run has entered: unknown code makes them."""
    names = {qualname.partition(".")[0] for own in plan.own.values() for qualname in own} - ORDINARY
    roots: list[Root] = []
    for path, index in sorted(indexes.items()):
        for cls in index.classes.values():
            if "." in cls.qualname or (path, cls.qualname) not in plan.hot or cls.name in names:
                continue
            methods = [info for info in index.functions.values() if info.cls == cls.qualname]
            if any((path, info.qualname) in entered for info in methods):
                continue
            if any((info.mentions | info.attributes) & names for info in methods):
                roots.append(Root("class", path, cls.qualname, tuple(_public(index, cls.qualname, plan.hot))))
    return roots
