"""The names that a piece of code reads, binds and calls, as dotted paths."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsdp_lint.source.structure import children

if TYPE_CHECKING:
    import libcst as cst

# Methods of lists, dicts and sets that change the object they are called on.
_CHANGERS = frozenset(
    ("append", "extend", "insert", "pop", "remove", "clear", "update", "setdefault", "add", "discard", "popitem")
)


@dataclass
class Names:
    """What a piece of code does with names. A path is a name with the attributes read from it: `self.model`.

    `read` holds each path with all its beginnings. `passed` holds paths used as values of their own, `leaves` those
    and the objects whose methods are called. `bound` holds what is assigned, deleted or changed in place; `mended`
    the part of it that was made from itself (`model = FSDP(model)`) or had an item set.
    """

    read: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)
    leaves: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    mended: set[str] = field(default_factory=set)


def names_of(*nodes: cst.CSTNode) -> Names:
    """The names of some code, with what its lambdas and inner functions read, without their own variables."""
    names = Names()
    for node in nodes:
        _walk(node, names, frozenset())
    return names


def names_used(node: cst.CSTNode) -> frozenset[str]:
    """The paths read, each with all its beginnings."""
    return frozenset(names_of(node).read)


def names_bound(node: cst.CSTNode) -> frozenset[str]:
    """The paths assigned, deleted or changed in place."""
    return frozenset(names_of(node).bound)


def path_of(node: cst.CSTNode | None) -> str | None:
    """`a.b.c` for names and attributes of names, None for anything else."""
    import libcst as cst

    match node:
        case cst.Name(value=name):
            return name
        case cst.Attribute(value=base, attr=cst.Name(value=name)):
            start = path_of(base)
            return f"{start}.{name}" if start else None
    return None


def beginnings(path: str) -> list[str]:
    """`a`, `a.b`, `a.b.c` for `a.b.c`."""
    parts = path.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def _walk(node: cst.CSTNode, names: Names, own: frozenset[str]) -> None:
    """Collects into `names`; `own` are the variables of the lambdas and functions around the node."""
    import libcst as cst

    match node:
        case cst.Name() | cst.Attribute():
            _read(node, names, own, passed=True)
        case cst.Call(func=func, args=args):
            _call(func, names, own)
            _walk_all(args, names, own)
        case cst.Arg(value=value) | cst.Annotation(annotation=value):
            _walk(value, names, own)
        case cst.Lambda(params=params, body=inner):
            _walk_defaults(params, names, own)
            _walk(inner, names, own | _parameters(params))
        case cst.BaseComp(for_in=comp):
            own |= _targets(comp)
            _walk_all(children(node), names, own)
        case cst.FunctionDef() | cst.ClassDef():
            _definition(node, names, own)
        case cst.Import(names=aliases) | cst.ImportFrom(names=[*aliases]):
            for alias in aliases:
                name = path_of(alias.asname.name if alias.asname else alias.name)
                names.bound.add((name or "").partition(".")[0])
        case cst.Global(names=items) | cst.Nonlocal(names=items):
            names.read.update(item.name.value for item in items)
        case _:
            _binding(node, names, own)


def _binding(node: cst.CSTNode, names: Names, own: frozenset[str]) -> None:
    """The nodes that bind names, and all the rest, whose children are walked."""
    import libcst as cst

    match node:
        case cst.Assign(targets=targets, value=value):
            _walk(value, names, own)
            for target in targets:
                _bind(target.target, names, own, names_of(value).read)
        case cst.AnnAssign(target=target, annotation=annotation, value=value):
            _walk(annotation, names, own)
            if value is not None:
                _walk(value, names, own)
                _bind(target, names, own, names_of(value).read)
        case cst.AugAssign(target=target, value=value):
            _walk_all((target, value), names, own)
            _bind(target, names, own, ())
        case cst.NamedExpr(target=target, value=value):
            _walk(value, names, own)
            _bind(target, names, own, names_of(value).read)
        case cst.For(target=target) | cst.CompFor(target=target):
            _walk_all([child for child in children(node) if child is not target], names, own)
            if isinstance(node, cst.For):
                _bind(target, names, own, ())
        case cst.AsName(name=target):
            _bind(target, names, own, ())
        case cst.Del(target=target):
            _walk(target, names, own)
            _bind(target, names, own, ())
        case cst.MatchAs(name=cst.Name(value=name)) | cst.MatchStar(name=cst.Name(value=name)):
            names.bound.add(name)
            _walk_all(children(node), names, own)
        case _:
            _walk_all(children(node), names, own)


def _walk_all(nodes: Iterable[cst.CSTNode], names: Names, own: frozenset[str]) -> None:
    for node in nodes:
        _walk(node, names, own)


def _read(node: cst.CSTNode, names: Names, own: frozenset[str], passed: bool) -> None:
    import libcst as cst

    if isinstance(node, cst.Attribute):
        names.attributes.add(node.attr.value)
    path = path_of(node)
    if path is None:
        if isinstance(node, cst.Attribute):
            _walk(node.value, names, own)
        return
    names.attributes.update(path.split(".")[1:])
    if path.partition(".")[0] in own:
        return
    names.read.update(beginnings(path))
    if passed:
        names.passed.add(path)
        names.leaves.add(path)


def _call(func: cst.BaseExpression, names: Names, own: frozenset[str]) -> None:
    """What is called is read, but as a function; a method's object is used, and by some methods changed."""
    path = path_of(func)
    _read(func, names, own, passed=False)
    if path is None:
        import libcst as cst

        if isinstance(func, cst.Attribute):
            names.calls.add(f"?.{func.attr.value}")
            if func.attr.value in _CHANGERS or func.attr.value.endswith("_"):
                # `(a if c else b).append(x)`, `groups[0]["params"].append(x)`: each of the names may be meant.
                names.bound |= {path for path in names_of(func.value).leaves if path.partition(".")[0] not in own}
        else:
            _walk(func, names, own)
        return
    names.calls.add(path)
    base, _, method = path.rpartition(".")
    if base and base.partition(".")[0] not in own:
        names.leaves.add(base)
        if method in _CHANGERS:
            names.bound.add(base)
    # torch's sign for a change in place: `requires_grad_`. The object may be a variable of a comprehension.
    if base and method.endswith("_") and not method.endswith("__"):
        names.bound.add(f"{base}.{method[:-1]}")


