"""What one file defines, imports and mentions: names only, by the interpreter's own parser."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdp_lint.source.text import parse

HOLDERS = frozenset({"dict", "list", "defaultdict", "OrderedDict", "partial"})
VERSION = re.compile(r"version|greater|at_?least|newer|older|torch_?\d|has_|_support", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Import:
    """One name bound by an import. `attribute` is None for `import module`; `level` counts leading dots."""

    module: str
    attribute: str | None
    level: int


@dataclass(frozen=True, slots=True)
class ImportLine:
    """One `from module import names`, as a rule about import paths sees it, or `import module`, which has no names.

    `row` counts from 1.
    """

    row: int
    module: str
    names: tuple[str, ...]
    guarded: bool


@dataclass(frozen=True, slots=True)
class CallLine:
    """One call of a dotted name, and the function that it stands in ("" at the top). Row and column count from 1."""

    row: int
    column: int
    name: str
    function: str


@dataclass(slots=True)
class FunctionInfo:
    """A function or method: where it stands, how long it is and which names it mentions."""

    name: str
    qualname: str
    row: int
    lines: int
    cls: str | None
    nested: bool
    mentions: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class ClassInfo:
    """A class: its bases as written, its methods' names, and the names in what its body assigns: defaults of fields."""

    name: str
    qualname: str
    row: int
    bases: tuple[str, ...]
    methods: tuple[str, ...]
    defaults: frozenset[str] = frozenset()


@dataclass(slots=True)
class FileIndex:
    """All that is known of a file without running it.

    `holders` are the global variables through which functions are reached by another name: lists, dicts, partials,
    second names. `contents` says for these, for what begins a decorator, and for imported names that are called at the
    top, which names are put into them. `handed` are the names that calls at the top get as arguments.
    """

    path: Path
    imports: dict[str, list[Import]] = field(default_factory=dict)
    stars: list[Import] = field(default_factory=list)
    import_lines: list[ImportLine] = field(default_factory=list)
    functions: dict[str, FunctionInfo] = field(default_factory=dict)
    classes: dict[str, ClassInfo] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    holders: set[str] = field(default_factory=set)
    contents: dict[str, set[str]] = field(default_factory=dict)
    body_mentions: set[str] = field(default_factory=set)
    body_attributes: set[str] = field(default_factory=set)
    handed: set[str] = field(default_factory=set)
    has_main: bool = False
    calls: list[CallLine] = field(default_factory=list)
    inner_imports: dict[str, list[Import]] = field(default_factory=dict)

    def tables(self, function: str) -> set[str]:
        """The holders that a function of this file speaks of: as a decorator it may put into them what it gets."""
        info = self.functions.get(function)
        return info.mentions & self.holders if info is not None else set()


def index_file(path: Path, text: str) -> FileIndex:
    """The index of one file's text. Raises Unreadable where it is not Python."""
    tree = parse(text)
    index = FileIndex(path)
    _Indexer(index).module(tree)
    return index


