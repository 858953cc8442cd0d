"""Things done in the wrong order around sharding: the optimizer, the parent, a copy, a call past the hooks.

M1a moves the statement that builds the optimizer above the sharding call in the same function: optimizer-before-shard.
M1b does so where the sharding call is in a helper that the function calls: optimizer-before-shard.
M11 moves the root's sharding call above the loop over its blocks: shard-order-topdown.
M14 calls `model.forward(...)` instead of the sharded `model(...)`: bypass-forward-hooks.
M15 copies the model by `copy.deepcopy` behind its sharding call: deepcopy-sharded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from recall.editing import Edits, before, parse
from recall.mutation import Edit, Mutation
from recall.reading import Body, View, bound, inside, last, names, written

OPTIMIZER = re.compile(
    r"^(build|create|make|get|setup|init)?_?optimi[sz]ers?(_fn|_cls)?$|(Adam|AdamW|SGD|Optimizer|Muon|Lion)$"
)
HELPER = re.compile(
    r"^_?(apply_fsdp|shard_model|setup_fsdp|wrap_|fsdp_wrap|wrap$|prepare_model|parallelize_model|apply_fully_shard|shard_)"
)


def inline_sites(view: View) -> Iterator[Edit]:
    """M1a: the sharding call and the optimizer are in one function."""
    for body in view.functions():
        shards = [s.call for s in body.shards if s.generation == 2 or not s.keywords & {"use_orig_params", "**"}]
        if shards:
            yield from _optimizers_above(body, [(call, _root(call.args[0].value)) for call in shards])


def helper_sites(view: View) -> Iterator[Edit]:
    """M1b: a helper that the function calls shards the model, in a package that imports torch's FSDP."""
    for body in view.functions() if view.generations else ():
        helpers = [c for c in body.calls if HELPER.search(last(written(c.func))) and c.args and not view.generation(c)]
        found = [(call, _root(_model_argument(call))) for call in helpers]
        if not body.shards and found:
            yield from _optimizers_above(body, found)


def _model_argument(call: cst.Call) -> cst.BaseExpression:
    by_name = [arg.value for arg in call.args if arg.keyword is not None and "model" in arg.keyword.value]
    return by_name[0] if by_name else call.args[0].value


def _root(node: cst.CSTNode) -> str:
    """The model that a sharded module belongs to, as it is written: `model` of `model.layers`, `self.model`."""
    parts = written(node).split(".")
    return ".".join(parts[:2]) if parts[0] == "self" else parts[0]


def _optimizers_above(body: Body, shards: list[tuple[cst.Call, str]]) -> Iterator[Edit]:
    for call in body.calls:
        if not OPTIMIZER.search(last(written(call.func))) or not isinstance(body.parents[call], cst.Assign):
            continue
        statement = body.statement(call)
        block = body.block(statement)
        if statement not in block or not body.is_alone(call):
            continue
        given = set().union(*(_read(arg.value) for arg in call.args))
        for shard, model in shards:
            above = next((b for b in block if b is body.statement(shard) or b in list(body.up(shard))), None)
            if above is None or not model or model not in given:
                continue
            at, to = block.index(statement), block.index(above)  # type: ignore[arg-type]
            between = set().union(*(bound(each) for each in block[to:at]))
            known = body.parameters().union(*(bound(each) for each in _earlier(body, above)))
            made = set().union(*(_set_attributes(each) for each in block[to:at])) - set().union(
                *(_set_attributes(each) for each in _earlier(body, above))
            )
            if to < at and not (names(statement) & between) - known and not given & made and not _prepares(body):
                moved = cst.ensure_type(statement, cst.SimpleStatementLine)
                edits = Edits().put(statement, []).put(above, before(above, [moved]))
                yield Edit(statement, body.qualname, edits)
                break


def _read(node: cst.CSTNode) -> set[str]:
    """The names that an expression reads, and those with attributes behind them."""
    return names(node) | {w for n in inside(node) if isinstance(n, cst.Attribute) and (w := written(n))}


