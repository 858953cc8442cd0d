"""Edits on nodes, as rules write them down; `locate` turns them into spans of text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from fsdp_lint.findings import Applicability
from fsdp_lint.source.file import Site, Source

# Texts below are written with "\n"; they get the file's own line ends. A "statement" is the nearest one that stands
# on lines of its own, so any node inside it will do.


@dataclass(frozen=True)
class Replace:
    """The node's own span, without the white space, brackets and comma around it, becomes `text`.

    It cannot be made, and the finding has no fix, where a comment in the span is not in `text`.
    """

    site: Site
    text: str


@dataclass(frozen=True)
class Wrap:
    """`before` and `after` go around an expression, which itself stays as it is written.

    The brackets around the expression stay inside. Where `after` begins with a dot, an expression that needs brackets
    for that gets them: `Wrap(a + b, "", ".full_tensor()")` gives `(a + b).full_tensor()`.
    """

    site: Site
    before: str
    after: str


@dataclass(frozen=True)
class ChangeCall:
    """One call gets another function, and its keywords are renamed, dropped or given.

    `function` is the text to call instead. `rename` maps keywords to keywords, `drop` names those that go with their
    values, `put` maps keywords (by their new names) to the text of their values: a keyword that is there gets that
    value, another is added behind the last argument. All of it is one edit because commas are shared; positional
    arguments stay. It cannot be made, and the finding has no fix, where a keyword to be renamed or dropped is not
    spelled out in the call, where one would stand twice, or where `**` may hold one that is to be added.
    """

    call: Site
    function: str | None = None
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    put: Mapping[str, str] = field(default_factory=dict)


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
    """`text`, one or more statements, goes above the anchor's statement and its comments, indented like it.

    The comments of the statements in `of`, in whose place it stands from now on, come with it.
    """

    anchor: Site
    text: str
    of: tuple[Site, ...] = ()


@dataclass(frozen=True)
class RemoveStatement:
    """The node's statement goes, with the comments that stand on it; a block that would be empty keeps a `pass`."""

    site: Site


@dataclass(frozen=True)
class Rewrite:
    """The node's statement becomes `text`, one or more statements, indented like it; the comments above it stay.

    A comment inside the statement that the text does not have goes behind the new row that begins with the same call,
    else above the new rows; that of a statement of one row goes behind the last of them.
    """

    site: Site
    text: str


@dataclass(frozen=True)
class Guard:
    """The node's statement goes under `if test:`, with the comments that stand on it above the `if`."""

    site: Site
    test: str


@dataclass(frozen=True)
class EnsureImport:
    """`from module import name` holds at the top of the file, `import module` where the name is empty.

    Nothing happens where it does already.
    """

    source: Source
    module: str
    name: str


@dataclass(frozen=True)
class RenameModule:
    """A `from module import names` statement names another module, and moves to where isort has it among its like."""

    statement: Site
    module: str


Edit: TypeAlias = (
    Replace
    | Wrap
    | ChangeCall
    | MoveAfter
    | InsertAfter
    | InsertBefore
    | RemoveStatement
    | Rewrite
    | Guard
    | EnsureImport
    | RenameModule
)


@dataclass(frozen=True)
class Fix:
    """Edits that stand or fall together, and what they do in a few words."""

    message: str
    edits: tuple[Edit, ...]
    applicability: Applicability = Applicability.SAFE
