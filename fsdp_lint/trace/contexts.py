"""`with`: what a context does when it is entered, and what when it is left."""

from __future__ import annotations

from collections.abc import Callable

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.trace.events import Event, OnMeta
from fsdp_lint.trace.models import table
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.patterns import Patterns
from fsdp_lint.trace.state import Frame
from fsdp_lint.trace.values import (
    Bound,
    Choice,
    Const,
    Entering,
    Instance,
    Object,
    Sequence,
    Unknown,
    Value,
    choice,
    exclusive,
)

Leaving = list[Callable[[], object]]


class Contexts(Patterns):
    """The part of the abstract machine that enters and leaves contexts."""

    def attempt_with(self, node: cst.With) -> bool:
        """Runs a body whose errors are suppressed; False where they are not."""
        raise NotImplementedError

    def with_(self, node: cst.With) -> None:
        """`with`: contexts are entered in order, and left."""
        depth = len(self.contexts)
        leaving: Leaving = []
        for item in node.items:
            value = self.possible(self.evaluate(item.item))
            name = table.context_name(value, item.item)
            if name:
                self.contexts.append(name)
            if name in table.ON_META:
                self.emit(OnMeta, self.site(item.item))
            if isinstance(value, Choice):
                names = (table.context_name(option, item.item) for option, _ in value.options)
                self.contexts.extend(f"perhaps {one}" for one in names)
            entered = self._enter_context(value, self.site(item.item), leaving)
            if item.asname is not None:
                self.assign(item.asname.name, entered)
        if not self.attempt_with(node):
            self.run_body(node.body)
        if not (self.frame.dead and self.frame.raised):
            self._leave(leaving)
        del self.contexts[depth:]

    def _leave(self, leaving: Leaving) -> None:
        for act in reversed(leaving):
            act()
        leaving.clear()

    def enter_around(self, value: Value, site: Site, leaving: Leaving) -> None:
        """Enters a context."""
        self._enter_context(value, site, leaving)

    def _enter_context(self, value: Value, site: Site, leaving: Leaving) -> Value:
        """What `as` gets; what happens when the context is left goes into a list."""
        match value:
            case Choice():
                return self.each_option(value, lambda option: self._enter_context(option, site, leaving))
            case Entering():
                return self._begin(value, leaving)
            case Instance():
                return self._enter_object(value, site, leaving)
            case Object(cls=cls, args=args) if cls == table.NULL_CONTEXT:
                return args[0] if args else Const(value=None)
            case Object(cls=cls) if cls in table.EXIT_STACKS:
                leaving.append(lambda: self._leave(self._stack(value)))
        return value

    def _enter_object(self, value: Instance, site: Site, leaving: Leaving) -> Value:
        guards = tuple(self.guards)

        def leave() -> None:
            method, depth = self.attribute(value, "__exit__"), len(self.guards)
            if isinstance(method, Bound) and not exclusive(guards, tuple(self.guards)):
                self.assume(guards)
                self.invoke(method, Call(site=site, args=[Const(value=None)] * 3))
                del self.guards[depth:]

        leaving.append(leave)
        enter = self.attribute(value, "__enter__")
        return self.invoke(enter, Call(site=site)) if isinstance(enter, Bound) else value

    def _begin(self, value: Entering, leaving: Leaving) -> Value:
        """Runs a generator that is a context. What it does behind its `yield` happens when the context is left."""
        before, self.last_frame = len(self.trace.events), None
        made = self.enter(value.function, value.call, value.self_value)
        frame: Frame | None = self.last_frame
        if frame is None or not frame.pauses:
            return made.items[0] if isinstance(made, Sequence) and made.items else Unknown(inputs=(value,))
        self.contexts.extend(frame.yield_contexts)
        events = self.trace.events
        behind = [
            event
            for event in events[before:]
            if any(at <= event.order and not exclusive(guards, event.guards) for at, guards, _ in frame.pauses)
        ]
        self._put_in_order(before, [event for event in events[before:] if event not in behind])
        if behind:
            leaving.append(lambda: self._put_in_order(len(events), behind))
        return choice([(given, guards) for _, guards, given in frame.pauses])

    def _put_in_order(self, at: int, events: list[Event]) -> None:
        """Events are what happens from number `at` on."""
        del self.trace.events[at:]
        for event in events:
            event.order = len(self.trace.events)
            self.trace.events.append(event)

    # contextlib.ExitStack ---------------------------------------------------------------------------------------

    def _stack(self, stack: Value) -> Leaving:
        return self.stacks.setdefault(stack.number, [])

    def enter_on(self, stack: Value, value: Value, site: Site) -> Value:
        """`stack.enter_context(value)`."""
        return self._enter_context(self.possible(value), site, self._stack(stack))

    def call_on_exit(self, stack: Value, function: Value, call: Call) -> None:
        """`stack.callback(function, ...)`."""
        self._stack(stack).append(lambda: self.invoke(function, call))

    def close(self, stack: Value) -> None:
        """`stack.close()`."""
        self._leave(self._stack(stack))
