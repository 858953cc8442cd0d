"""A trace: what happened in one run, and the questions that rules may ask of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fsdp_lint.source.structure import inner
from fsdp_lint.trace.events import (
    Backward,
    Collective,
    ConfigureFSDP,
    Event,
    Forward,
    Handed,
    Replicate,
    RepointOptimizer,
    Reshard,
    Shard,
    ShardEach,
    Step,
    TakeState,
    Unshard,
)
from fsdp_lint.trace.values import (
    MISSING,
    Choice,
    Const,
    External,
    Guards,
    Literal,
    Module,
    Optimizer,
    Params,
    Sequence,
    StateDict,
    Tensor,
    Value,
    exclusive,
    implied,
    options_of,
    parts,
)

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

    from fsdp_lint.source.file import Site

E = TypeVar("E", bound=Event)

NONE = Const(value=None)

# The arguments of a sharding call that leave parameters out of it.
IGNORING = ("ignored_params", "ignored_modules", "ignored_states")

# What these names get of an optimizer, they only read.
SCHEDULERS = re.compile(
    r"^print$|schedul|warmup|cosine|(^|_|\.)lr(_|$)|scaler|logger|^log|print|monitor|profil", re.IGNORECASE
)


@dataclass(frozen=True)
class Leave:
    """A body is left early: whoever passes `guards` does not reach what follows in `stack`.

    `failed`: by an error, which ends the run.
    """

    guards: Guards
    stack: tuple[Site, ...]
    order: int
    failed: bool = False


@dataclass(frozen=True)
class Stop:
    """A `break`: whoever passes `guards` makes no further round of `loop`, the number that events have."""

    guards: Guards
    loop: int
    order: int


@dataclass
class Trace:
    """The events of one run from one root, in order.

    `torch` is the range of torch releases that the project allows (None: the newest); `gpu_memory` is in GiB. `given`
    are the numbers of values that came from outside the run (parameters of a function that nobody calls). `launch` is
    what a file for accelerate's launcher asks for, where one belongs to this program. `transformers` is the range of
    its releases that the project declares (None: nothing is known).
    """

    events: list[Event] = field(default_factory=list)
    torch: SpecifierSet | None = None
    gpu_memory: float = 80.0
    given: set[int] = field(default_factory=set)
    leaves: list[Leave] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    root: Path = Path()
    launch: ConfigureFSDP | None = None
    transformers: SpecifierSet | None = None
    finished: bool = True

    def every(self, kind: type[E]) -> Iterator[E]:
        """All events of one kind, in order."""
        return (event for event in self.events if isinstance(event, kind))

    def before(self, first: Event, second: Event, about: Value | None = None) -> bool:
        """True when `first` happens before `second` in some run.

        In a loop both orders hold, unless `about`, the value of which both speak, is a new one in each round. There is
        no order between methods that nobody calls.
        """
        if exclusive(first.guards, second.guards) or first.entry != second.entry:
            return False
        if first.order < second.order:
            return True
        born = about.loops if about is not None else ()
        return any(loop > 0 and loop in second.loops and loop not in born for loop in first.loops)

    def shards(self, module: Value, generation: int | None = None) -> Iterator[Shard]:
        """The sharding calls that touch `module`: on itself, on a part of it, or on something that it is part of."""
        for event in self.every(Shard):
            if (generation is None or event.generation == generation) and touches(event.module, module):
                yield event

    def settings_of(self, made: Value | None) -> ConfigureFSDP | None:
        """The settings of FSDP that an object of a framework was made with; None where there are none."""
        return next((event for event in self.every(ConfigureFSDP) if event.made is made), None)

    def covering(self, module: Value, at: Event, generation: int | None = None) -> Shard | None:
        """The sharding call that has sharded `module`, itself or with what it is part of, when `at` happens."""
        for event in self._shards_until(at, generation):
            if any(covers(one, module) for one in (event.module, *event.group)) and not leaves_out(event, module):
                return event
        return None

    def unit_of(self, module: Value, at: Event) -> Shard | None:
        """The sharding call in whose unit the parameters of `module` itself lie, in runs that pass the event."""
        found: Shard | None = None
        nearest = 0
        for event in self.every(Shard):
            if event.generation != 2 or exclusive(event.guards, at.guards):
                continue
            for way, outer in enumerate(chain(module)):
                if any(outer is one for one in (event.module, *event.group)):
                    if found is None or way < nearest:
                        found, nearest = event, way
                    break
        return found

    def sharded(self, module: Value, at: Event, generation: int | None = None) -> Shard | None:
        """The sharding call by which parameters of `module` are sharded when `at` happens: on, around or in it."""
        for event in self._shards_until(at, generation):
            if touches(event.module, module) and not leaves_out(event, module):
                return event
        for each in self.every(ShardEach):
            if touches(each.module, module) and (each.order < at.order) and generation != 1:
                return Shard(site=each.site, module=each.module, generation=2, guards=each.guards, order=each.order)
        return None

    def _shards_until(self, at: Event, generation: int | None) -> Iterator[Shard]:
        """The sharding calls that may have been made when `at` happens, of one generation of FSDP or of both."""
        for event in self.every(Shard):
            if generation is not None and event.generation != generation:
                continue
            if (event.entry != at.entry or event.order < at.order) and not exclusive(event.guards, at.guards):
                yield event

    def handed(self, value: Value, since: Event | None = None) -> Iterator[Handed]:
        """The calls to unknown code that got `value`, something that holds it, or something that it holds.

        With `since`, those on its path, and not the very call that leads to that event where it is of another function.
        """
        for event in self.every(Handed):
            if event.to == "print":
                continue
            if since is not None and (exclusive(event.guards, since.guards) or instead(event, since)):
                continue
            for one in event.values:
                if any(part is value or touches(part, value) for part in parts(one)):
                    yield event
                    break

    def handed_before(self, value: Value, until: Event) -> Iterator[Handed]:
        """The calls to unknown code that got `value`, something that holds it, or something that it holds, and that
        come before an event, or may."""
        return (event for event in self.handed(value, until) if self.may_precede(event, until, value))

    def may_precede(self, first: Event, second: Event, about: Value) -> bool:
        """True when `first` comes before `second`, which speaks of `about`, or may: the methods of a class come in no
        order, but behind its `__init__`."""
        if first.entry != second.entry:
            return second.entry != 0
        return self.before(first, second, about)

    def handed_over(self, value: Value) -> Iterator[Handed]:
        """The calls to unknown code that got this very value, or a list or dict with it."""
        for event in self.every(Handed):
            if event.to == "return" or SCHEDULERS.search(event.to):
                continue
            if any(part is value for one in event.values for part in parts(one)):
                yield event

    def taken(self, state: StateDict) -> TakeState | None:
        """Where a state dict is taken; None where the run did not see it."""
        return next((event for event in self.every(TakeState) if event.state is state), None)

    def looked_after(self, optimizer: Optimizer) -> bool:
        """True when an optimizer gets other parameters later, or goes to unknown code that may give it some."""
        if any(event.optimizer is optimizer for event in self.every(RepointOptimizer)):
            return True
        return any(True for _ in self.handed_over(optimizer))

    def shards_after(self, params: Params) -> list[Shard]:
        """The sharding calls that replace parameters after these were taken."""
        if params.taken is None:
            return []
        found = []
        for module in params.of:
            for event in self.shards(module):
                if event.order < params.taken.order and self._sharded_each_round(module, event, params.taken):
                    continue
                if not self.before(params.taken, event, module):
                    continue
                if not leaves_out(event, module) and not spares(event, params):
                    found.append(event)
        return found

    def _sharded_each_round(self, module: Value, shard: Shard, taken: Event) -> bool:
        """True when a loop around both would shard this very module again, which no second round can do."""
        shared = set(shard.loops) & set(taken.loops)
        return any(
            each.generation == 2 and related(each.module, module) and shared & set(each.loops)
            for each in self.every(Shard)
        )

    def calls_unknown_setup(self, until: int) -> bool:
        """True when unknown code, which may have set up the process, ran before the event of that number."""
        return any(
            event.order < until and any(word in event.to.lower() for word in ("setup", "init", "accelerat", "fabric"))
            for event in self.every(Handed)
        )

    def ignores_some(self, module: Value) -> bool:
        """True when a sharding call around or in `module` leaves out some of its parameters."""
        return any(
            not isinstance(event.kwargs.get(name, NONE), Const) for event in self.shards(module) for name in IGNORING
        )

    def replicated(self, module: Value, at: Event) -> bool:
        """True when DDP or `replicate` also looks after `module` on the path of `at`."""
        return any(
            touches(event.module, module) and not exclusive(event.guards, at.guards) for event in self.every(Replicate)
        )

    def averaged(self, module: Value) -> bool:
        """True when gradients or parameters of `module` are averaged or broadcast by hand."""
        for event in self.every(Collective):
            for part in [p for value in event.on for p in parts(value)] if event.plain else []:
                if isinstance(part, Tensor) and part.form in ("gradient", "parameter"):
                    if isinstance(part.source, Params) and any(touches(m, module) for m in part.source.of):
                        return True
        return False

    def in_test(self, event: Event) -> bool:
        """True for what happens in the project's tests, or is started there: sizes and values there mean nothing."""
        sites = (event.stack[0], event.site) if event.stack else (event.site,)
        for site in sites:
            path = site.source.path
            parts = path.relative_to(self.root).parts if self.root in path.parents else (path.name,)
            if (
                path.name.startswith("test_")
                or path.stem.endswith("_test")
                or {"tests", "test", "testing"} & set(parts[:-1])
            ):
                return True
        return False


