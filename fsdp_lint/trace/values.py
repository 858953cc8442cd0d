"""The values of an abstract run: what a name can stand for. A value never changes; events happen to it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import libcst as cst

    from fsdp_lint.source.file import Site
    from fsdp_lint.trace.events import Event

# The library name that stands for a key that may not be in a dict.
MISSING = "<missing>"
# The name of `next(module.parameters(), None)`, of which it is not known whether there is one.
FIRST_PARAMETER = "first parameter"

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """One fact that a branch takes for granted: the test `key` came out as `holds`.

    `kind` is "rank" (which rank runs here), "local-rank", "single" (the run is not distributed), "type" (what `subject`
    is an instance of, `classes` names them), "handler" (an except clause), "turn" (every so many rounds) or "other".
    `depth` is the number of calls around the branch; `about` are the numbers of the values that the test speaks of,
    `words` are their names and the texts that they are compared with; `values` are those that it compares, `site` is
    where an `if` makes it.
    """

    key: tuple[Any, ...]
    holds: bool
    kind: str = "other"
    depth: int = 0
    subject: Value | None = None
    classes: tuple[str, ...] = ()
    about: frozenset[int] = frozenset()
    words: tuple[str, ...] = ()
    values: tuple[Value, ...] = ()
    site: Site | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Literal)
            and self.holds is other.holds
            and self.key == other.key
            and self.kind == other.kind
        )

    def __hash__(self) -> int:
        return hash(self.key)

    def but(self, *, holds: bool | None = None, depth: int | None = None, site: Site | None = None) -> Literal:
        """The same fact with another outcome, depth or site; `dataclasses.replace` takes four times as long."""
        return Literal(
            self.key,
            self.holds if holds is None else holds,
            self.kind,
            self.depth if depth is None else depth,
            self.subject,
            self.classes,
            self.about,
            self.words,
            self.values,
            self.site if site is None else site,
        )


Guards = tuple[Literal, ...]


def exclusive(one: Guards, other: Guards) -> bool:
    """True when no run can pass through both."""
    if not one or not other:
        return False
    # Only tests of the same thing can break each other, and most are of other things.
    if one is other:
        one = other = _of_one_thing(one)
    else:
        other = _about(other, one)
        one = _about(one, other)
    if not one:
        return False
    if _breaks(one, other) or (one is not other and _breaks(other, one)):
        return True
    outcomes = {literal.key: literal.holds for literal in other}
    equal = {literal.key[1]: literal.key[2] for literal in other if literal.holds and literal.key[0] == "equals"}
    for literal in one:
        known = outcomes.get(literal.key)
        if known is not None:
            if known is not literal.holds:
                return True
        elif equal and literal.holds and literal.key[0] == "equals" and literal.key[1] in equal:
            return True
    return False


def _about(guards: Guards, others: Guards) -> Guards:
    """Those of the guards that are of the same thing as one of the others."""
    if not others:
        return ()
    asked = _asked(others[0].key)
    if len(others) > 1:
        asked = asked.union(*[_asked(literal.key) for literal in others])
    return tuple([literal for literal in guards if not asked.isdisjoint(_asked(literal.key))])


def _of_one_thing(guards: Guards) -> Guards:
    """Those of the guards that are of the same thing as another one of them."""
    if len(guards) == 1:
        return ()
    asked = [_asked(literal.key) for literal in guards]
    if len(frozenset().union(*asked)) == sum(map(len, asked)):
        return ()
    return guards


@functools.lru_cache(maxsize=1 << 12)
def _asked(key: tuple[Any, ...]) -> frozenset[Any]:
    """What a test is of: tests of which none is of the same thing say nothing of each other."""
    if key[0] == "all":
        return frozenset().union(*(_asked(inner) for inner, _ in key[1]))
    return frozenset(key[:2][-1:])


def _breaks(one: Guards, other: Guards) -> bool:
    """True when `one` says that not all of some tests hold, or how a number compares, and `other` says otherwise."""
    return any(implied(literal.key, not literal.holds, other) for literal in one)


def implied(key: tuple[Any, ...], holds: bool, guards: Guards) -> bool:
    """True when the test `key` comes out as `holds` wherever `guards` hold."""
    kind = key[0]
    if kind == "all":
        found = (implied(inner, outcome if holds else not outcome, guards) for inner, outcome in key[1])
        return all(found) if holds else any(found)
    for literal in guards:
        known = literal.key
        if known == key:
            return literal.holds is holds
        if len(known) < 2 or len(key) < 2 or known[1] != key[1]:
            continue
        if kind == "truth":
            true = _truth(literal)
            if true is not None:
                return true is holds
        if known[0] == "equals" and literal.holds and len(key) > 2:
            value = known[2]
            if kind == "equals":
                return not holds and value != key[2]
            if kind in ("greater", "less") and isinstance(value, int | float):
                return (value > key[2] if kind == "greater" else value < key[2]) is holds
        if known[0] in ("greater", "less") and literal.holds and kind == "equals":
            if isinstance(key[2], int | float):
                return not holds and not (key[2] > known[2] if known[0] == "greater" else key[2] < known[2])
    return False


def _truth(literal: Literal) -> bool | None:
    """Whether a value counts as true by a test of it; None where the test does not tell."""
    kind = literal.key[0]
    if kind == "none":
        return False if literal.holds else None
    if kind == "equals" and literal.holds:
        return bool(literal.key[2])
    if kind == "greater" and literal.holds and literal.key[2] >= 0:
        return True
    return None


@dataclass(eq=False, slots=True)
class Value:
    """Anything a name can stand for. `owner` is the value that it was reached through, by attribute or item `key`."""

    name: str = ""
    owner: Value | None = None
    key: str = ""
    loops: tuple[int, ...] = ()
    number: int = field(default_factory=_numbers.__next__)

    def line(self) -> Iterator[Value]:
        """This value and what it was reached through, innermost first."""
        value: Value | None = self
        seen = set()
        while value is not None and value.number not in seen:
            seen.add(value.number)
            yield value
            value = value.owner


@dataclass(eq=False, slots=True)
class Unknown(Value):
    """A value of which nothing is known but the way to it; `inputs` are values that it was made from. Of a text,
    `begins` is the part that is known."""

    inputs: tuple[Value, ...] = ()
    begins: str = ""


@dataclass(eq=False, slots=True)
class Product(Unknown):
    """A product of which one factor, in `inputs`, is the number of processes."""


@dataclass(eq=False, slots=True)
class Dimensions(Unknown):
    """The shape of a tensor, or how many dimensions it has."""

    tensor: Tensor | None = None


@dataclass(eq=False, slots=True)
class Loaded(Unknown):
    """What a file holds, as torch.load or safetensors read it. `path_by_rank`: each rank has a file of its own."""

    path_by_rank: bool = False


@dataclass(eq=False, slots=True)
class Const(Value):
    """A literal: number, string, None, True ..."""

    value: Any = None


@dataclass(eq=False, slots=True)
class Sequence(Value):
    """A list, tuple or set. Not `exact`: each item stands for any number of its kind. `times` says how many, where
    that is a value; `children_of` is the module whose children these are; `chosen_by` are the values that say which
    items of something larger these are, or that something itself. `lazy` are the collectives that are made each time
    something goes over it: it comes from a generator."""

    items: list[Value] = field(default_factory=list)
    exact: bool = True
    times: Value | None = None
    children_of: Value | None = None
    chosen_by: tuple[Value, ...] = ()
    lazy: tuple[Event, ...] = ()


@dataclass(eq=False, slots=True)
class Mapping(Value):
    """A dict. `items` by literal key; `rest` are values under keys that are not known; `open` when there may be more.
    `born` are the guards under which it was made. `default` makes what a key is asked for that is not there. `keys` are
    those of contents in `rest` that are tensors, by the number of the content."""

    items: dict[Any, Value] = field(default_factory=dict)
    rest: list[Value] = field(default_factory=list)
    open: bool = False
    born: Guards = ()
    default: Value | None = None
    keys: dict[int, Value] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class External(Value):
    """A thing of a library, by its public dotted name."""

    dotted: str = ""


@dataclass(eq=False, slots=True)
class Object(Value):
    """What a call to a library class gave: its class, its arguments, and where it was made."""

    cls: str = ""
    args: tuple[Value, ...] = ()
    kwargs: dict[str, Value] = field(default_factory=dict)
    site: Site | None = None

    def get(self, position: int, keyword: str) -> Value | None:
        """The argument at a position or of a keyword; None when it was not given."""
        if keyword in self.kwargs:
            return self.kwargs[keyword]
        return self.args[position] if position < len(self.args) else None


@dataclass(eq=False, slots=True)
class ProjectModule(Value):
    """An imported file of the project."""

    path: Path = Path()


@dataclass(eq=False, slots=True)
class Function(Value):
    """A function or lambda of the project."""

    path: Path = Path()
    qualname: str = ""
    node: cst.FunctionDef | cst.Lambda | None = None
    scope: Any = None
    cls: Class | None = None


@dataclass(eq=False, slots=True)
class Bound(Value):
    """A method, with the value that it is called on."""

    function: Function = field(default_factory=Function)
    self_value: Value = field(default_factory=Value)


@dataclass(eq=False, slots=True)
class Method(Value):
    """A method of a library class, or of an unknown value: `name` of `self_value`."""

    self_value: Value = field(default_factory=Value)
    method: str = ""


@dataclass(eq=False, slots=True)
class Partial(Value):
    """functools.partial, or a decorated function: a callable with some arguments given."""

    function: Value = field(default_factory=Value)
    args: tuple[Value, ...] = ()
    kwargs: dict[str, Value] = field(default_factory=dict)
    open: bool = False


@dataclass(eq=False, slots=True)
class Entering(Unknown):
    """What a call of a function gave that makes a context of a generator: nothing of it is run before it is entered."""

    function: Function = field(default_factory=Function)
    call: Any = None
    self_value: Value | None = None


@dataclass(eq=False, slots=True)
class Class(Value):
    """A class of the project. `bases` are filled in when they are first asked for, at the latest when it is called."""

    path: Path = Path()
    qualname: str = ""
    node: cst.ClassDef | None = None
    scope: Any = None
    bases: tuple[Value, ...] = ()


@dataclass(eq=False, slots=True)
class Instance(Value):
    """An object of a project class; `args` are all arguments with which it was made. `draws` is what its `__iter__`
    gives, or its `__len__` where it has none, once something has gone over it."""

    cls: Class = field(default_factory=Class)
    args: tuple[Value, ...] = ()
    draws: Value | None = None


@dataclass(eq=False, slots=True)
class Super(Value):
    """`super()` in a method of `cls`."""

    cls: Class = field(default_factory=Class)
    self_value: Value = field(default_factory=Value)


@dataclass(eq=False, slots=True)
class Module(Value):
    """An nn.Module: of a project class, of a library class by its dotted name, or of an unknown one (None).

    `children` by attribute name, in order. `count` says how many alike this one stands for (a block in a ModuleList
    built by a comprehension); None when that is not known. `wraps` is the module inside an FSDP1 or DDP wrapper.
    `each` says what an unknown one of many was drawn from: "modules", "children" or "items"; `backwards`: in reverse.
    `holders` are modules that hold it besides its owner. `buffers` are the names of those registered. `born` is the
    number of events that came before it was made, `within` are the with-blocks around that place. `program`: it is not
    the model but the program around it (a LightningModule). One of a project class that is a list or dict of modules
    has both `cls` and `library`; `forward`: its class has a forward all the same.
    """

    cls: Class | None = None
    library: str | None = None
    args: tuple[Value, ...] = ()
    kwargs: dict[str, Value] = field(default_factory=dict)
    children: dict[str, Module] = field(default_factory=dict)
    parameters: dict[str, Value] = field(default_factory=dict)
    count: int | None = 1
    wraps: Value | None = None
    each: str = ""
    backwards: bool = False
    built: bool = False
    holders: list[Value] = field(default_factory=list)
    buffers: set[str] = field(default_factory=set)
    born: int = 0
    within: tuple[str, ...] = ()
    program: bool = False
    forward: bool = False

    def items(self) -> list[Module]:
        """What a container holds as its items: one of a project class may have modules of other names besides."""
        if self.cls is None or not (self.library or "").endswith("List"):
            return list(self.children.values())
        return [child for key, child in self.children.items() if key.isdecimal() or key[:1] == "["]


@dataclass(eq=False, slots=True)
class Params(Value):
    """Parameters of modules. `taken` is the event that walked the iterator; None while nobody has. `key` is the name of
    the parameter where it is one of its module's own."""

    of: tuple[Value, ...] = ()
    taken: Event | None = None
    named: bool = False


