"""New calls written after the model of one that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_lint.fix.blocks import parents
from fsdp_lint.fix.names import names_used
from fsdp_lint.source.file import Site

if TYPE_CHECKING:
    import libcst as cst


def outer_call(call: Site, steps: int) -> tuple[Site, str] | None:
    """The call again, for what its first argument was reached through by `steps` attributes or loops.

    Gives the statement behind which it belongs (the outermost loop around the call) and its text, with the same
    keywords. None where the first argument is no plain path, or where a keyword depends on the loop; only
    `reshard_after_forward`, which means something else for the root, is then left out.
    """
    import libcst as cst

    loops = _loops(call)
    node = call.node
    if not isinstance(node, cst.Call) or not node.args:
        return None
    path = _owner(node.args[0].value, steps, loops)
    if path is None:
        return None
    bound = {name for loop in loops for name in _targets(loop)}
    kept = []
    for arg in node.args[1:]:
        if names_used(arg.value) & bound:
            if arg.keyword is not None and arg.keyword.value == "reshard_after_forward":
                continue
            return None
        kept.append(arg)
    code = cst.Module([]).code_for_node
    words = [code(path), *(code(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)).strip() for arg in kept)]
    if any("\n" in word for word in words):
        return None
    anchor = Site(call.source, loops[-1]) if loops else call
    return anchor, f"{code(node.func)}({', '.join(words)})"


def _loops(call: Site) -> list[cst.For]:
    """The loops around a node in its function, the innermost first."""
    import libcst as cst

    up = parents(call.source)
    found: list[cst.For] = []
    node: cst.CSTNode | None = call.node
    while node is not None and not isinstance(node, cst.FunctionDef):
        if isinstance(node, cst.For):
            found.append(node)
        node = up.get(node)
    return found


def _targets(loop: cst.For) -> set[str]:
    """The names that a loop binds: its own, and those assigned in its body."""
    return _names(loop.target) | _assigned(loop.body)


def _names(node: cst.CSTNode) -> set[str]:
    import libcst as cst

    if isinstance(node, cst.Name):
        return {node.value}
    return {name for child in node.children for name in _names(child)}


def _assigned(node: cst.CSTNode) -> set[str]:
    import libcst as cst

    if isinstance(node, cst.AssignTarget):
        return _names(node.target)
    return {name for child in node.children for name in _assigned(child)}


def _owner(node: cst.BaseExpression, steps: int, loops: list[cst.For]) -> cst.BaseExpression | None:
    """The expression that `node` was reached through, `steps` further out."""
    import libcst as cst

    for _ in range(steps):
        if isinstance(node, cst.Name):
            loop = next((one for one in loops if node.value in _names(one.target)), None)
            if loop is None:
                return None
            node = _iterated(loop.iter)
        elif isinstance(node, cst.Attribute | cst.Subscript):
            node = node.value
        else:
            return None
    return node if isinstance(node, cst.Name | cst.Attribute) else None


def _iterated(node: cst.BaseExpression) -> cst.BaseExpression:
    """What a loop goes over, without `enumerate`, `reversed`, `list`, `.values()`, `.items()` and slices around it."""
    import libcst as cst

    while True:
        match node:
            case cst.Call(func=cst.Name(value="enumerate" | "reversed" | "list" | "tuple"), args=[cst.Arg(), *_]):
                node = node.args[0].value
            case cst.Call(
                func=cst.Attribute(attr=cst.Name(value="values" | "items" | "children" | "named_children")), args=[]
            ):
                assert isinstance(node.func, cst.Attribute)
                node = node.func.value
            case cst.Subscript():
                node = node.value
            case _:
                return node
