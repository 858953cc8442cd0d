"""Expressions: what they are worth, and what happens while they are evaluated."""

from __future__ import annotations

import ast
import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.trace import signatures
from fsdp_lint.trace.conditions import Conditions
from fsdp_lint.trace.events import BuildOptimizer, CheckClass, Forward, Handed, Shard, TakeParameters
from fsdp_lint.trace.generators import as_yielded, note_yield
from fsdp_lint.trace.models import declared, table
from fsdp_lint.trace.models.api import Call, Option
from fsdp_lint.trace.trace import covers
from fsdp_lint.trace.values import (
    Bound,
    Choice,
    Class,
    Condition,
    Const,
    External,
    Function,
    Guards,
    Instance,
    Loaded,
    Mapping,
    Mesh,
    Method,
    Module,
    Object,
    Optimizer,
    Params,
    Partial,
    Product,
    ProjectModule,
    Rank,
    Sequence,
    StateDict,
    Super,
    Tensor,
    Unknown,
    Value,
    WorldSize,
    choice,
    exclusive,
    made_of,
    options_of,
    parts,
)

UNROLL = 16
# Texts, lists and numbers beyond this length (characters, items, bits) are not computed.
LONG = 2_000
_WITH_INNER = frozenset({External, ProjectModule, Super, Class, Instance, Module})
_CONSTANTS = {"True": True, "False": False, "None": None}
BLOCK_CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")