def _bind(target: cst.CSTNode, names: Names, own: frozenset[str], value_reads: Iterable[str]) -> None:
    import libcst as cst

    match target:
        case cst.Name() | cst.Attribute():
            path = path_of(target)
            if isinstance(target, cst.Attribute):
                _read(target.value, names, own, passed=False)
                path = path or f"?.{target.attr.value}"
            if path is not None and path not in own:
                names.bound.add(path)
                if path in value_reads:
                    names.mended.add(path)
        case cst.Subscript(value=base, slice=slices):
            _walk_all(slices, names, own)
            _read(base, names, own, passed=False)
            path = path_of(base)
            if path is not None:
                names.bound.add(path)
                names.mended.add(path)
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            for element in elements:
                _bind(element.value, names, own, value_reads)
        case cst.AsName(name=inner):
            _bind(inner, names, own, value_reads)


def _definition(node: cst.FunctionDef | cst.ClassDef, names: Names, own: frozenset[str]) -> None:
    """A definition binds its name; what its body reads counts as read, what it binds stays inside."""
    import libcst as cst

    names.bound.add(node.name.value)
    _walk_all(node.decorators, names, own)
    inner = Names()
    if isinstance(node, cst.FunctionDef):
        _walk_defaults(node.params, names, own)
        own |= _parameters(node.params)
    else:
        _walk_all((*node.bases, *node.keywords), names, own)
    _walk(node.body, inner, own)
    names.read |= inner.read - inner.bound
    names.attributes |= inner.attributes


def _parameters(params: cst.Parameters) -> frozenset[str]:
    import libcst as cst

    every = [*params.params, *params.posonly_params, *params.kwonly_params, params.star_arg, params.star_kwarg]
    return frozenset(param.name.value for param in every if isinstance(param, cst.Param))


def _walk_defaults(params: cst.Parameters, names: Names, own: frozenset[str]) -> None:
    for param in (*params.params, *params.posonly_params, *params.kwonly_params):
        if param.default is not None:
            _walk(param.default, names, own)


def _targets(comp: cst.CompFor) -> frozenset[str]:
    """The variables of a comprehension."""
    targets = Names()
    while True:
        _bind(comp.target, targets, frozenset(), ())
        if comp.inner_for_in is None:
            return frozenset(targets.bound)
        comp = comp.inner_for_in
