"""Tests: what holds when a condition is true, and what when it is false."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import libcst as cst

from fsdp_lint.trace.calls import Calls
from fsdp_lint.trace.events import CompareDimensions, ReadScalar, Shard
from fsdp_lint.trace.models import table
from fsdp_lint.trace.trace import touches
from fsdp_lint.trace.values import (
    Bound,
    Choice,
    Class,
    Condition,
    Const,
    Dimensions,
    External,
    Function,
    Guards,
    Instance,
    Literal,
    Mapping,
    Mesh,
    Module,
    Object,
    Optimizer,
    Params,
    Rank,
    Sequence,
    StateDict,
    Tensor,
    Unknown,
    Value,
    WorldSize,
    choice,
    class_name,
    options_of,
    origins,
    same,
)

SOLID = (Module, Instance, Function, Bound, Optimizer, Params, StateDict, Object, Mesh, Class, Rank, WorldSize, Tensor)
FSDP1 = "FullyShardedDataParallel"
READ = frozenset({"shard", "partial", "partial-norm", "parameter", "gradient"})

ORDER: dict[type[cst.BaseCompOp], Callable[[Any, Any], bool]] = {
    cst.LessThan: operator.lt,
    cst.LessThanEqual: operator.le,
    cst.GreaterThan: operator.gt,
    cst.GreaterThanEqual: operator.ge,
}
_NEGATIVE: dict[type[cst.BaseCompOp], cst.BaseCompOp] = {
    cst.NotEqual: cst.Equal(),
    cst.IsNot: cst.Is(),
    cst.NotIn: cst.In(),
}
_SAMENESS = frozenset({cst.Is, cst.IsNot, cst.Equal, cst.NotEqual})


class Conditions(Calls):
    """The part of the abstract machine that evaluates tests."""

    def condition(self, node: cst.BaseExpression) -> Condition | bool:
        """The outcome of a test: a plain bool when it is known."""
        found = _TESTS.get(node.__class__)
        return found(self, node) if found is not None else self.truth(self.evaluate(node), node)

    def _not(self, node: cst.UnaryOperation) -> Condition | bool:
        if node.operator.__class__ is cst.Not:
            return _negated(self.condition(node.expression))
        return self.truth(self.evaluate(node), node)

    def _combined(self, node: cst.BooleanOperation) -> Condition | bool:
        combine = self.both if node.operator.__class__ is cst.And else self._either
        return combine(self.condition(node.left), node.right)

    def _compared(self, node: cst.Comparison) -> Condition | bool:
        left, targets = self.evaluate(node.left), node.comparisons
        if len(targets) == 1:
            right = self.evaluate(targets[0].comparator)
            self.note_dimensions(node, left, right)
            return self.compare(left, targets[0].operator, right, node)
        values = [left, *(self.evaluate(target.comparator) for target in targets)]
        return self.opaque(("chain", *(self._in_key(value) for value in values)), "other", *values)

    def note_dimensions(self, node: cst.Comparison, *sides: Value) -> None:
        """Notes where one side of a comparison is how many dimensions a tensor has."""
        for side in sides:
            if isinstance(side, Dimensions) and side.tensor is not None:
                self.emit(CompareDimensions, self.site(node), tensor=side.tensor)

    def both(self, left: Condition | bool, right: cst.BaseExpression) -> Condition | bool:
        """That one test holds, and then another."""
        if left is False:
            return False
        depth = len(self.guards)
        if isinstance(left, Condition):
            self.assume(left.true)
        other = self.condition(right)
        del self.guards[depth:]
        if left is True:
            return other
        if other is True:
            return left
        if other is False:
            return False
        true = left.true + tuple(g for g in other.true if g not in left.true)
        if _is_alone(left.false):
            return Condition(true=true, false=other.false)
        # `world_size == 1 and ...` is false in an FSDP run, whatever the second half says.
        if _is_alone(left.true):
            return Condition(true=true, false=left.false)
        return Condition(true=true, false=self.not_all(true))

    def _either(self, left: Condition | bool, right: cst.BaseExpression) -> Condition | bool:
        if left is True:
            return True
        depth = len(self.guards)
        if isinstance(left, Condition):
            self.assume(left.false)
        other = self.condition(right)
        del self.guards[depth:]
        return self.either_of(left, other)

    def either_of(self, left: Condition | bool, other: Condition | bool) -> Condition | bool:
        """That one of two tests holds."""
        if left is True or left is False:
            return left or other
        if other is False:
            return left
        if other is True:
            return left if left.true and all(g.kind == "single" for g in left.true) else True
        false = left.false + tuple(g for g in other.false if g not in left.false)
        # `not distributed or rank == 0` asks for the rank: in an FSDP run the first half is false.
        if _is_alone(left.true):
            return Condition(true=other.true, false=false)
        if _is_alone(other.true):
            return Condition(true=left.true, false=false)
        # `world_size > 1 or ...` is true there.
        if _is_alone(left.false):
            return Condition(true=left.true, false=false)
        return Condition(true=self.not_all(false), false=false)

    def not_all(self, literals: Guards) -> Guards:
        """That not all of these hold."""
        if len(literals) == 1:
            return (literals[0].but(holds=not literals[0].holds),)
        about = frozenset(n for g in literals for n in (*g.about, *([g.subject.number] if g.subject else ())))
        key = ("all", frozenset((g.key, g.holds) for g in literals))
        kind = "turn" if any(g.kind == "turn" for g in literals) else "other"
        subject = literals[0].subject
        if subject is not None and all(g.kind == "type" and g.subject is subject for g in literals):
            kind = "type"
        values = tuple(value for g in literals for value in g.values)
        of = subject if kind == "type" else None
        return (Literal(key, False, kind, depth=len(self.stack), subject=of, about=about, values=values),)

    def opaque(self, key: tuple[Any, ...], kind: str = "other", *values: Value) -> Condition:
        """A test of which only its identity, and what it speaks of, is known."""
        depth, about = len(self.stack), origins(*values)
        words = (*(value.name for value in values if value.name), *(part for part in key[1:] if isinstance(part, str)))
        return Condition(
            true=(Literal(key, True, kind, depth, about=about, words=words, values=values),),
            false=(Literal(key, False, kind, depth, about=about, words=words, values=values),),
        )

    def truth(self, value: Value, node: cst.BaseExpression) -> Condition | bool:
        """Whether a value counts as true."""
        match value:
            case Const(value=content):
                return bool(content)
            case Condition():
                return value
            case Rank():
                return _negated(self.rank_is(value, 0))
            case WorldSize():
                return True
            case Sequence(children_of=module, exact=False) if module is not None:
                return self.opaque(("has children", module.number), "other", module)
            case Sequence(items=items, exact=exact):
                return bool(items) if exact else self.opaque(("truth", value.number), "other", value)
            case Mapping(items=found, rest=rest, open=more):
                if more or rest:
                    return self.opaque(("truth", value.number), "other", value)
                return bool(found) or self.opaque(("truth", value.number), "other", value)
            case Choice():
                return self._truth_of_choice(value, lambda option: self.truth(option, node))
            case Tensor(form=form):
                if form in READ:
                    self.emit(ReadScalar, self.site(node), tensor=value, how="truth value")
                return self.opaque(("truth", value.number), "other", value)
            case Unknown(name="name", inputs=(Module() as named,)):
                return self.opaque(("has name", named.number), "other", named)
            case External() | Unknown():
                return self.opaque(("truth", value.number), "other", value)
        return True

    def _truth_of_choice(
        self, value: Choice, test: Callable[[Value], Condition | bool], *asked: Any, beside: tuple[Value, ...] = ()
    ) -> Condition | bool:
        """The outcome of a test of one of several values; `asked` tells it from other tests of the same value, and
        `beside` are the values that it is compared with."""
        options = options_of(self.possible(value))
        distributed = [o for o in options if not any(g.kind == "single" and not g.holds for g in o[1])]
        options = tuple(distributed) or options
        outcomes: list[tuple[Condition | bool, Guards]] = [(test(option), guards) for option, guards in options]
        if len(outcomes) == 1:
            return outcomes[0][0]
        if all(outcome is True for outcome, _ in outcomes):
            return True
        if all(outcome is False for outcome, _ in outcomes):
            return False
        base = self.opaque(("choice", value.number, *asked), "other", value)
        if beside:
            of = (value, *beside)
            base = Condition(true=(replace(base.true[0], values=of),), false=(replace(base.false[0], values=of),))
        true = [(outcome, guards) for outcome, guards in outcomes if outcome is not False]
        false = [(outcome, guards) for outcome, guards in outcomes if outcome is not True]
        return Condition(
            true=base.true + (_guards_of(true[0], True) if len(true) == 1 else ()),
            false=base.false + (_guards_of(false[0], False) if len(false) == 1 else ()),
        )

    def test_each(self, value: Choice, test: Callable[[Value], bool | None], *asked: str) -> Value:
        """The outcome of a test of one of several values, each tested where it is that one; None: not known."""
        outcomes: dict[int, bool | None] = {}

        def note(option: Value) -> Value:
            outcomes[option.number] = test(option)
            return option

        self.each_option(value, note)

        def outcome(option: Value) -> Condition | bool:
            known = outcomes.get(option.number)
            return known if known is not None else self.opaque((*asked, option.number), "other", option)

        found = self._truth_of_choice(value, outcome, *asked)
        return found if isinstance(found, Condition) else Const(value=found)

    # comparisons ------------------------------------------------------------------------------------------------

    def rank_is(self, rank: Rank, number: Any) -> Condition:
        """The test `rank == number`."""
        kind = {"world": "rank", "local": "local-rank"}.get(rank.scope, "other")
        key: tuple[Any, ...] = ("rank", rank.scope, number)
        if rank.scope == "group":
            key = ("rank", rank.owner.number if rank.owner else rank.number, number)
        return self.opaque(key, kind)

    def compare(self, left: Value, op: cst.BaseCompOp, right: Value, node: cst.BaseExpression) -> Condition | bool:
        """The outcome of one comparison."""
        positive = _NEGATIVE.get(op.__class__)
        if positive is not None:
            return _negated(self.compare(left, positive, right, node))
        left, right = self.possible(left), self.possible(right)
        asked = table.class_asked(left)
        if asked is not None:
            table.note_class(self, asked, right, "type", self.site(node))  # type: ignore[arg-type]
        for one, other in ((left, right), (right, left)):
            module = table.class_named(one)
            if module is not None:
                asked_for = ("named", module.number, type(op).__name__, self._in_key(other))
                return self._of_kind(asked_for, module, asked=(other,))
        if isinstance(left, Choice) and len(left.options) <= 4:
            key = (type(op).__name__, self._in_key(right))
            return self._truth_of_choice(
                left, lambda option: self.compare(option, op, right, node), *key, beside=(right,)
            )
        if isinstance(right, Rank | WorldSize) and not isinstance(left, Rank | WorldSize):
            return self.compare(right, _mirrored(op), left, node)
        if isinstance(left, Rank):
            return self._compare_rank(left, op, right)
        if isinstance(left, WorldSize):
            return self._compare_world(op, right)
        if op.__class__ is cst.Is or (isinstance(right, Const) and right.value is None):
            return self._compare_none(left, right)
        return self._compare_plain(left, op, right, node)

    def _compare_rank(self, rank: Rank, op: cst.BaseCompOp, right: Value) -> Condition | bool:
        number = right.value if isinstance(right, Const) else None
        if isinstance(number, str) and number.lstrip("-").isdecimal():
            number = int(number)
        # A process that is not part of a group has no rank, or -1.
        if isinstance(op, cst.Equal | cst.Is) and isinstance(right, Const) and number in (None, -1):
            return _negated(self.opaque(("distributed",), "single"))
        if isinstance(op, cst.In) and isinstance(right, External) and right.dotted == "os.environ":
            return self.opaque(("distributed",), "single")
        if isinstance(op, cst.Equal | cst.Is) and number is not None:
            return self.rank_is(rank, number)
        if isinstance(op, cst.Equal | cst.Is) and self._goes_through_ranks(right):
            # Each rank has its turn.
            return self.opaque(("turn of", right.number), "other", right)
        if isinstance(op, cst.Equal | cst.Is):
            found = self.rank_is(rank, ("value", right.number))
            return Condition(true=found.true, false=tuple(replace(each, kind="other") for each in found.false))
        if isinstance(op, cst.In) and isinstance(right, Sequence) and right.exact:
            ranks = {item.value for item in right.items if isinstance(item, Const)}
            if ranks <= {-1, 0} and len(right.items) == len(ranks):
                return self.rank_is(rank, 0)
        if isinstance(op, cst.GreaterThan) and number == 0:
            return _negated(self.rank_is(rank, 0))
        if isinstance(op, cst.LessThan) and number == 1:
            return self.rank_is(rank, 0)
        if isinstance(op, cst.In) and isinstance(right, Sequence) and len(right.items) == 1:
            return self._compare_rank(rank, cst.Equal(), right.items[0])
        if isinstance(op, cst.In):
            return self.rank_is(rank, ("in", right.number))
        return self.rank_is(rank, (type(op).__name__, number if number is not None else right.number))

    def _goes_through_ranks(self, value: Value) -> bool:
        """True for the item of a loop over the numbers of all processes."""
        return any(
            isinstance(over, Sequence) and value in over.items and any(isinstance(n, WorldSize) for n in over.chosen_by)
            for frame in self.frames
            for over, _ in frame.over
        )

    def _compare_world(self, op: cst.BaseCompOp, right: Value) -> Condition | bool:
        number = right.value if isinstance(right, Const) else None
        single = self.opaque(("distributed",), "single")
        if isinstance(number, int):
            if type(op) in ORDER and not ORDER[type(op)](1, number) and ORDER[type(op)](8, number):
                return single
            if type(op) in ORDER and ORDER[type(op)](1, number) and not ORDER[type(op)](8, number):
                return _negated(single)
            if isinstance(op, cst.Equal) and number == 1:
                return _negated(single)
        return self.opaque(("world", type(op).__name__, number if number is not None else right.number))

    def _compare_none(self, left: Value, right: Value) -> Condition | bool:
        if isinstance(right, Const) and right.value is None:
            if isinstance(left, Const):
                return left.value is None
            if isinstance(left, (*SOLID, Sequence, Mapping)) or table.is_there(self, left):  # type: ignore[arg-type]
                return False
            return self.opaque(("none", left.number), "other", left)
        if left is right:
            return True
        if isinstance(left, Const) and isinstance(right, Const):
            return left.value is right.value or left.value == right.value
        if isinstance(right, Const):
            return self._equals(left, right)
        if isinstance(left, Const):
            return self._equals(right, left)
        return self.opaque(("is", *sorted((left.number, right.number))), "other", left, right)

    def _compare_plain(
        self, left: Value, op: cst.BaseCompOp, right: Value, node: cst.BaseExpression
    ) -> Condition | bool:
        for tensor in (left, right):
            if (
                isinstance(tensor, Tensor)
                and op.__class__ in ORDER
                and tensor.form in ("shard", "parameter", "gradient")
            ):
                self.emit(ReadScalar, self.site(node), tensor=tensor, how="comparison")
        if isinstance(left, Const) and isinstance(right, Const):
            if op.__class__ is cst.Equal:
                return bool(left.value == right.value)
            if type(op) in ORDER:
                try:
                    return bool(ORDER[type(op)](left.value, right.value))
                except TypeError:
                    return False
        if op.__class__ is cst.Equal:
            if isinstance(left, Const):
                left, right = right, left
            if isinstance(right, Const):
                return self._equals(left, right)
            if isinstance(left, External) and isinstance(right, External):
                return left.dotted == right.dotted
            kind = "turn" if "%" in (left.key, right.key) else "other"
            return self.opaque(("same", *sorted((left.number, right.number))), kind, left, right)
        if op.__class__ is cst.In and isinstance(left, Const) and isinstance(right, Sequence) and right.exact:
            if all(isinstance(item, Const) for item in right.items):
                return any(same(left, item) for item in right.items)
        if op.__class__ is cst.In and isinstance(right, Sequence) and right.exact and 0 < len(right.items) <= 8:
            if not isinstance(left, Const) and all(isinstance(item, Const) for item in right.items):
                each = [self._equals(left, item) for item in right.items if isinstance(item, Const)]
                false = tuple(g for c in each if isinstance(c, Condition) for g in c.false)
                return Condition(true=self.not_all(false), false=false)
        if op.__class__ is cst.LessThanEqual:
            return _negated(self._compare_plain(left, cst.GreaterThan(), right, node))
        if op.__class__ is cst.GreaterThanEqual:
            return _negated(self._compare_plain(left, cst.LessThan(), right, node))
        if op.__class__ is cst.In:
            if isinstance(left, Const) and isinstance(right, External) and right.dotted == "os.environ":
                if left.value in table.PROCESS_VARIABLES:
                    return self.opaque(("distributed",), "single")
            if isinstance(left, Const) and isinstance(right, Mapping) and not right.open and not right.rest:
                return left.value in right.items
            return self.opaque(("in", self._in_key(left), self._in_key(right)), "other", left, right)
        if op.__class__ is cst.GreaterThan and isinstance(right, Const) and right.value == 0:
            return _negated(self._equals(left, right))
        if op.__class__ in (cst.GreaterThan, cst.LessThan) and isinstance(right, Const):
            kind = "greater" if op.__class__ is cst.GreaterThan else "less"
            return self.opaque((kind, left.number, right.value), "other", left)
        return self.opaque((type(op).__name__, self._in_key(left), self._in_key(right)), "other", left, right)

    def _equals(self, left: Value, right: Const) -> Condition | bool:
        if right.value == 0 and isinstance(left, Unknown) and len(left.inputs) == 1:
            counted = left.inputs[0]
            if isinstance(counted, Sequence) and counted.children_of is not None and not counted.exact:
                module = counted.children_of
                return _negated(self.opaque(("has children", module.number), "other", module))
        kind = "turn" if left.key == "%" else "other"
        outcome = self.opaque(("equals", left.number, right.value), kind, left)
        if not right.name:
            return outcome
        true, false = (
            tuple(replace(g, words=(*g.words, right.name)) for g in side) for side in (outcome.true, outcome.false)
        )
        return Condition(true=true, false=false)

    @staticmethod
    def _in_key(value: Value) -> Any:
        if isinstance(value, Const):
            return repr(value.value)
        if isinstance(value, Sequence) and all(isinstance(i, Const) for i in value.items):
            return tuple(repr(i.value) for i in value.items if isinstance(i, Const))
        return value.number

    # types ------------------------------------------------------------------------------------------------------

    def instance_test(self, value: Value, classes: Value) -> Condition | bool:
        """The outcome of `isinstance(value, classes)`."""
        value = self.possible(value)
        wanted = classes.items if isinstance(classes, Sequence) else [classes]
        names = tuple(class_name(one) for one in wanted)
        if isinstance(value, Choice):
            return self._truth_of_choice(value, lambda one: self.instance_test(one, classes), "isinstance", names)
        known = [self.is_instance(value, one) for one in wanted]
        if any(k is True for k in known):
            return True
        if known and all(k is False for k in known):
            return False
        return self._of_kind(("isinstance", value.number, names), value, names, tuple(wanted))

    def _of_kind(
        self, key: tuple[Any, ...], value: Value, names: tuple[str, ...] = (), asked: tuple[Value, ...] = ()
    ) -> Condition:
        """That a value is of one of these classes."""
        depth = len(self.stack)
        return Condition(
            true=(Literal(key, True, "type", depth, value, names, values=asked),),
            false=(Literal(key, False, "type", depth, value, names, values=asked),),
        )

    def is_instance(self, value: Value, cls: Value) -> bool | None:
        """Whether a value is an instance of a class; None when that is not known."""
        model = table.class_asked(cls)
        if model is not None:
            return self._is_like(value, model)
        if isinstance(cls, External):
            last = cls.dotted.rpartition(".")[2]
            if isinstance(value, Tensor):
                return self.is_dtensor(value) if last == "DTensor" else (True if last == "Tensor" else None)
            if isinstance(value, Module):
                return self._is_library_module(value, last)
            if isinstance(value, Optimizer | Params | StateDict | Const):
                return None
            return None
        if isinstance(cls, Class):
            if isinstance(value, Module | Instance) and value.cls is not None:
                return any(base is cls for base in self.lineage(value.cls))
            if isinstance(value, Module) and value.library is not None and value.wraps is None:
                return False
        return None

    def _is_like(self, value: Value, other: Value) -> bool | None:
        """Whether a value is an instance of the class of another one; None when that is not known."""
        if value is other:
            return True
        if not isinstance(value, Module) or not isinstance(other, Module):
            return None
        if other.cls is not None and (value.cls is not None or value.library is not None):
            return False if self.is_instance(value, other.cls) is False else None
        return None

    def is_dtensor(self, value: Tensor) -> bool | None:
        """Whether a tensor is a DTensor; None when that is not known."""
        if value.form in ("full", "local", "local-reduced", "number"):
            return False
        source = value.source
        modules = source.of if isinstance(source, Params) else (source.of,) if isinstance(source, StateDict) else ()
        if any(
            shard.generation == 2 and touches(shard.module, module)
            for module in modules
            for shard in self.trace.every(Shard)
        ):
            return True
        return None

    def _is_library_module(self, value: Module, last: str) -> bool | None:
        if last in (FSDP1, "DistributedDataParallel"):
            if value.library in (FSDP1, "DistributedDataParallel"):
                return value.library == last
            return False if value.cls is not None or value.library is not None else None
        if last == "FSDPModule":
            shards = [
                e
                for e in self.trace.every(Shard)
                if e.generation == 2 and (e.module is value or value in e.group) and e.entry == self.entry
            ]
            if shards:
                return True
            return False if value.built and not value.owner else None
        if last == "Module":
            return True
        if value.cls is None and value.library is not None and value.library.startswith("torch.nn."):
            return value.library.rpartition(".")[2] == last
        if value.cls is not None and value.built:
            return any(d.rpartition(".")[2] == last for d in self.library_bases(value.cls))
        return None

    def narrow(self, node: cst.BaseExpression, holds: bool) -> None:
        """Where a name stands for one of several values, drops those that the test rules out."""
        found = _NARROWING.get(node.__class__)
        if found is not None:
            found(self, node, holds)

    def _narrow_not(self, node: cst.UnaryOperation, holds: bool) -> None:
        if node.operator.__class__ is cst.Not:
            self.narrow(node.expression, not holds)

    def _narrow_both(self, node: cst.BooleanOperation, holds: bool) -> None:
        if node.operator.__class__ is (cst.And if holds else cst.Or):
            self.narrow(node.left, holds)
            self.narrow(node.right, holds)

    def _narrow_compared(self, node: cst.Comparison, holds: bool) -> None:
        op = node.comparisons[0].operator
        if node.left.__class__ is cst.Name and len(node.comparisons) == 1 and op.__class__ in _SAMENESS:
            other = self.evaluate(node.comparisons[0].comparator)
            self.keep(node.left, holds, lambda option: self.compare(option, op, other, node))

    def _narrow_class(self, node: cst.Call, holds: bool) -> None:
        if len(node.args) != 2 or node.func.__class__ is not cst.Name or node.func.value != "isinstance":
            return
        if node.args[0].value.__class__ is cst.Name:
            classes = self.evaluate(node.args[1].value)
            self.keep(node.args[0].value, holds, lambda option: self.instance_test(option, classes))

    def keep(self, node: Any, holds: bool, test: Callable[[Value], Condition | bool]) -> None:
        """Where a name stands for one of several values, drops those for which a test comes out otherwise."""
        name = node.value
        value = self.frame.names.get(name)
        value = self.possible(value) if value is not None else None
        if not isinstance(value, Choice):
            return
        left = [(option, guards) for option, guards in value.options if test(option) is not (not holds)]
        if left and len(left) < len(value.options):
            self.frame.names[name] = choice(left)


# What to do for each kind of node; `match` would ask LibCST's abstract classes one after the other.
_TESTS: dict[type, Callable[[Conditions, Any], Condition | bool]] = {
    cst.UnaryOperation: Conditions._not,
    cst.BooleanOperation: Conditions._combined,
    cst.Comparison: Conditions._compared,
}
_NARROWING: dict[type, Callable[[Conditions, Any, bool], None]] = {
    cst.Name: lambda run, node, holds: run.keep(node, holds, lambda option: run.truth(option, node)),
    cst.UnaryOperation: Conditions._narrow_not,
    cst.BooleanOperation: Conditions._narrow_both,
    cst.Comparison: Conditions._narrow_compared,
    cst.Call: Conditions._narrow_class,
}


def _is_alone(guards: Guards) -> bool:
    """True for tests that only a program of one process passes."""
    return bool(guards) and all(one.kind == "single" and not one.holds for one in guards)


def _negated(condition: Condition | bool) -> Condition | bool:
    if isinstance(condition, bool):
        return not condition
    return Condition(true=condition.false, false=condition.true)


def _guards_of(outcome: tuple[Condition | bool, Guards], holds: bool) -> Guards:
    condition, guards = outcome
    if isinstance(condition, bool):
        return guards
    return guards + (condition.true if holds else condition.false)


def _mirrored(op: cst.BaseCompOp) -> cst.BaseCompOp:
    pairs: dict[type[cst.BaseCompOp], cst.BaseCompOp] = {
        cst.LessThan: cst.GreaterThan(),
        cst.GreaterThan: cst.LessThan(),
        cst.LessThanEqual: cst.GreaterThanEqual(),
        cst.GreaterThanEqual: cst.LessThanEqual(),
    }
    return pairs.get(type(op), op)