class Expressions(Conditions):
    """The part of the abstract machine that evaluates expressions."""

    declarations = declared.Declared()

    def evaluate(self, node: cst.BaseExpression) -> Value:
        """The value of an expression."""
        found = _WAYS.get(node.__class__)
        return found(self, node) if found is not None else Unknown()

    def formatted(self, node: cst.FormattedString) -> Value:
        """An f-string."""
        pieces = node.parts
        values = [self.evaluate(p.expression) for p in pieces if isinstance(p, cst.FormattedStringExpression)]
        first = pieces[0].value if pieces and isinstance(pieces[0], cst.FormattedStringText) else ""
        return Unknown(name="f-string", inputs=tuple(values), begins=first)

    def unary_operation(self, node: cst.UnaryOperation) -> Value:
        """`not x`, `-x` and `~x`."""
        if node.operator.__class__ is cst.Not:
            return self.boolean(node)
        return self.unary(node.operator, self.evaluate(node.expression))

    def named(self, node: cst.NamedExpr) -> Value:
        """`name := value`."""
        value = self.evaluate(node.value)
        self.assign(node.target, value)
        return value

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

    # leaves -----------------------------------------------------------------------------------------------------

    def name(self, name: str) -> Value:
        """What a name stands for."""
        if name in _CONSTANTS:
            return Const(value=_CONSTANTS[name])
        found = self.load(name)
        return found if found is not None else self.unbound_name(self.frame.path, name)

    @staticmethod
    def literal(node: Any) -> Value:
        """A literal's value."""
        if node.__class__ is cst.SimpleString and node.value[0] in "'\"" and "\\" not in node.value:
            marks = 3 if node.value[:3] in ("'''", '"""') and len(node.value) > 5 else 1
            return Const(value=node.value[marks:-marks])
        if node.__class__ is cst.Integer and node.value.isdecimal() and not node.value.startswith("0"):
            return Const(value=int(node.value))
        text = cst.Module([]).code_for_node(node) if node.__class__ is cst.ConcatenatedString else node.value
        read = _read(text)
        return Const(value=read[0]) if read else Unknown(name="literal")

    def display(self, elements: Any) -> Value:
        """A list, tuple or set display."""
        items: list[Value] = []
        exact = True
        for element in elements:
            value = self.evaluate(element.value)
            if isinstance(element, cst.StarredElement):
                if isinstance(value, Params):
                    items.append(self.take(value, self.site(element)))
                    exact = False
                    continue
                found, all_of_them = self.items(value, self.site(element))
                items.extend(found)
                exact = exact and all_of_them
            else:
                items.append(value)
        return self.new(Sequence(items=items, exact=exact))

    def dictionary(self, elements: Any) -> Value:
        """A dict display."""
        made = self.new(Mapping(born=tuple(self.guards)))
        for element in elements:
            if isinstance(element, cst.StarredDictElement):
                self.merge(made, self.evaluate(element.value))
                continue
            key = self.evaluate(element.key)
            value = self.evaluate(element.value)
            if isinstance(key, Const) and isinstance(key.value, str | int | float | bool | None):
                made.items[key.value] = value
            else:
                made.rest.append(value)
        return made

    def merge(self, into: Mapping, value: Value) -> None:
        """`into.update(value)`."""
        value = self.possible(value)
        if isinstance(value, Mapping):
            for key, content in value.items.items():
                self.put(into, key, content)
            into.rest.extend(value.rest)
            into.open = into.open or value.open
        elif isinstance(value, Params):
            into.rest.append(value)
        else:
            into.open = True
            into.rest.append(value)

    def put(self, into: Mapping, key: Any, content: Value) -> None:
        """`into[key] = content`, under the guards of here."""
        guards = tuple(g for g in self.guards if g not in into.born and (g.key, g.holds) not in self.certain)
        old = into.items.get(key)
        if not guards:
            into.items[key] = content
            return
        missing = old if old is not None else External(name="missing", dotted=table.MISSING)
        into.items[key] = Choice(options=((content, guards), (missing, ())))

    def arms(self, before: int, test: cst.BaseExpression, body: cst.CSTNode, orelse: cst.CSTNode | None) -> None:
        """Tells the tests of a class since event number `before` what hangs on them."""
        for event in self.trace.events[before:]:
            if isinstance(event, CheckClass):
                negated = isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not)
                then, other = (orelse, body) if negated else (body, orelse)
                event.then = frozenset(table.words(then)) if then is not None else frozenset()
                event.otherwise = other is not None or (not negated and _leaves(body))

    # comprehensions ---------------------------------------------------------------------------------------------

    def comprehension(self, elt: cst.BaseExpression, for_in: cst.CompFor) -> Value:
        """A list or set comprehension."""
        made = self.new(Sequence(exact=False))
        made.exact = self._each(for_in, lambda: made.items.append(self.with_tests(self.evaluate(elt))), made)
        return made

    def with_tests(self, value: Value) -> Value:
        """A value with the tests that were made of it, as an item of a list that is read elsewhere."""
        if isinstance(value, Sequence) and value.exact and any(isinstance(one, Module) for one in value.items):
            return self.new(Sequence(items=[self.with_tests(one) for one in value.items]))
        if not isinstance(value, Module | Unknown):
            return value
        tests = tuple(g for g in self.guards if g.subject is value or value.number in g.about)
        return Choice(options=((value, tests),)) if tests else value

    def generator(self, elt: cst.BaseExpression, for_in: cst.CompFor) -> Value:
        """A generator expression; one over parameters that nobody has walked stays un-walked."""
        if for_in.inner_for_in is None:
            depth = len(self.trace.events)
            source = self.possible(self.evaluate(for_in.iter))
            del self.trace.events[depth:]
            if isinstance(source, Params) and source.taken is None and _picks_target(elt, for_in.target):
                return Params(name=source.name, of=source.of, named=False)
        return self.comprehension(elt, for_in)

    def dict_comprehension(self, key: cst.BaseExpression, value: cst.BaseExpression, for_in: cst.CompFor) -> Value:
        """A dict comprehension."""
        made = self.new(Mapping(born=tuple(self.guards)))

        def add() -> None:
            at = self.evaluate(key)
            content = self.evaluate(value)
            if isinstance(at, Const) and isinstance(at.value, str | int):
                made.items[at.value] = content
            else:
                made.rest.append(self.with_tests(content))

        exact = self._each(for_in, add, None)
        made.open = made.open or not exact
        return made

    def _each(self, for_in: cst.CompFor, body: Callable[[], None], made: Sequence | None) -> bool:
        """Runs `body` for the items of a comprehension's loops; tells whether all items were exact."""
        began = Value().number
        iterable = self.possible(self.evaluate(for_in.iter))
        items, exact = self.items(iterable, self.site(for_in))
        if made is not None and isinstance(iterable, Sequence):
            made.times = iterable.times
        frame = self.frame
        saved = dict(frame.names)
        if len(items) > UNROLL:
            items, exact = items[:1], False
        loop = self.new_loop(began)
        self.loops.append(loop)
        for item in items:
            depth = len(self.guards)
            self.assign(for_in.target, self.chosen(item))
            possible = True
            for test in for_in.ifs:
                outcome = self.condition(test.test)
                if outcome is False:
                    possible = False
                elif isinstance(outcome, Condition):
                    self.assume(outcome.true)
                    exact = False
                    if made is not None and any(one.key[0] == "rank" for one in outcome.true):
                        made.chosen_by += (Rank(name="rank"),)
            if possible:
                if for_in.inner_for_in is not None:
                    exact = self._each(for_in.inner_for_in, body, None) and exact
                else:
                    body()
            del self.guards[depth:]
        self.loops.pop()
        frame.names = saved
        return exact

    def chosen(self, item: Value) -> Value:
        """An item of a filtered list, its filter taken for granted."""
        if isinstance(item, Choice) and len(item.options) == 1:
            value, guards = item.options[0]
            self.assume(guards)
            return value
        if isinstance(item, Sequence) and item.exact and any(isinstance(one, Choice) for one in item.items):
            return self.new(Sequence(items=[self.chosen(one) for one in item.items]))
        return item

    # operators --------------------------------------------------------------------------------------------------

    def conditional(self, test: cst.BaseExpression, body: cst.BaseExpression, orelse: cst.BaseExpression) -> Value:
        """`body if test else orelse`."""
        before = len(self.trace.events)
        outcome = self.condition(test)
        self.arms(before, test, body, orelse)
        if isinstance(outcome, bool):
            return self.evaluate(body if outcome else orelse)
        results: list[tuple[Value, Any]] = []

        def arm(node: cst.BaseExpression, holds: bool, guards: Any) -> Callable[[], None]:
            def run() -> None:
                self.narrow(test, holds)
                results.append((self.evaluate(node), guards))

            return run

        self.branch(
            [
                (outcome.true, arm(body, True, outcome.true)),
                (outcome.false, arm(orelse, False, outcome.false)),
            ]
        )
        return choice(results) if results else Unknown()

    def boolean(self, node: cst.BaseExpression) -> Value:
        """`and`, `or`, `not` and comparisons as values."""
        match node:
            case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=op, comparator=right)]):
                values = [self.evaluate(left), self.evaluate(right)]
                tensors = [value for value in values if isinstance(value, Tensor)]
                if tensors and not isinstance(op, cst.Is | cst.IsNot | cst.In | cst.NotIn):
                    return table.combine(self, tensors, linear=False)
                outcome = self.compare(values[0], op, values[1], node)
                return Const(value=outcome) if isinstance(outcome, bool) else outcome
            case cst.BooleanOperation(left=left, operator=cst.Or(), right=right):
                first = self.evaluate(left)
                if not isinstance(first, Condition | Const | Rank | Choice | WorldSize):
                    if isinstance(first, Unknown):
                        second = self.evaluate(right)
                        return second if isinstance(second, Module | Optimizer) else first
                    return first
        outcome = self.condition(node)
        return Const(value=outcome) if isinstance(outcome, bool) else outcome

    @staticmethod
    def unary(op: cst.BaseUnaryOp, value: Value) -> Value:
        """`-x` and `~x`."""
        if isinstance(op, cst.Minus) and isinstance(value, Const) and isinstance(value.value, int | float):
            return Const(value=-value.value)
        return value if isinstance(value, Tensor) else Unknown(inputs=(value,))

    def binary(self, left: Value, op: cst.BaseBinaryOp, right: Value, node: cst.CSTNode) -> Value:
        """Arithmetic, and `+` of lists, `|` of dicts."""
        left, right = self.possible(left), self.possible(right)
        if isinstance(left, Const) and isinstance(right, Const):
            return _arithmetic(left.value, op, right.value)
        tensors = [v for v in (left, right) if isinstance(v, Tensor)]
        if tensors:
            if isinstance(op, cst.Multiply | cst.Divide):
                return table.combine(self, tensors, len(tensors) == 1 and tensors[0] is not right)
            return table.combine(self, tensors, isinstance(op, cst.Add | cst.Subtract) and len(tensors) == 2)
        if isinstance(left, Sequence) and isinstance(right, Sequence) and isinstance(op, cst.Add):
            if len(left.items) + len(right.items) > LONG:
                return self.new(Sequence(items=left.items[:UNROLL], exact=False))
            return self.new(Sequence(items=left.items + right.items, exact=left.exact and right.exact))
        if isinstance(left, Sequence | Params) and isinstance(right, Sequence | Params) and isinstance(op, cst.Add):
            lists = [value.items[:UNROLL] if isinstance(value, Sequence) else [value] for value in (left, right)]
            return self.new(Sequence(items=[*lists[0], *lists[1]], exact=False))
        if isinstance(left, Sequence) and isinstance(op, cst.Multiply):
            return self.new(Sequence(items=list(left.items), exact=False, times=right))
        if isinstance(left, Mapping) and isinstance(op, cst.BitOr):
            made = self.new(Mapping(items=dict(left.items), rest=list(left.rest), open=left.open, born=left.born))
            self.merge(made, right)
            return made
        if isinstance(left, Rank) and isinstance(op, cst.Modulo):
            return Rank(name=left.name, scope="local")
        if isinstance(left, Rank) and isinstance(op, cst.FloorDivide):
            return Rank(name=left.name, scope="group", owner=left)
        if isinstance(op, cst.Multiply) and any(isinstance(side, WorldSize | Product) for side in (left, right)):
            return Product(inputs=(left, right))
        result = Unknown(inputs=(left, right), key="%" if isinstance(op, cst.Modulo) else "")
        if isinstance(op, cst.Divide):
            table.divide(self, left, right, result, self.site(node))
        return result

    def yielded(self, inner: cst.BaseExpression | cst.From | None) -> Value:
        """`yield x`, and `yield from x`, which yields the items of x."""
        value: Value = Const(value=None)
        if isinstance(inner, cst.From):
            value = self.evaluate(inner.item)
        elif inner is not None:
            value = self.evaluate(inner)
        frame = self.frame
        if isinstance(inner, cst.From) and not isinstance(value, Params):
            frame.yields.extend(self.items(value, self.site(inner.item))[0])
        else:
            frame.yields.append(as_yielded(frame, tuple(self.guards[frame.base :]), value))
        frame.yield_contexts = tuple(self.contexts)
        note_yield(frame, tuple(self.guards[frame.base :]), value if isinstance(inner, cst.From) else None)
        return Unknown()

    def draw(self, value: Instance, site: Site) -> None:
        """Notes what an object's `__iter__` gives; nothing of that is an event of this run."""
        found = self.class_attribute(value.cls, "__iter__")
        if value.draws is None and found is not None and isinstance(found[1], Function):
            depth = len(self.trace.events)
            value.draws = self.enter(found[1], Call(site=site, name="__iter__"), value)
            del self.trace.events[depth:]

    # attributes -------------------------------------------------------------------------------------------------

    def read(self, value: Value, name: str, node: cst.BaseExpression) -> Value:
        """`value.name` where it is read, noting parameters that are read from outside."""
        table.note_attribute(self, value, name, self.site(node))
        found = self.attribute(value, name)
        if self._is_weight(value, name, found):
            taken = Params(name=f"{value.name}.{name}", key=name, of=(value,))
            taken.taken = self.emit(TakeParameters, self.site(node), params=taken)
            return self.new(Tensor(name=f"{value.name}.{name}", source=taken, form="parameter"))
        return found

    def _is_weight(self, value: Value, name: str, found: Value) -> bool:
        if isinstance(value, Module) and name in value.parameters:
            return True
        if isinstance(value, Module) and name in value.buffers:
            return False
        if name not in ("weight", "bias") or not isinstance(found, Unknown):
            return False
        if isinstance(value, Module) and value.library is not None:
            return value.cls is None and value.library.startswith("torch.nn.")
        return any(one.number in self.touched for one in value.line())

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name`."""
        value = self.possible(value)
        if isinstance(value, Choice):
            return self.each_option(value, lambda option: self.attribute(option, name))
        stored = self.stored(value, name)
        if stored is not None:
            return self.child(value, name) if self._may_have_changed(value, name, stored) else stored
        return self._inner(value, name) if value.__class__ in _WITH_INNER else self._by_kind(value, name)

    def _inner(self, value: Value, name: str) -> Value:
        """An attribute of what the project or a library defines, and of what is made from that."""
        match value:
            case External(dotted=dotted):
                return table.external_attribute(self, dotted, name) or self.external(f"{dotted}.{name}")
            case ProjectModule(path=path):
                return self.load_global(path, name) or self.child(value, name)
            case Super(cls=cls, self_value=inner):
                return self._super_attribute(cls, inner, name)
            case Class():
                found = self.class_attribute(value, name)
                if found is None:
                    return self.child(value, name)
                function = found[1]
                if isinstance(function, Function) and isinstance(function.node, cst.FunctionDef):
                    if "classmethod" in {_last_word(d.decorator) for d in function.node.decorators}:
                        return Bound(name=name, function=function, self_value=value)
                return function
            case Instance(cls=cls):
                return self._instance_attribute(value, cls, name)
            case Module():
                return self._module_attribute(value, name)
        return self._by_kind(value, name)

    def _by_kind(self, value: Value, name: str) -> Value:
        known = table.value_attribute(self, value, name)
        if known is not None:
            return known
        if table.has_method(value, name):
            return Method(name=name, self_value=value, method=name, owner=value)
        return self.child(value, name)

    def _may_have_changed(self, value: Value, name: str, stored: Value) -> bool:
        """True for a flag that an earlier entry has set, and that other methods of the object set, too: which of them
        have been called before this entry is not known."""
        if not self.entry or not isinstance(value, Instance) or self.stored_in[value.number, name] == self.entry:
            return False
        flag = isinstance(stored, Const) and isinstance(stored.value, bool)
        return flag and len(self.setters(value.cls, name)) > 1

    def _super_attribute(self, cls: Class, inner: Value, name: str) -> Value:
        lineage = self.lineage(inner.cls) if isinstance(inner, Instance | Module) and inner.cls else [cls]
        later = lineage[lineage.index(cls) + 1 :] if cls in lineage else self.lineage(cls)[1:]
        for base in later:
            if isinstance(base, Class):
                found = self.class_attribute(base, name)
                if found is not None and isinstance(found[1], Function):
                    return Bound(name=name, function=found[1], self_value=inner)
        if name == "__init__" and isinstance(inner, Module) and inner.cls and self.container_base(inner.cls):
            return Method(name=name, self_value=inner, method=name, key=self.container_base(inner.cls))
        if name in ("__init__", "forward", "__enter__", "__exit__"):
            return self.external("builtins.object")
        if table.has_method(inner, name):
            return Method(name=name, self_value=inner, method=name)
        return Unknown(name=f"super().{name}", owner=inner, key=name)

    def _instance_attribute(self, value: Instance, cls: Class, name: str) -> Value:
        found = self.class_attribute(cls, name)
        if found is None:
            if self.is_optimizer_class(cls) and table.has_method(Optimizer(), name):
                return Method(name=name, self_value=value, method=name)
            known = table.value_attribute(self, Unknown(name=value.name), name)
            return known or self._asked_for(value, cls, name) or self.child(value, name)
        return self._bind(value, found[1])

    def _asked_for(self, value: Instance, cls: Class, name: str) -> Value | None:
        """What the `__getattr__` of an object gives for a name; None where it has none, or where that is not known."""
        found = self.class_attribute(cls, "__getattr__")
        if found is None or not isinstance(found[1], Function) or not isinstance(found[1].node, cst.FunctionDef):
            return None
        site = Site(self.frame.source, found[1].node)
        given = self.enter(found[1], Call(site=site, args=[Const(value=name)], name="__getattr__"), value)
        return None if isinstance(given, Const) or (isinstance(given, Unknown) and given.owner is None) else given

    def _bind(self, value: Value, found: Value) -> Value:
        if not isinstance(found, Function) or not isinstance(found.node, cst.FunctionDef):
            return found
        words = {_last_word(d.decorator) for d in found.node.decorators}
        if "staticmethod" in words:
            return found
        if words & {"property", "cached_property", "abstractproperty"}:
            made = self.enter(found, Call(site=Site(self.frame.source, found.node), name=found.name), value)
            if "cached_property" in words:
                self.store(value, found.name, made)
            return made
        if "classmethod" in words:
            owner = value.cls if isinstance(value, Instance | Module) and value.cls else value
            return Bound(name=found.name, function=found, self_value=owner)
        return Bound(name=found.name, function=found, self_value=value)

    def _module_attribute(self, value: Module, name: str) -> Value:
        if value.wraps is not None and name in ("module", "_orig_mod", "_fsdp_wrapped_module"):
            return value.wraps
        if name in value.children:
            return value.children[name]
        if name in value.parameters:
            return value.parameters[name]
        if value.cls is not None:
            found = self.class_attribute(value.cls, name)
            if found is not None:
                return self._bind(value, found[1])
        if table.has_method(value, name):
            return Method(name=name, self_value=value, method=name)
        if value.wraps is not None:
            return self.attribute(value.wraps, name)
        known = table.value_attribute(self, value, name)
        return known if known is not None else self.child(value, name)

    def subscript(self, node: cst.Subscript) -> Value:
        """`value[index]`."""
        value = self.possible(self.evaluate(node.value))
        if len(node.slice) != 1:
            indices = [self.evaluate(e.slice.value) for e in node.slice if isinstance(e.slice, cst.Index)]
            if isinstance(value, Mesh):
                return table.value_item(self, value, Sequence(items=indices), node) or self.child(value, "[,]")
            if isinstance(value, Tensor):
                return table.value_item(self, value, Unknown(), node) or value
            return self.child(value, "[,]")
        part = node.slice[0].slice
        if isinstance(part, cst.Slice):
            return self.each_option(value, lambda option: self._slice(option, part))
        if not isinstance(part, cst.Index):
            return Unknown(inputs=(value,))
        index = self.evaluate(part.value)
        return self.each_option(value, lambda option: self._item(option, index, node))

    def _slice(self, value: Value, part: cst.Slice) -> Value:
        low = self.evaluate(part.lower) if part.lower else Const(value=None)
        high = self.evaluate(part.upper) if part.upper else Const(value=None)
        chosen_by = (value, low, high, *([self.evaluate(part.step)] if part.step is not None else []))
        items: list[Value] | None = None
        step = self.evaluate(part.step) if part.step is not None else None
        if isinstance(step, Const) and step.value == -1 and not (part.lower or part.upper):
            if isinstance(value, Sequence):
                return Sequence(items=table.backwards(self, value), exact=value.exact)
        if isinstance(value, Sequence) and value.exact:
            items = value.items
        elif isinstance(value, Module) and value.library and value.library.rpartition(".")[2] in BLOCK_CONTAINERS:
            found, exact = self.items(value, self.site(part))
            items = found if exact else None
            if items is None:
                return Sequence(items=found, exact=False)
        if items is not None and isinstance(low, Const) and isinstance(high, Const) and part.step is None:
            return Sequence(items=items[low.value : high.value], exact=True)
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Module | Unknown):
            return Sequence(
                items=[self.element(value, "items") if isinstance(value, Module) else self.child(value, "[]")],
                exact=False,
                chosen_by=chosen_by,
            )
        if isinstance(value, Sequence):
            return self.new(Sequence(items=list(value.items), exact=False, times=value.times, chosen_by=chosen_by))
        return value if isinstance(value, Params) else Unknown(inputs=(value,))

    def _item(self, value: Value, index: Value, node: cst.Subscript) -> Value:
        key = index.value if isinstance(index, Const) else None
        if (
            isinstance(value, Sequence)
            and isinstance(key, int)
            and value.exact
            and -len(value.items) <= key < len(value.items)
        ):
            return value.items[key]
        if isinstance(value, Sequence) and value.items and not value.exact:
            return value.items[0] if len(value.items) == 1 else Choice(options=tuple((i, ()) for i in value.items[:6]))
        if isinstance(value, Mapping):
            if isinstance(index, Choice):
                return self.each_option(index, lambda one: self._item(value, one, node))
            return self._entry(value, index, key)
        if isinstance(value, Instance):
            found = self.class_attribute(value.cls, "__getitem__")
            if found is not None and isinstance(found[1], Function):
                return self.enter(found[1], Call(site=self.site(node), args=[index]), value)
        if isinstance(value, Module):
            return self._submodule(value, key)
        known = table.value_item(self, value, index, node)
        if known is not None:
            return known
        return self.child(value, f"[{key!r}]" if key is not None else f"[{index.name or '?'}]")

    def _entry(self, value: Mapping, index: Value, key: Any) -> Value:
        """`value[index]` of a dict; `key` is the literal that the index is, None where it is none."""
        if key in value.items:
            return self.possible(value.items[key])
        if key is None and value.items and not value.rest and len(value.items) <= 4:
            return Choice(options=tuple((item, self.is_key(index, at)) for at, item in value.items.items()))
        if value.default is not None and (key is not None or not value.rest):
            made = self.invoke_plain(value.default, self.site(self.frame.source.tree))
            if isinstance(made, Mapping | Sequence):
                if isinstance(made, Sequence):
                    made.exact = False
                if key is not None:
                    value.items[key] = made
                else:
                    value.rest.append(made)
                return made
        if len(value.rest) != 1 or value.items:
            return self.child(value, f"[{key!r}]")
        only = value.rest[0]
        if isinstance(only, Module) and only.each == "modules" and only.owner is not None:
            # What is looked up by a name among the modules of a model is one of them, not each.
            return self.child(only.owner, "[?]")
        return only

    def is_key(self, index: Value, key: Any) -> Guards:
        """What holds where an index of which nothing is known is this key of a dict; nothing where it may be another
        in each round of a loop."""
        if not self.is_older(index):
            return ()
        outcome = self.compare(index, cst.Equal(), Const(value=key), cst.Name("key"))
        return outcome.true if isinstance(outcome, Condition) else ()

    def _submodule(self, value: Module, key: Any) -> Value:
        items, exact = self.items(value, Site(self.frame.source, self.frame.source.tree))
        if exact and isinstance(key, int) and -len(items) <= key < len(items):
            return items[key]
        if isinstance(key, str) and key in value.children:
            return value.children[key]
        if len(items) == 1:
            return items[0]
        return self.element(value, "items")

    # calls ------------------------------------------------------------------------------------------------------

    def call(self, node: cst.Call) -> Value:
        """A call."""
        called = node.func.value if node.func.__class__ is cst.Name else ""
        if called == "super" and self.frame.cls is not None:
            return self._super(node)
        if called == "isinstance" and len(node.args) == 2:
            value, classes = self.evaluate(node.args[0].value), self.evaluate(node.args[1].value)
            table.note_class(self, value, classes, "isinstance", self.site(node))
            outcome = self.instance_test(value, classes, node)
            return Const(value=outcome) if isinstance(outcome, bool) else outcome
        function = self.evaluate(node.func)
        call = Call(site=self.site(node), name=_dotted(node.func))
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
            declaration = self.declarations.of(function, call)
            if declaration is not None:
                return declared.act(self, declaration, call)
        match function:
            case Choice(options=options) if all(guards for _, guards in options):
                return self._invoke_one_of(options, call)
            case Choice():
                return self.each_option(function, lambda option: self.invoke(option, call))
            case External(dotted=dotted):
                return self._invoke_external(dotted, call)
            case Function():
                return self.enter(function, call)
            case Bound(function=inner, self_value=owner):
                if inner.name == "forward" and isinstance(owner, Module) and not self._inside(owner):
                    made = Unknown(name="output", inputs=(owner, *call.values()))
                    self.emit(Forward, call.site, module=owner, bypass="forward", result=made)
                    return made
                return self.enter(inner, call, owner)
            case Method(self_value=Module() as owner, method="__init__", key=container):
                self.fill_container(owner, container, call)
                return Const(value=None)
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

    def _inside(self, owner: Module) -> bool:
        return any(one is owner for _, one in self.methods)

    def invoke_plain(self, function: Value, site: Site) -> Value:
        """Calls a value without arguments."""
        return self.invoke(function, Call(site=site))

    def _invoke_external(self, dotted: str, call: Call) -> Value:
        handler = table.handler(dotted)
        if handler is not None:
            return handler(self, call)
        return table.call_library(self, dotted, call)

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
                optimizer = self.new(Optimizer(holds=tuple(holds), cls=cls.name))
                self.emit(BuildOptimizer, call.site, optimizer=optimizer)
                return optimizer
        return self.construct(cls, call)

    def fill_container(self, made: Module, container: str, call: Call) -> None:
        """A container gets what its `__init__` is given."""
        table.fill(self, made, container, call)

    def note_built(self, made: Module) -> None:
        """A model that is no part of another is made."""
        table.note_built(self, made)

    def _invoke_unknown(self, function: Value, call: Call) -> Value:
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

    # what models ask for ----------------------------------------------------------------------------------------

    def hand(self, call: Call, to: str) -> None:
        """The arguments go to code that is not known."""
        values = tuple(call.values())
        if values:
            self.emit(Handed, call.site, values=values, to=to)

    def note_arguments(self, call: Call, name: str) -> None:
        """Where a call cannot be followed, its arguments go to code that is not known."""
        if any(self._matters(v) for v in call.values()):
            self.hand(call, name)

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
            case Sequence(items=items, exact=exact):
                return list(items), exact
            case Mapping(items=found, rest=rest, open=more):
                unknown = [Unknown(name="key")] if rest or more else []
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


@functools.lru_cache(maxsize=1 << 12)
def _read(text: str) -> tuple[Any, ...]:
    """The value of a literal as it is written, alone in a tuple; an empty one where it has none."""
    try:
        return (ast.literal_eval(text),)
    except (ValueError, SyntaxError, MemoryError):
        return ()


def _leaves(body: cst.CSTNode) -> bool:
    """True when a block ends by leaving, so that what stands below it is its other arm."""
    last = body.body[-1] if isinstance(body, cst.IndentedBlock) and body.body else None
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else None
    return isinstance(small, cst.Return | cst.Raise | cst.Continue | cst.Break)


def _picks_target(elt: cst.BaseExpression, target: cst.BaseAssignTargetExpression) -> bool:
    if not isinstance(elt, cst.Name):
        return False
    if isinstance(target, cst.Name):
        return elt.value == target.value
    return isinstance(target, cst.Tuple) and any(
        isinstance(e.value, cst.Name) and e.value.value == elt.value for e in target.elements
    )


def _dotted(node: cst.BaseExpression) -> str:
    if node.__class__ is cst.Name:
        return node.value
    if node.__class__ is cst.Attribute:
        inner = _dotted(node.value)
        return f"{inner}.{node.attr.value}" if inner else node.attr.value
    return ""


def _last_word(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Call):
        node = node.func
    return _dotted(node).rpartition(".")[2]


_PLAIN: dict[type, Callable[[Any, Any], Any]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.FloorDivide: operator.floordiv,
    cst.Divide: operator.truediv,
}


def _arithmetic(left: Any, op: cst.BaseBinaryOp, right: Any) -> Value:
    """The value of an operation on two literals; unknown where it would grow without end."""
    for side in (left, right):
        if (isinstance(side, str | bytes) and len(side) > LONG) or (isinstance(side, int) and side.bit_length() > LONG):
            return Unknown()
    try:
        kind = op.__class__
        if kind in _PLAIN:
            return Const(value=_PLAIN[kind](left, right))
        if isinstance(left, int) and isinstance(right, int):
            if kind is cst.Multiply:
                return Const(value=left * right)
            if kind is cst.Modulo:
                return Const(value=left % right)
            if kind is cst.Power and 0 <= right < 40 and abs(left) < 1000:
                return Const(value=left**right)
    except (TypeError, ZeroDivisionError, ValueError, OverflowError):
        pass
    return Unknown()


# What gives the value of each kind of expression. `match` would ask LibCST's abstract classes one after the other,
# which took a tenth of a run.
_WAYS: dict[type, Callable[[Expressions, Any], Value]] = {
    cst.Name: lambda run, node: run.name(node.value),
    cst.Attribute: lambda run, node: run.read(run.evaluate(node.value), node.attr.value, node),
    cst.Call: Expressions.call,
    cst.Subscript: Expressions.subscript,
    **dict.fromkeys(
        (cst.Integer, cst.Float, cst.SimpleString, cst.ConcatenatedString, cst.Imaginary),
        lambda run, node: run.literal(node),
    ),
    cst.FormattedString: Expressions.formatted,
    **dict.fromkeys((cst.List, cst.Tuple, cst.Set), lambda run, node: run.display(node.elements)),
    cst.Dict: lambda run, node: run.dictionary(node.elements),
    **dict.fromkeys((cst.ListComp, cst.SetComp), lambda run, node: run.comprehension(node.elt, node.for_in)),
    cst.GeneratorExp: lambda run, node: run.generator(node.elt, node.for_in),
    cst.DictComp: lambda run, node: run.dict_comprehension(node.key, node.value, node.for_in),
    cst.IfExp: lambda run, node: run.conditional(node.test, node.body, node.orelse),
    cst.BooleanOperation: Expressions.boolean,
    cst.Comparison: Expressions.boolean,
    cst.UnaryOperation: Expressions.unary_operation,
    cst.BinaryOperation: lambda run, node: run.binary(
        run.evaluate(node.left), node.operator, run.evaluate(node.right), node
    ),
    cst.Lambda: lambda run, node: Function(
        name="lambda", path=run.frame.path, qualname="<lambda>", node=node, scope=run.frame
    ),
    cst.Await: lambda run, node: run.evaluate(node.expression),
    cst.NamedExpr: Expressions.named,
    cst.Yield: lambda run, node: run.yielded(node.value),
    cst.StarredElement: lambda run, node: run.evaluate(node.value),
}
