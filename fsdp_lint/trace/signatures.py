"""What signatures say of values of which nothing else is known: a module of the class that they name."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.trace.calls import Calls, definitions
from fsdp_lint.trace.models import frameworks
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.state import STATEMENTS, Frame, OutOfBudget
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import Class, Const, External, Module, Unknown, Value

# A class is made to see what is in it, not to be run.
SHARE = 4


def like(run: Calls, value: Value) -> Module | None:
    """A module of the class that the parameter of some function around names for a value.

    Where that is a class of the project, it is made apart from the run, of arguments that are not known. None where no
    signature names one, or where the run knows the value itself.
    """
    if not isinstance(value, Unknown):
        return None
    for frame in reversed(run.frames):
        for annotation in _annotations(frame, value):
            found = _made(run, _named(run, frame, annotation))
            if found is not None:
                return found
    return None


def _annotations(frame: Frame, value: Value) -> Iterator[cst.BaseExpression]:
    node = definitions(frame.source).get(frame.qualname)
    if not isinstance(node, cst.FunctionDef):
        return
    params = node.params
    for param in (*params.posonly_params, *params.params, *params.kwonly_params):
        if param.annotation is not None and frame.names.get(param.name.value) is value:
            yield param.annotation.annotation


def _named(run: Calls, frame: Frame, annotation: cst.BaseExpression) -> Value | None:
    """What an annotation stands for: a name, or one in quotes."""
    if isinstance(annotation, cst.SimpleString):
        try:
            annotation = cst.parse_expression(str(annotation.evaluated_value))
        except cst.ParserSyntaxError:
            return None
    outer = run.file_frame(frame.path)
    if outer is None or not isinstance(annotation, cst.Name | cst.Attribute):
        return None
    run.frames.append(outer)
    try:
        return run.evaluate(annotation)
    finally:
        run.frames.pop()


def _made(run: Calls, cls: Value | None) -> Module | None:
    match cls:
        case External(dotted=dotted) if frameworks.is_model_class(dotted):
            return Module(name=cls.name, library=dotted)
        case Class() if run.is_module_class(cls):
            at = ("like", cls.path, cls.qualname)
            if at not in run.memo:
                run.memo[at] = _apart(run, cls) or Const(value=None)
            found = run.memo[at]
            return found if isinstance(found, Module) else None
    return None


def _apart(run: Calls, cls: Class) -> Value | None:
    """An object of a class, made by a machine of its own: nothing of it happens in the run."""
    other = type(run)(run.project, Trace(root=run.trace.root))
    other.budget = STATEMENTS // SHARE
    other.hot = run.hot
    frame = other.file_frame(cls.path)
    if frame is None:
        return None
    other.frames.append(frame)
    try:
        call = Call(site=Site(frame.source, frame.source.abstract), open=True)
        return other.construct(Class(name=cls.name, path=cls.path, qualname=cls.qualname), call)
    except (OutOfBudget, RecursionError):
        return None
