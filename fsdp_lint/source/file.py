"""One file of source text: its LibCST tree and where in the text a node stands."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdp_lint.source.text import Unreadable

if TYPE_CHECKING:
    import libcst as cst

    from fsdp_lint.source.positions import Positions


# The fields of files, statements and clauses in which other statements stand, in the order of the text.
_WITH_STATEMENTS = ("body", "handlers", "cases", "orelse", "finalbody")


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
    def _parents(self) -> dict[int, cst.CSTNode]:
        found: dict[int, cst.CSTNode] = {}
        todo: list[cst.CSTNode] = [self.tree]
        while todo:
            node = todo.pop()
            inner = children(node)
            found.update((id(child), node) for child in inner)
            todo.extend(inner)
        return found

    @functools.cached_property
    def _positions(self) -> Positions:
        from fsdp_lint.source.positions import Positions

        return Positions(self.tree, self.text)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The node of this file's tree in which `node` stands; None for the tree itself, and for nodes of others."""
        return self._parents.get(id(node))

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
        statement, above = node, self.parent(node)
        while above is not None and above is not self.tree:
            statement, above = above, self.parent(above)
        return Span(*self._positions.of(node, statement if above is self.tree else None))


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """What `node.children` gives, but for blanks and line ends, in a tenth of the time: it matters where a whole file
    is walked. They come in the order of the fields."""
    found: list[cst.CSTNode] = []
    for value in _fields(node.__class__)(node):
        kind = value.__class__
        if kind is tuple or kind is list:
            found.extend(item for item in value if _is_node(item.__class__))
        elif _is_node(kind):
            found.append(value)
    return found


@functools.cache
def _fields(kind: type[cst.CSTNode]) -> Callable[[cst.CSTNode], tuple[Any, ...]]:
    """What gives the values of all fields of a node of this class that may hold nodes."""
    names = [field.name for field in dataclasses.fields(kind) if field.type != "str"]
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda node: tuple(getattr(node, name) for name in names)


@functools.cache
def _is_node(kind: type[Any]) -> bool:
    """Whether values of this class are nodes, and more than blanks; `isinstance` takes long with LibCST's classes,
    which are abstract."""
    import libcst as cst

    return issubclass(kind, cst.CSTNode) and not issubclass(kind, cst.SimpleWhitespace | cst.Newline)


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
