"""Rows and columns in one tree, computed for one statement of the file at a time: few statements have findings."""

from __future__ import annotations

import bisect
import re
from dataclasses import dataclass

import libcst as cst
from libcst._nodes.internal import CodegenState

from fsdp_lint.source.text import Unreadable, parse

_LINE_END = re.compile(r"\r\n?|\n")


class Positions:
    """Where the nodes of a tree stand, as LibCST's PositionProvider says it, in a third of the time."""

    def __init__(self, tree: cst.Module, text: str) -> None:
        self._tree = tree
        self._rows = _rows(tree, text)
        self._written: dict[int, tuple[_Code, int]] = {}

    def of(self, node: cst.CSTNode, statement: cst.CSTNode | None) -> tuple[int, int, int, int]:
        """Row, column, end row and end column, from 1, of a node in a statement of the file; None: not known, or none.

        Raises KeyError for a node that stands nowhere.
        """
        if statement is None or id(statement) not in self._rows:
            statement = self._tree
        if id(statement) not in self._written:
            code = _Code(self._tree, statement)
            row = self._rows.get(id(statement))
            down = 0 if row is None else row - code.place(id(statement))[0]
            self._written[id(statement)] = code, down
        code, down = self._written[id(statement)]
        row, column, end_row, end_column = code.place(id(node))
        return row + down, column, end_row + down, end_column


class _Code(CodegenState):
    """Code as LibCST writes it, with how long it is where each node begins and ends. Nodes are known by their `id`: the
    tree keeps them, and LibCST's way to hash them takes long."""

    def __init__(self, tree: cst.Module, node: cst.CSTNode) -> None:
        super().__init__(tree.default_indent, tree.default_newline)
        self._length = 0
        self._begun: list[int] = []
        self._ranges: dict[int, tuple[int, int]] = {}
        node._codegen(self)
        self._lines = [0, *(end.end() for end in _LINE_END.finditer("".join(self.tokens)))]

    def place(self, node: int) -> tuple[int, int, int, int]:
        """Row and column, from 1, where a node begins and ends. Raises KeyError."""
        begin, end = self._ranges[node]
        first, last = bisect.bisect_right(self._lines, begin), bisect.bisect_right(self._lines, end)
        return first, begin - self._lines[first - 1] + 1, last, end - self._lines[last - 1] + 1

    def add_indent_tokens(self) -> None:
        for token in self.indent_tokens:
            self.add_token(token)

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        self._length += len(value)

    def pop_trailing_newline(self) -> None:
        """The file ends behind its last line end, also where that is not written."""

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._begun.append(self._length)

    def after_codegen(self, node: cst.CSTNode) -> None:
        self._ranges.setdefault(id(node), (self._begun.pop(), self._length))

    def record_syntactic_position(  # type: ignore[override]
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> _Inside:
        return _Inside(self, node, start_node, end_node)

    @property
    def length(self) -> int:
        """How much is written."""
        return self._length

    def note(self, node: cst.CSTNode, begin: int, first: cst.CSTNode | None, last: cst.CSTNode | None) -> None:
        """A node goes from `begin`, or from where another begins, to here, or to where another ends."""
        begin = self._ranges[id(first)][0] if first is not None else begin
        self._ranges[id(node)] = begin, self._ranges[id(last)][1] if last is not None else self._length


@dataclass(slots=True)
class _Inside:
    """What is written in this context is the node without the white space around it."""

    code: _Code
    node: cst.CSTNode
    first: cst.CSTNode | None
    last: cst.CSTNode | None
    begin: int = 0

    def __enter__(self) -> None:
        self.begin = self.code.length

    def __exit__(self, *_: object) -> None:
        self.code.note(self.node, self.begin, self.first, self.last)


def _rows(tree: cst.Module, text: str) -> dict[int, int]:
    """The row of each statement of the file, as the interpreter's own parser sees it; none where that cannot be had."""
    try:
        rows = [statement.lineno for statement in parse(text).body]
    except Unreadable:
        return {}
    found: dict[int, int] = {}
    for statement in tree.body:
        found[id(statement)] = rows[0] if rows else 0
        del rows[: len(statement.body) if isinstance(statement, cst.SimpleStatementLine) else 1]
    return found if not rows and 0 not in found.values() else {}
