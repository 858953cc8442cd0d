"""State dicts, saved wrongly or not gathered; and modules that nothing loads.

M6 takes `model.state_dict()` instead of the gathered one where it is saved: torch-save-sharded-state.
M9 deletes what fills the parameters behind `to_empty`: to-empty-without-init.
M21 takes the rank out of the path of a save that each rank makes: shared-checkpoint-path, fsdp1-save-on-every-rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from recall.editing import Edits
from recall.mutation import Edit, Mutation
from recall.reading import Body, View, inside, last, names, written

SAVES = frozenset({"torch.save", "safetensors.torch.save_file", "pickle.dump"})
INIT = re.compile(
    r"^_?(init_weights|reset_parameters|initialize_weights|post_init|init_buffers|init_parameters|load_.*|"
    r".*load_state_dict.*|set_model_state_dict|apply)$"
)
# What each rank has a part of; random states and counters are another matter.
PARTS = re.compile(r"model|optim|state_?dict|shard|weights|params", re.IGNORECASE)
RANK = re.compile(r"^(global_|local_|world_|dp_|self\.)?_?(rank|world_size|get_rank|get_world_size)$")


def raw_sites(view: View) -> Iterator[Edit]:
    """M6: a gathered state dict that a save in the same function gets."""
    for body in view.functions():
        for call in body.calls:
            if last(view.dotted(call.func)) != "get_model_state_dict" or not call.args:
                continue
            if not isinstance(body.parents[call], cst.Assign) or not body.is_alone(call):
                continue
            target = cst.ensure_type(body.parents[call], cst.Assign).targets[0].target
            if isinstance(target, cst.Name) and _is_saved(body, target.value, view.row(call)):
                method = cst.Attribute(call.args[0].value, cst.Name("state_dict"))
                yield Edit(call, body.qualname, Edits().replace(call, cst.Call(method)))


def _is_saved(body: Body, name: str, row: int) -> bool:
    view = body.view
    carriers = {name}
    for node in body.nodes:
        if isinstance(node, cst.Assign) and view.row(node) > row and names(node.value) & carriers:
            carriers |= {n.value for t in node.targets for n in inside(t.target) if isinstance(n, cst.Name)}
        if isinstance(node, cst.Call) and view.row(node) > row and view.dotted(node.func) in SAVES:
            if node.args and names(node.args[0].value) & carriers:
                return True
    return False


def empty_sites(view: View) -> Iterator[Edit]:
    """M9: `to_empty`, and one statement behind it in the same block that fills what it made."""
    for body in view.functions():
        for call in body.calls:
            if last(written(call.func)) != "to_empty" or not isinstance(call.func, cst.Attribute):
                continue
            statement = body.statement(call)
            block = body.block(statement)
            module = written(call.func.value)
            behind = block[block.index(statement) + 1 :] if statement in block else []  # type: ignore[arg-type]
            fills = [each for each in behind if _fills(each, module)]
            if not module or len(fills) != 1 or not _is_one(fills[0]):
                continue
            if not _loads_later(body, fills[0]):
                yield Edit(statement, body.qualname, Edits().put(fills[0], []))


def _is_one(statement: cst.BaseStatement) -> bool:
    """True for a line, and for a with-block of one: a larger one does more than fill."""
    if isinstance(statement, cst.With):
        return len(statement.body.body) == 1
    return isinstance(statement, cst.SimpleStatementLine)


def _loads_later(body: Body, filled: cst.BaseStatement) -> bool:
    """True where a checkpoint may be loaded behind all, by the function or by another of the file that gets the model:
    then nothing that `to_empty` made is ever read."""
    view = body.view
    own = {id(n) for n in inside(filled)}
    calls = [n for n in inside(view.source.tree) if isinstance(n, cst.Call) and id(n) not in own]
    return any("load" in last(written(call.func)).lower() and view.dotted(call.func) != "torch.load" for call in calls)


def _fills(statement: cst.BaseStatement, module: str) -> bool:
    calls = [n for n in inside(statement) if isinstance(n, cst.Call) and INIT.search(last(written(n.func)))]
    return any(module in {written(n) for n in inside(call)} for call in calls)


def path_sites(view: View) -> Iterator[Edit]:
    """M21: a save whose f-string path holds a rank, in the call or in a name bound above it."""
    for body in view.functions():
        for call in body.calls:
            if view.dotted(call.func) not in SAVES or len(call.args) < 2:
                continue
            path = call.args[1].value
            read = names(path)
            strings = [n for n in inside(path) if isinstance(n, cst.FormattedString)]
            for node in body.nodes:
                if isinstance(node, cst.Assign) and any(written(t.target) in read for t in node.targets):
                    strings += [n for n in inside(node.value) if isinstance(n, cst.FormattedString)]
            ranked = [s for s in strings if any(_is_rank(part) for part in s.parts)]
            if not ranked or _is_guarded(body, call) or not PARTS.search(view.text(call.args[0])):
                continue
            edits = Edits()
            for string in ranked:
                parts = [part for part in string.parts if not _is_rank(part)]
                edits.replace(string, string.with_changes(parts=parts))
            yield Edit(call, body.qualname, edits)


def _is_rank(part: cst.BaseFormattedStringContent) -> bool:
    if not isinstance(part, cst.FormattedStringExpression):
        return False
    return any(RANK.search(last(written(n)) or "-") for n in inside(part.expression))


def _is_guarded(body: Body, call: cst.Call) -> bool:
    tests = [body.view.text(node.test) for node in body.up(call) if isinstance(node, cst.If)]
    return any("rank" in test or "main" in test for test in tests)


MUTATIONS = (
    Mutation("M6", "raw state dict saved", raw_sites, frozenset({"FSDP301"}), frozenset({"FSDP302"})),
    Mutation("M9", "nothing fills what to_empty made", empty_sites, frozenset({"FSDP603"})),
    Mutation(
        "M21", "no rank in the path of each rank's save", path_sites, frozenset({"FSDP302", "FSDP308", "FSDP301"})
    ),
)
