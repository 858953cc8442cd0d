"""What one file defines, imports and mentions: names only, by the interpreter's own parser."""

from __future__ import annotations

import ast
import sys
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_lint.source.file import Unreadable

GUARDS = (ast.If, ast.Try)


@dataclass(frozen=True, slots=True)
class Import:
    """One name bound by an import. `attribute` is None for `import module`; `level` counts leading dots."""

    module: str
    attribute: str | None
    level: int


@dataclass(frozen=True, slots=True)
class ImportLine:
    """One `from module import names`, as a rule about import paths sees it. `row` counts from 1."""

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
    """A class: its bases as written and its methods' names."""

    name: str
    qualname: str
    row: int
    bases: tuple[str, ...]
    methods: tuple[str, ...]


@dataclass(slots=True)
class FileIndex:
    """All that is known of a file without running it."""

    path: Path
    imports: dict[str, list[Import]] = field(default_factory=dict)
    stars: list[Import] = field(default_factory=list)
    import_lines: list[ImportLine] = field(default_factory=list)
    functions: dict[str, FunctionInfo] = field(default_factory=dict)
    classes: dict[str, ClassInfo] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    body_mentions: set[str] = field(default_factory=set)
    body_attributes: set[str] = field(default_factory=set)
    calls: list[CallLine] = field(default_factory=list)
    inner_imports: dict[str, list[Import]] = field(default_factory=dict)


def index_file(path: Path, text: str) -> FileIndex:
    """The index of one file's text. Raises Unreadable where it is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        where = f"line {error.lineno}, column {error.offset}" if isinstance(error, SyntaxError) else str(error)
        raise Unreadable(f"is not valid Python {sys.version_info[0]}.{sys.version_info[1]}: {where}") from None
    except (RecursionError, MemoryError):
        raise Unreadable("is nested too deeply to be parsed") from None
    index = FileIndex(path)
    _Indexer(index).module(tree)
    return index


class _Indexer:
    def __init__(self, index: FileIndex) -> None:
        self.index = index

    def module(self, tree: ast.Module) -> None:
        self.statements(tree.body, guarded=False)
        guarded_rows = _guarded_rows(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = tuple(alias.name for alias in node.names)
                self.index.import_lines.append(ImportLine(node.lineno, node.module, names, node.lineno in guarded_rows))
        self.calls(tree, "")

    def calls(self, node: ast.AST, function: str) -> None:
        for child in ast.iter_child_nodes(node):
            inside = function
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inside = f"{function}.{child.name}" if function else child.name
            elif isinstance(child, ast.Call):
                name = _dotted(child.func)
                if name:
                    self.index.calls.append(CallLine(child.lineno, child.col_offset + 1, name, function))
            elif isinstance(child, ast.Import | ast.ImportFrom) and function:
                self.import_(child, self.index.inner_imports)
            self.calls(child, inside)

    def statements(self, body: list[ast.stmt], guarded: bool) -> None:
        for statement in body:
            self.statement(statement, guarded)

    def statement(self, node: ast.stmt, guarded: bool) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.function(node, None, "", nested=False)
            case ast.ClassDef():
                self.class_(node, "")
            case ast.Import() | ast.ImportFrom():
                self.import_(node, self.index.imports)
            case ast.If() | ast.Try() | ast.With() | ast.For() | ast.While():
                self.compound(node)
            case _:
                self.assigned(node)
                self.body(node)

    def compound(self, node: ast.If | ast.Try | ast.With | ast.For | ast.While) -> None:
        for name, value in ast.iter_fields(node):
            if name in ("body", "orelse", "finalbody"):
                self.statements(value, guarded=True)
            elif name == "handlers":
                for handler in value:
                    self.statements(handler.body, guarded=True)
            elif isinstance(value, ast.AST):
                self.body(value)
            elif name == "items":
                for item in value:
                    self.body(item)

    def body(self, node: ast.AST) -> None:
        names, attributes = _mentions(node)
        self.index.body_mentions |= names
        self.index.body_attributes |= attributes

    def assigned(self, node: ast.stmt) -> None:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets = [node.target]
        for target in targets:
            self.index.assigned |= {n.id for n in ast.walk(target) if isinstance(n, ast.Name)}

    def import_(self, node: ast.Import | ast.ImportFrom, imports: dict[str, list[Import]]) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    imports.setdefault(alias.asname, []).append(Import(alias.name, None, 0))
                else:
                    head = alias.name.partition(".")[0]
                    imports.setdefault(head, []).append(Import(head, None, 0))
            return
        for alias in node.names:
            target = Import(node.module or "", alias.name, node.level)
            if alias.name == "*":
                self.index.stars.append(target)
            else:
                imports.setdefault(alias.asname or alias.name, []).append(target)

    def function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, cls: str | None, prefix: str, nested: bool
    ) -> None:
        qualname = prefix + node.name
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        info = FunctionInfo(node.name, qualname, node.lineno, lines, cls, nested, *_mentions(node))
        self.index.functions[qualname] = info
        for inner in ast.walk(node):
            if inner is not node and isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{qualname}.<locals>.{inner.name}"
                rows = (inner.end_lineno or inner.lineno) - inner.lineno + 1
                self.index.functions.setdefault(name, FunctionInfo(inner.name, name, inner.lineno, rows, None, True))

    def class_(self, node: ast.ClassDef, prefix: str) -> None:
        qualname = prefix + node.name
        methods = tuple(n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
        bases = tuple(ast.unparse(base) for base in node.bases)
        self.index.classes[qualname] = ClassInfo(node.name, qualname, node.lineno, bases, methods)
        for statement in ast.walk(node):
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and statement in node.body:
                self.function(statement, qualname, f"{qualname}.", nested=False)
            elif isinstance(statement, ast.ClassDef) and statement is not node and statement in node.body:
                self.class_(statement, f"{qualname}.")


def _guarded_rows(tree: ast.Module) -> set[int]:
    rows: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, GUARDS):
            rows |= {n.lineno for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)}
    return rows


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def _mentions(node: ast.AST) -> tuple[set[str], set[str]]:
    """The plain names and the attributes in a piece of code."""
    names: set[str] = set()
    attributes: set[str] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            names.add(inner.id)
        elif isinstance(inner, ast.Attribute):
            attributes.add(inner.attr)
        elif isinstance(inner, ast.alias):
            names.add(inner.name.rpartition(".")[2])
    return names, attributes
