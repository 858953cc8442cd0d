"""Whether a loop over the modules of a model shards the model itself, too."""

from __future__ import annotations

from typing import Any

from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.granularity import CONTAINERS, last_name
from fsdp_lint.trace.models import frameworks
from fsdp_lint.trace.trace import covers, related
from fsdp_lint.trace.values import (
    Choice,
    Class,
    Condition,
    Const,
    External,
    Guards,
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
    return _all_hold(shard.guards, drawn, drawn.owner) is not False


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
    if any(
        outcome is None and _asks_for_more(test, drawn) for (outcome, _), test in zip(found, shard.guards, strict=True)
    ):
        return True
    return any(outcome is holds for outcome, holds in found)


def _asks_for_more(test: Literal, drawn: Module) -> bool:
    """True for a test of one of many modules that is not of its class alone."""
    return drawn.number in test.about and test.key[0] not in ("isinstance", "named", "is")


def _outcome(key: tuple[Any, ...], test: Literal, drawn: Module, model: Value) -> bool | None:
    """How a test of one of many modules comes out for the model itself, or for a part of it; None where that is not
    known."""
    if model is drawn.owner and (found := _outcome_for_no_name(key, test, drawn)) is not None:
        return found
    match key:
        case ("all", inner):
            each = [(_outcome(one, test, drawn, model), holds) for one, holds in inner]
            if any(outcome is (not holds) for outcome, holds in each):
                return False
            return True if all(outcome is holds for outcome, holds in each) else None
        case ("isinstance", drawn.number, names):
            return _one_of(names, test, model, with_bases=True)
        case ("is", one, other) if {one, other} == {drawn.number, model.number}:
            return True
        case ("is", one, other):
            for number, beside in ((one, other), (other, one)):
                kind, known = _among(test, number), _among(test, beside)
                if kind is not None and _is_class(kind, drawn) and isinstance(known, Class | External):
                    return _one_of((class_name(known),), test, model)
        case ("in", one, other) if (kind := _among(test, one)) is not None and _is_class(kind, drawn):
            known = _among(test, other)
            items = known.items if isinstance(known, Sequence) and known.exact else []
            return _one_of(tuple(map(class_name, items)), test, model) if items else None
        case ("any()" | "all()" as how, number) if isinstance(many := _among(test, number), Sequence) and many.exact:
            truths = [_truth(item, drawn, model) for item in many.items]
            sure = how == "any()"
            return sure if sure in truths else None if None in truths else not sure
        case ("choice", number) if isinstance(value := _among(test, number), Choice):
            return _truth(value, drawn, model)
        case ("named", drawn.number, _, _) if test.values:
            return _among_names(test.values[0], test, model)
        case ("equals", number, content) if (left := _among(test, number)) is not None and left.key == "__name__":
            return _one_of((content,), test, model)
    return None


def _outcome_for_no_name(key: tuple[Any, ...], test: Literal, drawn: Module) -> bool | None:
    """How a test comes out for a module whose name is empty, as the model's own is; None where it asks for no name, or
    where that is not known."""
    match key:
        case ("has name", drawn.number):
            return False
        case ("has children", drawn.number):
            return True
        case ("equals", number, content) if (left := _among(test, number)) is not None:
            if _is_name(left, drawn):
                return bool(content == "")
            return False if isinstance(content, str) and content and _from_name(left, drawn) else None
        case ("in", _, other) if (text := _among(test, other)) is not None and _is_name(text, drawn):
            return False
        case ("in", one, other) if (name := _among(test, one)) is not None and _from_name(name, drawn):
            return _lists_no_name(_among(test, other))
        case ("choice", number, "In", other) if isinstance(value := _among(test, number), Choice):
            from_name = all(_from_name(option, drawn) for option, _ in value.options)
            return _lists_no_name(_among(test, other)) if from_name else None
        case ("truth", number) if (answer := _among(test, number)) is not None:
            # `name.startswith("layers")`: the model's own name is empty.
            return False if any(_is_name(one, drawn) for one in made_of(answer)) else None
    return None


def _truth(value: Value, drawn: Module, model: Value) -> bool | None:
    """Whether a value that tests of one of many modules came to is true for the model itself."""
    match value:
        case Const(value=content):
            return bool(content)
        case Condition(true=literals):
            return _all_hold(literals, drawn, model)
        case Choice(options=options):
            found = {_truth(o, drawn, model) for o, guards in options if _all_hold(guards, drawn, model) is not False}
            return found.pop() if len(found) == 1 else None
    return None


def _all_hold(literals: Guards, drawn: Module, model: Value) -> bool | None:
    found = [(_outcome(one.key, one, drawn, model), one.holds) for one in literals]
    if any(outcome is (not holds) for outcome, holds in found):
        return False
    return True if all(outcome is holds for outcome, holds in found) else None


def _lists_no_name(names: Value | None) -> bool | None:
    """False for a list of names of modules: a model's own name, which is empty, stands in none; None where it may."""
    if isinstance(names, Sequence) and any(not isinstance(item, Const) or not item.value for item in names.items):
        return None
    return False if isinstance(names, Sequence | Choice | Unknown) else None


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


def _from_name(value: Value, drawn: Module) -> bool:
    """True for a module's name, and for what is made of it alone: `name.split(".")[-1]`."""
    if _is_name(value, drawn):
        return True
    made = (*value.inputs, *([value.owner] if value.owner is not None else [])) if isinstance(value, Unknown) else ()
    sources = [one for one in made if not isinstance(one, Const)]
    return bool(sources) and all(_from_name(one, drawn) for one in sources)


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
