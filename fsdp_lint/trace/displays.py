"""Names, literals, lists, dicts and comprehensions: what they stand for or make."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

import libcst as cst

from fsdp_lint.trace.events import CompareDimensions
from fsdp_lint.trace.generators import gathered
from fsdp_lint.trace.invocations import Invocations, rounds
from fsdp_lint.trace.values import (
    Choice,
    Condition,
    Const,
    Mapping,
    Params,
    Rank,
    Sequence,
    Tensor,
    Unknown,
    Value,
)

_CONSTANTS = {"True": True, "False": False, "None": None}


class Displays(Invocations):
    """The part of the abstract machine that knows names and literals, and makes what stands in brackets."""

    def name(self, name: str) -> Value:
        """What a name stands for."""
        if name in _CONSTANTS:
            return Const(value=_CONSTANTS[name])
        found = self.load(name)
        return found if found is not None else self.unbound_name(self.frame.path, name)

    @staticmethod
    def literal(node: Any) -> Value:
        """A literal's value."""
        if node.__class__ is cst.SimpleString and node.value[0] in "'\"" and "\\" not in node.value:
            marks = 3 if node.value[:3] in ("'''", '"""') and len(node.value) > 5 else 1
            return Const(value=node.value[marks:-marks])
        if node.__class__ is cst.Integer and node.value.isdecimal() and not node.value.startswith("0"):
            return Const(value=int(node.value))
        text = cst.Module([]).code_for_node(node) if node.__class__ is cst.ConcatenatedString else node.value
        read = _read(text)
        return Const(value=read[0]) if read else Unknown(name="literal")

    def display(self, elements: Any) -> Value:
        """A list, tuple or set display."""
        items: list[Value] = []
        exact = True
        for element in elements:
            value = self.evaluate(element.value)
            if isinstance(element, cst.StarredElement):
                if isinstance(value, Params):
                    items.append(self.take(value, self.site(element)))
                    exact = False
                    continue
                found, all_of_them = self.items(value, self.site(element))
                items.extend(found)
                exact = exact and all_of_them
            else:
                items.append(value)
        return self.new(Sequence(items=items, exact=exact))

    def dictionary(self, elements: Any) -> Value:
        """A dict display."""
        made = self.new(Mapping(born=tuple(self.guards)))
        for element in elements:
            if isinstance(element, cst.StarredDictElement):
                self.merge(made, self.evaluate(element.value))
                continue
            key = self.evaluate(element.key)
            value = self.evaluate(element.value)
            if isinstance(key, Const) and isinstance(key.value, str | int | float | bool | None):
                made.items[key.value] = value
            else:
                made.rest.append(value)
        return made

    def comprehension(self, elt: cst.BaseExpression, for_in: cst.CompFor) -> Sequence:
        """A list or set comprehension."""
        made = self.new(Sequence(exact=False))
        made.exact = self._each(for_in, lambda: made.items.append(self.with_tests(self.evaluate(elt))), made)
        return made

    def generator(self, elt: cst.BaseExpression, for_in: cst.CompFor) -> Value:
        """A generator expression; one over parameters that nobody has walked stays un-walked."""
        if for_in.inner_for_in is None:
            depth = len(self.trace.events)
            source = self.possible(self.evaluate(for_in.iter))
            del self.trace.events[depth:]
            if isinstance(source, Params) and source.taken is None and _picks_target(elt, for_in.target):
                return Params(name=source.name, of=source.of, named=False)
        before = len(self.trace.events)
        made = self.comprehension(elt, for_in)
        made.lazy = gathered(self.trace.events[before:])
        return made

    def dict_comprehension(self, key: cst.BaseExpression, value: cst.BaseExpression, for_in: cst.CompFor) -> Value:
        """A dict comprehension."""
        made = self.new(Mapping(born=tuple(self.guards)))

        def add() -> None:
            at = self.evaluate(key)
            content = self.evaluate(value)
            if isinstance(at, Const) and isinstance(at.value, str | int):
                made.items[at.value] = content
            else:
                made.rest.append(self.with_tests(content))
                if isinstance(at, Tensor):
                    made.keys[made.rest[-1].number] = at

        exact = self._each(for_in, add, None)
        made.open = made.open or not exact
        return made

    def _each(self, for_in: cst.CompFor, body: Callable[[], None], made: Sequence | None) -> bool:
        """Runs `body` for the items of a comprehension's loops; tells whether all items were exact."""
        began = Value().number
        iterable = self.possible(self.evaluate(for_in.iter))
        items, exact = self.items(iterable, self.site(for_in))
        if made is not None and isinstance(iterable, Sequence):
            made.times = iterable.times
        frame = self.frame
        saved = dict(frame.names)
        items, exact = rounds(items, exact)
        loop = self.new_loop(began)
        self.loops.append(loop)
        for item in items:
            depth = len(self.guards)
            self.assign(for_in.target, self.chosen(item))
            possible = True
            for test in for_in.ifs:
                before = len(self.trace.events)
                outcome = self.condition(test.test)
                for event in self.trace.events[before:]:
                    if isinstance(event, CompareDimensions) and isinstance(outcome, Condition):
                        event.filter = outcome.true
                if outcome is False:
                    possible = False
                elif isinstance(outcome, Condition):
                    self.assume(outcome.true)
                    exact = False
                    if made is not None and any(one.key[0] == "rank" for one in outcome.true):
                        made.chosen_by += (Rank(name="rank"),)
            if possible:
                if for_in.inner_for_in is not None:
                    exact = self._each(for_in.inner_for_in, body, None) and exact
                else:
                    body()
            del self.guards[depth:]
        self.loops.pop()
        frame.names = saved
        return exact

    def chosen(self, item: Value) -> Value:
        """An item of a filtered list, its filter taken for granted."""
        if isinstance(item, Choice) and len(item.options) == 1:
            value, guards = item.options[0]
            self.assume(guards)
            return value
        if isinstance(item, Sequence) and item.exact and any(isinstance(one, Choice) for one in item.items):
            return self.new(Sequence(items=[self.chosen(one) for one in item.items]))
        return item


@functools.lru_cache(maxsize=1 << 12)
def _read(text: str) -> tuple[Any, ...]:
    """The value of a literal as it is written, alone in a tuple; an empty one where it has none."""
    try:
        return (ast.literal_eval(text),)
    except (ValueError, SyntaxError, MemoryError):
        return ()


def _picks_target(elt: cst.BaseExpression, target: cst.BaseAssignTargetExpression) -> bool:
    if not isinstance(elt, cst.Name):
        return False
    if isinstance(target, cst.Name):
        return elt.value == target.value
    return isinstance(target, cst.Tuple) and any(
        isinstance(e.value, cst.Name) and e.value.value == elt.value for e in target.elements
    )
