"""The statement, the block and the neighbours of a node: what LibCST's trees, without parent links, do not tell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fsdp_lint.source.file import Site

if TYPE_CHECKING:
    import libcst as cst


def body(block: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The statements of a Module or an indented block; nothing for any other node."""
    import libcst as cst

    return tuple(block.body) if isinstance(block, cst.Module | cst.IndentedBlock) else ()


def enclosing(site: Site) -> Iterator[Site]:
    """The statements around a node, the innermost first, out to the end of its function's body or its file.

    An `elif` is no statement: it stands inside its `if`. Neither is what follows the colon in `if x: y`.
    """
    import libcst as cst

    node = site.node
    while (parent := site.source.parent(node)) is not None:
        if isinstance(parent, cst.Module | cst.IndentedBlock) and isinstance(
            node, cst.SimpleStatementLine | cst.BaseCompoundStatement
        ):
            # What a body holds does not run where its `def` stands.
            if isinstance(node, cst.FunctionDef | cst.ClassDef) and node is not site.node:
                return
            yield Site(site.source, node)
        node = parent


def statement_of(site: Site) -> Site:
    """The nearest statement on lines of its own that is or holds the node. Raises ValueError for a whole file."""
    import libcst as cst

    node = site.node
    while (parent := site.source.parent(node)) is not None:
        if isinstance(parent, cst.Module | cst.IndentedBlock) and isinstance(
            node, cst.SimpleStatementLine | cst.BaseCompoundStatement
        ):
            return Site(site.source, node)
        node = parent
    raise ValueError("a node outside all statements")


def block_of(site: Site) -> Site:
    """The indented block or the file in which the node's statement stands."""
    home = statement_of(site)
    block = home.source.parent(home.node)
    assert block is not None
    return Site(site.source, block)


def siblings(site: Site) -> tuple[Site, ...]:
    """All statements of the block in which the node's statement stands, itself among them."""
    return tuple(Site(site.source, node) for node in body(block_of(site).node))


def common_block(a: Site, b: Site) -> tuple[Site, Site] | None:
    """The statements around `a` and `b` that stand side by side in one block, the innermost such block.

    None where there are none: other files, other functions, the arms of one `if`, one and the same statement.
    """
    if a.source is not b.source:
        return None
    for left in enclosing(a):
        for right in enclosing(b):
            if a.source.parent(left.node) is a.source.parent(right.node):
                return (left, right) if left != right else None
    return None


def between(a: Site, b: Site) -> tuple[Site, ...]:
    """The statements strictly between two statements of one block; none where `b` stands first."""
    block = siblings(a)
    return block[block.index(statement_of(a)) + 1 : block.index(statement_of(b))]


def stands_alone(site: Site) -> bool:
    """Whether the node's statement can be moved or removed for this node: no `a; b`, no `if x: y` around it."""
    import libcst as cst

    home = statement_of(site).node
    if isinstance(home, cst.SimpleStatementLine):
        return len(home.body) == 1
    return site.node is home


def is_statement(site: Site) -> bool:
    """Whether an expression is a statement on lines of its own, so that nobody takes its value."""
    import libcst as cst

    home = statement_of(site).node
    if not isinstance(home, cst.SimpleStatementLine) or len(home.body) != 1:
        return False
    return isinstance(home.body[0], cst.Expr) and home.body[0].value is site.node


def wraps_itself(call: Site) -> bool:
    """Whether a call is the whole of `x = f(x, ...)`, so that without the statement `x` stays what it was."""
    import libcst as cst

    match statement_of(call).node:
        case cst.SimpleStatementLine(
            body=[
                cst.Assign(
                    targets=[cst.AssignTarget(target=target)], value=cst.Call(args=[cst.Arg(value=first), *_]) as value
                )
            ]
        ):
            return value is call.node and target.deep_equals(first)
    return False
