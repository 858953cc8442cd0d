"""`functools.singledispatch`: which of several functions of one name is run, by the class of the first argument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst

from fsdp_lint.source.file import Source
from fsdp_lint.trace.decorators import Decorators
from fsdp_lint.trace.models import table
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.values import Condition, External, Function, Guards, Sequence, Unknown, Value, choice

DISPATCHERS = frozenset({"singledispatch", "singledispatchmethod"})


@dataclass(frozen=True, slots=True)
class Implementation:
    """A function that is registered, and the classes that it is for."""

    function: Function
    classes: tuple[Value, ...]

    def for_any_module(self) -> bool:
        """True for what is only run where no other fits."""
        return any(isinstance(one, External) and one.dotted.endswith(".Module") for one in self.classes)


class Dispatching(Decorators):
    """The part of the abstract machine that picks one of the functions registered for a generic one."""

    def _enter(
        self,
        function: Function,
        node: cst.FunctionDef | cst.Lambda,
        source: Source,
        call: Call,
        self_value: Value | None,
    ) -> Value:
        generic = isinstance(node, cst.FunctionDef) and _is_generic(node)
        registered = self._implementations(function) if generic and call.args else []
        if not registered:
            return super()._enter(function, node, source, call, self_value)
        depth, results = len(self.guards), list[tuple[Value, Guards]]()

        def run(one: Function) -> None:
            code, file = self.function_node(one), self.project.source(one.path)
            if code is not None and file is not None:
                value = super(Dispatching, self)._enter(one, code, file, call, self_value)
                results.append((value, tuple(self.guards[depth:])))

        self._first_that_fits(call, registered, function, run)
        return choice(results) if results else Unknown()

    def _first_that_fits(
        self, call: Call, registered: list[Implementation], base: Function, run: Callable[[Function], None]
    ) -> None:
        """Runs the first function that the argument may be for, and the next where it may not be."""
        if not registered:
            run(base)
            return
        first, *rest = registered
        outcome = self.instance_test(call.args[0], Sequence(items=list(first.classes)))
        if isinstance(outcome, Condition):
            others = (outcome.false, lambda: self._first_that_fits(call, rest, base, run))
            self.branch([(outcome.true, lambda: run(first.function)), others])
        elif outcome:
            run(first.function)
        else:
            self._first_that_fits(call, rest, base, run)

    def _implementations(self, function: Function) -> list[Implementation]:
        """What is registered for a generic function, in its own file or class, or in others."""
        heads = {function.path: function.name} if function.cls is not None or function.scope is not None else {}
        if not heads:
            named = [
                each for each in self.fillers if (each.to.path, each.to.name) == (function.path, function.qualname)
            ]
            heads = {function.path: function.name, **{each.path: each.head for each in named}}
        found = [one for path, head in heads.items() for one in self._registered(path, head, function)]
        return sorted(found, key=Implementation.for_any_module)

    def _registered(self, path: Path, head: str, function: Function) -> Iterator[Implementation]:
        """What one file registers under a name."""
        frame = self.file_frame(path)
        if frame is None:
            return
        around = self.class_node(function.cls) if function.cls is not None else None
        body = around.body.body if around is not None else frame.source.abstract.body
        self.frames.append(function.scope or frame)
        try:
            for node in body:
                if not isinstance(node, cst.FunctionDef):
                    continue
                for expression in _classes(node, head, method=around is not None):
                    one = Function(
                        name=function.name,
                        path=path,
                        qualname=function.qualname,
                        node=node,
                        scope=function.scope,
                        cls=function.cls,
                    )
                    yield Implementation(one, tuple(self.evaluate(each) for each in _alternatives(expression)))
        finally:
            self.frames.pop()


def _is_generic(node: cst.FunctionDef) -> bool:
    return any(table.words(each.decorator) & DISPATCHERS for each in node.decorators)


def _classes(node: cst.FunctionDef, head: str, method: bool) -> Iterator[cst.BaseExpression]:
    """What stands for the classes for which a function is registered under a name."""
    for decorator in node.decorators:
        match decorator.decorator:
            case cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value="register")) if name == head:
                params = [*node.params.posonly_params, *node.params.params][method : method + 1]
                yield from (param.annotation.annotation for param in params if param.annotation is not None)
            case cst.Call(
                func=cst.Attribute(value=cst.Name(value=name), attr=cst.Name(value="register")), args=[arg]
            ) if name == head:
                yield arg.value


def _alternatives(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """The classes in `A | B`."""
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.BitOr):
        yield from _alternatives(node.left)
        yield from _alternatives(node.right)
    else:
        yield node
