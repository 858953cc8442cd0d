"""Decides whether a statement can be moved behind another one of its block without a change of meaning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fsdp_lint.fix.blocks import between, common_block, stands_alone, statement_of
from fsdp_lint.fix.names import Names, beginnings, names_of
from fsdp_lint.source.file import Site, Source

if TYPE_CHECKING:
    import libcst as cst

_mentions: WeakKeyDictionary[Source, dict[str, frozenset[str]]] = WeakKeyDictionary()


def can_move_after(statement: Site, anchor: Site) -> tuple[Site, ...] | None:
    """The statements that must go behind the anchor's statement together, in order, or None where no move is simple.

    The first is the one asked for; the others, between it and the anchor, read what it binds (a scheduler, say).
    `MoveAfter(moved, anchor)` makes the move. The anchor may rebind what is moved, from itself (`model =
    FSDP(model)`): to come behind that is what the move is for. Everything else that the moved code reads must stay
    as it was, and nothing that stays may read what it binds.
    """
    home = statement_of(statement)
    pair = common_block(statement, anchor)
    if pair is None or pair[0] != home or not stands_alone(statement):
        return None
    target = pair[1]
    if target.source.span(target.node).row < home.source.span(home.node).row:
        return None
    names, goal = names_of(home.node), names_of(target.node)
    _count_effect(home, names)
    if not names.bound or _leaves_block(home) or _leaves_block(target):
        return None
    moved = [home]
    for other in between(home, target):
        theirs = names_of(other.node)
        if names.bound & theirs.read:
            if not _follows_simply(other, theirs, goal):
                return None
            moved.append(other)
            _add(names, theirs)
        elif _leaves_block(other) or _disturbs(theirs, names, allow_mended=False) or _may_read(other, theirs, names):
            return None
    if names.bound & goal.read or _disturbs(goal, names, allow_mended=True) or _may_read(target, goal, names):
        return None
    return tuple(moved)


def _count_effect(home: Site, names: Names) -> None:
    """A bare call `x.f(...)` is there for what it does to `x`."""
    import libcst as cst

    match home.node:
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.Call())]):
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

    if not isinstance(other.node, cst.SimpleStatementLine | cst.If | cst.FunctionDef) or _leaves_block(other):
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


def _may_read(other: Site, theirs: Names, names: Names) -> bool:
    """Whether code that stays may read a moved name out of sight: in a function that it calls, or through an object."""
    mentions = _mentions_of(other.source)
    for path in names.bound:
        owner, _, last = path.rpartition(".")
        if owner and owner in theirs.passed:
            return True
        for call in theirs.calls:
            base, _, function = call.rpartition(".")
            if function in mentions:
                if (f".{last}" if owner else path) in mentions[function]:
                    return True
            elif owner and base == owner:
                return True
    return False


def _mentions_of(source: Source) -> dict[str, frozenset[str]]:
    """For each function of a file by its last name: the names and `.attributes` that it reads, and what it calls does.

    A function's own variables are not among them.
    """
    import libcst as cst

    found = _mentions.get(source)
    if found is None:
        own: dict[str, set[str]] = {}
        open_nodes: list[cst.CSTNode] = [source.tree]
        while open_nodes:
            node = open_nodes.pop()
            if isinstance(node, cst.FunctionDef):
                names = names_of(node)
                own.setdefault(node.name.value, set()).update(names.read, (f".{name}" for name in names.attributes))
            open_nodes.extend(node.children)
        found = {function: frozenset(_reached(function, own)) for function in own}
        _mentions[source] = found
    return found


def _reached(function: str, own: dict[str, set[str]]) -> set[str]:
    seen, waiting, names = {function}, [function], set[str]()
    while waiting:
        mentioned = own[waiting.pop()]
        names |= mentioned
        called = {name.removeprefix(".") for name in mentioned}
        fresh = [name for name in called if name in own and name not in seen]
        seen.update(fresh)
        waiting.extend(fresh)
    return names


def _leaves_block(site: Site) -> bool:
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
    for child in node.children:
        yield from _exits(child, in_loop or isinstance(node, cst.For | cst.While))