def chain(value: Value) -> Iterator[Value]:
    """The value, what it wraps, and what it was reached through."""
    todo = [value]
    seen: set[int] = set()
    while todo:
        one = todo.pop(0)
        if one.number in seen:
            continue
        seen.add(one.number)
        yield one
        if isinstance(one, Choice):
            todo.extend(option for option, _ in one.options)
        if isinstance(one, Module):
            todo.extend(one.holders)
            if one.wraps is not None:
                todo.append(one.wraps)
        if one.owner is not None:
            todo.append(one.owner)


def covers(outer: Value, inner: Value) -> bool:
    """True when `outer` is `inner` or something that `inner` is part of."""
    wanted = {one.number for one in _same(outer)}
    return any(one.number in wanted for one in chain(inner))


def touches(one: Value, other: Value) -> bool:
    """True when one of the two is, or is part of, the other."""
    return covers(one, other) or covers(other, one)


def related(one: Value, other: Value) -> bool:
    """True when both are the same module, wrappers aside."""
    numbers = {value.number for value in _same(one)}
    return any(value.number in numbers for value in _same(other))


def _same(value: Value) -> Iterator[Value]:
    for option, _ in options_of(value):
        one: Value | None = option
        while one is not None:
            yield one
            one = one.wraps if isinstance(one, Module) else None


