"""What an expression or an assignment becomes where the same is meant of a sharded model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_lint.fix.arguments import text_of
from fsdp_lint.fix.blocks import stands_alone, statement_of
from fsdp_lint.fix.moves import leaves_block
from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import below

if TYPE_CHECKING:
    import libcst as cst

# What a gradient's hook may do with numbers alone, entry by entry: it is the same for each shard.
_ENTRYWISE = ("clamp", "clamp_", "clip", "clip_", "mul", "mul_", "div", "div_", "nan_to_num", "nan_to_num_")


def as_isinstance(site: Site) -> str | None:
    """`type(x) is C` as `isinstance(x, C)`, `is not` with `not` before it; None for any other comparison."""
    import libcst as cst

    node = site.node
    if not isinstance(node, cst.Comparison) or len(node.comparisons) != 1:
        return None
    only = node.comparisons[0]
    match node.left, only.operator, only.comparator:
        case (
            cst.Call(func=cst.Name(value="type"), args=[cst.Arg(keyword=None, star="", value=value)]),
            cst.Is() | cst.Equal() | cst.IsNot() | cst.NotEqual() as operator,
            cst.Name() | cst.Attribute() as cls,
        ):
            text = f"isinstance({text_of(Site(site.source, value))}, {text_of(Site(site.source, cls))})"
            return text if isinstance(operator, cst.Is | cst.Equal) else f"not {text}"
    return None


def without_with(call: Site, before: str, behind: str) -> tuple[Site, str] | None:
    """The `with call:` around a call, and what stands in it as text, with a row before it and one behind.

    None where the call is not all that the statement enters, where its value has a name, where the body may be left
    before its end, and where a text over several rows in it would change with the indentation.
    """
    import libcst as cst

    home = statement_of(call)
    match home.node:
        case cst.With(
            items=[cst.WithItem(item=item, asname=None)], body=cst.IndentedBlock() as block, asynchronous=None
        ):
            pass
        case _:
            return None
    if item is not call.node or any(leaves_block(Site(call.source, each)) for each in block.body):
        return None
    if _has_long_text(block):
        return None
    comment = f"  {block.header.comment.value}" if block.header.comment is not None else ""
    rows = [cst.Module([]).code_for_node(each).strip("\n") for each in block.body]
    return home, "\n".join([before + comment, *rows, behind])


def _has_long_text(node: cst.CSTNode) -> bool:
    import libcst as cst

    code = cst.Module([]).code_for_node
    return any("\n" in code(one) for one in below(node) if isinstance(one, cst.SimpleString | cst.FormattedString))


def as_copy(target: Site) -> str | None:
    """`p.data = x`, of whose left side this is the node, as `p.data.copy_(x)`; None where it has other targets, too."""
    import libcst as cst

    left = target.source.parent(target.node)
    whole = target.source.parent(left) if isinstance(left, cst.AssignTarget) else None
    if not isinstance(whole, cst.Assign) or len(whole.targets) != 1 or not stands_alone(target):
        return None
    return f"{text_of(target)}.copy_({text_of(Site(target.source, whole.value))})"


def as_hook_after(call: Site) -> tuple[str, bool] | None:
    """`p.register_hook(lambda g: f(g))` as a hook that runs when the gradient is there, and whether `f` has nothing but
    numbers besides the gradient. None where the hook is no lambda, or does more than scale, clamp or clean the
    gradient."""
    import libcst as cst

    match call.node:
        case cst.Call(
            func=cst.Attribute(value=owner, attr=cst.Name(value="register_hook")),
            args=[cst.Arg(keyword=None, star="", value=cst.Lambda(params=params, body=body))],
        ) if len(params.children) == len(params.params) == 1 and params.params[0].default is None:
            gradient = params.params[0].name.value
            others = _others(body, gradient)
            if others is None or "parameter" in others:
                return None
            text = call.source.tree.code_for_node(_renamed(body, gradient))
            receiver = text_of(Site(call.source, owner))
            made = f'lambda parameter: setattr(parameter, "grad", {text})'
            return f"{receiver}.register_post_accumulate_grad_hook({made})", not others
    return None


def _renamed(body: cst.BaseExpression, gradient: str) -> cst.CSTNode:
    """The expression, with the parameter's gradient for what the hook got."""
    import libcst as cst

    class Renamer(cst.CSTTransformer):
        def visit_Attribute_attr(self, node: cst.Attribute) -> None:
            self.attributes.add(node.attr)

        def __init__(self) -> None:
            super().__init__()
            self.attributes: set[cst.BaseExpression] = set()

        def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
            if original_node.value != gradient or original_node in self.attributes:
                return updated_node
            return cst.Attribute(cst.Name("parameter"), cst.Name("grad"))

    changed = body.visit(Renamer())
    assert isinstance(changed, cst.CSTNode)
    return changed


def _others(body: cst.BaseExpression, gradient: str) -> set[str] | None:
    """The names besides the gradient's in an expression that works entry by entry; None for any other expression."""
    import libcst as cst

    match body:
        case cst.Name(value=name):
            return set() if name == gradient else {name}
        case cst.Integer() | cst.Float():
            return set()
        case cst.UnaryOperation(expression=inner):
            return _others(inner, gradient)
        case cst.BinaryOperation(left=left, operator=cst.Multiply() | cst.Divide(), right=right):
            return _joined([left, right], gradient)
        case cst.Call(func=cst.Attribute(value=cst.Name(value="torch"), attr=cst.Name(value=name)), args=args):
            return _joined([arg.value for arg in args], gradient) if name in _ENTRYWISE else None
        case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=name)), args=args):
            return _joined([owner, *(arg.value for arg in args)], gradient) if name in _ENTRYWISE else None
    return None


def _joined(expressions: list[cst.BaseExpression], gradient: str) -> set[str] | None:
    found = [_others(each, gradient) for each in expressions]
    return {name for each in found for name in each or ()} if None not in found else None
