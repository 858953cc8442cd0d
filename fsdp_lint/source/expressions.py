"""Expressions of the interpreter's own parser as LibCST's nodes, without blanks and brackets."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import libcst as cst

OPERATORS: dict[type[ast.AST], cst.CSTNode] = {
    ast.And: cst.And(),
    ast.Or: cst.Or(),
    ast.Not: cst.Not(),
    ast.USub: cst.Minus(),
    ast.UAdd: cst.Plus(),
    ast.Invert: cst.BitInvert(),
    ast.Add: cst.Add(),
    ast.Sub: cst.Subtract(),
    ast.Mult: cst.Multiply(),
    ast.MatMult: cst.MatrixMultiply(),
    ast.Div: cst.Divide(),
    ast.Mod: cst.Modulo(),
    ast.Pow: cst.Power(),
    ast.LShift: cst.LeftShift(),
    ast.RShift: cst.RightShift(),
    ast.BitOr: cst.BitOr(),
    ast.BitXor: cst.BitXor(),
    ast.BitAnd: cst.BitAnd(),
    ast.FloorDiv: cst.FloorDivide(),
    ast.Eq: cst.Equal(),
    ast.NotEq: cst.NotEqual(),
    ast.Lt: cst.LessThan(),
    ast.LtE: cst.LessThanEqual(),
    ast.Gt: cst.GreaterThan(),
    ast.GtE: cst.GreaterThanEqual(),
    ast.Is: cst.Is(),
    ast.IsNot: cst.IsNot(),
    ast.In: cst.In(),
    ast.NotIn: cst.NotIn(),
}
_CONVERSIONS = {-1: None, 115: "s", 114: "r", 97: "a"}
_NEW, _SET = object.__new__, object.__setattr__


def made(kind: type[Any], **fields: Any) -> Any:
    """A node of LibCST with these fields and no others, unchecked: what the interpreter's parser gives is valid."""
    node = _NEW(kind)
    for name, value in fields.items():
        _SET(node, name, value)
    return node


def named(name: str) -> cst.Name:
    """A bare name."""
    node: cst.Name = _NEW(cst.Name)
    _SET(node, "value", name)
    return node


def dotted(path: str) -> cst.Name | cst.Attribute:
    """A name with its attributes, as imports have it."""
    head, *rest = path.split(".")
    node: cst.Name | cst.Attribute = named(head)
    for name in rest:
        node = made(cst.Attribute, value=node, attr=named(name))
    return node