def rank_guard(event: Event, scopes: Iterable[str] = ("rank", "local-rank")) -> Literal | None:
    """The innermost test of the rank that the event stands under."""
    kinds = set(scopes)
    for literal in reversed(event.guards):
        if literal.kind in kinds:
            return literal
    return None


def called_by_one_rank(event: Event) -> bool:
    """True when a test of the rank stands around a call that leads to the event, outside its own function."""
    return any(literal.kind in ("rank", "local-rank") and literal.depth < len(event.stack) for literal in event.guards)


def whenever(first: Event, second: Event) -> bool:
    """True when `first` happens in each run in which `second` does, as far as the branches around them tell."""
    return all(implied(literal.key, literal.holds, second.guards) for literal in first.guards)


def is_asked_for_class(event: Event, module: Value, since: Event | None = None) -> bool:
    """True when a test around the event asks for the class of `module`, or for a method of it.

    So do a function of the project, whose answer rests on such a test, and `type(module) in known_types`. With `since`,
    a test around that event too does not count: it was made before.
    """
    before = since.guards if since is not None else ()
    return any(
        (literal.kind == "type" and literal.subject is module)
        or (literal.key[0] == "callable" and literal.holds)  # what `getattr` gave
        or (literal.key[0] in ("hasattr", "callable", "choice", "in") and module.number in literal.about)
        for literal in event.guards
        if literal not in before
    )


def is_fsdp1_here(event: Event, module: Value) -> bool:
    """True when a test around the event says that `module` is an instance of FSDP1's class, and of no other."""
    return any(
        literal.kind == "type"
        and literal.holds
        and literal.subject is module
        and literal.classes != ()
        and all(name.rpartition(".")[2] == "FullyShardedDataParallel" for name in literal.classes)
        for literal in event.guards
    )


def runs_alone(event: Event) -> bool:
    """True when the event is only reached where there is one process."""
    return any(literal.kind == "single" and not literal.holds for literal in event.guards)


