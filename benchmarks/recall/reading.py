"""One file of right code as a mutation sees it: its functions, its calls, what their names stand for."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from fsdp_lint.project.resolve import Definition, Project
from fsdp_lint.source.file import Source
from fsdp_lint.trace.models import fsdp

GENERATION_1 = frozenset(fsdp.GENERATION_1)
GENERATION_2 = frozenset(fsdp.GENERATION_2)
LOOPS = (cst.For, cst.While, cst.ListComp, cst.GeneratorExp)


@dataclass(frozen=True, eq=False)
class View:
    """A file with its tree, and the project that gives its names their meaning."""

    project: Project
    source: Source
    # The names that functions and files of the package mention, each apart from where it is defined.
    mentioned: frozenset[str] = frozenset()
    # The generations of FSDP that some file of the package imports from torch.
    generations: frozenset[int] = frozenset()

    @property
    def is_test(self) -> bool:
        """True for the package's tests: sizes and values there mean nothing, and some rules leave them out."""
        folders = {"tests", "test", "testing"} & set(self.path.parts[:-1])
        return bool(folders) or self.path.name.startswith("test_") or self.path.stem.endswith("_test")

    @property
    def path(self) -> Path:
        """Where the file lies."""
        return self.source.path

    def row(self, node: cst.CSTNode) -> int:
        """The row of a node, from 1."""
        return self.source.span(node).row

    def rows(self, node: cst.CSTNode) -> tuple[int, int]:
        """The first and the last row of a node, from 1."""
        span = self.source.span(node)
        return span.row, span.end_row

    def text(self, node: cst.CSTNode) -> str:
        """A node as it is written."""
        return self.source.tree.code_for_node(node)

    def dotted(self, node: cst.CSTNode) -> str:
        """The public name of a library's thing that an expression like `fsdp.fully_shard` stands for; else ""."""
        found = self.definition(node)
        return found.name if found is not None and found.kind == "external" else ""

    def definition(self, node: cst.CSTNode) -> Definition | None:
        """What an imported or global name, with attributes behind it, stands for."""
        head, _, rest = written(node).partition(".")
        index = self.project.index(self.path)
        if not head or index is None:
            return None
        if not rest and (head in index.functions or head in index.classes):
            return Definition("function" if head in index.functions else "class", head, self.path)
        for target in index.imports.get(head, []) + index.inner_imports.get(head, []):
            found = self.project.target(self.path, target)
            if found is None:
                continue
            if found.kind == "external":
                return Definition("external", f"{found.name}.{rest}" if rest else found.name)
            if found.kind == "file" and found.path is not None and rest and "." not in rest:
                return self.project.lookup(found.path, rest)
            if not rest:
                return found
        return None

    def generation(self, call: cst.Call) -> int:
        """2 for torch's `fully_shard`, 1 for `FullyShardedDataParallel`, else 0."""
        name = self.dotted(call.func)
        return 2 if name in GENERATION_2 else 1 if name in GENERATION_1 else 0

    @functools.cached_property
    def imports(self) -> list[cst.ImportFrom]:
        """All `from` imports of the file."""
        return [node for node in inside(self.source.tree) if isinstance(node, cst.ImportFrom)]

    @functools.cached_property
    def bodies(self) -> list[Body]:
        """The functions and methods of the file; what is nested in one belongs to it."""
        return list(_functions(self, self.source.tree, ""))

    def functions(self) -> Iterator[Body]:
        """The functions and methods of the file; what is nested in one belongs to it."""
        return iter(self.bodies)


def _functions(view: View, node: cst.CSTNode, prefix: str) -> Iterator[Body]:
    for child in node.children:
        if isinstance(child, cst.FunctionDef):
            yield Body(view, child, prefix + child.name.value)
        elif isinstance(child, cst.ClassDef):
            yield from _functions(view, child, f"{prefix}{child.name.value}.")
        elif isinstance(child, cst.BaseSuite | cst.If | cst.Else | cst.Try | cst.ExceptHandler):
            yield from _functions(view, child, prefix)


