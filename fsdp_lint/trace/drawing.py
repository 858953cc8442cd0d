"""Whether a loop over the modules of a model shards the model itself, too."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.granularity import CONTAINERS, last_name, owns_parameters
from fsdp_lint.trace.models import frameworks
from fsdp_lint.trace.naming import NotKnown, is_name, name_in, worth
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

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"equals": operator.eq, "less": operator.lt, "greater": operator.gt}


@dataclass(frozen=True, slots=True)
class Met:
    """One of the modules that a loop over `model.modules()` meets: its variable `drawn` stands for `module` then, which
    the model knows by `name`; None where that is not known."""

    drawn: Module
    module: Value
    name: str | None


def may_shard_itself(shard: Shard, model: Value) -> bool:
    """True when a sharding call in a loop over `model.modules()` meets `model` itself, unless a test keeps it out."""
    drawn = shard.module
    if not isinstance(drawn, Module) or drawn.each != "modules" or drawn.owner is None:
        return False
    if not related(drawn.owner, model):
        return False
    return _all_hold(shard.guards, Met(drawn, drawn.owner, "")) is not False


def may_shard_part(shard: Shard, part: Value) -> bool:
    """True when a sharding call in a loop over `model.modules()` asks for a part of the model by its class or its name,
    or for each item of a list in it, or for all that something in it is made of."""
    drawn = shard.module
    if not isinstance(drawn, Module) or drawn.each != "modules" or drawn.owner is None or not isinstance(part, Module):
        return False
    if last_name(part.library or "") in CONTAINERS and part.items():
        return all(may_shard_part(shard, item) for item in part.items())
    if not covers(drawn.owner, part):
        return False
    met = Met(drawn, part, name_in(part, drawn.owner))
    found = [(_outcome(test.key, test, met), test) for test in shard.guards]
    if any(outcome is (not test.holds) for outcome, test in found):
        inner = [child for child in part.children.values() if owns_parameters(child)]
        return bool(inner) and not part.parameters and all(may_shard_part(shard, child) for child in inner)
    if any(outcome is None and _asks_for_more(test, drawn) for outcome, test in found):
        return True
    return any(outcome is test.holds for outcome, test in found)


def _asks_for_more(test: Literal, drawn: Module) -> bool:
    """True for a test of one of many modules that is not of its class alone."""
    return drawn.number in test.about and test.key[0] not in ("isinstance", "named", "is")


def _outcome(key: tuple[Any, ...], test: Literal, met: Met) -> bool | None:
    """How a test of one of many modules comes out for the one that is met; None where that is not known."""
    if (found := _outcome_by_name(key, test, met)) is not None:
        return found
    drawn, model = met.drawn, met.module
    match key:
        case ("all", inner):
            return _both([(_outcome(one, test, met), holds) for one, holds in inner])
        case ("has children", drawn.number):
            return True if model is drawn.owner else None
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
            found = _one_of(tuple(map(class_name, items)), test, model) if items else None
            return found if found is not None or known is None else _among_layers(known, met)
        case ("any()" | "all()" as how, number) if isinstance(many := _among(test, number), Sequence) and many.exact:
            truths = [_truth(item, met) for item in many.items]
            sure = how == "any()"
            return sure if sure in truths else None if None in truths else not sure
        case ("choice", number) if isinstance(value := _among(test, number), Choice):
            return _truth(value, met)
        case ("named", drawn.number, _, _) if test.values:
            return _among_names(test.values[0], test, met)
        case ("equals", number, content) if (left := _among(test, number)) is not None and left.key == "__name__":
            return _one_of((content,), test, model)
    return None


def _outcome_by_name(key: tuple[Any, ...], test: Literal, met: Met) -> bool | None:
    """How a test comes out for a module of a known name, the model's own being empty; None where it asks for none, or
    where that is not known."""
    if met.name is None:
        return None
    if key == ("has name", met.drawn.number):
        return bool(met.name)
    try:
        match key:
            case ("truth", number) if (asked := _among(test, number)) is not None:
                return bool(worth(asked, met.drawn, met.name))
            case ("equals" | "less" | "greater" as how, number, content) if (left := _among(test, number)) is not None:
                return bool(_COMPARE[how](worth(left, met.drawn, met.name), content))
            case ("in", str(text), number) if (whole := _among(test, number)) is not None:
                return str(ast.literal_eval(text)) in str(worth(whole, met.drawn, met.name))
            case ("in", number, names) if (left := _among(test, number)) is not None:
                return _is_listed(worth(left, met.drawn, met.name), names, test)
            case ("choice", number, "In", names) if isinstance(value := _among(test, number), Choice):
                found = {_is_listed(worth(option, met.drawn, met.name), names, test) for option, _ in value.options}
                return found.pop() if len(found) == 1 else None
    except (NotKnown, TypeError):
        # `re.match("layers", name)`: the model's own name is empty.
        if not met.name and key[0] == "truth" and (asked := _among(test, key[1])) is not None:
            return False if any(is_name(one, met.drawn) for one in made_of(asked)) else None
    return None


def _is_listed(asked: object, names: Any, test: Literal) -> bool | None:
    """Whether a text stands among names, which a test knows by their number or by what they are. A model's own name,
    which is empty, stands in no list of a setting."""
    if isinstance(names, tuple):
        return asked in [ast.literal_eval(name) for name in names]
    if isinstance(names, str):
        return str(asked) in str(ast.literal_eval(names))
    listed = _among(test, names)
    if isinstance(listed, Sequence):
        known = [item.value for item in listed.items if isinstance(item, Const)]
        if asked in known:
            return True
        return False if len(known) == len(listed.items) and (listed.exact or not asked) else None
    return False if isinstance(listed, Choice | Unknown) and asked == "" else None


def _truth(value: Value, met: Met) -> bool | None:
    """Whether a value that tests of one of many modules came to is true for the one that is met."""
    match value:
        case Const(value=content):
            return bool(content)
        case Condition(true=literals):
            return _all_hold(literals, met)
        case Choice(options=options):
            found = {_truth(option, met) for option, guards in options if _all_hold(guards, met) is not False}
            return found.pop() if len(found) == 1 else None
    return None


def _all_hold(literals: Guards, met: Met) -> bool | None:
    return _both([(_outcome(one.key, one, met), one.holds) for one in literals])


def _both(found: list[tuple[bool | None, bool]]) -> bool | None:
    """Whether all tests come out as they should, by how each does; None where that is not known."""
    if any(outcome is (not holds) for outcome, holds in found):
        return False
    return True if all(outcome is holds for outcome, holds in found) else None


def _among_names(names: Value, test: Literal, met: Met) -> bool | None:
    """Whether the name of a module's class is this, or among these."""
    if isinstance(names, Sequence) and names.exact and all(isinstance(item, Const) for item in names.items):
        return _one_of(tuple(str(item.value) for item in names.items if isinstance(item, Const)), test, met.module)
    if isinstance(names, Const) and isinstance(names.value, str):
        return _one_of((names.value,), test, met.module)
    return _among_layers(names, met)


def _among_layers(names: Value, met: Met) -> bool | None:
    """Whether a module is one of the layers that a setting lists, as its name says: the model itself is none."""
    if not any(frameworks.NAMES_LAYERS.search(f"{one.name} {one.key}") for one in made_of(names)):
        return None
    return False if met.name == "" else met.module.key.isdecimal() or met.module.key == "[]" or None


def _among(test: Literal, number: Any) -> Value | None:
    return next((value for value in test.values if value.number == number), None)


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