def instead(handed: Handed, event: Event) -> bool:
    """True when the call that hands values to unknown code leads, where it is of another function, to the event."""
    depth = len(handed.stack)
    return event.stack[:depth] == handed.stack and event.stack[depth : depth + 1] == (handed.site,)


def site_at_depth(event: Event, depth: int) -> Site:
    """Where the event happens as seen from the frame that is `depth` calls deep: the call in it that leads there."""
    return event.stack[depth] if depth < len(event.stack) else event.site


def last_pass(trace: Trace, module: Value, at: Event) -> Event | None:
    """The last forward of `module` or backward pass before `at`."""
    last: Event | None = None
    for event in trace.events:
        if event is at:
            break
        if isinstance(event, Backward) or (isinstance(event, Forward) and related(event.module, module)):
            last = event
    return last


def gathered_since(trace: Trace, root: Shard, at: Event) -> Forward | None:
    """The forward pass after which the parameters of a unit that is not resharded are still whole at an event.

    A backward pass, `reshard()` and `state_dict()` shard them again (measured on torch 2.13.0).
    """
    last: Forward | None = None
    for event in trace.events[root.order + 1 : at.order]:
        if event.entry != at.entry or exclusive(event.guards, at.guards) or exclusive(event.guards, root.guards):
            continue
        if isinstance(event, Forward) and not event.bypass and covers(event.module, root.module):
            last = event
        elif _shards_again(event, root.module):
            last = None
    return last


def is_whole(trace: Trace, module: Value, at: Event) -> bool:
    """True when `unshard()` has made parameters of a module, or of what is around it, whole, and they still are."""
    whole = False
    for event in trace.events[: at.order]:
        if event.entry != at.entry or exclusive(event.guards, at.guards):
            continue
        match event:
            case Unshard(module=unit) if touches(unit, module):
                whole = True
            case Reshard(module=unit) if touches(unit, module):
                whole = False
            case Forward(module=unit) if touches(unit, module):
                whole = False
    return whole


def _shards_again(event: Event, unit: Value) -> bool:
    match event:
        case Backward():
            return True
        case Reshard(module=Module(each="modules", owner=Value() as model)) if covers(model, unit):
            return True
        case Reshard(module=module):
            return related(module, unit)
        case TakeState(state=state):
            return touches(state.of, unit)
    return False


def flag_of(shard: Shard, keyword: str, default: bool) -> bool | None:
    """The literal truth value of a sharding call's keyword; None when it is not known."""
    value = shard.kwargs.get(keyword)
    if value is None:
        return default
    return value.value if isinstance(value, Const) and isinstance(value.value, bool) else None


def certain_keywords(shard: Shard) -> dict[str, Value]:
    """The keywords of a sharding call that are surely given where it is made.

    One that was put into a dict under a test counts where nothing is asked before the call, so that the two cannot
    exclude each other.
    """
    found: dict[str, Value] = {}
    for name, value in shard.kwargs.items():
        given = [(v, g) for v, g in options_of(value) if not _is_missing(v) and not exclusive(g, shard.guards)]
        missing = any(_is_missing(v) for v, _ in options_of(value))
        if given and (not missing or not shard.guards or any(set(g) <= set(shard.guards) for _, g in given)):
            found[name] = given[0][0] if len(given) == 1 else value
    return found


def _is_missing(value: Value) -> bool:
    return isinstance(value, External) and value.dotted == MISSING


def steps_of(trace: Trace, module: Value) -> Iterator[Step]:
    """The steps of optimizers that hold parameters of `module`, of its parts, or of what it is part of."""
    for step in trace.every(Step):
        if any(touches(of, module) for params in step.optimizer.holds for of in params.of):
            yield step


def stepped(trace: Trace, module: Value) -> Iterator[Event]:
    """The steps of optimizers of `module`, also those that a gradient scaler makes."""
    yield from steps_of(trace, module)
    for event in trace.every(Handed):
        if event.to.endswith(".step"):
            for optimizer in event.values:
                if isinstance(optimizer, Optimizer):
                    if any(touches(of, module) for params in optimizer.holds for of in params.of):
                        yield event


