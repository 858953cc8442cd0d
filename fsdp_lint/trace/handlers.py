"""`except`: what a handler catches, whether the program goes on behind it, and decorators that have one."""

from __future__ import annotations

import libcst as cst

from fsdp_lint.source.structure import inner, program_below
from fsdp_lint.trace.models import table

Handler = cst.ExceptHandler | cst.ExceptStarHandler

# What sharding raises is among these; ImportError and AttributeError look for a feature.
WIDE = frozenset({"Exception", "BaseException", "RuntimeError", "AssertionError"})


def catches_all(handler: Handler) -> bool:
    """True for a handler of all errors, bare or of Exception, or of those that fail inside libraries."""
    return handler.type is None or bool(table.words(handler.type) & WIDE)


def gives_up(node: cst.CSTNode) -> bool:
    """True when a handler raises, or ends the program, somewhere."""
    if isinstance(node, cst.Raise):
        return True
    if isinstance(node, cst.Call) and table.words(node.func) & {"exit", "_exit", "abort", "quit", "fail", "kill"}:
        return True
    return any(gives_up(child) for child in inner(node))


def looks_for_a_feature(handler: Handler) -> bool:
    """True for a handler of what is raised where a name does not exist."""
    return handler.type is not None and bool(
        table.words(handler.type) & {"ImportError", "ModuleNotFoundError", "AttributeError"}
    )


def goes_on(decorator: cst.CSTNode) -> Handler | None:
    """The handler of a decorator by which the program goes on where what is decorated fails; None where there is none,
    where the decorator raises something, as one does that tries again, and where the handler makes something else.

    `decorator` is the function that is the decorator, or makes it.
    """
    if gives_up(decorator):
        return None
    decorated = {
        params[0].name.value
        for node in program_below(decorator)
        if isinstance(node, cst.FunctionDef) and (params := [*node.params.posonly_params, *node.params.params])
    }
    for node in program_below(decorator):
        if isinstance(node, cst.Try) and any(_calls(one, decorated) for one in program_below(node.body)):
            handlers = [one for one in node.handlers if catches_all(one)]
            if handlers and not _makes_another(handlers[0].body):
                return handlers[0]
    return None


def _makes_another(node: cst.CSTNode) -> bool:
    """True where something that is made there may take the place of what has failed."""
    if isinstance(node, cst.Return | cst.Assign) and node.value is not None:
        return any(isinstance(one, cst.Call) for one in program_below(node.value))
    return any(_makes_another(child) for child in inner(node))


def _calls(node: cst.CSTNode, names: set[str]) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in names
