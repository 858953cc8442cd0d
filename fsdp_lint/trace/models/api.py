"""What a model of a library call may do: the abstract machine as the tables see it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from fsdp_lint.trace.events import Event
from fsdp_lint.trace.values import (
    Choice,
    Class,
    Condition,
    Const,
    Guards,
    Instance,
    Mapping,
    Module,
    Params,
    Tensor,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from fsdp_lint.source.file import Site

E = TypeVar("E", bound=Event)
V = TypeVar("V", bound=Value)


class Option(NamedTuple):
    """One of the values that a value can be, and what holds then."""

    value: Value
    guards: Guards


@dataclass(eq=False)
class Call:
    """One call: where, with what. `open` when `*` or `**` of something unknown was passed; `rest` are such values."""

    site: Site
    args: list[Value] = field(default_factory=list)
    kwargs: dict[str, Value] = field(default_factory=dict)
    open: bool = False
    rest: list[Value] = field(default_factory=list)
    self_value: Value = field(default_factory=Value)
    name: str = ""

    def get(self, position: int, keyword: str) -> Value | None:
        """The argument at a position or of a keyword; None when it was not given."""
        if keyword in self.kwargs:
            return self.kwargs[keyword]
        return self.args[position] if 0 <= position < len(self.args) else None

    def first(self, keyword: str = "") -> Value:
        """The first argument; something unknown when there is none."""
        return self.get(0, keyword) or Unknown()

    def values(self) -> list[Value]:
        """All arguments."""
        return [*self.args, *self.kwargs.values(), *self.rest]


class Machine(Protocol):
    """The abstract run, as the models use it."""

    touched: set[int]
    loops: list[int]
    contexts: list[str]

    def emit(self, kind: type[E], site: Site, **fields: Any) -> E:
        """Records an event."""

    def new(self, value: V) -> V:
        """Marks a value as born here."""

    def possible(self, value: Value) -> Value:
        """The value without the options that cannot be here."""

    def options(self, value: Value) -> list[Option]:
        """The values that a value can be here."""

    def under(self, option: Option) -> AbstractContextManager[None]:
        """Takes what an option needs for granted for a while."""

    def invoke(self, function: Value, call: Call) -> Value:
        """Calls any value."""

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name`."""

    def store(self, value: Value, key: str, content: Value) -> None:
        """`value.key = content`."""

    def stored(self, value: Value, key: str) -> Value | None:
        """What was stored under `key` in this run; None where nothing was."""

    def child(self, value: Value, key: str) -> Value:
        """What an unknown value has under `key`; the same each time."""

    def element(self, value: Value, each: str, backwards: bool = False) -> Module:
        """One unknown module out of those that `value` yields."""

    def assign_attribute(self, owner: Value, name: str, value: Value, site: Site) -> None:
        """`owner.name = value`, as a statement does it."""

    def library_bases(self, cls: Class) -> list[str]:
        """The dotted names of all library classes that a class is built on."""

    def field_names(self, cls: Class) -> list[str]:
        """The annotated names of a class and of its bases, in order."""

    def defaults(self, cls: Class) -> dict[str, Value]:
        """The fields of a dataclass where nothing else is said; none where a function of its own may set others."""

    def loosen(self, owner: Value) -> None:
        """Notes that an attribute of unknown name is set."""

    def attach(self, owner: Value, name: str, value: Value, site: Site) -> None:
        """Notes that something new becomes part of `owner`, once that is sharded."""

    def adopt(self, owner: Module, name: str, value: Value) -> None:
        """A module or parameter becomes part of `owner`."""

    def like(self, value: Value) -> Module | None:
        """A module of the class that a signature around names for a value, made apart from the run."""

    def external(self, dotted: str) -> Value:
        """A library thing by name."""

    def items(self, value: Value, site: Site) -> tuple[list[Value], bool]:
        """The items of an iterable, and whether these are exactly all."""

    def is_key(self, index: Value, key: Any) -> Guards:
        """That an index which is not known is this key of a dict."""

    def draw(self, value: Instance, site: Site) -> None:
        """Notes what an object's `__iter__` gives."""

    def put(self, into: Mapping, key: Any, content: Value) -> None:
        """`into[key] = content`."""

    def merge(self, into: Mapping, value: Value) -> None:
        """`into.update(value)`."""

    def take(self, params: Params, site: Site) -> Params:
        """Walks a parameter iterator: from here on the very objects are held."""

    def collect(self, value: Value, site: Site) -> list[Params]:
        """The parameters in a list, groups or an iterator; iterators are walked here."""

    def hand(self, call: Call, to: str) -> None:
        """The arguments go to code that is not known."""

    def passed(self, value: Value, test: Callable[[Value], bool]) -> Site | None:
        """The outermost call around that got `value`, or what it was made from, as an argument that passes the test."""

    def mentions_rank(self, value: Value) -> bool:
        """True when the value was made from the rank of the process."""

    def opaque_test(self, key: tuple[Any, ...], kind: str, *values: Value) -> Value:
        """A truth value of which only its identity, and what it speaks of, is known."""

    def each_option(self, value: Value, run: Callable[[Value], Value]) -> Value:
        """Does the same with every value that `value` can be, where it is that one, and joins the results."""

    def test_each(self, value: Choice, test: Callable[[Value], bool | None], *asked: str) -> Value:
        """The outcome of a test of one of several values, each tested where it is that one; None: not known."""

    def leave(self, failed: bool = False) -> None:
        """The body that is being run is left here; `failed` when by an error."""

    def with_tests(self, value: Value) -> Value:
        """A value with the tests that were made of it, as an item of a list that is read elsewhere."""

    def is_dtensor(self, value: Tensor) -> bool | None:
        """Whether a tensor is a DTensor; None when that is not known."""

    def is_instance(self, value: Value, cls: Value) -> bool | None:
        """Whether a value is an instance of a class; None when that is not known."""

    def enter_on(self, stack: Value, value: Value, site: Site) -> Value:
        """`stack.enter_context(value)`."""

    def call_on_exit(self, stack: Value, function: Value, call: Call) -> None:
        """`stack.callback(function, ...)`."""

    def close(self, stack: Value) -> None:
        """`stack.close()`."""

    def instance_test(self, value: Value, classes: Value) -> Condition | bool:
        """The outcome of `isinstance(value, classes)`."""

    def rank_test(self, scope: str) -> Value:
        """The truth value of `rank == 0`."""

    def settings(self, name: str, site: Site) -> Any:
        """What the file of settings of this name says; None where it is not known which file that is."""


Handler = Callable[[Machine, Call], Value]


def flag(value: Value | None) -> bool | None:
    """True or False for such a literal, else None."""
    return value.value if isinstance(value, Const) and isinstance(value.value, bool) else None


def constant_name(value: Value | None) -> str:
    """The text of a literal string, else nothing."""
    return value.value if isinstance(value, Const) and isinstance(value.value, str) else ""


NOTHING = Const(value=None)
