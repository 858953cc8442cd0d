"""The project's own decorators: whether they let only some ranks through to what they are around."""

from __future__ import annotations

import re

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.trace.events import Collective, Forward
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.registries import Registries, head_of
from fsdp_lint.trace.values import Condition, Function, Literal, Unknown, Value

RANKS = re.compile(r"rank|main|master|leader|chief|primary|zero|proc", re.IGNORECASE)


class Decorators(Registries):
    """The part of the abstract machine that looks into decorators."""

    def guard_decorator(self, decorator: cst.Decorator) -> None:
        """Takes for granted what a decorator of the project asks for before it calls the function; where that cannot be
        seen, what its name says."""
        at = ("decorator", self.frame.path, id(decorator))
        if at not in self.memo:
            asks = self._asks_for_rank(head_of(decorator.decorator))
            self.memo[at] = self._tests(decorator) if asks else Condition()
        found = self.memo[at]
        tests = found.true if isinstance(found, Condition) else ()
        if tests:
            self.assume(tuple(literal.but(depth=len(self.stack)) for literal in tests))
        elif isinstance(found, Condition):
            super().guard_decorator(decorator)

    def _asks_for_rank(self, head: str) -> bool:
        """True when a decorator of this name is a function of the project that may ask which process this is."""
        found = self.project.lookup(self.frame.path, head) if head else None
        if found is None or found.kind != "function" or found.path is None:
            return False
        index = self.project.index(found.path)
        info = index.functions.get(found.name) if index is not None else None
        return info is not None and any(RANKS.search(word) for word in info.mentions | info.attributes)

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
            events = self.trace.events[before:]
        if any(isinstance(one, Collective) and one.op != "barrier" for one in events):
            return Unknown()
        calls = [one for one in events if isinstance(one, Forward) and one.module is wrapped]
        tests: list[Literal] = [literal for literal in calls[0].guards if literal.kind == "rank"] if calls else []
        return Condition(true=tuple(literal for literal in tests if all(literal in one.guards for one in calls)))
