"""One file of source text: its trees, and where in the text a node stands."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_lint.source.structure import children
from fsdp_lint.source.text import Unreadable, parse

if TYPE_CHECKING:
    import libcst as cst

    from fsdp_lint.source.abstract import Abstract
    from fsdp_lint.source.positions import Positions
    from fsdp_lint.source.twins import Twins


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
    """A file that was read. Trees and positions are computed when first asked for, once.

    There are two trees: `abstract` is what runs go over, quickly made; `tree` is LibCST's own, for what is reported and
    changed. A `Site` leads from one to the other.
    """

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text

    def __repr__(self) -> str:
        return f"Source({str(self.path)!r})"

    @functools.cached_property
    def lines(self) -> int:
        """How many line ends the text has."""
        return self.text.count("\n")

    @property
    def abstract(self) -> cst.Module:
        """The program, without blanks, brackets and comments. Raises Unreadable where the text is not Python."""
        return self._abstract.tree if self._abstract is not None else self.tree

    @functools.cached_property
    def _abstract(self) -> Abstract | None:
        """None where the interpreter that runs us is too old for the text; LibCST may not be."""
        from fsdp_lint.source.abstract import Abstract

        try:
            return Abstract(parse(self.text), self.text)
        except Unreadable:
            return None

    @functools.cached_property
    def tree(self) -> cst.Module:
        """The file as LibCST parses it. Raises Unreadable where the text is not Python."""
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

    @functools.cached_property
    def _twins(self) -> Twins:
        from fsdp_lint.source.twins import Twins

        return Twins(self.abstract, self.tree)

    def concrete(self, node: cst.CSTNode) -> cst.CSTNode:
        """The node of `tree` for one of `abstract`; a node of `tree` is its own."""
        return node if self._abstract is None else self._twins.concrete(node)

    def of_run(self, node: cst.CSTNode) -> cst.CSTNode:
        """The node of `abstract` for one of `tree`, where it has one; a node of `abstract` is its own."""
        if "tree" not in self.__dict__ or self._abstract is None:  # there is one tree only
            return node
        return self._twins.abstract(node)

    def row(self, call: cst.CSTNode) -> int:
        """The row of a call, from 1, by its node in either tree."""
        rows = self._abstract.rows if self._abstract is not None else {}
        return rows.get(id(call)) or self.span(self.concrete(call)).row

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


class Site:
    """A node in a file: where something happens. Two sites are equal when they are the same node, in whichever tree.

    `of_run` is the node of the tree that runs go over, `node` that of LibCST's, which is parsed when it is asked for.
    """

    __slots__ = ("of_run", "source")

    def __init__(self, source: Source, node: cst.CSTNode) -> None:
        self.source = source
        self.of_run = source.of_run(node)

    @property
    def node(self) -> cst.CSTNode:
        """The node of `source.tree`."""
        return self.source.concrete(self.of_run)

    @property
    def row(self) -> int:
        """The row of a call, from 1."""
        return self.source.row(self.of_run)

    def __repr__(self) -> str:
        return f"Site({self.source!r}, {type(self.of_run).__name__})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Site) and self.of_run is other.of_run

    def __hash__(self) -> int:
        return id(self.of_run)
