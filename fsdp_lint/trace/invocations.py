"""Calls of whatever value, and what the models of libraries ask of the machine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.trace import signatures
from fsdp_lint.trace.conditions import Conditions
from fsdp_lint.trace.events import BuildOptimizer, Forward, Handed, Shard, TakeParameters
from fsdp_lint.trace.generators import made_late
from fsdp_lint.trace.models import declared, table
from fsdp_lint.trace.models.api import Call, Option
from fsdp_lint.trace.trace import covers
from fsdp_lint.trace.values import (
    Bound,
    Choice,
    Class,
    Condition,
    Const,
    Entering,
    External,
    Function,
    Guards,
    Instance,
    Loaded,
    Mapping,
    Method,
    Module,
    Object,
    Optimizer,
    Params,
    Partial,
    Rank,
    Sequence,
    StateDict,
    Super,
    Tensor,
    Unknown,
    Value,
    choice,
    exclusive,
    made_of,
    options_of,
    parts,
)

UNROLL = 16
# Each module of a long list is one of its own, and the last one may be what holds the others.
UNROLL_MODULES = 64


class Invocations(Conditions):
    """The part of the abstract machine that calls values."""

    declarations = declared.Declared()

    def assign(self, target: cst.BaseExpression, value: Value) -> None:
        """Binds a target; the statement part of the machine gives it."""
        raise NotImplementedError

    def assign_attribute(self, owner: Value, name: str, value: Value, site: Site) -> None:
        """`owner.name = value`; the statement part of the machine gives it."""
        raise NotImplementedError

    def attach(self, owner: Value, name: str, value: Value, site: Site) -> None:
        """Notes what becomes part of `owner`; the statement part of the machine gives it."""
        raise NotImplementedError

    def loosen(self, owner: Value) -> None:
        """Notes that an attribute of unknown name is set; the statement part of the machine gives it."""
        raise NotImplementedError

    def adopt(self, owner: Module, name: str, value: Value) -> None:
        """A module or parameter becomes part of `owner`; the statement part of the machine gives it."""
        raise NotImplementedError

    def leave(self, failed: bool = False) -> None:
        """The body that is being run is left here; the statement part of the machine gives it."""
        raise NotImplementedError

    def enter_on(self, stack: Value, value: Value, site: Site) -> Value:
        """`stack.enter_context(value)`; the statement part of the machine gives it."""
        raise NotImplementedError

    def call_on_exit(self, stack: Value, function: Value, call: Call) -> None:
        """`stack.callback(function, ...)`; the statement part of the machine gives it."""
        raise NotImplementedError

    def close(self, stack: Value) -> None:
        """`stack.close()`; the statement part of the machine gives it."""
        raise NotImplementedError

    def call(self, node: cst.Call) -> Value:
        """A call."""
        called = node.func.value if node.func.__class__ is cst.Name else ""
        if called == "super" and self.frame.cls is not None:
            return self._super(node)
        if called == "isinstance" and len(node.args) == 2:
            value, classes = self.evaluate(node.args[0].value), self.evaluate(node.args[1].value)
            table.note_class(self, value, classes, "isinstance", self.site(node))
            outcome = self.instance_test(value, classes)
            return Const(value=outcome) if isinstance(outcome, bool) else outcome
        function = self.evaluate(node.func)
        call = Call(site=self.site(node), name=dotted(node.func))
        for arg in node.args:
            self._argument(call, arg)
        return self.invoke(function, call)

    def _super(self, node: cst.Call) -> Value:
        frame = self.frame
        while frame.self_value is None and frame.scope is not None:
            frame = frame.scope
        assert self.frame.cls is not None
        inner = frame.self_value or next(iter(frame.names.values()), Unknown())
        return Super(cls=self.frame.cls, self_value=inner)

    def _argument(self, call: Call, arg: cst.Arg) -> None:
        value = self.evaluate(arg.value)
        if arg.star == "*":
            value = self.possible(value)
            if isinstance(value, Sequence) and value.exact:
                call.args.extend(value.items)
            else:
                call.open = True
                call.rest.append(value)
        elif arg.star == "**":
            merged = Mapping(born=tuple(self.guards))
            self.merge(merged, value)
            for key, content in merged.items.items():
                if isinstance(key, str):
                    call.kwargs[key] = content
            call.open = call.open or merged.open
            call.rest.extend(merged.rest)
        elif arg.keyword is not None:
            call.kwargs[arg.keyword.value] = value
        else:
            call.args.append(value)

    def invoke(self, function: Value, call: Call) -> Value:
        """Calls any value."""
        function = self.possible(function)
        if self.declarations.by_name:
            said = self.declarations.of(function, call)
            if said:
                return declared.act_all(self, said, call, self._signature(function))
        match function:
            case Choice(options=options) if all(guards for _, guards in options):
                return self._invoke_one_of(options, call)
            case Choice():
                return self.each_option(function, lambda option: self.invoke(option, call))
            case External(dotted=dotted):
                return self._invoke_external(dotted, call)
            case Function():
                return self._as_context(function, call, None) or self.enter(function, call)
            case Bound(function=inner, self_value=owner):
                if inner.name == "forward" and isinstance(owner, Module) and not self._inside(owner):
                    made = Unknown(name="output", inputs=(owner, *call.values()))
                    self.emit(Forward, call.site, module=owner, bypass="forward", result=made)
                    return made
                return self._as_context(inner, call, owner) or self.enter(inner, call, owner)
            case Method(self_value=Module() as owner, method="__init__", key=container):
                self.fill_container(owner, container, call)
                return Const(value=None)
            case Method(self_value=Optimizer(by=Class() as by) as owner, method="step") if not self._steps(owner):
                call.self_value = owner
                given = table.call_method(self, owner, "step", call)
                step = self.class_attribute(by, "step")
                if step is not None and isinstance(step[1], Function):
                    self.enter(step[1], call, owner)
                return given
            case Method(self_value=owner, method=method):
                call.self_value = owner
                return table.call_method(self, owner, method, call)
            case Partial():
                return self._invoke_partial(function, call)
            case Class():
                return self._invoke_class(function, call)
            case Module():
                made = Unknown(name="output", inputs=(function, *call.values()))
                self.emit(Forward, call.site, module=function, result=made)
                if self._goes_around_units(function, call):
                    self._run_forward(function, call)
                return made
            case Instance(cls=cls):
                found = self.class_attribute(cls, "__call__")
                if found is not None and isinstance(found[1], Function):
                    return self.enter(found[1], call, function)
            case Const(value=None):
                return Unknown()
            case Object(cls=cls):
                return table.call_object(self, function, call) or self._invoke_unknown(function, call)
        return self._invoke_unknown(function, call)

    def _signature(self, function: Value) -> list[str]:
        """The names of what a function of the project takes by position; none of others."""
        inner = function.function if isinstance(function, Bound) else function
        node = self.function_node(inner) if isinstance(inner, Function) else None
        if node is None:
            return []
        names = [param.name.value for param in (*node.params.posonly_params, *node.params.params)]
        return names[1:] if isinstance(function, Bound) else names

    def _as_context(self, function: Function, call: Call, self_value: Value | None) -> Value | None:
        """The context that a call of a decorated generator makes; None for other functions."""
        if not self.worth_entering(function, call, self_value):
            return None
        node = self.function_node(function)
        if not isinstance(node, cst.FunctionDef) or not table.is_context(node):
            return None
        made = Entering(inputs=tuple(call.values()), function=function, call=call, self_value=self_value)
        return self.new(made)

    def _goes_around_units(self, module: Module, call: Call) -> bool:
        """True for a module of the project that FSDP knows nothing of, and that holds or gets what is sharded: a loss,
        or a shell around the model."""
        if not self.kinds[Shard] or module.cls is None or not module.built or module.program or module.wraps:
            return False
        shards = list(self.trace.every(Shard))
        if any(covers(one, module) for shard in shards for one in (shard.module, *shard.group)):
            return False
        kept = (value for (number, _), value in self.heap.items() if number == module.number)
        held = [part for value in (*kept, *module.children.values(), *call.values()) for part in parts(value, 2)]
        units = {
            one.number for shard in shards for one in (shard.module, *shard.group, shard.result) if one is not None
        }
        return any(one.number in units for one in held)

    def _run_forward(self, module: Module, call: Call) -> None:
        found = self.class_attribute(module.cls, "forward") if module.cls is not None else None
        if found is not None and isinstance(found[1], Function) and not self._inside(module):
            self.enter(found[1], call, module)

    def _invoke_one_of(self, options: tuple[tuple[Value, Guards], ...], call: Call) -> Value:
        """Calls one of several functions; each finds things as they were before."""
        results: list[tuple[Value, Guards]] = []

        def arm(option: Value, guards: Guards) -> Callable[[], None]:
            return lambda: results.append((self.invoke(option, replace(call)), guards))

        self.branch([(guards, arm(option, guards)) for option, guards in options])
        return choice(results) if results else Unknown()

    def _steps(self, optimizer: Optimizer) -> bool:
        """True in the body of the optimizer's own `step`."""
        return any(frame.self_value is optimizer and frame.qualname.endswith(".step") for frame in self.frames)

    def _inside(self, owner: Module) -> bool:
        return any(one is owner for _, one in self.methods)

    def invoke_plain(self, function: Value, site: Site) -> Value:
        """Calls a value without arguments."""
        return self.invoke(function, Call(site=site))

    def _invoke_external(self, dotted: str, call: Call) -> Value:
        self._go_over(call)
        handler = table.handler(dotted)
        if handler is not None:
            return handler(self, call)
        return table.call_library(self, dotted, call)

    def _go_over(self, call: Call) -> None:
        """Code outside the project goes over the generators that it gets."""
        for value in call.values():
            if isinstance(value, Sequence) and value.lazy:
                self.items(value, call.site)

    def _invoke_partial(self, function: Partial, call: Call) -> Value:
        merged = Call(
            site=call.site,
            args=[*function.args, *call.args],
            kwargs={**function.kwargs, **call.kwargs},
            open=call.open or function.open,
            rest=list(call.rest),
            name=call.name,
        )
        return self.invoke(function.function, merged)

    def _invoke_class(self, cls: Class, call: Call) -> Value:
        if self.is_optimizer_class(cls):
            holds = self.collect(call.first("params"), call.site)
            if holds:
                optimizer = self.new(Optimizer(holds=tuple(holds), cls=cls.name, by=cls))
                self.emit(BuildOptimizer, call.site, optimizer=optimizer)
                return optimizer
        return self.construct(cls, call)

    def fill_container(self, made: Module, container: str, call: Call) -> None:
        """A container gets what its `__init__` is given."""
        table.fill(self, made, container, call)

    def note_built(self, made: Module) -> None:
        """A model that is no part of another is made."""
        table.note_built(self, made)

    def note_settings(self, made: Instance, call: Call) -> None:
        """An object of a dataclass is made, which may hold settings."""
        table.configure_derived(self, made, call)

    def _invoke_unknown(self, function: Value, call: Call) -> Value:
        self._go_over(call)
        known = table.call_unknown(self, function, call)
        if known is not None:
            return known
        tracked = any(self._matters(v) for v in call.values()) or self._may_shard(call)
        if not tracked and not call.rest and all(isinstance(v, Const) for v in call.values()):
            key = f"({', '.join(repr(v.value) for v in call.args if isinstance(v, Const))})"
            return self.child(function, key)
        if tracked:
            self.hand(call, call.name)
        asked = (function.owner,) if function.owner is not None and not tracked else ()
        return Unknown(name=call.name and f"{call.name}(...)", inputs=(*asked, *call.values()))

    def _matters(self, value: Value) -> bool:
        if isinstance(value, Entering):
            return any(self._matters(one) for one in value.inputs)
        return any(
            isinstance(p, Module | Params | Tensor | Optimizer | StateDict | Instance | Loaded)
            or p.number in self.touched
            for p in parts(value)
        )

    def _may_shard(self, call: Call) -> bool:
        """True where unknown code gets a model that came from outside, or an item of some list to shard."""
        for value in call.values():
            if self.is_given_model(value):
                return True
            if isinstance(value, Unknown) and value.key.startswith("[") and table.shards_by_name(call.name):
                return True
        return False

    # what models ask for ----------------------------------------------------------------------------------------

    def draw(self, value: Instance, site: Site) -> None:
        """Notes what an object's `__iter__` gives, or its `__len__` where it has none; nothing of that is an event of
        this run."""
        name = next((one for one in ("__iter__", "__len__") if self.class_attribute(value.cls, one) is not None), "")
        found = self.class_attribute(value.cls, name) if name and value.draws is None else None
        if found is not None and isinstance(found[1], Function):
            depth = len(self.trace.events)
            value.draws = self.enter(found[1], Call(site=site, name=name), value)
            del self.trace.events[depth:]

    def options(self, value: Value) -> list[Option]:
        """The values that a value can be here."""
        value = self.possible(value)
        here = tuple(self.guards)
        return [Option(v, g) for v, g in options_of(value) if not exclusive(g, here)]

    @contextlib.contextmanager
    def under(self, option: Option) -> Iterator[None]:
        """Takes what an option needs for granted for a while."""
        depth = len(self.guards)
        self.assume(option.guards)
        try:
            yield
        finally:
            del self.guards[depth:]

    def opaque_test(self, key: tuple[Any, ...], kind: str, *values: Value) -> Value:
        """A truth value of which only its identity, and what it speaks of, is known."""
        return self.opaque(key, kind, *values)

    def rank_test(self, scope: str) -> Value:
        """The truth value of `rank == 0`."""
        return self.rank_is(Rank(scope=scope), 0)

    def like(self, value: Value) -> Module | None:
        """A module of the class that a signature around names for a value, made apart from the run."""
        return signatures.like(self, value)

    def hand(self, call: Call, to: str) -> None:
        """The arguments go to code that is not known."""
        values = tuple(call.values())
        values += tuple(held for one in values if isinstance(one, Entering) for held in one.inputs)
        if values:
            self.emit(Handed, call.site, values=values, to=to)

    def note_arguments(self, call: Call, name: str) -> None:
        """Where a call cannot be followed, its arguments go to code that is not known."""
        if any(self._matters(v) for v in call.values()):
            self.hand(call, name)

    def with_tests(self, value: Value) -> Value:
        """A value with the tests that were made of it, as an item of a list that is read elsewhere."""
        if isinstance(value, Sequence) and value.exact and any(isinstance(one, Module) for one in value.items):
            return self.new(Sequence(items=[self.with_tests(one) for one in value.items]))
        if not isinstance(value, Module | Unknown):
            return value
        tests = tuple(g for g in self.guards if g.subject is value or value.number in g.about)
        return Choice(options=((value, tests),)) if tests else value

    def is_key(self, index: Value, key: Any) -> Guards:
        """What holds where an index of which nothing is known is this key of a dict; nothing where it may be another
        in each round of a loop."""
        if not self.is_older(index):
            return ()
        outcome = self.compare(index, cst.Equal(), Const(value=key), cst.Name("key"))
        return outcome.true if isinstance(outcome, Condition) else ()

    def mentions_rank(self, value: Value) -> bool:
        """True when the value was made from the rank of the process."""
        return any(
            isinstance(one, Rank) or "rank" in one.name.lower() or "rank" in one.key.lower() for one in made_of(value)
        )

    def take(self, params: Params, site: Site) -> Params:
        """Walks a parameter iterator: from here on the very objects are held."""
        if params.taken is not None:
            return params
        taken = self.new(Params(name=params.name, key=params.key, of=params.of, named=params.named))
        taken.taken = self.emit(TakeParameters, site, params=taken)
        return taken

    def collect(self, value: Value, site: Site) -> list[Params]:
        """The parameters in a list, groups or an iterator; iterators are walked here."""
        found: list[Params] = []
        for part in parts(value):
            if isinstance(part, Params):
                taken = self.take(part, site)
                if taken not in found:
                    found.append(taken)
            elif isinstance(part, Tensor) and part.form == "parameter" and isinstance(part.source, Params):
                if part.source not in found:
                    found.append(part.source)
        return found

    def items(self, value: Value, site: Site) -> tuple[list[Value], bool]:
        """The items of an iterable, and whether these are exactly all."""
        value = self.possible(value)
        match value:
            case Sequence(items=items, exact=exact, lazy=lazy):
                for event in made_late(lazy, tuple(self.guards), (*self.stack, site)):
                    event.order = len(self.trace.events)
                    self.trace.events.append(event)
                return list(items), exact
            case Mapping(items=found, rest=rest, open=more):
                unknown: list[Value] = list(value.keys.values()) or ([Unknown(name="key")] if rest or more else [])
                return [*(Const(value=key) for key in found), *unknown], not unknown
            case Choice(options=options):
                everything: list[Value] = []
                for option, guards in options:
                    if isinstance(option, Const):
                        continue
                    inner, _ = self.items(option, site)
                    everything.extend(Choice(options=((i, guards),)) if guards else i for i in inner)
                return everything, False
            case Const(value=content) if isinstance(content, str | tuple | list):
                letters: list[Value] = []
                letters.extend(Const(value=c) for c in content[:UNROLL])
                return letters, len(content) <= UNROLL
        known = table.items_of(self, value, site)
        if known is not None:
            return known
        return [self.child(value, "[]")], False


def rounds(items: list[Value], exact: bool) -> tuple[list[Value], bool]:
    """The items for which the body of a loop is run, and whether these are exactly all."""
    if len(items) <= UNROLL:
        return items, exact
    if not any(isinstance(part, Module) for item in items for part in parts(item, 2)):
        return items[:1], False
    if len(items) <= UNROLL_MODULES:
        return items, exact
    return [*items[: UNROLL_MODULES - 1], items[-1]], False


def dotted(node: cst.BaseExpression) -> str:
    """A name with dots as it is written; what does not begin with a name is left out."""
    if node.__class__ is cst.Name:
        return node.value
    if node.__class__ is cst.Attribute:
        inner = dotted(node.value)
        return f"{inner}.{node.attr.value}" if inner else node.attr.value
    return ""
