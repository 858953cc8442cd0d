"""Questions about torch.compile: whether what is sharded is the module, or the wrapper around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import below
from fsdp_lint.trace.events import Compile, Shard
from fsdp_lint.trace.trace import Trace, related
from fsdp_lint.trace.values import Module, exclusive

if TYPE_CHECKING:
    import libcst as cst

PREFIX = "_orig_mod"


def _assigned_to(site: Site) -> str | None:
    """The target of the assignment whose value is this expression, or that of a choice with it, as it is written; None
    where it is returned or handed on at once."""
    import libcst as cst

    node, above = site.node, site.source.parent(site.node)
    while isinstance(above, cst.IfExp) and node is not above.test:
        node, above = above, site.source.parent(above)
    if isinstance(above, cst.Assign | cst.AnnAssign) and above.value is node:
        return _code(site, above.targets[0].target if isinstance(above, cst.Assign) else above.target)
    return None


def _is_value(expression: cst.BaseExpression, node: cst.CSTNode) -> bool:
    import libcst as cst

    if isinstance(expression, cst.IfExp):
        return _is_value(expression.body, node) or _is_value(expression.orelse, node)
    return expression is node


def _code(site: Site, node: cst.CSTNode) -> str:
    return site.source.tree.code_for_node(node).strip()


def wrapped_whole(trace: Trace, shard: Shard) -> Compile | None:
    """Where a model that is sharded was put into torch.compile's wrapper, so that the wrapper is what is sharded.

    None for parts of models, and where the module inside the wrapper keeps another name, which may be what is sharded.
    """
    if any(isinstance(one, Module) or one.key == "[]" for one in list(shard.module.line())[1:]):
        return None
    if shard.module.key == "[]":
        return None
    for event in trace.every(Compile):
        if event.entry != shard.entry or event.order > shard.order or exclusive(event.guards, shard.guards):
            continue
        if related(event.module, shard.module) and _is_the_wrapper(event, shard):
            return event
    return None


def _is_the_wrapper(event: Compile, shard: Shard) -> bool:
    given, sharded = _first_argument(event.site), _first_argument(shard.site)
    target = _assigned_to(event.site)
    if target is not None:
        return target in (given, sharded)
    around = (*shard.stack, shard.site)
    if any(event.site.node is inner for site in around for inner in below(site.node)):
        return True
    return _is_returned(event.site)


def _first_argument(site: Site) -> str:
    import libcst as cst

    node = site.node
    return _code(site, node.args[0].value) if isinstance(node, cst.Call) and node.args else ""


def _is_returned(site: Site) -> bool:
    import libcst as cst

    return any(
        isinstance(node, cst.Return) and node.value is not None and _is_value(node.value, site.node)
        for node in below(site.source.tree)
    )


def takes_prefix_off(trace: Trace) -> bool:
    """True when the code speaks of the wrapper's prefix in names, and so knows of it."""
    return any(PREFIX in source.text for source in {event.site.source for event in trace.events})
