"""Two trees of one file: which node of LibCST's is the twin of a node that was made from the interpreter's parse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import libcst as cst

from fsdp_lint.source.structure import values


class Twins:
    """The pairs of two trees of one file; none where the two do not look alike."""

    def __init__(self, abstract: cst.Module, concrete: cst.Module) -> None:
        self._concrete: dict[int, cst.CSTNode] = {}
        self._abstract: dict[int, cst.CSTNode] = {}
        todo: list[tuple[Any, Any]] = [(abstract, concrete)]
        while todo:
            one, other = todo.pop()
            if one.__class__ is not other.__class__ and not _stand_for_each_other(one, other):
                continue
            self._pair(one, other)
            if isinstance(one, cst.Module | cst.BaseSuite):
                todo += self._statements(one, other)
            elif isinstance(one, cst.FormattedString):
                todo += zip(_fields_of_text(one), _fields_of_text(other), strict=False)
            elif not isinstance(one, cst.SimpleString):
                read = values(one.__class__)
                for mine, its in zip(read(one), read(other), strict=True):
                    todo += _pairs(mine, its)

    def concrete(self, node: cst.CSTNode) -> cst.CSTNode:
        """The twin of a node that was made from the interpreter's parse; a node of LibCST's tree is its own."""
        return self._concrete.get(id(node), node)

    def abstract(self, node: cst.CSTNode) -> cst.CSTNode:
        """The twin of a node of LibCST's tree; the node itself where it has none."""
        return self._abstract.get(id(node), node)

    def _pair(self, one: cst.CSTNode, other: cst.CSTNode) -> None:
        self._concrete[id(one)] = other
        self._abstract[id(other)] = one

    def _statements(self, one: Any, other: Any) -> Iterator[tuple[Any, Any]]:
        """Statements in order: `a; b` is one line of LibCST's tree and two of the other."""
        for line, (small, around) in zip(one.body, _statements(other), strict=False):
            if isinstance(line, cst.SimpleStatementLine):
                self._pair(line, around)
                yield line.body[0], small
            else:
                yield line, small


def _stand_for_each_other(one: Any, other: Any) -> bool:
    for kind in (cst.BaseSuite, cst.MatchPattern):
        if isinstance(one, kind):
            return isinstance(other, kind)
    return isinstance(one, cst.SimpleString | cst.FormattedString) and isinstance(other, cst.BaseString)


def _pairs(one: Any, other: Any) -> Iterable[tuple[Any, Any]]:
    if one.__class__ is list or one.__class__ is tuple:
        return zip(one, other, strict=True) if len(one) == len(other) else ()
    return ((one, other),) if isinstance(one, cst.CSTNode) and isinstance(other, cst.CSTNode) else ()


def _statements(block: Any) -> Iterator[tuple[cst.CSTNode, cst.CSTNode]]:
    """The statements of a block, each with the line that it is in, or the block where that is one line."""
    for line in block.body:
        if isinstance(line, cst.SimpleStatementLine):
            yield from ((small, line) for small in line.body)
        else:
            yield line, block if isinstance(block, cst.SimpleStatementSuite) else line


def _fields_of_text(node: Any) -> list[cst.CSTNode]:
    """The expressions in an f-string, and in those written beside it, in order."""
    found: list[cst.CSTNode] = []
    todo = [node]
    while todo:
        one = todo.pop(0)
        if isinstance(one, cst.ConcatenatedString):
            todo = [one.left, one.right, *todo]
        elif isinstance(one, cst.FormattedString):
            todo = [*one.parts, *todo]
        elif isinstance(one, cst.FormattedStringExpression):
            found.append(one.expression)
            todo = [*(one.format_spec or ()), *todo]
    return found
