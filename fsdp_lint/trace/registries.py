"""Tables of a project's own functions: what the top level of files and their decorators put into them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from fsdp_lint.project.index import FileIndex
from fsdp_lint.project.resolve import Definition, Project
from fsdp_lint.source.file import Site
from fsdp_lint.trace.expressions import Expressions
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.values import Class, Instance, Mapping, Sequence, Value


@dataclass(frozen=True, slots=True)
class Filler:
    """A file whose top level calls what another name stands for, by which it may put something into a table: `head` is
    how that name is written there, `to` what it stands for."""

    path: Path
    head: str
    to: Definition


def fillers(project: Project, indexes: dict[Path, FileIndex]) -> tuple[Filler, ...]:
    """Who may put something into tables of other files, or into those of classes."""
    found: list[Filler] = []
    for path, index in sorted({**_imported_to_fill(project, indexes), **indexes}.items()):
        called = {call.name.partition(".")[0] for call in index.calls if not call.function}
        for head in sorted({*index.contents, *(called & index.imports.keys())} - {""}):
            to = project.lookup(path, head)
            if to is None or to.path is None or to.kind == "file":
                continue
            if to.kind == "class" or to.path != path:
                found.append(Filler(path, head, to))
    return tuple(found)


def _imported_to_fill(project: Project, indexes: dict[Path, FileIndex]) -> dict[Path, FileIndex]:
    """The files that others import without using their names: for what their top level does."""
    found: dict[Path, FileIndex] = {}
    for path, index in indexes.items():
        used = index.body_mentions.union(*(info.mentions for info in index.functions.values()))
        for target in (each for name in index.imports.keys() - used for each in index.imports[name]):
            to = project.target(path, target)
            if to is not None and to.kind == "file" and to.path is not None and to.path not in indexes:
                made = project.index(to.path)
                found.update({to.path: made} if made is not None else {})
    return found


class Registries(Expressions):
    """The part of the abstract machine that fills tables. `fillers` are those of the project."""

    fillers: tuple[Filler, ...] = ()

    def variable(self, path: Path, name: str) -> Value | None:
        """A global variable of a file whose body is not being run; a table with what that file puts into it."""
        known = ("variable", path, name) in self.memo
        value = super().variable(path, name)
        index = self.project.index(path)
        if known or index is None or not isinstance(value, Mapping | Sequence | Instance):
            return value
        putting = {head for head in index.contents if head == name or self._puts_into(path, head, name)}
        if putting:
            self._fill(path, putting)
        for each in self.fillers:
            if each.to.path == path and (each.to.name == name or name in index.tables(each.to.name)):
                self._fill(each.path, {each.head})
        return value

    def class_attribute(self, cls: Class, name: str) -> tuple[Class, Value] | None:
        """A method or class variable, and the class that defines it. A table of a base holds, for a class, what the
        decorators of that class put into it: what others put there is called through those others."""
        found = super().class_attribute(cls, name)
        if found is None or not isinstance(found[1], Mapping | Sequence):
            return found
        at = ("class table", cls.number, name)
        if at not in self.memo:
            filling = [each for each in self.fillers if each.to.kind == "class" and self._is_kind_of(each.to, cls)]
            made = self._own_attribute(found[0], name) if filling else None
            self.memo[at] = made if made is not None else found[1]
            for each in filling:
                self._fill(each.path, {each.head}, decorators_only=True)
        return found[0], self.memo[at]

    def _is_kind_of(self, definition: Definition, cls: Class) -> bool:
        """True for a class, or one that is derived from it."""
        found = self.define(definition)
        return isinstance(found, Class) and cls in self.lineage(found)

    def _fill(self, path: Path, putting: set[str], decorators_only: bool = False) -> None:
        """Does what the top level of a file does by calls that begin with certain names."""
        frame = self.file_frame(path)
        if frame is None:
            return
        with self.apart():
            self.frames.append(frame)
            for statement in frame.source.abstract.body:
                if isinstance(statement, cst.FunctionDef | cst.ClassDef):
                    self.register(statement, putting)
                elif isinstance(statement, cst.SimpleStatementLine) and not decorators_only:
                    for small in statement.body:
                        self._put(small, putting)
            self.frames.pop()

    @contextlib.contextmanager
    def apart(self) -> Iterator[None]:
        """What is done inside was done when the files were imported: whatever the run is in the middle of does not
        matter to it, and nothing of it is an event of this run."""
        depth, frames = len(self.trace.events), len(self.frames)
        state = self.guards, self.loops, self.contexts, self.journals, self.methods
        self.guards, self.loops, self.contexts, self.journals, self.methods = [], [], [], [], []
        try:
            yield
        finally:
            self.guards, self.loops, self.contexts, self.journals, self.methods = state
            del self.trace.events[depth:], self.frames[frames:]

    def _put(self, small: cst.BaseSmallStatement, putting: set[str]) -> None:
        """`TABLE[key] = value`, `TABLE.append(value)` and `register(value)`, for some names."""
        match small:
            case cst.Assign(targets=[cst.AssignTarget(target=cst.Subscript(value=cst.Name(value=table)) as target)]):
                if table in putting:
                    self.assign(target, self.evaluate(small.value))
            case cst.Expr(value=cst.Call() as call) if head_of(call) in putting:
                self.evaluate(call)

    def register(self, node: cst.FunctionDef | cst.ClassDef, putting: set[str] | None = None) -> None:
        """Lets the decorators of a function or class put it into the project's tables; with `putting`, those that begin
        with one of these names."""
        for decorator in node.decorators:
            head = head_of(decorator.decorator)
            if head in putting if putting is not None else self._puts_into(self.frame.path, head):
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


def head_of(node: cst.BaseExpression) -> str:
    """The name with which an expression begins."""
    while isinstance(node, cst.Attribute | cst.Call):
        node = node.func if isinstance(node, cst.Call) else node.value
    return node.value if isinstance(node, cst.Name) else ""
