"""What all ranks must do together, done by one.

M5 moves a collective that gathers state into the `if` of rank 0 that follows it: collective-under-rank-guard.
M16 puts the sharding statements under `if rank == 0:`: collective-under-rank-guard.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from recall.editing import Edits
from recall.mutation import Edit, Mutation
from recall.reading import Body, View, bound, last, names, written

NEAR = 25
GATHERS = frozenset(
    {"get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "full_tensor", "optim_state_dict"}
)
ZERO = re.compile(
    r"^(not \w*rank\w*|.*\brank\w*(\(\))? == 0|.*is_(main_process|world_process_zero|rank_?zero|rank_?0)"
    r"(\(\))?|.*get_(global_)?rank\(\) == 0)$"
)


def guard_sites(view: View) -> Iterator[Edit]:
    """M5: a statement that gathers, and behind it, near by in the same block, the test for rank 0 that uses it."""
    for body in view.functions():
        for call in body.calls:
            name = last(view.dotted(call.func)) or last(written(call.func)) or _attribute(call)
            if name not in GATHERS or (name != "full_tensor" and not call.args) or not body.is_alone(call):
                continue
            statement = body.statement(call)
            block = body.block(statement)
            if statement not in block:
                continue
            at = block.index(statement)  # type: ignore[arg-type]
            given = bound(statement)
            for test in block[at + 1 :]:
                if view.row(test) - view.row(statement) > NEAR or isinstance(test, cst.Return):
                    break
                if isinstance(test, cst.If) and ZERO.match(view.text(test.test)) and given & names(test.body):
                    yield _moved_in(body, statement, test)
                    break
                if given & names(test):
                    break


def _attribute(call: cst.Call) -> str:
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""


def _moved_in(body: Body, statement: cst.CSTNode, test: cst.If) -> Edit:
    block = cst.ensure_type(test.body, cst.IndentedBlock)
    new = test.with_changes(body=block.with_changes(body=[statement, *block.body]))
    return Edit(statement, body.qualname, Edits().put(statement, []).put(test, [new]))


def alone_sites(view: View) -> Iterator[Edit]:
    """M16: a sharding statement in a function that knows its rank by name."""
    for body in view.functions():
        rank = _rank(body)
        shards = [s for s in body.shards if not s.loops and body.is_plain(s.call)]
        if not rank or not shards:
            continue
        statement = body.statement(shards[-1].call)
        if isinstance(body.parents[shards[-1].call], cst.Return) or _is_guarded(body, shards[-1].call):
            continue
        line = cst.ensure_type(statement, cst.SimpleStatementLine)
        guard = cst.If(
            cst.parse_expression(f"{rank} == 0"),
            cst.IndentedBlock([line.with_changes(leading_lines=())]),
        )
        yield Edit(statement, body.qualname, Edits().put(statement, [guard]))


def _rank(body: Body) -> str:
    found = {"rank", "global_rank"} & (body.parameters() | bound(body.node))
    return min(found, default="")


def _is_guarded(body: Body, call: cst.Call) -> bool:
    return any("rank" in body.view.text(n.test) for n in body.up(call) if isinstance(n, cst.If))


MUTATIONS = (
    Mutation("M5", "collective moved under the test for rank 0", guard_sites, frozenset({"FSDP501"})),
    Mutation("M16", "sharding under `if rank == 0`", alone_sites, frozenset({"FSDP501"}), frozenset({"FSDP502"})),
)
