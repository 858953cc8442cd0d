"""Decides whether a statement can be moved behind another one of its block without a change of meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fsdp_lint.fix.arguments import argument
from fsdp_lint.fix.blocks import between, common_block, is_statement, stands_alone, statement_of
from fsdp_lint.fix.names import Names, beginnings, names_of, path_of
from fsdp_lint.source.file import Site, Source
from fsdp_lint.source.structure import below, children

if TYPE_CHECKING:
    import libcst as cst

# What a wrapper around a model has, too.
_OF_EVERY_MODULE = frozenset(
    (
        "parameters",
        "named_parameters",
        "modules",
        "named_modules",
        "children",
        "named_children",
        "buffers",
        "state_dict",
    )
)

_functions: WeakKeyDictionary[Source, dict[str, list[cst.FunctionDef]]] = WeakKeyDictionary()


def can_move_after(statement: Site, anchor: Site) -> tuple[Site, ...] | None:
    """The statements that must go behind the anchor's statement together, in order, or None where no move is simple.

    The first is the one asked for; the others, between it and the anchor, read what it binds (a scheduler, say).
    `MoveAfter(moved, anchor)` makes the move. The anchor may rebind what is moved, from itself (`model =
    FSDP(model)`): to come behind that is what the move is for. Everything else that the moved code reads must stay
    as it was, and nothing that stays may read what it binds.
    """
    import libcst as cst

    home = statement_of(statement)
    pair = common_block(statement, anchor)
    if pair is None or pair[0] != home or not stands_alone(statement):
        return None
    if isinstance(home.node, cst.FunctionDef | cst.ClassDef):  # where it stands says nothing of when it runs
        return None
    target = pair[1]
    if target.source.span(target.node).row < home.source.span(home.node).row:
        return None
    names, goal = names_of(home.node), names_of(target.node)
    _count_effect(home, names)
    if not names.bound or leaves_block(home) or leaves_block(target):
        return None
    moved = [home]
    for other in between(home, target):
        theirs = names_of(other.node)
        if names.bound & theirs.read:
            if not _follows_simply(other, theirs, goal):
                return None
            moved.append(other)
            _add(names, theirs)
        elif leaves_block(other) or _disturbs(theirs, names, allow_mended=False) or _meets_unseen(other, theirs, names):
            return None
    if (
        _loses(names, goal)
        or names.bound & goal.read
        or _disturbs(goal, names, allow_mended=True)
        or _meets_unseen(target, goal, names)
    ):
        return None
    return tuple(moved)


def movable_around(site: Site, anchor: Site) -> Site:
    """The `if` or `for` around a node that stands beside the anchor in one block, else the node itself.

    Where the node is in the head of a loop or in the arms of a test, the whole of it can be moved.
    """
    import libcst as cst

    pair = common_block(site, anchor)
    return pair[0] if pair is not None and isinstance(pair[0].node, cst.If | cst.For) else site


def can_move_call_after(call: Site, anchor: Site) -> bool:
    """Whether a bare call `f(x, ...)` can go behind the anchor's statement: `MoveAfter((call,), anchor)` moves it.

    What stands between, and the anchor, may call `f` too; nothing else there may touch `x`.
    """
    pair = common_block(call, anchor) if is_statement(call) else None
    first = argument(call, "module", 0)
    if pair is None or first is None or pair[0] != statement_of(call) or not stands_alone(call):
        return False
    home, target = pair
    if target.source.span(target.node).row < home.source.span(home.node).row:
        return False
    names = names_of(home.node)
    for other in (*between(home, target), target):
        theirs = names_of(other.node)
        touched = any(path in theirs.read for path in names_of(first.node).read)
        if leaves_block(other) or _disturbs(theirs, names, allow_mended=False) or _meets_unseen(other, theirs, names):
            return False
        if touched and not theirs.calls & names.calls:
            return False
    return True


def means_the_same(expression: Site, place: Site) -> bool:
    """Whether an expression can be written at another place of its function: nothing on the way binds its names."""
    pair = common_block(expression, place)
    if pair is None:
        return False
    first, last = sorted(pair, key=lambda site: site.source.span(site.node).row)
    read = names_of(expression.node).read
    bound = names_of(*(site.node for site in (first, *between(first, last), last))).bound
    # What only a comprehension or a lambda knows is not among what its statement reads.
    return not any(start in bound for start in read) and read <= names_of(pair[0].node).read


def speaks_of(statement: Site, name: str) -> bool:
    """Whether a statement, or a function of this file that it calls, mentions a name or an attribute of that name."""
    names, functions = names_of(statement.node), _functions_of(statement.source)
    called = {call.rpartition(".")[2] for call in names.calls} & {*functions}
    reads = set[str]().union(*(_work_of(function, functions)[0] for function in called))
    return name in names.read | names.attributes | reads or f".{name}" in reads


def _loses(names: Names, goal: Names) -> bool:
    """Whether the moved code reads an attribute that a wrapper, which the anchor may put there, does not have."""
    for path in names.read:
        base, _, attribute = path.rpartition(".")
        if base in goal.bound and attribute not in _OF_EVERY_MODULE:
            return True
    return False


def _count_effect(home: Site, names: Names) -> None:
    """A bare call `x.f(...)` is there for what it does to `x`: where `f` is in the file, for the attributes it sets."""
    import libcst as cst

    match home.node:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call(func=func))]):
            base, _, method = (path_of(func) or "").rpartition(".")
            functions = _functions_of(home.source)
            if base == "self" and method in functions:
                reads, _ = _work_of(method, functions)
                inside = names_of(*(node.body for node in functions[method]))
                names.bound |= {path for path in inside.bound if path.startswith("self.")}
                names.read |= {path for path in inside.read if path.startswith("self.")}
                names.attributes |= {name.removeprefix(".") for name in reads if name.startswith(".")}
                return
            names.bound |= {path.rpartition(".")[0] for path in names.calls if names.leaves & {path.rpartition(".")[0]}}


def _add(names: Names, others: Names) -> None:
    for name in ("read", "passed", "leaves", "calls", "attributes", "bound", "mended"):
        getattr(names, name).update(getattr(others, name))


def _follows_simply(other: Site, theirs: Names, goal: Names) -> bool:
    """Whether a statement that reads the moved names may move along.

    It may not where it handles what the anchor handles too (it loads a checkpoint into the model, say), nor where it
    loads a state: both mean another thing behind a sharding call.
    """
    import libcst as cst

    if not isinstance(other.node, cst.SimpleStatementLine | cst.If | cst.FunctionDef) or leaves_block(other):
        return False
    if isinstance(other.node, cst.SimpleStatementLine) and len(other.node.body) > 1:
        return False
    if any(path.rpartition(".")[2] == "load_state_dict" for path in theirs.calls):
        return False
    return not any(a in beginnings(b) or b in beginnings(a) for a in theirs.leaves for b in goal.leaves)


def _disturbs(theirs: Names, names: Names, allow_mended: bool) -> bool:
    """Whether code that stays binds or changes what the moved code reads or binds."""
    for path in theirs.bound:
        mended = path in theirs.mended
        above = beginnings(path)[:-1]
        if path in names.bound or any(start in names.bound for start in above):
            return True
        if any(path in beginnings(mine) for mine in names.bound) and not (mended and allow_mended):
            return True
        if mended and (allow_mended or path not in names.read):
            continue
        if path in names.read or any(start in names.passed for start in above):
            return True
        # The object may have another name there: `for p in ...: p.requires_grad = False`.
        if above and path.rpartition(".")[2] in names.attributes:
            return True
    return False


def _meets_unseen(other: Site, theirs: Names, names: Names) -> bool:
    """Whether code that stays may touch what is moved out of sight: in a function that it calls, or through an object.

    That is: read what the moved code binds, or set an attribute that it reads.
    """
    owners = {path.rpartition(".")[0] for path in names.bound if "." in path}
    if owners & theirs.passed:
        return True
    wanted = {path if "." not in path else "." + path.rpartition(".")[2] for path in names.bound}
    functions = _functions_of(other.source)
    for call in theirs.calls:
        base, _, function = call.rpartition(".")
        if function in functions:
            reads, sets = _work_of(function, functions)
            if wanted & reads or names.attributes & sets:
                return True
        elif base in owners:
            return True
    return False


def _functions_of(source: Source) -> dict[str, list[cst.FunctionDef]]:
    """All functions and methods of a file by their last names, however deep they stand."""
    import libcst as cst

    found = _functions.get(source)
    if found is None:
        found = {}
        for node in below(source.tree):
            if isinstance(node, cst.FunctionDef):
                found.setdefault(node.name.value, []).append(node)
        _functions[source] = found
    return found


def _work_of(function: str, functions: dict[str, list[cst.FunctionDef]]) -> tuple[set[str], set[str]]:
    """What a function, with all that it mentions of this file, reads beside its own variables: names and `.attributes`.

    And the attributes that it sets, but for those that it makes from themselves (`self.model = FSDP(self.model)`).
    """
    seen, waiting = {function}, [function]
    reads: set[str] = set()
    sets: set[str] = set()
    while waiting:
        definitions = functions[waiting.pop()]
        names, inside = names_of(*definitions), names_of(*(node.body for node in definitions))
        reads |= names.read | {f".{name}" for name in names.attributes}
        sets |= {path.rpartition(".")[2] for path in inside.bound - inside.mended if "." in path}
        fresh = {name for name in names.read | names.attributes if name in functions and name not in seen}
        seen |= fresh
        waiting.extend(fresh)
    return reads, sets


def leaves_block(site: Site) -> bool:
    """Whether a statement may end the block's run before its end: what is moved behind it would then not happen.

    A `raise` under a condition ends the program's work anyway and does not count.
    """
    import libcst as cst

    match site.node:
        case cst.SimpleStatementLine(body=smalls) if any(isinstance(small, cst.Raise) for small in smalls):
            return True
    return any(_exits(site.node, in_loop=False))


def _exits(node: cst.CSTNode, in_loop: bool) -> Iterator[bool]:
    import libcst as cst

    if isinstance(node, cst.FunctionDef | cst.ClassDef | cst.Lambda):
        return
    if isinstance(node, cst.Return | cst.Yield) or (isinstance(node, cst.Break | cst.Continue) and not in_loop):
        yield True
    for child in children(node):
        yield from _exits(child, in_loop or isinstance(node, cst.For | cst.While))
