"""Statements in order: the abstract run of one root."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import program_below
from fsdp_lint.trace.contexts import Contexts
from fsdp_lint.trace.events import Attach, LoopOverPart, RepointOptimizer, SetEntry, SetFlag, Shard, Swallow, Tie
from fsdp_lint.trace.expressions import LONG
from fsdp_lint.trace.generators import may_stop, untested
from fsdp_lint.trace.handlers import WIDE, catches_all, gives_up, looks_for_a_feature
from fsdp_lint.trace.invocations import UNROLL, rounds
from fsdp_lint.trace.models import lightning, table
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.splitting import split_unevenly
from fsdp_lint.trace.state import STATEMENTS, OutOfBudget
from fsdp_lint.trace.trace import Leave, Stop, covers
from fsdp_lint.trace.values import (
    Choice,
    Class,
    Condition,
    Const,
    External,
    Function,
    Guards,
    Instance,
    Literal,
    Loaded,
    Mapping,
    Module,
    Optimizer,
    Params,
    Sequence,
    StateDict,
    Tensor,
    Unknown,
    Value,
    choice,
    is_number,
    made_of,
)


class Interpreter(Contexts):
    """The abstract machine: runs statements."""

    # blocks -----------------------------------------------------------------------------------------------------

    def run_body(self, body: cst.BaseSuite) -> None:
        """Runs the statements of a block until it ends or leaves."""
        if body.__class__ is cst.SimpleStatementSuite:
            for small in body.body:
                self.small(small)
            return
        self.run_statements(body.body)

    def run_statements(self, body: Any) -> None:
        """Runs statements until they end or leave."""
        for statement in body:
            if self.frame.dead:
                return
            self.spend()
            if statement.__class__ is cst.SimpleStatementLine:
                for small in statement.body:
                    self.spend()
                    if not self.frame.dead:
                        self.small(small)
            else:
                self.compound(statement)

    def compound(self, node: cst.CSTNode) -> None:
        """Runs one compound statement."""
        found = _COMPOUND.get(node.__class__)
        if found is not None:
            found(self, node)

    def define_class(self, node: cst.ClassDef) -> None:
        """A class statement."""
        self.frame.names[node.name.value] = Class(
            name=node.name.value,
            path=self.frame.path,
            qualname=node.name.value,
            node=node,
            scope=None if self.frame.is_file else self.frame,
        )
        if self.frame.is_file:
            self.register(node)

    def small(self, node: cst.BaseSmallStatement) -> None:
        """Runs one simple statement."""
        found = _SMALL.get(node.__class__)
        if found is not None:
            found(self, node)

    def assignment(self, node: cst.Assign) -> None:
        """`a = b = value`."""
        result = self.evaluate(node.value)
        for target in node.targets:
            self.assign(target.target, result)

    def annotated(self, node: cst.AnnAssign) -> None:
        """`a: T = value`."""
        if node.value is not None:
            self.assign(node.target, self.evaluate(node.value))

    def return_(self, node: cst.Return) -> None:
        """`return value`."""
        result = self.evaluate(node.value) if node.value is not None else Const(value=None)
        self.frame.results.append((result, tuple(self.guards[self.frame.base :])))
        self.leave()

    def raise_(self, node: cst.Raise) -> None:
        """`raise error`."""
        if node.exc is not None:
            self.evaluate(node.exc)
        self.leave(failed=True)

    def end_round(self, node: cst.Continue | cst.Break) -> None:
        """`continue` and `break`."""
        self.frame.dead, self.frame.raised = True, False
        if node.__class__ is cst.Break and self.loops:
            self.trace.stops.append(Stop(tuple(self.guards), self.loops[-1], len(self.trace.events)))

    def assert_(self, node: cst.Assert) -> None:
        """`assert test`."""
        self.contexts.append("assert")
        outcome = self.condition(node.test)
        self.contexts.pop()
        if isinstance(outcome, Condition):
            self.narrow(node.test, True)

    def share(self, node: cst.Global | cst.Nonlocal) -> None:
        """`global` and `nonlocal`."""
        self.frame.shared |= {item.name.value for item in node.names}

    def leave(self, failed: bool = False) -> None:
        """The body that is being run is left here."""
        self.frame.dead, self.frame.raised = True, failed
        self.trace.leaves.append(Leave(tuple(self.guards), tuple(self.stack), len(self.trace.events), failed))

    # binding ----------------------------------------------------------------------------------------------------

    def assign(self, target: cst.BaseExpression, value: Value) -> None:
        """Binds a target to a value."""
        found = _TARGETS.get(target.__class__)
        if found is not None:
            found(self, target, value)

    def assign_name(self, target: cst.Name, value: Value) -> None:
        """`name = value`."""
        name = target.value
        if not value.name or value.name == "f-string" or value.name.startswith("["):
            value.name = name
        self._bind_name(name, value)

    def _bind_name(self, name: str, value: Value) -> None:
        frame = self.frame
        if name in frame.shared:
            outer = frame.scope or self.files.get(frame.path)
            while outer is not None and name not in outer.names and outer.scope is not None:
                outer = outer.scope
            if outer is not None:
                outer.names[name] = value
                return
        frame.names[name] = value

    def unpack(self, elements: Any, value: Value) -> None:
        """`a, b = value`."""
        value = self.possible(value)
        items = self.row(value) or []
        if isinstance(value, Choice):
            rows = [(self.row(option), guards) for option, guards in value.options]
            if all(row is not None and len(row) == len(elements) for row, _ in rows):
                for at, element in enumerate(elements):
                    options = [(row[at], guards) for row, guards in rows if row is not None]
                    self.assign(element.value, choice(options))
                return
        if any(isinstance(e, cst.StarredElement) for e in elements):
            self._unpack_starred(elements, value)
            return
        named = [element.value.value if isinstance(element.value, cst.Name) else "" for element in elements]
        for at, element in enumerate(elements):
            if len(items) == len(elements):
                self.assign(element.value, items[at])
            else:
                known = table.unpacked(self, value, at) or table.process_part(named, at)
                self.assign(element.value, known if known is not None else self.child(value, f"[{at}]"))

    def _unpack_starred(self, elements: Any, value: Value) -> None:
        """`first, *rest = value`."""
        items, at = self.row(value), next(i for i, e in enumerate(elements) if isinstance(e, cst.StarredElement))
        behind = len(elements) - at - 1
        if items is not None and len(items) >= at + behind:
            end = len(items) - behind
            parts = [*items[:at], Sequence(items=items[at:end]), *items[end:]]
        else:
            many = value.items if isinstance(value, Sequence) else []
            one = many[0] if len(many) == 1 else None
            parts = [one if one is not None else self.child(value, f"[{i}]") for i in range(len(elements))]
            parts[at] = Sequence(items=many, exact=False)
        for element, part in zip(elements, parts, strict=True):
            self.assign(element.value, part)

    def assign_attribute(self, owner: Value, name: str, value: Value, site: Site) -> None:
        """`owner.name = value`."""
        owner = self.possible(owner)
        if not value.name:
            value.name = f"{owner.name}.{name}" if owner.name else name
        if isinstance(owner, Choice):
            for option, _ in owner.options:
                self.assign_attribute(option, name, value, site)
            return
        if name in table.FLAGS and isinstance(owner, Module | Unknown):
            self.emit(SetFlag, site, value=owner, name=name)
        if isinstance(owner, Optimizer) and name == "param_groups":
            self.emit(RepointOptimizer, site, optimizer=owner)
        self.attach(owner, name, value, site)
        self.tie(owner, name, value, site)
        if isinstance(owner, Module) and owner.wraps is None:
            self.adopt(owner, name, value)
            if table.set_attribute(self, owner, name, site):
                return
            if "torch.device(meta)" in self.contexts and self.frame.self_value is owner:
                if self.frame.qualname.endswith(".__init__"):
                    table.set_tensor(self, owner, name, value, site)
        if not table.assign_attribute(self, owner, name, site, value):
            self.store(owner, name, value)

    def attach(self, owner: Value, name: str, value: Value, site: Site) -> None:
        """Notes that something new becomes part of `owner`, once that is sharded."""
        if not self.kinds[Shard] or not isinstance(owner, Module | Unknown):
            return
        if not any(covers(shard.module, owner) for shard in self.trace.every(Shard)):
            return
        fresh = isinstance(value, Module) and value.owner is None and value.wraps is None and not value.each
        if fresh or (isinstance(value, Tensor) and value.form == "weight"):
            self.emit(Attach, site, module=owner, key=name, content=value)
            if fresh and isinstance(owner, Unknown):
                value.owner, value.key = owner, name

    def loosen(self, owner: Value) -> None:
        """An attribute is set whose name is not known: no literal of the object can be counted on from here."""
        if not isinstance(owner, Instance):
            return
        names = {*self.field_names(owner.cls), *(key for number, key in self.heap if number == owner.number)}
        for name in names:
            if isinstance(self.attribute(owner, name), Const):
                self.store(owner, name, self.child(owner, name))

    def tie(self, owner: Value, name: str, value: Value, site: Site) -> None:
        """Notes that two modules have one parameter from here on, or no longer."""
        if not isinstance(owner, Module | Unknown):
            return
        match value:
            case Tensor(form="parameter", source=Params(of=(other,))) if other is not owner:
                self.emit(Tie, site, module=owner, key=name, to=other)
            case Unknown(key="weight", owner=Module() | Unknown() as other) if name == "weight" and other is not owner:
                self.emit(Tie, site, module=owner, key=name, to=other)
            case Tensor(form="weight") if name in ("weight", "bias"):
                self.emit(Tie, site, module=owner, key=name, to=None)

    def adopt(self, owner: Module, name: str, value: Value) -> None:
        """A module or parameter becomes part of `owner`."""
        if isinstance(value, Module):
            owner.children[name] = value
            held: Value | None = value
            while isinstance(held, Module) and held is not owner:
                if held.owner is None:
                    held.owner, held.key = owner, name
                elif held.owner is not owner and not any(one is held for one in owner.line()):
                    held.holders.append(owner)
                held = held.wraps
        elif isinstance(value, Tensor) and value.form == "weight":
            owner.parameters[name] = value

    def assign_item(self, target: cst.Subscript, value: Value) -> None:
        """`container[index] = value`."""
        container = self.possible(self.evaluate(target.value))
        part = target.slice[0].slice if len(target.slice) == 1 else None
        if not isinstance(part, cst.Index):
            table.set_buffer(self, container, Unknown(), self.site(target))
            return
        index = self.evaluate(part.value)
        if isinstance(container, Mapping):
            if isinstance(index, Const) and isinstance(index.value, str | int):
                self.put(container, index.value, value)
            else:
                container.rest.append(value)
                if isinstance(index, Tensor):
                    container.keys[value.number] = index
        elif isinstance(container, Sequence):
            container.items.append(value)
            container.exact = False
        elif isinstance(container, External):
            table.set_item(self, container, index, self.site(target))
        else:
            optimizer = table.optimizer_of_groups(container)
            if optimizer is not None and isinstance(index, Const) and index.value == "params":
                self.emit(RepointOptimizer, self.site(target), optimizer=optimizer)
            key = index.value if isinstance(index, Const) else index.name or "?"
            self.attach(container, f"[{key!r}]", value, self.site(target))
            self.store(container, f"[{key!r}]", value)
            into_state = any(isinstance(one, Loaded | StateDict) for one in container.line())
            if into_state or any(isinstance(one, Tensor) for one in made_of(value)):
                self.emit(SetEntry, self.site(target), container=container, content=value)
            table.set_buffer(self, container, index, self.site(target))

    def augment(self, target: cst.BaseExpression, op: cst.BaseAugOp, value: Value, node: cst.CSTNode) -> None:
        """`target += value`."""
        old = self.evaluate(target)
        if isinstance(old, Sequence) and isinstance(op, cst.AddAssign):
            if isinstance(value, Params):
                value = self.take(value, self.site(node))
                old.items.append(value)
            else:
                items, exact = self.items(value, self.site(node))
                old.items.extend(items[:UNROLL] if len(old.items) > LONG else items)
                old.exact = old.exact and exact and not self.loops
            return
        if isinstance(old, Mapping) and isinstance(op, cst.BitOrAssign):
            self.merge(old, value)
            return
        plain: dict[type[cst.BaseAugOp], cst.BaseBinaryOp] = {
            cst.AddAssign: cst.Add(),
            cst.MultiplyAssign: cst.Multiply(),
            cst.DivideAssign: cst.Divide(),
        }
        result = self.binary(old, plain.get(type(op), cst.Subtract()), value, node)
        if isinstance(old, Tensor) and isinstance(target, cst.Attribute):
            # `p.data *= x` changes the tensor in place, and then assigns that very tensor.
            table.change_in_place(self, old, value, isinstance(op, cst.DivideAssign), self.site(node))
            return
        if isinstance(result, Const) and self.loops:
            result = Unknown(name=result.name)
        self.assign(target, result)

    def define_function(self, node: cst.FunctionDef) -> None:
        """A function statement inside another body."""
        scope = None if self.frame.is_file else self.frame
        qualname = node.name.value if scope is None else f"{self.frame.qualname}.<locals>.{node.name.value}"
        self.frame.names[node.name.value] = Function(
            name=node.name.value, path=self.frame.path, qualname=qualname, node=node, scope=scope
        )
        if scope is None:
            self.register(node)

    def import_(self, node: cst.Import | cst.ImportFrom) -> None:
        """An import statement where it is run; at the top of a file the index knows it already."""
        if self.frame.is_file:
            return
        if isinstance(node, cst.Import):
            for alias in node.names:
                name = _import_name(alias.name)
                if alias.asname is not None:
                    definition = self.project.target(self.frame.path, table.import_of(name, None, 0))
                    bound = alias.asname.name
                else:
                    name = name.partition(".")[0]
                    definition = self.project.target(self.frame.path, table.import_of(name, None, 0))
                    bound = cst.Name(name)
                value = self.define(definition) if definition else None
                self.assign(bound, value or Unknown())
            return
        if isinstance(node.names, cst.ImportStar):
            return
        module = _import_name(node.module) if node.module else ""
        for alias in node.names:
            name = _import_name(alias.name)
            definition = self.project.target(self.frame.path, table.import_of(module, name, len(node.relative)))
            value = self.define(definition) if definition else None
            self.assign(alias.asname.name if alias.asname else alias.name, value or Unknown())

    # compound statements ----------------------------------------------------------------------------------------

    def if_(self, node: cst.If) -> None:
        """`if` with its `elif` and `else`."""
        before = len(self.trace.events)
        outcome = self._placed(self.condition(node.test), node)
        self.arms(before, node.test, node.body, node.orelse)
        if outcome is True:
            self.run_body(node.body)
            return
        if outcome is False:
            self.else_(node.orelse)
            return
        self.branch(
            [
                (outcome.true, self._arm(node.test, True, lambda: self.run_body(node.body))),
                (outcome.false, self._arm(node.test, False, lambda: self.else_(node.orelse))),
            ]
        )

    def _placed(self, outcome: Condition | bool, node: cst.If) -> Condition | bool:
        """The outcome of the test of an `if`, which knows where it is made."""
        if isinstance(outcome, bool):
            return outcome
        site = self.site(node.test)
        true, false = (
            tuple(one.but(site=site) if one.site is None else one for one in guards)
            for guards in (outcome.true, outcome.false)
        )
        return Condition(true=true, false=false)

    def _arm(self, test: cst.BaseExpression, holds: bool, body: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            self.narrow(test, holds)
            body()

        return run

    def else_(self, orelse: cst.If | cst.Else | None) -> None:
        """The rest of an `if`."""
        if isinstance(orelse, cst.If):
            self.if_(orelse)
        elif orelse is not None:
            self.run_body(orelse.body)

    def for_(self, node: cst.For) -> None:
        """`for`: the body is run for each item that is known, else once for any."""
        began = Value().number
        iterable = self.possible(self.evaluate(node.iter))
        items, exact = self.items(iterable, self.site(node.iter))
        if exact and not items:
            return
        items, exact = rounds(items, exact)
        if isinstance(iterable, Instance):
            self.draw(iterable, self.site(node.iter))
        if split_unevenly(iterable):
            number = self.loop_count + 1
            self.emit(LoopOverPart, self.site(node.iter), over=iterable, number=number, may_stop=may_stop(node.body))
        if any(untested(item) is not item for item in items) and may_stop(node.body):
            items = [untested(item) for item in items]
        begins: list[Callable[[], None]]
        begins = [lambda item=item: self.assign(node.target, self.chosen(item)) for item in items]  # type: ignore[misc]
        self._loop(node.body, iterable, exact, begins, began)
        if node.orelse is not None:
            self.run_body(node.orelse.body)

    def while_(self, node: cst.While) -> None:
        """`while`: the body is run once."""
        outcome = self.condition(node.test)
        if outcome is False:
            return
        guards = outcome.true if isinstance(outcome, Condition) else ()
        begins: list[Callable[[], None]] = [lambda: self.assume(tuple(g for g in guards if g.kind != "other"))]
        self._loop(node.body, None, False, begins, Value().number)
        if node.orelse is not None:
            self.run_body(node.orelse.body)

    def _loop(
        self, body: cst.BaseSuite, over: Value | None, exact: bool, begins: list[Callable[[], None]], began: int
    ) -> None:
        """Runs the body once for each beginning. Where these are all rounds there are, one comes after the other, and
        the loop's number is negative. `over` is what the loop goes over, None for a `while`."""
        number = self.new_loop(began)
        if not exact:
            self._forget_counts(body)
        self.frame.over.append((over, body))
        self.loops.append(-number if exact else number)
        for begin in begins:
            depth = len(self.guards)
            leaves = len(self.trace.leaves)
            begin()
            self.run_body(body)
            del self.guards[depth:]
            self.frame.dead = False
            here = tuple(self.stack)
            for leave in [leave for leave in self.trace.leaves[leaves:] if leave.stack == here]:
                more = tuple(guard for guard in leave.guards if guard not in self.guards)
                if more:
                    self.assume(self.not_all(more))
        self.loops.pop()
        self.frame.over.pop()

    def _forget_counts(self, body: cst.BaseSuite) -> None:
        """What a loop counts up or down is known in its first round alone."""
        for target in counted_in(body):
            if isinstance(target, cst.Name):
                if is_number(self.frame.names.get(target.value)):
                    self.frame.names[target.value] = Unknown(name=target.value)
                continue
            owner, name = self.evaluate(target.value), target.attr.value
            if is_number(self.stored(owner, name)):
                self.store(owner, name, Unknown(name=name))

    def attempt_with(self, node: cst.With) -> bool:
        """Runs a body whose errors are suppressed: it ends, or what follows is reached without it. False where they are
        not suppressed."""
        if not any(self._suppresses(item.item) for item in node.items):
            return False
        swallow = functools.partial(self.emit, Swallow, self.site(node))
        self._attempt(node, lambda: self.run_body(node.body), [lambda key: swallow(key=key)])
        return True

    def _suppresses(self, node: cst.BaseExpression) -> bool:
        """True for `contextlib.suppress` of all errors, or of those that fail inside libraries."""
        if not isinstance(node, cst.Call) or not any(table.words(arg) & WIDE for arg in node.args):
            return False
        return table.is_suppress(self.evaluate(node.func))

    def try_(self, node: cst.Try | cst.TryStar) -> None:
        """`try`: the body, then what the handlers would do instead."""
        frame = self.frame

        def body() -> None:
            depth = len(self.contexts)
            if any(h.type is not None and "AttributeError" in table.words(h.type) for h in node.handlers):
                self.contexts.append("AttributeError")
            self.run_body(node.body)
            del self.contexts[depth:]
            if node.orelse is not None and not frame.dead:
                self.run_body(node.orelse.body)

        handlers = [h for h in node.handlers if not looks_for_a_feature(h)]
        if handlers:
            self._attempt(node, body, [functools.partial(self.handler, each) for each in handlers])
        else:
            body()
        if node.finalbody is not None:
            dead, frame.dead = frame.dead, False
            self.run_body(node.finalbody.body)
            frame.dead = dead or frame.dead

    def _attempt(
        self, node: cst.CSTNode, body: Callable[[], None], handlers: list[Callable[[tuple[Any, ...]], object]]
    ) -> None:
        """Runs a body, and each of what may be done where it fails. They get the key of the test that it does not."""
        key = ("except", id(node))
        failed, fine = (Literal(key, holds, "handler", depth=len(self.stack)) for holds in (True, False))
        arms: list[tuple[Guards, Callable[[], object]]] = [((fine,), body)]
        arms += [((failed,), functools.partial(handler, key)) for handler in handlers]
        depth = len(self.guards)
        self.branch(arms)
        self.guards[depth:] = [guard for guard in self.guards[depth:] if guard.kind != "handler"]

    def handler(self, node: cst.ExceptHandler | cst.ExceptStarHandler, key: tuple[Any, ...]) -> None:
        """An except clause; `key` is that of the test which fails inside its `try`."""
        if catches_all(node) and not gives_up(node.body):
            self.emit(Swallow, self.site(node), key=key)
        if node.name is not None:
            self.assign(node.name.name, Unknown())
        self.run_body(node.body)

    # roots ------------------------------------------------------------------------------------------------------

    def run_file(self, path: Path) -> None:
        """Runs a script: the top level of a file."""
        frame = self.file_frame(path)
        if frame is None:
            return
        self.frames.append(frame)
        frame.names["__name__"] = Const(value="__main__")
        self._guarded(lambda: self.run_statements(frame.source.abstract.body))
        self.frames.pop()

    def run_function(self, path: Path, qualname: str) -> None:
        """Runs a function that nobody calls; its parameters are unknown."""
        frame = self.file_frame(path)
        if frame is None:
            return
        function = Function(name=qualname, path=path, qualname=qualname)
        self.frames.append(frame)
        self._guarded(lambda: self._run_given(function, None))
        self.frames.pop()

    def _run_given(self, function: Function, self_value: Value | None) -> None:
        node = self.function_node(function)
        if not isinstance(node, cst.FunctionDef):
            return
        given: dict[str, Value] = {}
        positional = [*node.params.posonly_params, *node.params.params]
        if self_value is not None:
            positional = positional[1:]
        for param in [*positional, *node.params.kwonly_params]:
            name = param.name.value
            given[name] = self.given(name, param)
        call = Call(site=Site(self.frame.source, node), kwargs=given, name=function.name)
        if isinstance(node.params.star_kwarg, cst.Param) or isinstance(node.params.star_arg, cst.Param):
            call.open = True
        before = len(self.trace.events)
        self.entered.add((function.path, function.qualname))
        result = self.enter_root(function, call, self_value)
        if len(self.trace.events) > before and not isinstance(result, Const):
            self.hand(Call(site=call.site, args=[result]), "return")

    def given(self, name: str, param: cst.Param) -> Value:
        """An unknown argument of a root."""
        value = Unknown(name=name)
        scope = table.rank_scope(name)
        if scope is not None and not _is_size(param.default):
            return scope
        self.trace.given.add(value.number)
        return value

    def enter_root(self, function: Function, call: Call, self_value: Value | None) -> Value:
        """Runs the body of a root, whatever it is worth."""
        node = self.function_node(function)
        source = self.project.source(function.path)
        if node is None or source is None:
            return Unknown()
        return super().enter(function, call, self_value)

    def worth_entering(self, function: Function, call: Call, self_value: Value | None = None) -> bool:
        """A root is always entered."""
        return not self.stack or super().worth_entering(function, call, self_value)

    def run_class(self, path: Path, name: str, methods: list[str]) -> None:
        """Runs the life of a class that nobody makes: `__init__`, then its methods, each an entry of its own, but for
        those that a framework calls in an order that is known."""
        frame = self.file_frame(path)
        if frame is None:
            return
        cls = Class(name=name, path=path, qualname=name)
        self.frames.append(frame)

        hooked = lightning.is_lightning(self.library_bases(cls))

        def life() -> None:
            if self.is_module_class(cls):
                made: Value = Module(name="self", cls=cls, built=True, program=hooked)
            else:
                made = Instance(name="self", cls=cls)
            left = 0  # what one method does not use, the next may
            for at, method in enumerate(["__init__", *(lightning.in_order(methods) if hooked else methods)]):
                found = self.class_attribute(cls, method)
                if found is None or not isinstance(found[1], Function):
                    continue
                self.entry = 0 if hooked and method in lightning.HOOKS else at
                self.renew(min(STATEMENTS, STATEMENTS // 2 + left))
                try:
                    self._life_step(found[1], made)
                    left = self.budget
                except OutOfBudget:
                    left = 0
                    self.trace.finished = False
                    del self.frames[1:], self.guards[:], self.loops[:], self.stack[:], self.contexts[:]
                    del self.methods[:], self.journals[:]

        self._guarded(life)
        self.frames.pop()

    def _life_step(self, function: Function, made: Value) -> None:
        node = self.function_node(function)
        words = {w for d in (node.decorators if isinstance(node, cst.FunctionDef) else ()) for w in table.words(d)}
        if words & {"staticmethod", "classmethod"}:
            return
        self._run_given(function, made)

    def _guarded(self, run: Callable[[], None]) -> None:
        try:
            run()
        except (OutOfBudget, RecursionError):
            self.trace.finished = False


@functools.lru_cache(maxsize=4096)
def counted_in(body: cst.BaseSuite) -> tuple[cst.Name | cst.Attribute, ...]:
    """The variables that a loop counts: `step += 1`, `state.step += 1`, `step = step + 1`."""
    found: list[cst.Name | cst.Attribute] = []
    for node in program_below(body):
        match node:
            case cst.AugAssign(target=cst.Name() | cst.Attribute(value=cst.Name()) as target):
                found.append(target)
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Name(value=name) as target)],
                value=cst.BinaryOperation(left=cst.Name(value=other)),
            ) if name == other:
                found.append(target)
    return tuple(found)