@dataclass(eq=False, slots=True)
class Tensor(Value):
    """A tensor that comes from parameters, gradients or a state dict.

    `source` is the Params or StateDict, `inputs` are the tensors that it was computed from. `form` is one of:
    "parameter", "gradient", "entry" (of a state dict), "shard" (a DTensor computed elementwise), "partial" and
    "partial-norm" (a reduction of a DTensor), "norm" (what clip_grad_norm_ returns), "local" (to_local()),
    "local-reduced", "full", "copy" (a value that no longer follows the parameter), "number" (read by item()), "weight"
    (an nn.Parameter as it is made). `cut` is where to_local() gave it, `by` is the reduction that did ("any").
    """

    source: Value | None = None
    form: str = "shard"
    inputs: tuple[Tensor, ...] = ()
    cut: Site | None = None
    by: str = ""

    def ancestry(self) -> set[int]:
        """Numbers of this tensor and of all that it was computed from."""
        seen: set[int] = set()
        todo: list[Tensor] = [self]
        while todo:
            tensor = todo.pop()
            if tensor.number not in seen:
                seen.add(tensor.number)
                todo.extend(tensor.inputs)
        return seen


@dataclass(eq=False, slots=True)
class Optimizer(Value):
    """An optimizer and the parameters that it was given, in so many groups; none where they are a plain list. `by` is
    its class where that is one of the project."""

    holds: tuple[Params, ...] = ()
    groups: int = 0
    cls: str = ""
    kwargs: dict[str, Value] = field(default_factory=dict)
    by: Class | None = None