@dataclass(frozen=True, eq=False)
class Body:
    """One function, with what is inside it."""

    view: View
    node: cst.FunctionDef
    qualname: str

    @functools.cached_property
    def parents(self) -> dict[cst.CSTNode, cst.CSTNode]:
        """The node around each node of the function."""
        found: dict[cst.CSTNode, cst.CSTNode] = {}
        todo: list[cst.CSTNode] = [self.node]
        while todo:
            node = todo.pop()
            for child in node.children:
                found[child] = node
                todo.append(child)
        return found

    @functools.cached_property
    def nodes(self) -> list[cst.CSTNode]:
        """All nodes, in the order of the text."""
        return list(inside(self.node.body))

    @functools.cached_property
    def calls(self) -> list[cst.Call]:
        """All calls, outer ones first."""
        return [node for node in self.nodes if isinstance(node, cst.Call)]

    @functools.cached_property
    def shards(self) -> list[Sharding]:
        """The sharding calls that have an argument."""
        found = []
        for call in self.calls:
            generation = self.view.generation(call) if call.args and call.args[0].star == "" else 0
            if generation:
                found.append(Sharding(self, call, generation))
        return found

    def up(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """What is around a node, innermost first, up to the function."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def statement(self, node: cst.CSTNode) -> cst.CSTNode:
        """The statement line, or the compound statement, that a node stands in."""
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            return node
        return next(each for each in self.up(node) if isinstance(each, cst.BaseStatement))

    def block(self, statement: cst.CSTNode) -> list[cst.BaseStatement]:
        """The statements among which one stands."""
        around = self.parents[statement]
        return list(around.body) if isinstance(around, cst.IndentedBlock) else []

    def is_plain(self, call: cst.Call) -> bool:
        """True for a call that is a statement, or whose value is only bound or returned."""
        return isinstance(self.parents[call], cst.Expr | cst.Assign | cst.Return) and self.is_alone(call)

    def is_alone(self, node: cst.CSTNode) -> bool:
        """True when the line that a node stands in holds one statement."""
        line = self.statement(node)
        return isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1

    def parameters(self) -> set[str]:
        """The names of the function's parameters."""
        params = self.node.params
        return {p.name.value for p in (*params.posonly_params, *params.params, *params.kwonly_params)}

    def is_called(self) -> bool:
        """True when something in the package speaks of the function: what becomes of its model can be known."""
        return self.node.name.value in self.view.mentioned

    def given(self, name: str) -> bool:
        """True for a parameter of a function that nothing in the package calls: its callers are not to be seen."""
        return name.partition(".")[0] in self.parameters() and not self.is_called()

    def text(self) -> str:
        """The function as it is written."""
        return self.view.text(self.node)


@dataclass(frozen=True, eq=False)
class Sharding:
    """One sharding call."""

    body: Body
    call: cst.Call
    generation: int

    @property
    def module(self) -> str:
        """The sharded module as it is written."""
        return written(self.call.args[0].value)

    @property
    def loops(self) -> list[cst.CSTNode]:
        """The loops around the call."""
        return [node for node in self.body.up(self.call) if isinstance(node, LOOPS)]

    @property
    def keywords(self) -> set[str]:
        """The names of the keywords; `**` for what is passed on."""
        return {arg.keyword.value if arg.keyword else arg.star for arg in self.call.args[1:]}


def inside(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all nodes in it, in the order of the text."""
    todo = [node]
    while todo:
        each = todo.pop()
        yield each
        todo.extend(reversed(each.children))


def written(node: cst.CSTNode) -> str:
    """`a.b.c` for names and attributes; "" for other expressions."""
    match node:
        case cst.Name(value=name):
            return name
        case cst.Attribute(value=value, attr=attr):
            head = written(value)
            return f"{head}.{attr.value}" if head else ""
    return ""


def names(node: cst.CSTNode) -> set[str]:
    """The names that are read in an expression or statement; attributes and keywords are none."""
    found: set[str] = set()
    todo: list[cst.CSTNode] = [node]
    while todo:
        each = todo.pop()
        match each:
            case cst.Name(value=name):
                found.add(name)
            case cst.Attribute(value=value):
                todo.append(value)
            case cst.Arg(value=value):
                todo.append(value)
            case _:
                todo.extend(each.children)
    return found


def bound(node: cst.CSTNode) -> set[str]:
    """The names that a statement binds."""
    found: set[str] = set()
    for each in inside(node):
        match each:
            case cst.AssignTarget(target=target) | cst.For(target=target) | cst.AnnAssign(target=target):
                found |= {n.value for n in inside(target) if isinstance(n, cst.Name)} if _is_pattern(target) else set()
            case cst.AsName(name=name) if isinstance(name, cst.Name):
                found.add(name.value)
            case cst.ImportAlias(name=name) if isinstance(name, cst.Name):
                found.add(name.value)
            case cst.FunctionDef(name=name) | cst.ClassDef(name=name):
                found.add(name.value)
    return found


def _is_pattern(target: cst.CSTNode) -> bool:
    return isinstance(target, cst.Name | cst.Tuple | cst.List)


def last(name: str) -> str:
    """The last part of a dotted name."""
    return name.rpartition(".")[2]
