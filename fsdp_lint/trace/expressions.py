"""Expressions: what they are worth, and what happens while they are evaluated."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import libcst as cst

from fsdp_lint.trace.attributes import Attributes
from fsdp_lint.trace.events import CheckClass, ShareOut
from fsdp_lint.trace.generators import as_yielded, note_yield
from fsdp_lint.trace.invocations import UNROLL
from fsdp_lint.trace.models import table
from fsdp_lint.trace.values import (
    Condition,
    Const,
    Function,
    Mapping,
    Module,
    Optimizer,
    Params,
    Product,
    Rank,
    Sequence,
    Tensor,
    Unknown,
    Value,
    WorldSize,
    choice,
    options_of,
)

# Texts, lists and numbers beyond this length (characters, items, bits) are not computed.
LONG = 2_000


class Expressions(Attributes):
    """The part of the abstract machine that evaluates expressions."""

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

    def arms(self, before: int, test: cst.BaseExpression, body: cst.CSTNode, orelse: cst.CSTNode | None) -> None:
        """Tells the tests of a class since event number `before` what hangs on them."""
        for event in self.trace.events[before:]:
            if isinstance(event, CheckClass):
                negated = isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not)
                then, other = (orelse, body) if negated else (body, orelse)
                event.then = frozenset(table.words(then)) if then is not None else frozenset()
                event.otherwise = other is not None or (not negated and _leaves(body))

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
                self.note_dimensions(node, *values)
                outcome = self.compare(values[0], op, values[1], node)
                return Const(value=outcome) if isinstance(outcome, bool) else outcome
            case cst.BooleanOperation(left=left, operator=cst.Or(), right=right):
                first = self.evaluate(left)
                given = [option for option, _ in options_of(first)]
                if not any(isinstance(option, Condition | Rank | WorldSize) for option in given):
                    return self.each_option(first, lambda option: self._or_else(option, left, right))
        outcome = self.condition(node)
        return Const(value=outcome) if isinstance(outcome, bool) else outcome

    def _or_else(self, first: Value, left: cst.BaseExpression, right: cst.BaseExpression) -> Value:
        """`first or right`: what is given, or what stands for it where nothing is."""
        outcome = self.truth(first, left)
        if isinstance(outcome, bool):
            return first if outcome else self.evaluate(right)
        depth = len(self.guards)
        self.assume(outcome.false)
        second = self.evaluate(right)
        del self.guards[depth:]
        match second:
            case Module() | Optimizer():
                return second
            case Condition():
                either = self.either_of(outcome, second)
                return Const(value=either) if isinstance(either, bool) else either
            case Const() | Mapping() | Sequence():
                # What is given has the same use.
                return first
        return choice([(first, outcome.true), (second, outcome.false)])

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
            made_from = (left, right) if left.chosen_by or right.chosen_by else ()
            exact = left.exact and right.exact
            return self.new(Sequence(items=left.items + right.items, exact=exact, chosen_by=made_from))
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
        if isinstance(right, WorldSize) and isinstance(op, cst.Divide | cst.FloorDivide | cst.Modulo):
            self.emit(ShareOut, self.site(node), of=left)
        if isinstance(op, cst.Divide):
            table.divide(self, left, right, result, self.site(node))
        elif isinstance(op, cst.Multiply):
            table.multiply(self, left, right, result, self.site(node))
        return result

    def yielded(self, inner: cst.BaseExpression | cst.From | None) -> Value:
        """`yield x`, and `yield from x`, which yields the items of x."""
        value: Value = Const(value=None)
        if isinstance(inner, cst.From):
            value = self.evaluate(inner.item)
        elif inner is not None:
            value = self.evaluate(inner)
        frame = self.frame
        if isinstance(inner, cst.From) and not (isinstance(value, Params) and value.taken is None):
            frame.yields.extend(self.items(value, self.site(inner.item))[0])
        else:
            frame.yields.append(as_yielded(frame, tuple(self.guards[frame.base :]), value))
        frame.yield_contexts = tuple(self.contexts)
        frame.pauses.append((len(self.trace.events), tuple(self.guards[frame.base :]), value))
        note_yield(frame, tuple(self.guards[frame.base :]), value if isinstance(inner, cst.From) else None)
        return Unknown()


def _leaves(body: cst.CSTNode) -> bool:
    """True when a block ends by leaving, so that what stands below it is its other arm."""
    last = body.body[-1] if isinstance(body, cst.IndentedBlock) and body.body else None
    small = last.body[-1] if isinstance(last, cst.SimpleStatementLine) else None
    return isinstance(small, cst.Return | cst.Raise | cst.Continue | cst.Break)


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