@dataclass(eq=False, slots=True)
class StateDict(Value):
    """A state dict. `form`: "raw" (module.state_dict()), "sharded", "full" (gathered), "full-rank0" (gathered, empty on
    the other ranks) or "unknown"."""

    of: Value = field(default_factory=Value)
    form: str = "raw"


@dataclass(eq=False, slots=True)
class Mesh(Value):
    """A device mesh: sizes and names of its dimensions, as far as they are known. `of` is the mesh that it is a slice
    of; `slices` are its own, by their names."""

    device: Value = field(default_factory=Value)
    sizes: Value | None = None
    names: Value | None = None
    of: Mesh | None = None
    slices: dict[tuple[str, ...], Mesh] = field(default_factory=dict)

    def dimensions(self) -> int | None:
        """How many there are; None when that is not known."""
        for given in (self.names, self.sizes):
            if isinstance(given, Sequence) and given.exact:
                return len(given.items)
        return None

    def dimension_names(self) -> tuple[str, ...]:
        """Their names, where all are literal; else none."""
        items = self.names.items if isinstance(self.names, Sequence) and self.names.exact else []
        found = [item.value for item in items if isinstance(item, Const) and isinstance(item.value, str)]
        return tuple(found) if len(found) == len(items) else ()


@dataclass(eq=False, slots=True)
class Rank(Value):
    """This process's number: `scope` "world", "local" (on its host) or "group" (in a subgroup)."""

    scope: str = "world"


