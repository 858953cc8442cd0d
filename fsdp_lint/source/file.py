"""One file of source text: its LibCST tree and where in the text a node stands."""

from __future__ import annotations

import functools
import io
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import libcst as cst


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
    def tree(self) -> cst.Module:
        """The parsed file. Raises Unreadable where the text is not Python."""
        import libcst as cst

        try:
            return cst.parse_module(self.text)
        except cst.ParserSyntaxError as error:
            raise Unreadable(f"is not valid Python: line {error.raw_line}, column {error.raw_column + 1}") from None

    @functools.cached_property
    def _spans(self) -> dict[cst.CSTNode, Span]:
        from libcst.metadata import MetadataWrapper, PositionProvider

        wrapper = MetadataWrapper(self.tree, unsafe_skip_copy=True)
        return {
            node: Span(at.start.line, at.start.column + 1, at.end.line, at.end.column + 1)
            for node, at in wrapper.resolve(PositionProvider).items()
        }

    def imports(self) -> dict[tuple[int, str], cst.ImportFrom]:
        """The `from` imports of the file by row and module as written."""
        import libcst as cst

        return {
            (span.row, self.tree.code_for_node(node.module)): node
            for node, span in self._spans.items()
            if isinstance(node, cst.ImportFrom) and node.module is not None
        }

    def span(self, node: cst.CSTNode) -> Span:
        """Where `node` of this file's tree stands, without the white space around it."""
        return self._spans[node]


@dataclass(frozen=True, slots=True)
class Site:
    """A node in a file: where something happens. Two sites are equal when they are the same node."""

    source: Source
    node: cst.CSTNode

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Site) and self.node is other.node

    def __hash__(self) -> int:
        return id(self.node)
