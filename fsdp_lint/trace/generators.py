"""Generators: the data that goes through them."""

from __future__ import annotations

from dataclasses import replace

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import inner
from fsdp_lint.trace.events import Collective, Event
from fsdp_lint.trace.state import Frame
from fsdp_lint.trace.values import Choice, Guards, Module, Rank, Value, parts


def note_yield(frame: Frame, guards: Guards, source: Value | None) -> None:
    """Notes what gives the items that a body yields: what its loops go over, `source` where that is yielded from, and
    the rank where a test of it chooses. `guards` are the tests in this body.

    Of a loop that may end before its data does, nothing follows.
    """
    if _may_end(frame):
        return
    around = [value for value, _ in frame.over if value is not None] + ([source] if source is not None else [])
    if around and any(literal.key[0] == "rank" for literal in guards):
        around.append(Rank(name="rank"))
    frame.yields_of += tuple(one for one in around if one not in frame.yields_of)


def as_yielded(frame: Frame, guards: Guards, value: Value) -> Value:
    """A value that a loop yields, with the tests that it has passed there: of what was made from it no other comes."""
    asked = frozenset(part.number for part in parts(value))
    tests = tuple(one for one in guards if one.site is not None and one.kind == "other" and asked & one.about)
    if not tests or not frame.over or _may_end(frame):
        return value
    return Choice(options=((value, tests),))


def untested(value: Value) -> Value:
    """A value that was yielded, without the tests, where a loop takes only so many."""
    if isinstance(value, Choice) and len(value.options) == 1 and not isinstance(value.options[0][0], Module):
        return value.options[0][0]
    return value


def gathered(events: list[Event]) -> tuple[Event, ...]:
    """The collectives among the events in a generator, which are made once something goes over it."""
    return tuple(event for event in events if isinstance(event, Collective))


def made_late(lazy: tuple[Event, ...], guards: Guards, stack: tuple[Site, ...]) -> list[Event]:
    """What going over a generator does under a test of the rank that its making was not under; `stack` leads there."""
    tests = tuple(one for one in guards if one.kind in ("rank", "local-rank"))
    late = [event for event in lazy if any(test not in event.guards for test in tests)]
    return [replace(event, stack=stack, guards=(*guards, *event.guards)) for event in late]


def _may_end(frame: Frame) -> bool:
    """True in a loop that may end before its data does, or that has none."""
    return any(value is None or may_stop(body) for value, body in frame.over)


def may_stop(body: cst.CSTNode) -> bool:
    """True when a loop with this body may end before its data does."""
    return _has_break(body) or _has_return(body)


def _has_break(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Break):
        return True
    if isinstance(node, cst.For | cst.While | cst.FunctionDef | cst.Lambda):
        return False
    return any(_has_break(child) for child in inner(node))


def _has_return(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Return):
        return True
    if isinstance(node, cst.FunctionDef | cst.Lambda):
        return False
    return any(_has_return(child) for child in inner(node))
