"""What a mutation is: an edit that makes a known mistake of right code, or one that changes nothing of its meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst

from recall.editing import Edits
from recall.reading import View


@dataclass(frozen=True)
class Edit:
    """One edit: where it is made, in which function ("" at the top of the file), and what it does to the tree."""

    at: cst.CSTNode
    function: str
    edits: Edits
    # Added at the top of the file.
    imports: str = ""


@dataclass(frozen=True)
class Mutation:
    """A kind of edit, with the codes of the rules that must speak of it.

    With no codes it is a negative one: nothing that was not there before may be found. `also` are codes that may speak
    of what a positive edit makes, besides.
    """

    name: str
    what: str
    sites: Callable[[View], Iterator[Edit]]
    codes: frozenset[str] = frozenset()
    also: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True)
class Mutant:
    """One file with one edit made. `row` is the place in the right code."""

    mutation: Mutation
    path: Path
    row: int
    function: str
    text: str


def mutants(mutation: Mutation, view: View) -> Iterator[Mutant]:
    """All mutants of one file; an edit whose outcome is no Python, or no change, is none."""
    for edit in mutation.sites(view):
        tree = view.source.tree.visit(edit.edits)
        assert isinstance(tree, cst.Module)
        text = tree.code
        if edit.imports:
            text = _with_imports(tree, edit.imports)
        try:
            compile(text, str(view.path), "exec", dont_inherit=True)
        except SyntaxError:
            continue
        if text != view.source.text:
            yield Mutant(mutation, view.path, view.row(edit.at), edit.function, text)


def _with_imports(tree: cst.Module, imports: str) -> str:
    """The text with lines put behind the docstring and the `__future__` imports."""
    last = 0
    for at, statement in enumerate(tree.body):
        code = tree.code_for_node(statement)
        if "from __future__" in code or (at == 0 and code.lstrip().startswith(('"', "'", 'r"'))):
            last = at + 1
    added = cst.parse_module(imports + "\n").body
    return tree.with_changes(body=[*tree.body[:last], *added, *tree.body[last:]]).code
