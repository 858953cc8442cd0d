"""What is in the nodes of LibCST: all of it, or the program alone, without what only says how it is written."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import libcst as cst

    Fields = Callable[[cst.CSTNode], tuple[Any, ...]]

# Fields for what only writing needs.
_WRITING = frozenset(
    {
        *("dot", "comma", "semicolon", "colon", "first_colon", "second_colon", "equal", "posonly_ind", "asynchronous"),
        *("lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "trailing_comma", "type_parameters", "relative"),
        *("leading_lines", "lines_after_decorators", "header", "footer", "indent", "start", "end", "separator"),
        *("default_indent", "default_newline", "encoding", "has_trailing_newline"),
    }
)


def children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """What `node.children` gives, but for blanks and line ends, in a tenth of the time: it matters where a whole file
    is walked. They come in the order of the fields. Only nodes that LibCST has parsed have all of them."""
    return _nodes_among(_all_values(node.__class__)(node))


def inner(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes in a node that are part of the program, in the order of the fields; of nodes of either tree."""
    return _nodes_among(values(node.__class__)(node))


def below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and all nodes in it, as `children` gives them."""
    return _walk(node, children)


def program_below(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and all nodes in it that are part of the program."""
    return _walk(node, inner)


@functools.cache
def values(kind: type[cst.CSTNode]) -> Fields:
    """What gives the values of the fields of a node of this class that hold the program, in order."""
    names = [field.name for field in dataclasses.fields(kind)]
    return _getter([name for name in names if name not in _WRITING and "whitespace" not in name])


@functools.cache
def _all_values(kind: type[cst.CSTNode]) -> Fields:
    """What gives the values of all fields of a node of this class that may hold nodes."""
    return _getter([field.name for field in dataclasses.fields(kind) if field.type != "str"])


def _getter(names: list[str]) -> Fields:
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda node: tuple(getattr(node, name) for name in names)


def _nodes_among(held: Iterable[Any]) -> list[cst.CSTNode]:
    found: list[cst.CSTNode] = []
    for value in held:
        kind = value.__class__
        if kind is tuple or kind is list:
            found.extend(item for item in value if _is_node(item.__class__))
        elif _is_node(kind):
            found.append(value)
    return found


def _walk(node: cst.CSTNode, held: Callable[[cst.CSTNode], list[cst.CSTNode]]) -> Iterator[cst.CSTNode]:
    todo = [node]
    while todo:
        one = todo.pop()
        yield one
        todo.extend(reversed(held(one)))


@functools.cache
def _is_node(kind: type[Any]) -> bool:
    """Whether values of this class are nodes, and more than blanks; `isinstance` takes long with LibCST's classes,
    which are abstract."""
    import libcst as cst

    return issubclass(kind, cst.CSTNode) and not issubclass(kind, cst.SimpleWhitespace | cst.Newline)