@dataclass(eq=False, slots=True)
class WorldSize(Value):
    """The number of processes; of a group, which is then the owner."""


@dataclass(eq=False, slots=True)
class Condition(Value):
    """The outcome of a test: what holds when it is true, and what when it is false."""

    true: Guards = ()
    false: Guards = ()


@dataclass(eq=False, slots=True)
class Choice(Value):
    """One of several values, each with what holds when it is that one."""

    options: tuple[tuple[Value, Guards], ...] = ()


def options_of(value: Value) -> tuple[tuple[Value, Guards], ...]:
    """The values that `value` can be, with their guards."""
    if isinstance(value, Choice):
        return value.options
    return ((value, ()),)


def choice(options: list[tuple[Value, Guards]], limit: int = 8) -> Value:
    """One value for several possible ones; a plain one when they are the same."""
    flat: list[tuple[Value, Guards]] = []
    for value, guards in options:
        for inner, more in options_of(value):
            merged = guards + tuple([g for g in more if g not in guards]) if more else guards
            if exclusive(merged, merged):
                continue
            for at, (other, known) in enumerate(flat):
                if same(other, inner):
                    flat[at] = (other, tuple(g for g in known if g in merged))
                    break
            else:
                flat.append((inner, merged))
    if len(flat) == 1:
        return flat[0][0]
    if not flat or len(flat) > limit:
        return Unknown(inputs=tuple(value for value, _ in flat))
    return Choice(options=tuple(flat))


