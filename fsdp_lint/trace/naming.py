"""What texts come to that are made of a module's name, where that name is known."""

from __future__ import annotations

import ast
import itertools

from fsdp_lint.trace.values import Const, Module, Unknown, Value

# Methods of a text by which names are taken apart; none changes anything.
_ASKED = frozenset(
    {
        "count",
        "endswith",
        "find",
        "isalpha",
        "isdecimal",
        "isdigit",
        "isnumeric",
        "lower",
        "lstrip",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rpartition",
        "rsplit",
        "rstrip",
        "split",
        "startswith",
        "strip",
    }
)


class NotKnown(Exception):
    """What a text comes to is not known."""


def is_name(value: Value, drawn: Module) -> bool:
    """True for the name that `named_modules()` gives with a module."""
    return isinstance(value, Unknown) and value.name == "name" and value.inputs == (drawn,)


def name_in(part: Value, model: Value) -> str | None:
    """The name of a part in a model, with dots: empty for the model itself; None where the part does not lie in it.
    An item that stands for all of a list is called by its first number."""
    keys = [one.key for one in itertools.takewhile(lambda one: one is not model, part.line())]
    if not any(one is model for one in part.line()) or not all(keys):
        return None
    return ".".join("0" if key == "[]" else key for key in reversed(keys))


def worth(value: Value, drawn: Module, name: str) -> object:
    """What a value is when the module `drawn` has this name: a text, a number, a truth or a list of them.

    Raises NotKnown where it is not made of the name alone.
    """
    if is_name(value, drawn):
        return name
    if isinstance(value, Const):
        return value.value
    if not isinstance(value, Unknown):
        raise NotKnown
    if value.owner is None:
        if (
            value.name == "len(...)"
            and len(value.inputs) == 1
            and isinstance(measured := worth(value.inputs[0], drawn, name), str | list | tuple)
        ):
            return len(measured)
        raise NotKnown
    try:
        return _reached(value.key, worth(value.owner, drawn, name))
    except (ValueError, SyntaxError, TypeError, LookupError) as error:
        raise NotKnown from error


def _reached(key: str, of: object) -> object:
    """What stands behind a step: an index, a call with its arguments, or a method of a text."""
    if key.startswith("[") and isinstance(of, str | list | tuple):
        return of[ast.literal_eval(key[1:-1])]
    if key.startswith("(") and callable(of):
        return of(*ast.literal_eval(f"[{key[1:-1]}]"))
    if key in _ASKED and isinstance(of, str):
        return getattr(of, key)
    raise NotKnown
