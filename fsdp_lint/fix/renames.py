"""A name that a file imports gets another one, at the import and wherever it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_lint.fix.edits import Replace
from fsdp_lint.fix.names import names_of
from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import below

if TYPE_CHECKING:
    import libcst as cst


def renamed(statement: Site, old: str, new: str) -> tuple[Replace, ...] | None:
    """The edits that write `new` for `old` in an import and in what follows from it.

    Where the import gives the name another one (`as`), only the import changes. None where the file uses `new`
    already, or binds `old` elsewhere, too.
    """
    import libcst as cst

    node = statement.node
    if not isinstance(node, cst.ImportFrom) or isinstance(node.names, cst.ImportStar):
        return None
    alias = next((a for a in node.names if isinstance(a.name, cst.Name) and a.name.value == old), None)
    if alias is None:
        return None
    if alias.asname is not None:
        return (Replace(Site(statement.source, alias.name), new),)
    found = [n for n in below(statement.source.tree) if isinstance(n, cst.Name) and n.value in (old, new)]
    names = [name for name in found if _stands_alone(name, statement.source.parent(name))]
    if any(name.value == new for name in names) or _bound_elsewhere(statement, old):
        return None
    return tuple(Replace(Site(statement.source, name), new) for name in names)


def _stands_alone(name: cst.Name, parent: cst.CSTNode | None) -> bool:
    """False for `x.name` and `f(name=...)`, which are other things of that name."""
    import libcst as cst

    if isinstance(parent, cst.Attribute):
        return parent.attr is not name
    return not (isinstance(parent, cst.Arg) and parent.keyword is name)


def _bound_elsewhere(statement: Site, name: str) -> bool:
    import libcst as cst

    for node in below(statement.source.tree):
        match node:
            case cst.Param(name=cst.Name(value=bound)) | cst.FunctionDef(name=cst.Name(value=bound)) if bound == name:
                return True
            case cst.Assign() | cst.AnnAssign() | cst.For() if name in names_of(node).bound:
                return True
            case cst.ImportFrom(names=[*aliases]) if node is not statement.node:
                names = [(alias.asname or alias).name for alias in aliases]
                if any(isinstance(one, cst.Name) and one.value == name for one in names):
                    return True
    return False
