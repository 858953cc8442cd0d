"""One file of source text: its LibCST tree and where in the text a node stands."""

from __future__ import annotations

import ast
import functools
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst


# The fields of files, statements and clauses in which other statements stand, in the order of the text.
_WITH_STATEMENTS = ("body", "handlers", "cases", "orelse", "finalbody")


class Unreadable(Exception):
    """A file that should have been read could not be; the message says why in one line, without the file's name."""


def decode(data: bytes) -> str:
    """The text of a Python file, line ends kept, a byte order mark dropped. Raises Unreadable."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise Unreadable(f"cannot be decoded: {error}") from None


@dataclass(frozen=True, slots=True)
class Span:
    """Rows and columns of a node, both from 1, columns in characters; the end is exclusive."""

    row: int
    column: int
    end_row: int
    end_column: int


class Source:
    """A file that was read. Tree and positions are computed when first asked for, once."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    def __repr__(self) -> str:
        return f"Source({str(self.path)!r})"

    @functools.cached_property
    def lines(self) -> int:
        """How many line ends the text has."""
        return self.text.count("\n")

    @functools.cached_property
    def tree(self) -> cst.Module:
        """The parsed file. Raises Unreadable where the text is not Python."""
        import libcst as cst

        try:
            return cst.parse_module(self.text)
        except cst.ParserSyntaxError as error:
            raise Unreadable(f"is not valid Python: line {error.raw_line}, column {error.raw_column + 1}") from None

    @functools.cached_property
    def _parts(self) -> _Parts:
        return _Parts(self.tree, self.text)

    def imports(self) -> list[cst.Import | cst.ImportFrom]:
        """The absolute imports of the file, wherever they stand, in order."""
        import libcst as cst

        found: list[cst.Import | cst.ImportFrom] = []
        todo: list[cst.CSTNode] = [self.tree]
        while todo:
            node = todo.pop()
            if isinstance(node, cst.Import) or (isinstance(node, cst.ImportFrom) and not node.relative):
                found.append(node)
            inner: list[cst.CSTNode] = []
            for name in _WITH_STATEMENTS:
                value = getattr(node, name, None)
                inner.extend(value if isinstance(value, list | tuple) else [value] if value is not None else [])
            todo.extend(reversed(inner))
        return found

    def span(self, node: cst.CSTNode) -> Span:
        """Where `node` of this file's tree stands, without the white space around it."""
        return self._parts.span(node)


class _Parts:
    """Positions in one tree, computed for one statement of the file at a time: LibCST's take twice as long as its
    parser, and few statements have findings."""

    def __init__(self, tree: cst.Module, text: str) -> None:
        self._tree = tree
        self._rows = _rows(tree, text)
        self._spans: dict[cst.CSTNode, Span] = {}
        self._holders: dict[cst.CSTNode, int] = {}
        self._walked = 0

    def span(self, node: cst.CSTNode) -> Span:
        if node not in self._spans:
            at = self._holder(node)
            if at is None:
                self._spans.update(_spans_of(self._tree))
            else:
                alone = self._tree.with_changes(header=(), body=(self._tree.body[at],), footer=())
                spans = _spans_of(alone)
                down = self._rows[at] - spans[self._tree.body[at]].row
                for inner, span in spans.items():
                    self._spans[inner] = Span(span.row + down, span.column, span.end_row + down, span.end_column)
        return self._spans[node]

    def _holder(self, node: cst.CSTNode) -> int | None:
        """Which statement of the file holds the node; None for none, or where rows are not known."""
        while node not in self._holders and self._walked < len(self._rows):
            self._holders.update(dict.fromkeys(below(self._tree.body[self._walked]), self._walked))
            self._walked += 1
        return self._holders.get(node)


def _spans_of(tree: cst.Module) -> dict[cst.CSTNode, Span]:
    from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

    # `wrapper.resolve` would visit the whole tree once more, for nobody.
    found = PositionProvider()._gen(MetadataWrapper(tree, unsafe_skip_copy=True))
    return {
        node: Span(at.start.line, at.start.column + 1, at.end.line, at.end.column + 1)
        for node, at in found.items()
        if isinstance(at, CodeRange)
    }


def _rows(tree: cst.Module, text: str) -> list[int]:
    """The row of each statement of the file, as the interpreter's own parser sees it; none where that cannot be had."""
    import libcst as cst

    try:
        rows = [statement.lineno for statement in ast.parse(text).body]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = []
    for statement in tree.body:
        found.append(rows[0] if rows else 0)
        del rows[: len(statement.body) if isinstance(statement, cst.SimpleStatementLine) else 1]
    return found if not rows and 0 not in found else []


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """What `node.children` gives, in a quarter of the time: it matters where a whole file is walked."""
    for name in node.__dataclass_fields__:
        value = getattr(node, name)
        if isinstance(value, list | tuple):
            yield from (item for item in value if _is_node(item.__class__))
        elif _is_node(value.__class__):
            yield value


@functools.cache
def _is_node(kind: type[object]) -> bool:
    """Whether values of this class are nodes; `isinstance` takes long with LibCST's classes, which are abstract."""
    import libcst as cst

    return issubclass(kind, cst.CSTNode)


def below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and all nodes in it."""
    todo = [node]
    while todo:
        one = todo.pop()
        yield one
        todo.extend(children(one))


@dataclass(frozen=True, slots=True)
class Site:
    """A node in a file: where something happens. Two sites are equal when they are the same node."""

    source: Source
    node: cst.CSTNode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Site) and self.node is other.node

    def __hash__(self) -> int:
        return id(self.node)