# What binds each kind of target, and what runs each kind of statement; see the table of expressions.
_TARGETS: dict[type, Callable[[Interpreter, Any, Value], None]] = {
    cst.Name: Interpreter.assign_name,
    cst.Attribute: lambda run, node, value: run.assign_attribute(
        run.evaluate(node.value), node.attr.value, value, run.site(node)
    ),
    cst.Tuple: lambda run, node, value: run.unpack(node.elements, value),
    cst.List: lambda run, node, value: run.unpack(node.elements, value),
    cst.Subscript: Interpreter.assign_item,
    cst.StarredElement: lambda run, node, value: run.assign(node.value, value),
}
_COMPOUND: dict[type, Callable[[Interpreter, Any], None]] = {
    cst.If: Interpreter.if_,
    cst.For: Interpreter.for_,
    cst.While: Interpreter.while_,
    cst.With: Interpreter.with_,
    cst.Try: Interpreter.try_,
    cst.TryStar: Interpreter.try_,
    cst.FunctionDef: Interpreter.define_function,
    cst.ClassDef: Interpreter.define_class,
    cst.Match: Interpreter.match_,
}
_SMALL: dict[type, Callable[[Interpreter, Any], object]] = {
    cst.Expr: lambda run, node: run.evaluate(node.value),
    cst.Assign: Interpreter.assignment,
    cst.AnnAssign: Interpreter.annotated,
    cst.AugAssign: lambda run, node: run.augment(node.target, node.operator, run.evaluate(node.value), node),
    cst.Return: Interpreter.return_,
    cst.Raise: Interpreter.raise_,
    cst.Continue: Interpreter.end_round,
    cst.Break: Interpreter.end_round,
    cst.Import: Interpreter.import_,
    cst.ImportFrom: Interpreter.import_,
    cst.Assert: Interpreter.assert_,
    cst.Global: Interpreter.share,
    cst.Nonlocal: Interpreter.share,
}


def _is_size(default: cst.BaseExpression | None) -> bool:
    """True for a default that no process's number has: the rank of an adapter is 8, say."""
    return isinstance(default, cst.Integer) and default.evaluated_value > 0


def _import_name(node: cst.Attribute | cst.Name) -> str:
    if isinstance(node, cst.Attribute):
        assert isinstance(node.value, cst.Attribute | cst.Name)
        return f"{_import_name(node.value)}.{node.attr.value}"
    return node.value
