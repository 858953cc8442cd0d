"""Edits on nodes, as rules write them down; `locate` turns them into spans of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from fsdp_lint.findings import Applicability
from fsdp_lint.source.file import Site, Source

# Texts below are written with "\n"; they get the file's own line ends. A "statement" is the nearest one that stands
# on lines of its own, so any node inside it will do.


@dataclass(frozen=True)
class Replace:
    """The node's own span, without the white space, brackets and comma around it, becomes `text`."""

    site: Site
    text: str


@dataclass(frozen=True)
class MoveAfter:
    """The statements, in this order, go directly behind `anchor`, with the comments that stand on them.

    Behind the anchor means: behind the statement around it that lies in the block of the first moved statement (a
    whole loop, say), else behind its nearest statement; the moved lines are indented like that one.
    """

    statements: tuple[Site, ...]
    anchor: Site


@dataclass(frozen=True)
class InsertAfter:
    """`text`, one or more statements, goes on lines of its own behind the anchor's statement, indented like it."""

    anchor: Site
    text: str


@dataclass(frozen=True)
class InsertBefore:
    """`text`, one or more statements, goes above the anchor's statement and its comments, indented like it."""

    anchor: Site
    text: str


@dataclass(frozen=True)
class RemoveStatement:
    """The node's statement goes, with the comments that stand on it; a block that would be empty keeps a `pass`."""

    site: Site


@dataclass(frozen=True)
class EnsureImport:
    """`from module import name` holds at the top of the file; nothing happens where it does already."""

    source: Source
    module: str
    name: str


Edit: TypeAlias = Replace | MoveAfter | InsertAfter | InsertBefore | RemoveStatement | EnsureImport


@dataclass(frozen=True)
class Fix:
    """Edits that stand or fall together, and what they do in a few words."""

    message: str
    edits: tuple[Edit, ...]
    applicability: Applicability = Applicability.SAFE
