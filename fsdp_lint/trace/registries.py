"""Tables of a project's own functions: what the top level of a file and its decorators put into them."""

from __future__ import annotations

from pathlib import Path

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.trace.expressions import Expressions
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.values import Instance, Mapping, Sequence, Value


class Registries(Expressions):
    """The part of the abstract machine that fills tables."""

    def variable(self, path: Path, name: str) -> Value | None:
        """A global variable of a file whose body is not being run; a table with what that file puts into it."""
        known = ("variable", path, name) in self.memo
        value = super().variable(path, name)
        index = self.project.index(path)
        if known or index is None or not isinstance(value, Mapping | Sequence | Instance):
            return value
        putting = {head for head in index.contents if head == name or self._puts_into(path, head, name)}
        if putting:
            self._fill(path, name, putting)
        return value

    def _fill(self, path: Path, name: str, putting: set[str]) -> None:
        """Does what the top level of a file does to one of its tables; nothing of that is an event of this run."""
        frame = self.file_frame(path)
        if frame is None:
            return
        depth = len(self.trace.events)
        self.frames.append(frame)
        for statement in frame.source.tree.body:
            if isinstance(statement, cst.FunctionDef | cst.ClassDef):
                if any(_head(decorator.decorator) in putting for decorator in statement.decorators):
                    self.register(statement)
            elif isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    self._put(small, name)
        self.frames.pop()
        del self.trace.events[depth:]

    def _put(self, small: cst.BaseSmallStatement, name: str) -> None:
        """`TABLE[key] = value` and `TABLE.append(value)`, for one table."""
        match small:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Subscript(value=cst.Name(value=table)) as target)]):
                if table == name:
                    self.assign(target, self.evaluate(small.value))
            case cst.Expr(value=cst.Call(func=cst.Attribute(value=cst.Name(value=table))) as call) if table == name:
                self.evaluate(call)

    def register(self, node: cst.FunctionDef | cst.ClassDef) -> None:
        """Lets the decorators of a function or class put it into the project's tables."""
        for decorator in node.decorators:
            if self._puts_into(self.frame.path, _head(decorator.decorator)):
                decorating = self.evaluate(decorator.decorator)
                made = self.load(node.name.value)
                if made is not None:
                    self.invoke(decorating, Call(site=Site(self.frame.source, decorator), args=[made]))

    def _puts_into(self, path: Path, head: str, table: str = "") -> bool:
        """True when a decorator that begins with this name puts things into a table (into this one) of the project."""
        found = self.project.lookup(path, head) if head else None
        if found is None or found.path is None:
            return False
        if found.kind == "variable":
            return not table or found.name == table
        index = self.project.index(found.path)
        tables = index.tables(found.name) if index is not None else set()
        return table in tables if table else bool(tables)


def _head(node: cst.BaseExpression) -> str:
    """The name with which an expression begins."""
    while isinstance(node, cst.Attribute | cst.Call):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""