class _Indexer:
    """One walk over the tree, which notes names where they stand."""

    def __init__(self, index: FileIndex) -> None:
        self.index = index
        self.guarded = 0

    def module(self, tree: ast.Module) -> None:
        index = self.index
        for statement in tree.body:
            self.visit(statement, "", None, [(index.body_mentions, index.body_attributes)])

    def visit(self, node: ast.AST, place: str, cls: str | None, sinks: list[tuple[set[str], set[str]]]) -> None:
        """Notes a node. `place` is the qualified name around it, `cls` the class whose body it stands in, `sinks` the
        names and attributes of the functions around it."""
        kind = node.__class__
        if kind is ast.Name:
            for names, _ in sinks:
                names.add(node.id)  # type: ignore[attr-defined]
        elif kind in _BODIES:
            _BODIES[kind](self, node, place, cls, sinks)
        elif kind not in _NAMELESS:
            if kind is ast.Attribute:
                for _, attributes in sinks:
                    attributes.add(node.attr)  # type: ignore[attr-defined]
            elif kind is ast.Call:
                name = _dotted(node.func)  # type: ignore[attr-defined]
                if name:
                    self.index.calls.append(CallLine(node.lineno, node.col_offset + 1, name, place))  # type: ignore[attr-defined]
                if not place:
                    given = (*node.args, *(each.value for each in node.keywords))  # type: ignore[attr-defined]
                    self.index.handed |= {each.id for each in given if isinstance(each, ast.Name)}
                match node:
                    case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str() as asked), *_]):
                        for _, attributes in sinks:
                            attributes.add(asked)
            elif not place:
                self.at_the_top(node)
            guards = kind in _GUARDING and _is_guard(node)
            self.guarded += guards
            self.inside(node, place, cls, sinks)
            self.guarded -= guards

    def inside(self, node: ast.AST, place: str, cls: str | None, sinks: list[tuple[set[str], set[str]]]) -> None:
        """Notes what a node holds."""
        for name in node._fields:
            value = getattr(node, name, None)
            if value.__class__ is list:
                for item in value:
                    if isinstance(item, ast.AST):
                        self.visit(item, place, cls, sinks)
            elif isinstance(value, ast.AST):
                self.visit(value, place, cls, sinks)

    def at_the_top(self, node: ast.AST) -> None:
        """Notes what statements outside of functions and classes bind, fill and ask."""
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            self.assigned(node)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if _head(node.value.func) in self.index.holders | self.index.imports.keys():
                self.fills(_head(node.value.func), *node.value.args, *(k.value for k in node.value.keywords))
        elif isinstance(node, ast.If):
            self.index.has_main |= any(isinstance(n, ast.Name) and n.id == "__name__" for n in ast.walk(node.test))

    def imported(
        self, node: ast.Import | ast.ImportFrom, place: str, cls: str | None, sinks: list[tuple[set[str], set[str]]]
    ) -> None:
        self.import_(node, self.index.inner_imports if place else self.index.imports, sinks)

    def assigned(self, node: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            # In `os.environ["NAME"] = value` the name `os` is read, not bound.
            self.index.assigned |= {
                n.id for n in ast.walk(target) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            if isinstance(target, ast.Name) and node.value is not None and _holds(node.value):
                self.index.holders.add(target.id)
            if node.value is not None and _head(target) in self.index.holders:
                self.fills(_head(target), node.value)

    def fills(self, name: str, *values: ast.expr) -> None:
        """Notes what becomes part of a global variable."""
        if name:
            named = {n.id for value in values for n in ast.walk(value) if isinstance(n, ast.Name)}
            self.index.contents.setdefault(name, set()).update(named)

    def import_(
        self,
        node: ast.Import | ast.ImportFrom,
        imports: dict[str, list[Import]],
        sinks: list[tuple[set[str], set[str]]],
    ) -> None:
        if imports is self.index.inner_imports:
            for names, _ in sinks:
                names |= {alias.name.rpartition(".")[2] for alias in node.names}
        if isinstance(node, ast.Import):
            for alias in node.names:
                head = alias.asname or alias.name.partition(".")[0]
                imports.setdefault(head, []).append(Import(alias.name if alias.asname else head, None, 0))
            module = node.names[0].name if len(node.names) == 1 else ""
            self.index.import_lines.append(ImportLine(node.lineno, module, (), bool(self.guarded)))
            return
        if node.module and not node.level:
            listed = tuple(alias.name for alias in node.names)
            self.index.import_lines.append(ImportLine(node.lineno, node.module, listed, bool(self.guarded)))
        for alias in node.names:
            target = Import(node.module or "", alias.name, node.level)
            if alias.name == "*":
                self.index.stars.append(target)
            else:
                imports.setdefault(alias.asname or alias.name, []).append(target)

    def function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef,
        place: str,
        cls: str | None,
        sinks: list[tuple[set[str], set[str]]],
    ) -> None:
        nested = bool(place) and cls is None
        qualname = f"{place}.<locals>.{node.name}" if nested else f"{place}.{node.name}" if place else node.name
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        info = FunctionInfo(node.name, qualname, node.lineno, lines, cls, nested)
        self.index.functions[qualname] = info
        inner = [(info.mentions, info.attributes), *(sinks if nested else [])]
        guarded, self.guarded = self.guarded, 0
        for decorator in node.decorator_list:
            self.visit(decorator, qualname, None, inner)
            if not place:
                self.fills(_head(decorator), ast.Name(node.name))
        self.visit(node.args, qualname, None, inner)
        if node.returns is not None:
            self.visit(node.returns, qualname, None, inner)
        for statement in node.body:
            self.visit(statement, qualname, None, inner)
        self.guarded = guarded

    def class_(self, node: ast.ClassDef, place: str, cls: str | None, sinks: list[tuple[set[str], set[str]]]) -> None:
        nested = bool(place) and cls is None
        qualname = f"{place}.<locals>.{node.name}" if nested else f"{place}.{node.name}" if place else node.name
        methods = tuple(n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        bases = tuple(ast.unparse(base) for base in node.bases)
        given = [n.value for n in node.body if isinstance(n, ast.Assign | ast.AnnAssign) and n.value is not None]
        defaults = frozenset(n.id for value in given for n in ast.walk(value) if isinstance(n, ast.Name))
        self.index.classes[qualname] = ClassInfo(node.name, qualname, node.lineno, bases, methods, defaults)
        for decorator in () if place else node.decorator_list:
            self.fills(_head(decorator), ast.Name(node.name))
        for part in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.visit(part, place, None, [])
        for statement in node.body:
            self.visit(statement, qualname, qualname, [])


_BODIES: dict[type, Callable[[_Indexer, Any, str, str | None, list[tuple[set[str], set[str]]]], None]] = {
    ast.FunctionDef: _Indexer.function,
    ast.AsyncFunctionDef: _Indexer.function,
    ast.ClassDef: _Indexer.class_,
    ast.Import: _Indexer.imported,
    ast.ImportFrom: _Indexer.imported,
}
_GUARDING = frozenset({ast.Try, ast.If})
# Kinds of node that hold no names: a third of all.
_NAMELESS = frozenset(
    {
        ast.Constant,
        *(
            kind
            for group in (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)
            for kind in group.__subclasses__()
        ),
    }
)


def _is_guard(node: ast.AST) -> bool:
    """True when what stands inside is one of several ways: a `try`, an `if` with an `else`, a test of a version. A test
    of whether something is installed at all is none."""
    if isinstance(node, ast.Try):
        return True
    if not isinstance(node, ast.If):
        return False
    names = [
        n.id if isinstance(n, ast.Name) else n.attr
        for n in ast.walk(node.test)
        if isinstance(n, ast.Name | ast.Attribute)
    ]
    return bool(node.orelse) or any(VERSION.search(name) for name in names)


def _holds(node: ast.expr) -> bool:
    """True for an expression through which other functions are reached: a container, a partial, a second name."""
    if isinstance(node, ast.Call):
        return _dotted(node.func).rpartition(".")[2] in HOLDERS
    return isinstance(node, ast.Dict | ast.List | ast.Set | ast.Tuple | ast.Name)


def _head(node: ast.expr) -> str:
    """The name with which an expression begins: `TABLE` of `TABLE["a"]`, `register` of `register("a")`."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""
