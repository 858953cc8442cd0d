"""A file as the interpreter's own parser sees it, in LibCST's nodes: without blanks, brackets and comments.

The interpreter parses in a tenth of LibCST's time, and the bodies of functions become nodes only when they are asked
for. Fields that only writing needs are not set.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import libcst as cst

from fsdp_lint.source.expressions import ASYNCHRONOUS, Expressions, dotted, made, named

_IN_PLACE: dict[type[ast.AST], cst.CSTNode] = {
    ast.Add: cst.AddAssign(),
    ast.Sub: cst.SubtractAssign(),
    ast.Mult: cst.MultiplyAssign(),
    ast.MatMult: cst.MatrixMultiplyAssign(),
    ast.Div: cst.DivideAssign(),
    ast.Mod: cst.ModuloAssign(),
    ast.Pow: cst.PowerAssign(),
    ast.LShift: cst.LeftShiftAssign(),
    ast.RShift: cst.RightShiftAssign(),
    ast.BitOr: cst.BitOrAssign(),
    ast.BitXor: cst.BitXorAssign(),
    ast.BitAnd: cst.BitAndAssign(),
    ast.FloorDiv: cst.FloorDivideAssign(),
}
_DOT, _STAR = cst.Dot(), cst.ImportStar()


class _Later(cst.IndentedBlock):
    """The body of a function, which becomes nodes when it is first asked for."""

    __slots__ = ("_made", "_make")  # type: ignore[misc]
    _made: list[Any] | None
    _make: Callable[[], list[Any]] | None

    @property
    def body(self) -> Sequence[Any]:  # type: ignore[override]
        """The statements."""
        if self._make is not None:
            object.__setattr__(self, "_made", self._make())
            object.__setattr__(self, "_make", None)
        return self._made or ()


class Abstract(Expressions):
    """Makes the nodes of one file; `tree` is the whole of it."""

    def __init__(self, module: ast.Module, text: str) -> None:
        super().__init__(text.encode().splitlines())
        self.tree: cst.Module = made(cst.Module, body=self.statements(module.body))

    def statements(self, nodes: Sequence[ast.stmt]) -> list[Any]:
        """The nodes of statements that follow each other; each simple one has a line of its own."""
        found = []
        for node in nodes:
            way = _COMPOUND.get(node.__class__)
            if way is None:
                way = _SMALL.get(node.__class__, _unknown)
                found.append(made(cst.SimpleStatementLine, body=[way(self, node)]))
            else:
                found.append(way(self, node))
        return found

    def block(self, nodes: Sequence[ast.stmt]) -> Any:
        """A block of statements."""
        return made(cst.IndentedBlock, body=self.statements(nodes))

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Any:
        """`def name(params): body`."""
        body = node.body
        return made(
            cst.FunctionDef,
            name=named(node.name),
            params=self.parameters(node.args),
            body=made(_Later, _make=lambda: self.statements(body), _made=None),
            decorators=self.decorators(node.decorator_list),
            returns=self.annotation(node.returns),
            asynchronous=ASYNCHRONOUS if isinstance(node, ast.AsyncFunctionDef) else None,
        )

    def class_(self, node: ast.ClassDef) -> Any:
        """`class name(bases): body`."""
        return made(
            cst.ClassDef,
            name=named(node.name),
            body=self.block(node.body),
            bases=self.arguments(node.bases, ()),
            keywords=self.arguments((), node.keywords),
            decorators=self.decorators(node.decorator_list),
        )

    def decorators(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """`@decorator`, each."""
        return [made(cst.Decorator, decorator=self.expression(node)) for node in nodes]

    def if_(self, node: ast.If) -> Any:
        """`if test: body`."""
        orelse: Any = None
        if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If) and self._is_elif(node.orelse[0]):
            orelse = self.if_(node.orelse[0])
        elif node.orelse:
            orelse = self.else_(node.orelse)
        return made(cst.If, test=self.expression(node.test), body=self.block(node.body), orelse=orelse)

    def _is_elif(self, node: ast.If) -> bool:
        return self.lines[node.lineno - 1][node.col_offset :].startswith(b"elif")

    def else_(self, nodes: Sequence[ast.stmt]) -> Any:
        """`else: body`, where there is one."""
        return made(cst.Else, body=self.block(nodes)) if nodes else None

    def for_(self, node: ast.For | ast.AsyncFor) -> Any:
        """`for target in iter: body`."""
        return made(
            cst.For,
            target=self.expression(node.target),
            iter=self.expression(node.iter),
            body=self.block(node.body),
            orelse=self.else_(node.orelse),
            asynchronous=ASYNCHRONOUS if isinstance(node, ast.AsyncFor) else None,
        )

    def while_(self, node: ast.While) -> Any:
        """`while test: body`."""
        return made(
            cst.While, test=self.expression(node.test), body=self.block(node.body), orelse=self.else_(node.orelse)
        )

    def with_(self, node: ast.With | ast.AsyncWith) -> Any:
        """`with items: body`."""
        items = [
            made(
                cst.WithItem,
                item=self.expression(item.context_expr),
                asname=self._bound(self.optional(item.optional_vars)),
            )
            for item in node.items
        ]
        asynchronous = ASYNCHRONOUS if isinstance(node, ast.AsyncWith) else None
        return made(cst.With, items=items, body=self.block(node.body), asynchronous=asynchronous)

    @staticmethod
    def _bound(name: Any) -> Any:
        return None if name is None else made(cst.AsName, name=name)

    def try_(self, node: Any) -> Any:
        """`try: body`, with what follows."""
        star = not isinstance(node, ast.Try)
        handlers = [
            made(
                cst.ExceptStarHandler if star else cst.ExceptHandler,
                body=self.block(each.body),
                type=self.optional(each.type),
                name=self._bound(_name(each.name)),
            )
            for each in node.handlers
        ]
        return made(
            cst.TryStar if star else cst.Try,
            body=self.block(node.body),
            handlers=handlers,
            orelse=self.else_(node.orelse),
            finalbody=made(cst.Finally, body=self.block(node.finalbody)) if node.finalbody else None,
        )

    def match(self, node: ast.Match) -> Any:
        """`match subject:` with its cases."""
        cases = [
            made(
                cst.MatchCase,
                pattern=self.pattern(case.pattern),
                body=self.block(case.body),
                guard=self.optional(case.guard),
            )
            for case in node.cases
        ]
        return made(cst.Match, subject=self.expression(node.subject), cases=cases)

    def pattern(self, node: ast.pattern) -> Any:
        """What stands behind `case`. One of items is a list, whatever its brackets: the parser does not say."""
        match node:
            case ast.MatchValue(value=value):
                return made(cst.MatchValue, value=self.expression(value))
            case ast.MatchSingleton(value=value):
                return made(cst.MatchSingleton, value=named(str(value)))
            case ast.MatchOr(patterns=patterns):
                inner = [made(cst.MatchOrElement, pattern=self.pattern(each)) for each in patterns]
                return made(cst.MatchOr, patterns=inner)
            case ast.MatchAs(pattern=pattern, name=name):
                inside = None if pattern is None else self.pattern(pattern)
                return made(cst.MatchAs, pattern=inside, name=_name(name))
            case ast.MatchSequence(patterns=patterns):
                return made(cst.MatchList, patterns=self._items(patterns))
            case ast.MatchMapping(keys=keys, patterns=patterns, rest=rest):
                pairs = zip(keys, patterns, strict=True)
                inner = [
                    made(cst.MatchMappingElement, key=self.expression(key), pattern=self.pattern(each))
                    for key, each in pairs
                ]
                return made(cst.MatchMapping, elements=inner, rest=_name(rest))
            case ast.MatchClass(cls=cls, patterns=patterns, kwd_attrs=words, kwd_patterns=named_patterns):
                inner = [
                    made(cst.MatchKeywordElement, key=named(word), pattern=self.pattern(each))
                    for word, each in zip(words, named_patterns, strict=True)
                ]
                return made(cst.MatchClass, cls=self.expression(cls), patterns=self._items(patterns), kwds=inner)
        return made(cst.MatchMapping, elements=(), rest=None)  # of a newer language: whether it fits is not known

    def _items(self, nodes: Sequence[ast.pattern]) -> list[Any]:
        return [
            made(cst.MatchStar, name=_name(node.name))
            if isinstance(node, ast.MatchStar)
            else made(cst.MatchSequenceElement, value=self.pattern(node))
            for node in nodes
        ]

    def assign(self, node: ast.Assign) -> Any:
        """`a = b = value`."""
        targets = [made(cst.AssignTarget, target=self.expression(target)) for target in node.targets]
        return made(cst.Assign, targets=targets, value=self.expression(node.value))

    def annotated(self, node: ast.AnnAssign) -> Any:
        """`a: T = value`."""
        return made(
            cst.AnnAssign,
            target=self.expression(node.target),
            annotation=self.annotation(node.annotation),
            value=self.optional(node.value),
        )

    def raise_(self, node: ast.Raise) -> Any:
        """`raise exc from cause`."""
        cause = made(cst.From, item=self.expression(node.cause)) if node.cause is not None else None
        return made(cst.Raise, exc=self.optional(node.exc), cause=cause)

    def delete(self, node: ast.Delete) -> Any:
        """`del targets`."""
        if len(node.targets) == 1:
            return made(cst.Del, target=self.expression(node.targets[0]))
        return made(cst.Del, target=made(cst.Tuple, elements=self.elements(node.targets)))

    def import_(self, node: ast.Import) -> Any:
        """`import a, b as c`."""
        return made(cst.Import, names=self._aliases(node.names))

    def import_from(self, node: ast.ImportFrom) -> Any:
        """`from module import names`."""
        return made(
            cst.ImportFrom,
            module=dotted(node.module) if node.module else None,
            names=_STAR if node.names[0].name == "*" else self._aliases(node.names),
            relative=(_DOT,) * node.level,
        )

    def _aliases(self, nodes: Sequence[ast.alias]) -> list[Any]:
        return [
            made(
                cst.ImportAlias,
                name=dotted(node.name),
                asname=self._bound(_name(node.asname)),
            )
            for node in nodes
        ]


def _name(name: str | None) -> cst.Name | None:
    return None if name is None else named(name)


def _unknown(make: Abstract, node: ast.stmt) -> Any:
    """A statement of a newer language does nothing that is known."""
    return made(cst.Pass)


def _names(node: ast.Global | ast.Nonlocal) -> list[Any]:
    return [made(cst.NameItem, name=named(name)) for name in node.names]


_SMALL: dict[type[ast.AST], Callable[[Abstract, Any], Any]] = {
    ast.Expr: lambda make, node: made(cst.Expr, value=make.expression(node.value)),
    ast.Assign: Abstract.assign,
    ast.AnnAssign: Abstract.annotated,
    ast.AugAssign: lambda make, node: made(
        cst.AugAssign,
        target=make.expression(node.target),
        operator=_IN_PLACE[node.op.__class__],
        value=make.expression(node.value),
    ),
    ast.Return: lambda make, node: made(cst.Return, value=make.optional(node.value)),
    ast.Raise: Abstract.raise_,
    ast.Assert: lambda make, node: made(cst.Assert, test=make.expression(node.test), msg=make.optional(node.msg)),
    ast.Delete: Abstract.delete,
    ast.Pass: lambda make, node: made(cst.Pass),
    ast.Break: lambda make, node: made(cst.Break),
    ast.Continue: lambda make, node: made(cst.Continue),
    ast.Global: lambda make, node: made(cst.Global, names=_names(node)),
    ast.Nonlocal: lambda make, node: made(cst.Nonlocal, names=_names(node)),
    ast.Import: Abstract.import_,
    ast.ImportFrom: Abstract.import_from,
}
_COMPOUND: dict[type[ast.AST], Callable[[Abstract, Any], Any]] = {
    ast.FunctionDef: Abstract.function,
    ast.AsyncFunctionDef: Abstract.function,
    ast.ClassDef: Abstract.class_,
    ast.If: Abstract.if_,
    ast.For: Abstract.for_,
    ast.AsyncFor: Abstract.for_,
    ast.While: Abstract.while_,
    ast.With: Abstract.with_,
    ast.AsyncWith: Abstract.with_,
    ast.Try: Abstract.try_,
    ast.Match: Abstract.match,
}
if hasattr(ast, "TryStar"):  # since Python 3.11
    _COMPOUND[ast.TryStar] = Abstract.try_
if hasattr(ast, "TypeAlias"):  # since Python 3.12
    _SMALL[ast.TypeAlias] = lambda make, node: made(cst.TypeAlias, name=named(node.name.id))
