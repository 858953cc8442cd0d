"""The project's own decorators: whether they let only some ranks through to what they are around, or bring the ranks
together on what it gives."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.trace.events import Collective, Forward, Swallow
from fsdp_lint.trace.handlers import goes_on
from fsdp_lint.trace.invocations import dotted
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.models.collectives import TOGETHER
from fsdp_lint.trace.registries import Registries
from fsdp_lint.trace.state import Frame
from fsdp_lint.trace.values import (
    Class,
    Condition,
    Const,
    Function,
    Instance,
    Literal,
    Unknown,
    Value,
    options_of,
)

RANKS = re.compile(r"rank|main|master|leader|chief|primary|zero|proc|reduce|gather|broadcast", re.IGNORECASE)
# What a function gives stands as this value where a decorator has made it one value of all ranks.
AGREED = "agreed"


class Decorators(Registries):
    """The part of the abstract machine that looks into decorators."""

    def guard_decorator(self, decorator: cst.Decorator) -> None:
        """Takes for granted what a decorator of the project asks for before it calls the function; where that cannot be
        seen, what its name says."""
        self._open_context(decorator)
        hiding = self._hiding(decorator)
        if hiding is not None:
            key = ("except", id(hiding.node))
            self.assume((Literal(key, False, "handler", depth=len(self.stack)),))
        found = self._found(decorator)
        tests = found.true if isinstance(found, Condition) else ()
        if tests:
            self.assume(tuple(literal.but(depth=len(self.stack)) for literal in tests))
        elif isinstance(found, Condition):
            super().guard_decorator(decorator)

    def enter_around(self, value: Value, site: Site, leaving: list[Callable[[], object]]) -> None:
        """Enters a context; the part of the machine that knows contexts does it."""
        raise NotImplementedError

    def _open_context(self, decorator: cst.Decorator) -> None:
        """Enters the context that a decorator puts around the function: an object of the project's own
        ContextDecorator, or what `contextmanager` has made of a function."""
        head = self._project_function(decorator)
        if isinstance(head, Class):
            around = "contextlib.ContextDecorator" in self.library_bases(head)
        else:
            node = self.function_node(head) if head is not None and isinstance(decorator.decorator, cst.Call) else None
            makers = node.decorators if isinstance(node, cst.FunctionDef) else ()
            around = any(_last_name(one.decorator) == "contextmanager" for one in makers)
        if around:
            made = self.evaluate(decorator.decorator)
            self.enter_around(made, Site(self.frame.source, decorator), self.frame.opened)

    def close_contexts(self, frame: Frame) -> None:
        """Leaves the contexts that decorators have entered."""
        for act in reversed(frame.opened):
            act()

    def as_decorated(self, node: cst.FunctionDef, value: Value) -> Value:
        """What a function gives: nothing of one rank's own where a decorator brings the ranks together, or says by its
        name that it does."""
        for decorator in node.decorators:
            hiding = self._hiding(decorator)
            if hiding is not None:
                key, depth = ("except", id(hiding.node)), len(self.guards)
                self.guards.append(Literal(key, True, "handler", depth=len(self.stack)))
                self.emit(Swallow, hiding, key=key)
                del self.guards[depth:]
        options = [option for option, _ in options_of(value)]
        if not all(isinstance(one, Unknown | Condition | Const) for one in options) or isinstance(value, Const):
            return value
        for decorator in node.decorators:
            if not isinstance(self._found(decorator), Condition):
                return Unknown(name=AGREED)
            if TOGETHER.search(_last_name(decorator.decorator)) and self._project_function(decorator) is None:
                return Unknown(name=AGREED)
        return value

    def _hiding(self, decorator: cst.Decorator) -> Site | None:
        """The handler in a decorator of the project that hides what is raised inside; None where none does."""
        at = ("hiding", self.frame.path, id(decorator))
        if at not in self.memo:
            function = self._project_function(decorator)
            node = self.function_node(function) if isinstance(function, Function) else None
            handler = goes_on(node) if node is not None else None
            source = self.project.source(function.path) if function is not None else None
            self.memo[at] = Const(value=Site(source, handler) if source is not None and handler is not None else None)
        found = self.memo[at]
        return found.value if isinstance(found, Const) else None

    def _found(self, decorator: cst.Decorator) -> Value:
        """What is known of a decorator; see `_tests`."""
        at = ("decorator", self.frame.path, id(decorator))
        if at not in self.memo:
            self.memo[at] = self._tests(decorator) if self._asks_for_rank(decorator) else Condition()
        return self.memo[at]

    def _project_function(self, decorator: cst.Decorator) -> Function | Class | None:
        """The function or class of the project that makes a decorator, or is it."""
        node = decorator.decorator
        found = self.evaluate(node.func if isinstance(node, cst.Call) else node)
        return found if isinstance(found, Function | Class) else None

    def _asks_for_rank(self, decorator: cst.Decorator) -> bool:
        """True for a function or class of the project that may ask which process this is, or speak to the others."""
        found = self._project_function(decorator)
        return found is not None and self._speaks_of_ranks(found.path, found.qualname)

    def _speaks_of_ranks(self, path: Path, qualname: str, hops: int = 2) -> bool:
        """True for a definition with a word of ranks or collectives in it, or in the functions that it names."""
        index = self.project.index(path)
        if index is None:
            return False
        inside = f"{qualname}."
        infos = [info for name, info in index.functions.items() if name == qualname or name.startswith(inside)]
        words = {word for info in infos for word in info.mentions | info.attributes}
        if any(RANKS.search(word) for word in words):
            return True
        named = [self.project.lookup(path, word) for word in words] if hops else []
        return any(
            one is not None
            and one.path is not None
            and one.kind == "function"
            and self._speaks_of_ranks(one.path, one.name, hops - 1)
            for one in named
        )

    def _tests(self, decorator: cst.Decorator) -> Value:
        """The tests of the rank around the call of what is decorated, none where some other way leads to it; no
        condition at all where the decorator brings the ranks together, so that each has what one of them has found."""
        around, wrapped = Site(self.frame.source, decorator), Unknown(name="wrapped")
        with self.apart():
            before = len(self.trace.events)
            self.touched.add(wrapped.number)
            made = self.invoke(self.evaluate(decorator.decorator), Call(site=around, args=[wrapped]))
            if isinstance(made, Function):
                self.enter(made, Call(site=around, open=True))
            elif isinstance(made, Instance):
                self.invoke(made, Call(site=around, open=True))
            events = self.trace.events[before:]
        if any(isinstance(one, Collective) and one.op != "barrier" for one in events):
            return Unknown()
        calls = [one for one in events if isinstance(one, Forward) and one.module is wrapped]
        tests: list[Literal] = [literal for literal in calls[0].guards if literal.kind == "rank"] if calls else []
        return Condition(true=tuple(literal for literal in tests if all(literal in one.guards for one in calls)))


def _last_name(node: cst.BaseExpression) -> str:
    """The last name of what is written as a decorator, arguments aside."""
    node = node.func if isinstance(node, cst.Call) else node
    return dotted(node).rpartition(".")[2]
