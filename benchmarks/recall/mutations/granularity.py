"""Units of the wrong size.

M2 deletes the sharding call of the root: root-not-sharded.
M3 shards each module inside each block, one by one: shard-every-leaf.
M4 deletes all sharding calls but the root's: root-only-shard.
M12 makes the filter of a loop over `modules()` always true: shard-every-leaf.
M17 drops the test of the tie around the embedding's own sharding call: tied-weights-split.
M18 deletes `auto_wrap_policy=` of an FSDP1 wrapper: root-only-shard.
M19 calls the wrap policy where `functools.partial` was meant: wrap-policy-called.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from recall.editing import Edits, Statements, parse
from recall.mutation import Edit, Mutation
from recall.reading import Body, Sharding, View, inside, last, names, written

# A function that speaks of so many parts of its model, or shards so many apart from blocks, leaves the root nothing.
PARTS = 4
APART = 2
# Other libraries have policies of these names.
POLICIES = frozenset(
    f"torch.distributed.fsdp.wrap.{name}" for name in ("transformer_auto_wrap_policy", "size_based_auto_wrap_policy")
)


def roots(body: Body) -> list[Sharding]:
    """The calls that shard a whole model behind a loop over parts of it, as a statement of its own."""
    looped = [s for s in body.shards if s.loops and s.generation == 2]
    sources = set().union(*(_sources(body, s) for s in looped))
    found = [s for s in body.shards if s.generation == 2 and not s.loops and body.is_plain(s.call)]
    return [s for s in found if s.module and any(w == s.module or w.startswith(f"{s.module}.") for w in sources)]


def _sources(body: Body, shard: Sharding) -> set[str]:
    """What the blocks of a loop come from, as it is written: through names bound, lists filled and other loops."""
    found = {shard.module}
    before = 0
    while len(found) > before:
        before = len(found)
        for node in body.nodes:
            match node:
                case cst.For(target=target, iter=source) | cst.CompFor(target=target, iter=source):
                    bound: list[cst.CSTNode] = [target]
                case cst.Assign(targets=targets, value=source):
                    bound = [each.target for each in targets]
                case cst.Call(func=cst.Attribute(value=filled, attr=cst.Name("append" | "extend")), args=[arg]):
                    bound, source = [filled], arg.value
                case _:
                    continue
            if any(_leads(name, found) for each in bound for name in _written_in(each)):
                found |= set(_written_in(source))
    return found


def _leads(name: str, found: set[str]) -> bool:
    """True for one of the names, and for what some of them are attributes of."""
    return any(one == name or one.startswith(f"{name}.") for one in found)


def _written_in(node: cst.CSTNode) -> Iterator[str]:
    """The names in an expression, each with all attributes behind it."""
    name = written(node)
    if name:
        yield name
        return
    for child in node.children:
        yield from _written_in(child)


def without(body: Body, call: cst.Call) -> Statements:
    """What is left of the statement around a sharding call: its value is the module that it got."""
    around = body.parents[call]
    module = call.args[0].value
    if isinstance(around, cst.Return):
        return [cst.SimpleStatementLine([cst.Return(module)])]
    if isinstance(around, cst.Assign) and body.view.text(around.targets[0].target) != body.view.text(module):
        return [cst.SimpleStatementLine([cst.Assign(around.targets, module)])]
    return []


def root_sites(view: View) -> Iterator[Edit]:
    """M2: there is a loop that shards blocks, and a call for the model they are in."""
    for body in view.functions():
        found = roots(body)
        model = found[-1].module if found else ""
        own = [s for s in found if s.module == model]
        if not own or "." in model.removeprefix("self.") or body.given(model) or _all_apart(body, model):
            continue
        edits = Edits()
        for shard in own:
            edits.put(body.statement(shard.call), without(body, shard.call))
        yield Edit(own[-1].call, body.qualname, edits)


def _all_apart(body: Body, model: str) -> bool:
    apart = {s.module for s in body.shards if not s.loops and s.module != model}
    parts = {
        w for n in body.nodes if (w := written(n)).startswith(f"{model}.") and w.count(".") == model.count(".") + 1
    }
    called = {written(call.func) for call in body.calls}
    return len(apart) >= APART or len(parts - called) >= PARTS


def leaf_sites(view: View) -> Iterator[Edit]:
    """M3: a loop over blocks that shards each."""
    for body in view.functions():
        for shard in body.shards:
            statement = body.statement(shard.call)
            if shard.generation != 2 or not isinstance(shard.loops[:1] and shard.loops[0], cst.For):
                continue
            loop = cst.ensure_type(shard.loops[0], cst.For)
            drawn = {n.value for n in inside(loop.target) if isinstance(n, cst.Name)}
            if shard.module not in drawn or not body.is_plain(shard.call) or _walks(loop.iter):
                continue
            call = shard.call.with_changes(
                args=[shard.call.args[0].with_changes(value=cst.Name("part")), *shard.call.args[1:]]
            )
            inner = cst.ensure_type(parse(f"for part in {shard.module}.modules():\n    pass\n"), cst.For)
            line = cst.SimpleStatementLine([cst.Expr(call)])
            inner = inner.with_changes(body=inner.body.with_changes(body=[line]))
            yield Edit(shard.call, body.qualname, Edits().put(statement, [inner]))


def _walks(node: cst.CSTNode) -> bool:
    return any(last(written(n)) in ("modules", "named_modules") for n in inside(node))


def only_root_sites(view: View) -> Iterator[Edit]:
    """M4: loops and calls on parts go, the root's call stays."""
    for body in view.functions():
        found = roots(body)
        model = found[-1].module if found else ""
        if not model or "." in model.removeprefix("self.") or body.given(model) or view.is_test:
            continue
        if _counted(body):
            continue
        edits = Edits()
        for shard in body.shards:
            if shard.module == model and not shard.loops:
                continue
            outer = shard.loops[-1] if shard.loops else body.statement(shard.call)
            if not isinstance(outer, cst.For | cst.SimpleStatementLine) or _holds(body, outer, model):
                break
            edits.put(outer, [] if shard.loops else without(body, shard.call))
        else:
            yield Edit(found[-1].call, body.qualname, edits)


