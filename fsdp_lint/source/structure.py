"""Which fields of LibCST's nodes hold the program, and which only say how it is written."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import libcst as cst

# Fields for what only writing needs.
_WRITING = frozenset(
    {
        *("dot", "comma", "semicolon", "colon", "first_colon", "second_colon", "equal", "posonly_ind", "asynchronous"),
        *("separator",),
        *("lpar", "rpar", "lbracket", "rbracket", "lbrace", "rbrace", "trailing_comma", "type_parameters", "relative"),
        *("leading_lines", "lines_after_decorators", "header", "footer", "indent", "start", "end"),
        *("default_indent", "default_newline", "encoding", "has_trailing_newline"),
    }
)


@functools.cache
def fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a class of nodes that hold the program, in order."""
    names = [field.name for field in dataclasses.fields(kind)]
    return tuple(name for name in names if name not in _WRITING and "whitespace" not in name)


@functools.cache
def values(kind: type[cst.CSTNode]) -> Callable[[cst.CSTNode], tuple[Any, ...]]:
    """What gives the values of these fields of a node."""
    names = fields(kind)
    if len(names) > 1:
        return operator.attrgetter(*names)
    return lambda node: tuple([getattr(node, name) for name in names])


def inner(node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes in a node that are part of the program, in the order of the fields."""
    found: list[cst.CSTNode] = []
    for value in values(node.__class__)(node):
        if value.__class__ is tuple or value.__class__ is list:
            found.extend(item for item in value if _is_node(item.__class__))
        elif _is_node(value.__class__):
            found.append(value)
    return found


@functools.cache
def _is_node(kind: type[Any]) -> bool:
    """`isinstance` takes long with LibCST's classes, which are abstract."""
    import libcst as cst

    return issubclass(kind, cst.CSTNode)
