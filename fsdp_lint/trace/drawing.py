"""Whether a loop over the modules of a model shards the model itself, too."""

from __future__ import annotations

from typing import Any

from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.granularity import CONTAINERS, last_name
from fsdp_lint.trace.models import frameworks
from fsdp_lint.trace.trace import covers, related
from fsdp_lint.trace.values import (
    Class,
    Const,
    External,
    Literal,
    Module,
    Sequence,
    Unknown,
    Value,
    class_name,
    made_of,
)


def may_shard_itself(shard: Shard, model: Value) -> bool:
    """True when a sharding call in a loop over `model.modules()` meets `model` itself, unless a test keeps it out."""
    drawn = shard.module
    if not isinstance(drawn, Module) or drawn.each != "modules" or drawn.owner is None:
        return False
    if not related(drawn.owner, model):
        return False
    return all(_outcome(test.key, test, drawn, drawn.owner) is not (not test.holds) for test in shard.guards)


def may_shard_part(shard: Shard, part: Value) -> bool:
    """True when a sharding call in a loop over `model.modules()` asks for the class of a part of the model, or for
    that of each item of a list in it."""
    drawn = shard.module
    if not isinstance(drawn, Module) or drawn.each != "modules" or drawn.owner is None or not isinstance(part, Module):
        return False
    if last_name(part.library or "") in CONTAINERS and part.items():
        return all(may_shard_part(shard, item) for item in part.items())
    found = [(_outcome(test.key, test, drawn, part), test.holds) for test in shard.guards]
    if not covers(drawn.owner, part) or any(outcome is (not holds) for outcome, holds in found):
        return False
    return any(outcome is holds for outcome, holds in found)


def _outcome(key: tuple[Any, ...], test: Literal, drawn: Module, model: Value) -> bool | None:
    """How a test of one of many modules comes out for the model itself; None where that is not known."""
    match key:
        case ("all", inner):
            found = [(_outcome(one, test, drawn, model), holds) for one, holds in inner]
            if any(outcome is (not holds) for outcome, holds in found):
                return False
            return True if all(outcome is holds for outcome, holds in found) else None
        case ("isinstance", drawn.number, names):
            return _one_of(names, test, model, with_bases=True)
        case ("is", one, other) if {one, other} == {drawn.number, model.number}:
            return True
        case ("is", one, other):
            for number, beside in ((one, other), (other, one)):
                kind, known = _among(test, number), _among(test, beside)
                if kind is not None and _is_class(kind, drawn) and isinstance(known, Class | External):
                    return _one_of((class_name(known),), test, model)
        case ("has name", drawn.number):
            return False
        case ("has children", drawn.number):
            return True
        case ("equals", number, content):
            left = _among(test, number)
            if left is not None and _is_name(left, drawn):
                return bool(content == "")
            return _one_of((content,), test, model) if left is not None and left.key == "__name__" else None
        case ("in", _, other) if (text := _among(test, other)) is not None and _is_name(text, drawn):
            return False
        case ("in", one, other) if (kind := _among(test, one)) is not None and _is_class(kind, drawn):
            known = _among(test, other)
            items = known.items if isinstance(known, Sequence) and known.exact else []
            return _one_of(tuple(map(class_name, items)), test, model) if items else None
        case ("named", drawn.number, _, _) if test.values:
            return _among_names(test.values[0], test, model)
        case ("truth", number) if (answer := _among(test, number)) is not None:
            # `name.startswith("layers")`: the model's own name is empty.
            return False if any(_is_name(one, drawn) for one in made_of(answer)) else None
    return None


def _among_names(names: Value, test: Literal, model: Value) -> bool | None:
    """Whether the name of the model's class is this, or among these."""
    if isinstance(names, Sequence) and names.exact and all(isinstance(item, Const) for item in names.items):
        return _one_of(tuple(str(item.value) for item in names.items if isinstance(item, Const)), test, model)
    if isinstance(names, Const) and isinstance(names.value, str):
        return _one_of((names.value,), test, model)
    return False if any(frameworks.NAMES_LAYERS.search(f"{one.name} {one.key}") for one in made_of(names)) else None


def _among(test: Literal, number: Any) -> Value | None:
    return next((value for value in test.values if value.number == number), None)


def _is_name(value: Value, drawn: Module) -> bool:
    return isinstance(value, Unknown) and value.name == "name" and value.inputs == (drawn,)


def _is_class(value: Value, drawn: Module) -> bool:
    return isinstance(value, Unknown) and (value.inputs == (drawn,) or value.owner is drawn)


def _one_of(names: tuple[str, ...], test: Literal, model: Value, with_bases: bool = False) -> bool | None:
    """Whether the model's class has one of these names, or one of its bases has."""
    mine = _names(model, with_bases)
    if any(last_name(name) in mine for name in names):
        return True
    asked = [value for value in test.values if class_name(value) in names]
    if any(not isinstance(value, Class | External) and value.key != "__name__" for value in asked):
        return None
    # Of a model that is not known, one class is that of its blocks; of several, one may be its own.
    return False if mine or len(names) == 1 else None


def _names(model: Value, with_bases: bool) -> set[str]:
    """The names of a model's class, and of its bases; none where the class is not known."""
    if not isinstance(model, Module):
        return set()
    if model.cls is None:
        return {last_name(model.library)} if model.library is not None else set()
    found: set[str] = set()
    todo: list[Value] = [model.cls]
    while todo:
        one = todo.pop()
        found.add(last_name(class_name(one)))
        if isinstance(one, Class) and with_bases and len(found) < 20:
            todo.extend(one.bases)
    return found