def _counted(body: Body) -> bool:
    """True where a loop that shards counts what it did, and a test of the number raises: the mistake would be loud."""
    counted: set[str] = set()
    for shard in body.shards:
        for loop in shard.loops:
            counted |= {written(n.target) for n in inside(loop) if isinstance(n, cst.AugAssign)}
    tests = [n for n in body.nodes if isinstance(n, cst.If) and names(n.test) & counted]
    return any(isinstance(n, cst.Raise) for test in tests for n in inside(test.body))


def _holds(body: Body, node: cst.CSTNode, model: str) -> bool:
    return any(s.module == model and node in list(body.up(s.call)) for s in body.shards)


def filter_sites(view: View) -> Iterator[Edit]:
    """M12: a loop over all modules with a test of each around the sharding call."""
    for body in view.functions():
        for shard in body.shards:
            loop = shard.loops[0] if shard.loops else None
            if shard.generation != 2 or not isinstance(loop, cst.For) or not _walks(loop.iter):
                continue
            tests = [n for n in body.up(shard.call) if isinstance(n, cst.If) and loop in list(body.up(n))]
            inner = [t for t in tests if body.parents[t] is loop.body]
            # What goes on to the next round behind the test filters, too.
            goes_on = any(isinstance(n, cst.Continue) for test in inner for n in inside(test.body))
            if len(tests) == 1 and inner and tests[0].orelse is None and not goes_on:
                yield Edit(tests[0], body.qualname, Edits().replace(tests[0].test, cst.Name("True")))


def tie_sites(view: View) -> Iterator[Edit]:
    """M17: the embedding is sharded alone under a test of the tie."""
    for body in view.functions():
        for shard in body.shards:
            if shard.generation != 2 or not isinstance(body.statement(shard.call), cst.SimpleStatementLine):
                continue
            for test in body.up(shard.call):
                if isinstance(test, cst.If) and "tie" in view.text(test.test) and test.orelse is None:
                    block = cst.ensure_type(test.body, cst.IndentedBlock)
                    negated = view.text(test.test).startswith("not ") or "not " in view.text(test.test)
                    if negated and "emb" in shard.module:
                        yield Edit(test, body.qualname, Edits().put(test, list(block.body)))


def policy_sites(view: View) -> Iterator[Edit]:
    """M18: an FSDP1 wrapper with a wrap policy written at the call."""
    for body in view.functions():
        for shard in body.shards:
            policy = [a for a in shard.call.args if a.keyword and a.keyword.value == "auto_wrap_policy"]
            rest = [a for a in shard.call.args if a not in policy]
            if shard.generation == 1 and policy and "**" not in shard.keywords and not _is_none(policy[0].value):
                yield Edit(shard.call, body.qualname, Edits().replace(shard.call, shard.call.with_changes(args=rest)))


def _is_none(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"


def called_policy_sites(view: View) -> Iterator[Edit]:
    """M19: `partial(policy, k=v)`."""
    for body in view.functions():
        for call in body.calls:
            if view.dotted(call.func) != "functools.partial" or len(call.args) < 2:
                continue
            if view.dotted(call.args[0].value) in POLICIES:
                new = call.with_changes(func=call.args[0].value, args=call.args[1:])
                yield Edit(call, body.qualname, Edits().replace(call, new))


MUTATIONS = (
    Mutation("M2", "root's sharding call deleted", root_sites, frozenset({"FSDP202"})),
    Mutation(
        "M3", "every module inside the blocks sharded", leaf_sites, frozenset({"FSDP201"}), frozenset({"FSDP103"})
    ),
    Mutation(
        "M4",
        "all sharding calls but the root's deleted",
        only_root_sites,
        frozenset({"FSDP203"}),
        frozenset({"FSDP202"}),
    ),
    Mutation("M12", "filter of a loop over modules() is True", filter_sites, frozenset({"FSDP201"})),
    Mutation("M17", "test of the tie dropped", tie_sites, frozenset({"FSDP205"})),
    Mutation("M18", "auto_wrap_policy= deleted", policy_sites, frozenset({"FSDP203"})),
    Mutation("M19", "wrap policy called", called_policy_sites, frozenset({"FSDP208"}), frozenset({"FSDP203"})),
)
