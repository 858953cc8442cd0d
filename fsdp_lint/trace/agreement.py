"""Questions about tests: whether all ranks come to the same outcome."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdp_lint.trace.events import Collective, Forward, Receive
from fsdp_lint.trace.models.collectives import AGREEING, TOGETHER
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import (
    Choice,
    Condition,
    Const,
    Guards,
    Literal,
    Mapping,
    Object,
    Product,
    Tensor,
    Unknown,
    Value,
    parts,
)

LOADER = re.compile(r"(loader|dataloader)$|^dl$|_dl$", re.IGNORECASE)
# What is alike on all ranks even where the values are not.
SHAPES = frozenset({"shape", "size()", "ndim", "dim", "dim()", "dtype", "device", "requires_grad", "keys()"})
COUNTS = frozenset({"len(...)", "size", "numel()", "numel", "nelement()"})
BY_MODEL = "what the model gives for this rank's batch"
ORDERS = frozenset({"LessThan", "LessThanEqual", "GreaterThan", "GreaterThanEqual"})
STRUCTURE = ("in", "isinstance", "hasattr", "callable", "is", "choice")


def own_values(trace: Trace, literal: Literal, order: int) -> str:
    """What a test at event number `order` looks at that each rank has for itself, in words; empty where the ranks
    agree, or it is not known."""
    if literal.kind != "other" or not literal.values:
        return ""
    if literal.key[0] in STRUCTURE and not _is_of_numbers(literal):
        return ""
    if literal.key[0] == "all" and any(inner[0] in (*STRUCTURE, "none") for inner, _ in literal.key[1]):
        return ""
    agreed = _agreed(trace, order)
    results = {event.result.number for event in trace.every(Forward) if event.result is not None}
    given, batch = False, False
    for value in sources(literal.values, _asks_for_none(literal)):
        if value.number in agreed or TOGETHER.search(_made_by(value)):
            return ""
        given = given or (value.number in results and literal.key[0] != "none")
        batch = batch or (value.key == "[]" and _is_loader(value.owner))
    if given:
        return BY_MODEL
    return "this rank's batch" if batch else ""


def _is_of_numbers(literal: Literal) -> bool:
    """True for a test of one of several numbers or truth values, such as a counter that some tests have set back."""
    if literal.key[0] != "choice" or not isinstance(literal.values[0], Choice):
        return False
    options = [option for option, _ in literal.values[0].options]
    constants = [one.value for one in options if isinstance(one, Const)]
    if len(literal.key) == 2:
        return len(constants) == len(options) and all(isinstance(one, bool) for one in constants)
    return literal.key[2] in ORDERS and all(isinstance(one, int | float) for one in constants)


def last_asked(guards: Guards) -> Guards:
    """The tests without those of which another asks what came: `if skip:` speaks for what has set `skip`."""
    counted = [literal for literal in guards if _is_of_numbers(literal)]
    choices = [value for literal in counted for value in literal.values if isinstance(value, Choice)]
    earlier = {one.key for value in choices for _, tests in value.options for one in tests}
    return tuple(literal for literal in guards if literal.key not in earlier)


def _agreed(trace: Trace, order: int) -> set[int]:
    """Numbers of the values that a collective, or one rank's word to another, has brought together before event number
    `order`."""
    found: set[int] = set()
    for one in trace.every(Receive):
        if one.order < order:
            found.update(part.number for value in one.into for part in parts(value))
    for event in trace.every(Collective):
        if event.order < order and (event.op in AGREEING or event.op.startswith("broadcast")):
            found.update(part.number for value in event.on for part in parts(value))
    return found


def sources(values: tuple[Value, ...], counts: bool = True) -> Iterator[Value]:
    """The values and what they were made from, but for shapes, for lengths where `counts` is False, and for the other
    entries of dicts."""
    todo, seen = list(values), set()
    while todo:
        value = todo.pop()
        if value.number in seen:
            continue
        seen.add(value.number)
        yield value
        names = {value.key, value.name}
        if names & SHAPES or (names & COUNTS and not counts):
            continue
        # What else a dict holds says nothing of what is looked up in it.
        if not isinstance(value, Mapping):
            todo.extend(part for part in parts(value) if part is not value)
        if isinstance(value, Unknown | Tensor):
            todo.extend(value.inputs)
        tests: tuple[Literal, ...] = value.true if isinstance(value, Condition) else ()
        if isinstance(value, Choice):
            tests = tuple(literal for _, guards in value.options for literal in guards)
        todo.extend(one for literal in tests for one in literal.values)
        if value.owner is not None:
            todo.append(value.owner)


def _made_by(value: Value) -> str:
    """The name of the call that made a value, or its own."""
    return value.key if value.key.endswith(")") else value.name if value.name.endswith(")") else value.key


def _is_loader(value: Value | None) -> bool:
    if value is None:
        return False
    for one in sources((value,)):
        if isinstance(one, Object) and one.cls.rpartition(".")[2].endswith("DataLoader"):
            return True
        if isinstance(one, Unknown) and not isinstance(one, Product) and LOADER.search(one.name):
            return True
    return False


def _asks_for_none(literal: Literal) -> bool:
    """True for tests of emptiness, which tell ranks apart where their lengths may differ."""
    return bool(literal.key[0] == "truth" or (literal.key[0] == "equals" and literal.key[-1] == 0))
