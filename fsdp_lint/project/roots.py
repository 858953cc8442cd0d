"""Where runs begin: scripts, functions that nobody calls, and the lives of classes that nobody makes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_lint.project.index import ClassInfo, FileIndex, FunctionInfo, Import
from fsdp_lint.project.resolve import Definition, Project
from fsdp_lint.source.discover import SUFFIXES
from fsdp_lint.source.words import spelled_out

CALLERS = 400
ROUNDS = 4
FEW = 3
SHORT = 2
# What stands behind the word `import`, at least: names, or modules with the packages around them.
IMPORTED = re.compile(rb"\bimport\b[ \t]*(\((?:[^)#]|#[^\n]*)*\)|[^\n\\]*(?:\\\r?\n?[^\n\\]*)*)")
IDENTIFIER = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
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
        for home in sorted({path for path, _ in heat.hot} & set(rest)):  # where the tables are
            index = project.index(home)
            if index is not None:
                indexes[home] = index
        found = _callers(project, indexes, heat, rest, CALLERS - len(indexes))
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


class _Heat:
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
        heads = {name.partition(".")[0] for name in called}
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


def _callers(
    project: Project, indexes: dict[Path, FileIndex], heat: _Heat, rest: list[Path], most: int
) -> dict[Path, FileIndex]:
    """Files that import a hot name from an indexed file, at most so many; callers of functions come before those of
    classes, which may be imported for a hundred other reasons."""
    functions: dict[str, set[Path]] = {}
    classes: dict[str, set[Path]] = {}
    for path, index in indexes.items():
        for name in {*index.imports, *index.contents, *(q for q in (*index.functions, *index.classes) if "." not in q)}:
            if len(name) >= SHORT and heat.stands_for_hot(index, name):
                called = name in index.functions or name in index.contents or not name[:1].isupper()
                homes = functions if called else classes
                homes.setdefault(name, set()).add(path)
    wanted = [_Wanted(homes) for homes in (functions, classes) if homes]
    # Each file is read once for both: most of them speak of neither.
    for path in rest if wanted else ():
        _look_into(path, wanted)
    found: dict[Path, FileIndex] = {}
    for each in wanted:
        for path in each.speaking:
            if len(found) >= most:
                break
            caller = project.index(path) if path not in found else None
            if caller is not None and _imports_any(project, caller, each):
                found[path] = caller
    return found


class _Wanted:
    """Names that are looked for, and the files which have them: `homes`, and the packages around these. `speaking` are
    the files whose words let them import one of the names."""

    def __init__(self, homes: dict[str, set[Path]]) -> None:
        self.speaking: list[Path] = []
        self.names = set(homes)
        self.homes = {path for paths in homes.values() for path in paths}
        self.bytes = {name.encode() for name in homes}
        self.stems = {stem.encode(errors="surrogateescape") for path in self.homes for stem in _stems(path)}
        folders = {folder for path in self.homes for folder in path.parents}
        packages = {folder for folder in folders if (folder / "__init__.py").exists()}
        self.folders = packages | {path.parent for path in self.homes if path.name == "__init__.py"}
        self.homes |= {folder / "__init__.py" for folder in packages}


def _look_into(path: Path, wanted: list[_Wanted]) -> None:
    """Notes which of what is wanted a file may import, by its words alone."""
    try:
        data = spelled_out(path, path.read_bytes())
    except OSError:
        return
    imported = set(IDENTIFIER.findall(b" ".join(IMPORTED.findall(data))))
    # It imports the name, or something through which it is reached.
    near = [one for one in wanted if not (imported.isdisjoint(one.bytes) and imported.isdisjoint(one.stems))]
    words = set(IDENTIFIER.findall(data)) if near else set()
    for one in near:
        # `from . import name` spells no module.
        leads = not words.isdisjoint(one.stems) or not one.folders.isdisjoint(path.parents)
        if leads and not words.isdisjoint(one.bytes):
            one.speaking.append(path)


def _stems(path: Path) -> set[str]:
    """The names by which an import can lead to a file: its own, and those of the packages around it."""
    found = {path.parent.name if path.stem == "__init__" else path.stem}
    for folder in path.parents:
        if not (folder / "__init__.py").exists():
            break
        found.add(folder.name)
    return found


def _imports_any(project: Project, index: FileIndex, wanted: _Wanted) -> bool:
    names, homes = wanted.names, wanted.homes
    for table in (index.imports, index.inner_imports):
        for targets in table.values():
            for target in targets:
                if target.attribute in names and project.find(index.path, target.module, target.level) in homes:
                    return True
                definition = project.target(index.path, target)
                if definition is None or definition.path not in homes:
                    continue
                if definition.kind == "file" or definition.name in names:
                    return True
    # `import package.module` binds the package alone.
    dotted = (line.module for line in index.import_lines if not line.names and "." in line.module)
    return any(project.find(index.path, module, 0) in homes for module in dotted)


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
    return any(each.attribute == name and each.module.rpartition(".")[2] in _stems(path) for each in targets)


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