def fsdp2_only(trace: Trace, module: Value, at: Event) -> Shard | None:
    """The `fully_shard` call that has sharded `module` when `at` happens, where nothing of it is FSDP1's or DDP's.

    None, too, under a test of the module's class, which may be there to tell the generations apart.
    """
    if trace.replicated(module, at) or any(True for _ in trace.shards(module, 1)):
        return None
    if any(literal.kind == "type" and literal.subject is not None for literal in at.guards):
        return None
    return trace.covering(module, at, 2) or trace.sharded(module, at, 2)


def gives_whole_gradients(shard: Shard) -> bool:
    """True when FSDP1 leaves parameters and gradients whole on every rank: NO_SHARD."""
    strategy = shard.kwargs.get("sharding_strategy")
    return strategy is not None and any(
        isinstance(option, External) and option.dotted.endswith(".NO_SHARD") for option, _ in options_of(strategy)
    )


def keeps_parameters(shard: Shard) -> bool:
    """True when a sharding call leaves the parameter objects as they are, or may: FSDP1 with use_orig_params=True."""
    return shard.generation == 1 and (not shard.kwargs_known or flag_of(shard, "use_orig_params", False) is not False)


def ignored_by(shard: Shard) -> list[Value]:
    """The modules whose parameters a sharding call is told to ignore, as far as they are known."""
    found: list[Value] = []
    for keyword in IGNORING:
        for part in parts(shard.kwargs[keyword]) if keyword in shard.kwargs else ():
            match part:
                case Params(of=of) | Tensor(form="parameter", source=Params(of=of)):
                    found.extend(one for one in of if not covers(one, shard.module))
                case Module():
                    found.append(part)
    return found


def leaves_out(shard: Shard, module: Value) -> bool:
    """True when a sharding call around `module` ignores its parameters, or may: which ones it ignores is not known."""
    if related(module, shard.module) or not covers(shard.module, module):
        return False
    ignored = ignored_by(shard)
    if ignored:
        return any(covers(one, module) for one in ignored)
    given = [shard.kwargs[name] for name in IGNORING if name in shard.kwargs]
    return any(not isinstance(one, Const) and not (isinstance(one, Sequence) and not one.items) for one in given)


def spares(shard: Shard, params: Params) -> bool:
    """True when a sharding call is told to ignore these very parameters of its module."""
    for keyword in IGNORING:
        for part in parts(shard.kwargs[keyword]) if keyword in shard.kwargs else ():
            ignored = part.source if isinstance(part, Tensor) and part.form == "parameter" else part
            if ignored is params:
                return True
            if isinstance(ignored, Params) and ignored.key and (ignored.key, ignored.of) == (params.key, params.of):
                return True
    return False


def common_depth(one: Event, other: Event) -> int:
    """How many calls lead to both events: the depth of the innermost body from which both are seen."""
    depth = 0
    for left, right in zip(one.stack, other.stack, strict=False):
        if left != right:
            break
        depth += 1
    return depth


def visible_from(event: Event, other: Event) -> Site | None:
    """Where `event` happens as seen from the body in which `other` stands; None when they share no such body."""
    depth = len(other.stack)
    if event.stack[:depth] != other.stack:
        return None
    return site_at_depth(event, depth)


def called(value: Value) -> str:
    """What the user calls a value; its class where it has no name of its own."""
    if value.name:
        return value.name
    if isinstance(value, Optimizer):
        return value.cls.rpartition(".")[2] or "optimizer"
    if isinstance(value, Module):
        if value.cls is not None:
            return value.cls.name
        if value.library is not None:
            return value.library.rpartition(".")[2]
        return "model"
    if value.owner is not None:
        return f"{called(value.owner)}.{value.key}"
    if isinstance(value, Choice):
        return called(value.options[0][0])
    return "value"


def happens_inside(event: Event, outer: Event) -> bool:
    """True when `event` happens while the expression at which `outer` happens is evaluated."""
    site = visible_from(event, outer)
    if site is None:
        return False
    todo = [outer.site.of_run]
    while todo:
        node = todo.pop()
        if node is site.of_run:
            return True
        todo.extend(inner(node))
    return False


def functions_around(event: Event) -> tuple[str, ...]:
    """The names by which the functions around the event were called, outermost first."""
    import libcst as cst

    found: list[str] = []
    for site in event.stack:
        match site.of_run:
            case cst.Call(func=cst.Name(value=name)) | cst.Call(func=cst.Attribute(attr=cst.Name(value=name))):
                found.append(name)
            case cst.FunctionDef(name=cst.Name(value=name)):
                found.append(name)
    return tuple(found)