def same(one: Value, other: Value) -> bool:
    """True for one value, and for equal literals and library names."""
    if one is other:
        return True
    if isinstance(one, Const) and isinstance(other, Const):
        return type(one.value) is type(other.value) and bool(one.value == other.value)
    if isinstance(one, External) and isinstance(other, External):
        return one.dotted == other.dotted
    return isinstance(one, Rank) and isinstance(other, Rank) and one.scope == other.scope


def parts(value: Value, deep: int = 6) -> Iterator[Value]:
    """`value` and what lists, dicts and choices hold in it."""
    yield value
    if deep == 0:
        return
    inner: list[Value] = []
    if isinstance(value, Sequence):
        inner = value.items
    elif isinstance(value, Mapping):
        inner = [*value.items.values(), *value.rest]
    elif isinstance(value, Choice):
        inner = [option for option, _ in value.options]
    for item in inner:
        yield from parts(item, deep - 1)


def class_name(value: Value) -> str:
    """The name of what stands for a class: dotted where a library has it."""
    return value.dotted if isinstance(value, External) else value.name


def is_number(value: Value | None) -> bool:
    """True for a number that is known."""
    return isinstance(value, Const) and isinstance(value.value, int | float) and not isinstance(value.value, bool)


def made_of(value: Value) -> Iterator[Value]:
    """The value, and all that it was made from or reached through, each once."""
    todo, seen = [value], set()
    while todo:
        one = todo.pop()
        if one.number in seen:
            continue
        seen.add(one.number)
        yield one
        todo.extend(parts(one))
        todo.extend(one.inputs if isinstance(one, Unknown) else ())
        todo.extend(one.args if isinstance(one, Object | Instance) else ())
        todo.extend(one.kwargs.values() if isinstance(one, Object) else ())
        todo.extend([one.owner] if one.owner is not None else ())


def origins(*values: Value) -> frozenset[int]:
    """Numbers of the values, of what they were reached through, and of what they were made from."""
    found: set[int] = set()
    todo: list[Value] = list(values)
    while todo:
        one = todo.pop()
        if one.number in found:
            continue
        found.add(one.number)
        if one.owner is not None:
            todo.append(one.owner)
        if isinstance(one, Unknown):
            todo.extend(one.inputs)
        elif isinstance(one, Choice):
            todo.extend([option for option, _ in one.options])
            found.update(*[spoken_of(guards) for _, guards in one.options])
        elif isinstance(one, Sequence):
            todo.extend(one.items)
        elif isinstance(one, Tensor):
            todo.extend(one.inputs if one.source is None else (*one.inputs, one.source))
        elif isinstance(one, Params):
            todo.extend(one.of)
        elif isinstance(one, Condition):
            found.update(spoken_of(one.true + one.false))
    return frozenset(found)


def spoken_of(guards: Guards) -> frozenset[int]:
    """Numbers of the values that the tests speak of."""
    subjects = {literal.subject.number for literal in guards if literal.subject is not None}
    return frozenset(subjects.union(*[literal.about for literal in guards]))
