"""New calls written after the model of one that is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from fsdp_lint.fix.edits import ChangeCall
from fsdp_lint.fix.names import names_of, names_used, path_of
from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import children

if TYPE_CHECKING:
    import libcst as cst


_VIEWS = ("values", "items", "children", "named_children", "modules", "named_modules")


def outer_call(call: Site, steps: int) -> tuple[Site, str] | None:
    """The call again, for what its first argument was reached through by `steps` attributes or loops.

    Gives the statement behind which it belongs (the outermost loop around the call) and its text, with the same
    keywords. None where the first argument is no plain path, or where a keyword depends on the loop; only
    `reshard_after_forward`, which means something else for the root, is then left out.
    """
    import libcst as cst

    loops = _loops(call)
    node = call.node
    if not isinstance(node, cst.Call) or not node.args:
        return None
    path = _owner(node.args[0].value, steps, loops)
    name = path_of(path)
    # A list that the function has made is no module, whatever it holds.
    if name is None or _is_list(call, name):
        return None
    return named_call(call, name)


def named_call(call: Site, name: str) -> tuple[Site, str] | None:
    """As `outer_call`, for what the function around the call knows by this name; None where it does not.

    None, too, where a loop around the call binds the name: behind the loop it would be the last one only.
    """
    loops = _loops(call)
    bound = {each for loop in loops for each in _targets(loop)} | _comprehended(call)
    if name.partition(".")[0] in bound or not knows(call, name):
        return None
    written = call_on(call, name)
    return (Site(call.source, loops[-1]) if loops else call, written) if written is not None else None


def _is_list(site: Site, name: str) -> bool:
    """Whether the function around a node makes a list, tuple or dict of this name."""
    import libcst as cst

    open_nodes = _function_around(site)
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, cst.Assign) and any(path_of(target.target) == name for target in node.targets):
            if isinstance(node.value, cst.List | cst.Tuple | cst.Dict | cst.BaseComp):
                return True
        open_nodes.extend(children(node))
    return False


def call_on(call: Site, first: str) -> str | None:
    """The call again with another first argument, for use outside the loops around it.

    None where a keyword depends on a loop; only `reshard_after_forward`, which means something else for the root, is
    then left out. None, too, where an argument takes several rows.
    """
    import libcst as cst

    node = call.node
    if not isinstance(node, cst.Call) or not node.args or node.args[0].star:
        return None
    bound = {name for loop in _loops(call) for name in _targets(loop)} | _comprehended(call)
    kept = []
    for arg in node.args[1:]:
        if names_used(arg.value) & bound:
            if arg.keyword is not None and arg.keyword.value == "reshard_after_forward":
                continue
            return None
        kept.append(arg)
    code = cst.Module([]).code_for_node
    words = [first, *(code(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT)).strip() for arg in kept)]
    return _on_one_row(code(node.func), words)


def changed_call(edit: ChangeCall, first: str) -> str | None:
    """The call as an edit makes it, on one row and with another first argument.

    None where an argument takes several rows, or where the first one has a keyword.
    """
    import libcst as cst

    node = edit.call.node
    if not isinstance(node, cst.Call) or not node.args or node.args[0].star or node.args[0].keyword is not None:
        return None
    code = cst.Module([]).code_for_node
    put, words = dict(edit.put), [first]
    for arg in node.args[1:]:
        name = arg.keyword.value if arg.keyword is not None else ""
        if name in edit.drop:
            continue
        name = edit.rename.get(name, name)
        words.append(f"{name}={put.pop(name, None) or code(arg.value)}" if name else f"{arg.star}{code(arg.value)}")
    words += [f"{name}={text}" for name, text in put.items()]
    return _on_one_row(edit.function or code(node.func), words)


def _on_one_row(function: str, words: Sequence[str]) -> str | None:
    """A call with these arguments; None where one of them takes several rows."""
    if any("\n" in word or "\r" in word for word in words):
        return None
    return f"{function}({', '.join(words)})"


def for_each(call: Site, lists: Sequence[str]) -> str | None:
    """A loop over each of the lists, given as text, that makes the call on each item. None as in `call_on`."""
    item = free_name(call, ("block", "unit", "each_block"))
    one = call_on(call, item) if item is not None else None
    if one is None:
        return None
    return "\n".join(f"for {item} in {path}:\n    {one}" for path in lists)


def free_name(site: Site, words: Sequence[str], others: Iterable[str] = ()) -> str | None:
    """The first of the words that the function around a node does not use yet and that is not among `others`."""
    names = names_of(*_function_around(site))
    return next((word for word in words if word not in {*names.read, *names.bound, *others}), None)


def knows(site: Site, path: str) -> bool:
    """Whether the function around a node speaks of `path`, a name or attributes of one."""
    names = names_of(*_function_around(site))
    return path in names.read | names.bound


def is_parameter(site: Site) -> bool:
    """Whether an expression is a bare parameter of the function around it: callers decide what it is."""
    import libcst as cst

    node = site.node
    if not isinstance(node, cst.Name):
        return False
    params = next((part for part in _function_around(site) if isinstance(part, cst.Parameters)), None)
    listed = (*params.params, *params.posonly_params, *params.kwonly_params) if params is not None else ()
    return any(param.name.value == node.value for param in listed)


def assigned_call(site: Site, name: str) -> Site | None:
    """The call whose value a variable of the function around a node gets; None where it is not bound just once."""
    import libcst as cst

    found: list[cst.BaseExpression] = []
    open_nodes = _function_around(site)
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, cst.Assign) and any(path_of(target.target) == name for target in node.targets):
            found.append(node.value)
        open_nodes.extend(children(node))
    return Site(site.source, found[0]) if len(found) == 1 and isinstance(found[0], cst.Call) else None


def loop_for(call: Site, innermost: bool = False) -> tuple[Site, str] | None:
    """The outermost loop around a call that does nothing else, whatever it tests, and what it goes over, as text.

    Or the innermost such loop. `list(model.modules())` goes over `model`. None where there is none, or where that is
    no plain path.
    """
    found: cst.For | None = None
    for loop in _loops(call):
        if not _only(loop.body, call.node):
            break
        found = loop
        if innermost:
            break
    path = path_of(_viewed(found.iter)) if found is not None else None
    return (Site(call.source, found), path) if found is not None and path is not None else None


def _only(block: cst.CSTNode, call: cst.CSTNode) -> bool:
    """Whether a block makes one call and does nothing else but test and loop."""
    import libcst as cst

    work: list[cst.CSTNode] = []
    open_nodes = [block]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, cst.BaseSmallStatement):
            if not isinstance(node, cst.Pass | cst.Continue):
                work.append(node)
        else:
            open_nodes.extend(children(node))
    return len(work) == 1 and isinstance(work[0], cst.Expr) and work[0].value is call


def _function_around(site: Site) -> list[cst.CSTNode]:
    """The body of the function around a node, or the file."""
    import libcst as cst

    node: cst.CSTNode | None = site.node
    while node is not None and not isinstance(node, cst.FunctionDef):
        node = site.source.parent(node)
    return [node.params, node.body] if isinstance(node, cst.FunctionDef) else [site.source.tree]


def _loops(call: Site) -> list[cst.For]:
    """The loops around a node in its function, the innermost first."""
    import libcst as cst

    found: list[cst.For] = []
    node: cst.CSTNode | None = call.node
    while node is not None and not isinstance(node, cst.FunctionDef):
        if isinstance(node, cst.For):
            found.append(node)
        node = call.source.parent(node)
    return found


def _comprehended(call: Site) -> set[str]:
    """The variables of the comprehensions around a node."""
    import libcst as cst

    names: set[str] = set()
    node: cst.CSTNode | None = call.node
    while node is not None and not isinstance(node, cst.BaseStatement):
        if isinstance(node, cst.BaseComp):
            comp: cst.CompFor | None = node.for_in
            while comp is not None:
                names |= _names(comp.target)
                comp = comp.inner_for_in
        node = call.source.parent(node)
    return names


def _targets(loop: cst.For) -> set[str]:
    """The names that a loop binds: its own, and those assigned in its body."""
    return _names(loop.target) | _assigned(loop.body)


def _names(node: cst.CSTNode) -> set[str]:
    import libcst as cst

    if isinstance(node, cst.Name):
        return {node.value}
    return {name for child in children(node) for name in _names(child)}


def _assigned(node: cst.CSTNode) -> set[str]:
    import libcst as cst

    if isinstance(node, cst.AssignTarget):
        return _names(node.target)
    return {name for child in children(node) for name in _assigned(child)}


def _owner(node: cst.BaseExpression, steps: int, loops: list[cst.For]) -> cst.BaseExpression | None:
    """The expression that `node` was reached through, `steps` further out."""
    import libcst as cst

    for _ in range(steps):
        if isinstance(node, cst.Name):
            loop = next((one for one in loops if node.value in _names(one.target)), None)
            if loop is None:
                return None
            node = _iterated(loop.iter)
        elif isinstance(node, cst.Attribute | cst.Subscript):
            node = node.value
        else:
            return None
    return node if isinstance(node, cst.Name | cst.Attribute) else None


def _viewed(node: cst.BaseExpression) -> cst.BaseExpression | None:
    """`model` in `model.modules()`, `list(model.named_modules())` and the like; None for anything else."""
    import libcst as cst

    while True:
        match node:
            case cst.Call(
                func=cst.Name(value="enumerate" | "reversed" | "list" | "tuple"), args=[cst.Arg(value=inner)]
            ):
                node = inner
            case cst.Call(func=cst.Attribute(value=inner, attr=cst.Name(value=name)), args=[]):
                return inner if name in ("modules", "named_modules", "children", "named_children") else None
            case _:
                return None


def _iterated(node: cst.BaseExpression, slices: bool = True) -> cst.BaseExpression:
    """What a loop goes over, without `enumerate`, `reversed`, `list`, `.modules()` and the like, and slices."""
    import libcst as cst

    while True:
        match node:
            case cst.Call(func=cst.Name(value="enumerate" | "reversed" | "list" | "tuple"), args=[cst.Arg(), *_]):
                node = node.args[0].value
            case cst.Call(func=cst.Attribute(attr=cst.Name(value=name)), args=[]):
                if name not in _VIEWS:
                    return node
                assert isinstance(node.func, cst.Attribute)
                node = node.func.value
            case cst.Subscript() if slices:
                node = node.value
            case _:
                return node


def asked(site: Site, methods: tuple[str, ...]) -> str | None:
    """The plain path whose method, one of `methods`, is called first inside a node; None where there is none."""
    import libcst as cst

    todo: list[cst.CSTNode] = [site.node]
    while todo:
        node = todo.pop(0)
        match node:
            case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=method))) if method in methods:
                return cst.Module([]).code_for_node(owner) if path_of(owner) is not None else None
        todo.extend(node.children)
    return None


def iterated(site: Site) -> str | None:
    """The plain path that a list was made of, as text: `model.layers` for itself, `list(...)` and `[*...]` of it."""
    import libcst as cst

    match site.node:
        case cst.List(elements=[cst.StarredElement(value=inner)]):
            node: cst.BaseExpression = inner
        case cst.BaseExpression() as node:
            pass
        case _:
            return None
    inside = _iterated(node, slices=False)
    return cst.Module([]).code_for_node(inside) if path_of(inside) is not None else None
