"""What all ranks must do and what one shall do: statements put under a test of the rank, calls taken out of one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsdp_lint.fix.blocks import enclosing, siblings, stands_alone, statement_of
from fsdp_lint.fix.calls import free_name
from fsdp_lint.fix.edits import Edit, Guard, InsertBefore, RemoveStatement, Replace
from fsdp_lint.fix.names import beginnings, names_bound, names_used
from fsdp_lint.fix.spelling import spelled
from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import children

if TYPE_CHECKING:
    import libcst as cst

_LONG = 110
_RANK = re.compile(r"rank|main|master|is_zero|primary|leader|chief")


@dataclass(frozen=True)
class Collected:
    """A call that is to be replaced by `text`, which all ranks must evaluate; `name` is for a variable to hold it."""

    call: Site
    text: str
    name: str


@dataclass(frozen=True)
class AllRanks:
    """A place that all ranks reach: `above` a statement. Not all of them reach what is in the statements `inside`.

    `condition` is under which something is done there, where that is not always so.
    """

    above: Site
    inside: tuple[Site, ...]
    condition: str = ""


def on_rank_zero(statement: Site) -> tuple[Edit, ...] | None:
    """The edits that put a statement under `if get_rank() == 0:`, with the `with` around it that opens its file."""
    test = spelled(statement, "torch.distributed", "get_rank")
    if test is None or not stands_alone(statement):
        return None
    return Guard(opened_around(statement), f"{test[0]}() == 0"), *test[1]


def by_all_ranks(calls: Sequence[Collected], place: AllRanks) -> tuple[Edit, ...] | None:
    """The edits that make all ranks evaluate the new texts, above what not all of them may reach.

    A call outside of that is replaced where it stands. One inside is evaluated above it; its variable keeps the name
    where the call is all that is assigned. None where a text speaks of what is bound inside.
    """
    inside = {id(node) for statement in place.inside for node in _all(statement.node)}
    edits: list[Edit] = []
    above: list[tuple[list[str], tuple[Site, ...]]] = []
    taken: set[str] = set()
    for each in calls:
        if id(each.call.node) not in inside:
            edits.append(Replace(each.call, each.text))
            continue
        if place.above.source is not each.call.source or _bound_inside(each, place):
            return None
        variable = _assigned(each.call)
        removed: tuple[Site, ...] = ()
        if variable is not None and not _only_statement_of(place.above, each.call):
            edits.append(RemoveStatement(each.call))
            removed = (each.call,)
        else:
            variable = free_name(each.call, [each.name, f"full_{each.name}"], taken)
            if variable is None:
                return None
            edits.append(Replace(each.call, variable))
        taken.add(variable)
        above.append((_broken(f"{variable} = {each.text}"), removed))
    if above and place.condition:
        rows = [f"    {row}" for rows, _ in above for row in rows]
        above = [([f"if {place.condition}:", *rows], tuple(site for _, sites in above for site in sites))]
    return *(InsertBefore(place.above, "\n".join(rows), of) for rows, of in above), *edits


def _broken(row: str) -> list[str]:
    """A call that is too long for one row in three."""
    head, _, inside = row.partition("(")
    return [row] if len(row) <= _LONG else [f"{head}(", f"    {inside.removesuffix(')')}", ")"]


def above_rank_test(site: Site) -> AllRanks | None:
    """The place above the `if` that lets only one rank come to a node, as its words say.

    Either the node is in the first arm of the `if`, or the arm returns and the node stands behind it. None where
    there is no such `if` in the function, or several.
    """
    found = [place for around in enclosing(site) for place in _tests(around, site)]
    return found[0] if len(found) == 1 else None


def _tests(around: Site, site: Site) -> Iterator[AllRanks]:
    """The tests of the rank that a statement around the node is, or that stand before it in its block and return."""
    import libcst as cst

    node = around.node
    if isinstance(node, cst.If) and _speaks_of_rank(around, node.test):
        if any(inner is site.node for inner in _all(node.body)):
            words = _and(node.test)
            others = [word for word in words if not _speaks_of_rank(around, word)]
            code = around.source.tree.code_for_node
            if len(words) == len(others) + 1 and not any(isinstance(one, cst.NamedExpr) for one in _all(node.test)):
                yield AllRanks(around, (around,), " and ".join(code(word) for word in others))
    block = siblings(around)
    for index, before in enumerate(block[: block.index(around)]):
        match before.node:
            case cst.If(
                test=test, orelse=None, body=cst.IndentedBlock(body=[*_, cst.SimpleStatementLine(body=[last])])
            ):
                if isinstance(last, cst.Return) and _speaks_of_rank(before, test) and len(_and(test)) == 1:
                    yield AllRanks(before, block[index : block.index(around) + 1])


def _speaks_of_rank(site: Site, test: cst.BaseExpression) -> bool:
    return _RANK.search(site.source.tree.code_for_node(test).lower()) is not None


def _and(test: cst.BaseExpression) -> list[cst.BaseExpression]:
    """The parts of `a and b and c`; an `or` is one part."""
    import libcst as cst

    match test:
        case cst.BooleanOperation(left=left, operator=cst.And(), right=right):
            return [*_and(left), *_and(right)]
    return [test]


def opened_around(statement: Site) -> Site:
    """The `with` around a statement that binds a name which the statement uses and holds nothing else, else itself."""
    import libcst as cst

    home = statement_of(statement)
    for around in enclosing(home):
        node = around.node
        if isinstance(node, cst.With):
            bound = {name for item in node.items if item.asname for name in names_bound(item)}
            if bound & names_used(statement.node) and len(node.body.body) == 1:
                return around
        if around.node is not home.node:
            break
    return home


def _all(node: cst.CSTNode) -> list[cst.CSTNode]:
    found, open_nodes = [], [node]
    while open_nodes:
        one = open_nodes.pop()
        found.append(one)
        open_nodes.extend(children(one))
    return found


def _bound_inside(each: Collected, place: AllRanks) -> bool:
    """Whether the call reads what is bound in the statements that it is to go above."""
    bound = {name for statement in place.inside for name in names_bound(statement.node)}
    variable = _assigned(each.call)
    read = names_used(each.call.node)
    return any(start in bound and start != variable for path in read for start in beginnings(path))


def _assigned(call: Site) -> str | None:
    """The name that gets the value of a call and nothing else: `x` in `x = f()`."""
    import libcst as cst

    match statement_of(call).node:
        case cst.SimpleStatementLine(body=[cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]) as one]):
            return name if one.value is call.node else None
    return None


def _only_statement_of(above: Site, call: Site) -> bool:
    """Whether the call's statement is `above` itself, or all that a block has."""
    import libcst as cst

    home = statement_of(call)
    block = call.source.parent(home.node)
    return home == above or not isinstance(block, cst.IndentedBlock) or len(block.body) == 1