class Expressions:
    """Makes the nodes of expressions. `lines` are those of the file; `rows` gets the row of each call, by `id`."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = lines
        self.rows: dict[int, int] = {}

    def expression(self, node: ast.expr) -> Any:
        """The node of an expression."""
        way = _WAYS.get(node.__class__)
        return way(self, node) if way is not None else self.unknown(node)

    def optional(self, node: ast.expr | None) -> Any:
        """The node of an expression where there is one."""
        return None if node is None else self.expression(node)

    def constant(self, node: ast.Constant) -> Any:
        """A literal."""
        value = node.value
        kind = value.__class__
        if value is None or kind is bool:
            return named(str(value))
        if kind is str or kind is bytes:
            return made(cst.SimpleString, value=repr(value))
        if kind is int:
            return made(cst.Integer, value=repr(value))
        if kind is float:
            return made(cst.Float, value=repr(value).replace("inf", "1e999"))
        if kind is complex:
            return made(cst.Imaginary, value=repr(value).replace("inf", "1e999"))
        return made(cst.Ellipsis)

    def attribute(self, node: ast.Attribute) -> Any:
        """`value.attr`."""
        return made(cst.Attribute, value=self.expression(node.value), attr=named(node.attr))

    def call(self, node: ast.Call) -> Any:
        """`func(args)`."""
        call = made(cst.Call, func=self.expression(node.func), args=self.arguments(node.args, node.keywords))
        self.rows[id(call)] = node.lineno
        return call

    def arguments(self, plain: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> list[Any]:
        """Arguments in the order of the text: what stands behind a star may come after keywords."""
        found = [self._positional(each) for each in plain]
        if not keywords:
            return found
        later = [self._keyword(each) for each in keywords]
        if not plain or not isinstance(plain[-1], ast.Starred):
            return found + later
        both: list[ast.expr | ast.keyword] = [*plain, *keywords]
        places = [(each.lineno, each.col_offset) for each in both]
        order = sorted(range(len(places)), key=places.__getitem__)
        return [(found + later)[at] for at in order]

    def _positional(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Starred):
            return made(cst.Arg, value=self.expression(node.value), keyword=None, star="*")
        return made(cst.Arg, value=self.expression(node), keyword=None, star="")

    def _keyword(self, node: ast.keyword) -> Any:
        value = self.expression(node.value)
        if node.arg is None:
            return made(cst.Arg, value=value, keyword=None, star="**")
        return made(cst.Arg, value=value, keyword=named(node.arg), star="")

    def elements(self, nodes: Iterable[ast.expr]) -> list[Any]:
        """What stands in a tuple, list or set."""
        return [
            made(cst.StarredElement, value=self.expression(node.value))
            if isinstance(node, ast.Starred)
            else made(cst.Element, value=self.expression(node))
            for node in nodes
        ]

    def dictionary(self, node: ast.Dict) -> Any:
        """A dict display."""
        return made(
            cst.Dict,
            elements=[
                made(cst.StarredDictElement, value=self.expression(value))
                if key is None
                else made(cst.DictElement, key=self.expression(key), value=self.expression(value))
                for key, value in zip(node.keys, node.values, strict=True)
            ],
        )

    def boolean(self, node: ast.BoolOp) -> Any:
        """`a and b and c`: LibCST has pairs, the first two first."""
        operator = OPERATORS[node.op.__class__]
        left = self.expression(node.values[0])
        for value in node.values[1:]:
            left = made(cst.BooleanOperation, left=left, operator=operator, right=self.expression(value))
        return left

    def comparison(self, node: ast.Compare) -> Any:
        """`a < b < c`."""
        targets = [
            made(cst.ComparisonTarget, operator=OPERATORS[op.__class__], comparator=self.expression(right))
            for op, right in zip(node.ops, node.comparators, strict=True)
        ]
        return made(cst.Comparison, left=self.expression(node.left), comparisons=targets)

    def subscript(self, node: ast.Subscript) -> Any:
        """`value[slice]`."""
        value, inner = self.expression(node.value), node.slice
        several = isinstance(inner, ast.Tuple) and not self._has_own_brackets(inner)
        parts = inner.elts if several and isinstance(inner, ast.Tuple) else [inner]
        return made(
            cst.Subscript, value=value, slice=[made(cst.SubscriptElement, slice=self._slice(each)) for each in parts]
        )

    def _slice(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            lower, upper, step = self.optional(node.lower), self.optional(node.upper), self.optional(node.step)
            return made(cst.Slice, lower=lower, upper=upper, step=step)
        if isinstance(node, ast.Starred):
            return made(cst.Index, value=self.expression(node.value), star="*")
        return made(cst.Index, value=self.expression(node), star=None)

    def _has_own_brackets(self, node: ast.Tuple) -> bool:
        """Whether a tuple in a subscript is written with brackets: the parser does not say."""
        if not node.elts:
            return True
        text = self.text(node).strip()
        if not (text.startswith(b"(") and text.endswith(b")")):
            return False
        try:
            ast.parse(b"[" + text[1:-1] + b"\n]")
        except SyntaxError:
            return False
        return True

    def text(self, node: ast.expr) -> bytes:
        """What the file says at a node."""
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        begin, end = node.col_offset, node.end_col_offset
        if first == last:
            return self.lines[first][begin:end]
        return b"\n".join([self.lines[first][begin:], *self.lines[first + 1 : last], self.lines[last][:end]])

    def lambda_(self, node: ast.Lambda) -> Any:
        """`lambda params: body`."""
        return made(cst.Lambda, params=self.parameters(node.args), body=self.expression(node.body))

    def parameters(self, node: ast.arguments) -> Any:
        """The parameters of a function."""
        plain = [*node.posonlyargs, *node.args]
        defaults = [None] * (len(plain) - len(node.defaults)) + [*node.defaults]
        params = [self._parameter(each, default) for each, default in zip(plain, defaults, strict=True)]
        only = len(node.posonlyargs)
        named_only = zip(node.kwonlyargs, node.kw_defaults, strict=True)
        star: Any = cst.MaybeSentinel.DEFAULT
        if node.vararg is not None:
            star = self._parameter(node.vararg, None, "*")
        elif node.kwonlyargs:
            star = _BARE_STAR
        return made(
            cst.Parameters,
            params=params[only:],
            star_arg=star,
            kwonly_params=[self._parameter(each, default) for each, default in named_only],
            star_kwarg=self._parameter(node.kwarg, None, "**") if node.kwarg is not None else None,
            posonly_params=params[:only],
        )

    def _parameter(self, node: ast.arg, default: ast.expr | None, star: str = "") -> Any:
        return made(
            cst.Param,
            name=named(node.arg),
            annotation=self.annotation(node.annotation),
            default=self.optional(default),
            star=star,
        )

    def annotation(self, node: ast.expr | None) -> Any:
        """What stands behind a colon or an arrow."""
        return None if node is None else made(cst.Annotation, annotation=self.expression(node))

    def generators(self, nodes: Sequence[ast.comprehension]) -> Any:
        """The `for`s of a comprehension, each in the one before."""
        inner = None
        for node in reversed(nodes):
            inner = made(
                cst.CompFor,
                target=self.expression(node.target),
                iter=self.expression(node.iter),
                ifs=[made(cst.CompIf, test=self.expression(test)) for test in node.ifs],
                inner_for_in=inner,
                asynchronous=ASYNCHRONOUS if node.is_async else None,
            )
        return inner

    def formatted(self, node: ast.JoinedStr) -> Any:
        """An f-string, with the parts of all strings beside it."""
        return made(cst.FormattedString, parts=self._pieces(node))

    def _pieces(self, node: ast.JoinedStr) -> list[Any]:
        found = []
        for piece in node.values:
            if isinstance(piece, ast.FormattedValue):
                spec = piece.format_spec
                found.append(
                    made(
                        cst.FormattedStringExpression,
                        expression=self.expression(piece.value),
                        conversion=_CONVERSIONS.get(piece.conversion),
                        format_spec=self._pieces(spec) if isinstance(spec, ast.JoinedStr) else None,
                    )
                )
            elif isinstance(piece, ast.Constant):
                found.append(made(cst.FormattedStringText, value=str(piece.value)))
        return found

    def unknown(self, node: ast.expr) -> Any:
        """An expression of a newer language, a t-string say: a text of which nothing is known."""
        return made(cst.FormattedString, parts=())

    def yielded(self, node: ast.Yield | ast.YieldFrom) -> Any:
        """`yield value` and `yield from value`."""
        value = self.optional(node.value)
        return made(cst.Yield, value=made(cst.From, item=value) if isinstance(node, ast.YieldFrom) else value)


ASYNCHRONOUS = cst.Asynchronous()
_BARE_STAR = cst.ParamStar()
_WAYS: dict[type[ast.AST], Callable[[Expressions, Any], Any]] = {
    ast.Name: lambda make, node: named(node.id),
    ast.Constant: Expressions.constant,
    ast.Attribute: Expressions.attribute,
    ast.Call: Expressions.call,
    ast.Tuple: lambda make, node: made(cst.Tuple, elements=make.elements(node.elts)),
    ast.List: lambda make, node: made(cst.List, elements=make.elements(node.elts)),
    ast.Set: lambda make, node: made(cst.Set, elements=make.elements(node.elts)),
    ast.Dict: Expressions.dictionary,
    ast.BoolOp: Expressions.boolean,
    ast.Compare: Expressions.comparison,
    ast.BinOp: lambda make, node: made(
        cst.BinaryOperation,
        left=make.expression(node.left),
        operator=OPERATORS[node.op.__class__],
        right=make.expression(node.right),
    ),
    ast.UnaryOp: lambda make, node: made(
        cst.UnaryOperation, operator=OPERATORS[node.op.__class__], expression=make.expression(node.operand)
    ),
    ast.Subscript: Expressions.subscript,
    ast.Lambda: Expressions.lambda_,
    ast.IfExp: lambda make, node: made(
        cst.IfExp,
        test=make.expression(node.test),
        body=make.expression(node.body),
        orelse=make.expression(node.orelse),
    ),
    ast.ListComp: lambda make, node: made(
        cst.ListComp, elt=make.expression(node.elt), for_in=make.generators(node.generators)
    ),
    ast.SetComp: lambda make, node: made(
        cst.SetComp, elt=make.expression(node.elt), for_in=make.generators(node.generators)
    ),
    ast.GeneratorExp: lambda make, node: made(
        cst.GeneratorExp, elt=make.expression(node.elt), for_in=make.generators(node.generators)
    ),
    ast.DictComp: lambda make, node: made(
        cst.DictComp,
        key=make.expression(node.key),
        value=make.expression(node.value),
        for_in=make.generators(node.generators),
    ),
    ast.JoinedStr: Expressions.formatted,
    ast.NamedExpr: lambda make, node: made(
        cst.NamedExpr, target=make.expression(node.target), value=make.expression(node.value)
    ),
    ast.Await: lambda make, node: made(cst.Await, expression=make.expression(node.value)),
    ast.Yield: Expressions.yielded,
    ast.YieldFrom: Expressions.yielded,
    ast.Starred: lambda make, node: made(cst.StarredElement, value=make.expression(node.value)),
}