def _set_attributes(node: cst.CSTNode) -> set[str]:
    """The attributes that a statement binds."""
    targets = [n.target for n in inside(node) if isinstance(n, cst.AssignTarget)]
    return {written(target) for target in targets if isinstance(target, cst.Attribute)}


def _earlier(body: Body, statement: cst.BaseStatement) -> list[cst.BaseStatement]:
    """The statements that come before one, in its block and in those around it."""
    found: list[cst.BaseStatement] = []
    node: cst.CSTNode = statement
    while isinstance(node, cst.BaseStatement) and node is not body.node:
        block = body.block(node)
        found += block[: block.index(node)] if node in block else []
        node = next((each for each in body.up(node) if isinstance(each, cst.BaseStatement)), body.node)
    return found


def _prepares(body: Body) -> bool:
    """True where a framework's `prepare` re-points the optimizer."""
    return any(last(written(call.func)) in ("prepare", "setup_optimizers") for call in body.calls)


def topdown_sites(view: View) -> Iterator[Edit]:
    """M11: the root's call is behind a loop over its blocks, in the same block of statements."""
    for body in view.functions():
        looped = [s for s in body.shards if s.loops and s.generation == 2]
        for root in body.shards:
            if root.loops or root.generation != 2 or not body.is_plain(root.call):
                continue
            statement = body.statement(root.call)
            block = body.block(statement)
            loops = [s.loops[-1] for s in looped if s.loops[-1] in block]
            if statement not in block or not loops or isinstance(body.parents[root.call], cst.Return):
                continue
            first = min(loops, key=lambda loop: block.index(loop))  # type: ignore[arg-type]
            at, to = block.index(statement), block.index(first)  # type: ignore[arg-type]
            between = set().union(*(bound(each) for each in block[to:at]))
            if to < at and not names(statement) & between and root.module in _loop_roots(first):
                edits = Edits().put(statement, []).put(first, before(first, [statement]))  # type: ignore[arg-type,list-item]
                yield Edit(statement, body.qualname, edits)


def _loop_roots(loop: cst.CSTNode) -> set[str]:
    return {w for n in inside(loop.iter) if (w := written(n))} if isinstance(loop, cst.For) else set()


def bypass_sites(view: View) -> Iterator[Edit]:
    """M14: the function shards the model and calls it."""
    for body in view.functions():
        models = {s.module for s in body.shards if s.generation == 2 and not s.loops and s.module}
        for call in body.calls:
            if written(call.func) in models and _is_behind(body, call, written(call.func)):
                method = cst.Attribute(call.func, cst.Name("forward"))
                yield Edit(call, body.qualname, Edits().replace(call.func, method))


def _is_behind(body: Body, call: cst.Call, model: str) -> bool:
    first = next(s.call for s in body.shards if s.module == model and not s.loops)
    return body.view.row(call) > body.view.row(first)


def copy_sites(view: View) -> Iterator[Edit]:
    """M15: the model is sharded as a whole by a statement."""
    for body in view.functions():
        for shard in body.shards:
            if shard.loops or shard.generation != 2 or not shard.module or not body.is_plain(shard.call):
                continue
            statement = body.statement(shard.call)
            if isinstance(body.parents[shard.call], cst.Return) or _root(shard.call.args[0].value) != shard.module:
                continue
            copied = parse(f"ema_model = copy.deepcopy({shard.module})")
            line = cst.ensure_type(statement, cst.SimpleStatementLine)
            yield Edit(statement, body.qualname, Edits().put(statement, [line, copied]), "import copy")


MUTATIONS = (
    Mutation("M1a", "optimizer above the sharding call", inline_sites, frozenset({"FSDP101"})),
    Mutation("M1b", "optimizer above the helper that shards", helper_sites, frozenset({"FSDP101"})),
    Mutation("M11", "root sharded before its blocks", topdown_sites, frozenset({"FSDP103"})),
    Mutation("M14", "`model.forward(...)` called", bypass_sites, frozenset({"FSDP109"})),
    Mutation("M15", "deepcopy of the sharded model", copy_sites, frozenset({"FSDP106"})),
)
