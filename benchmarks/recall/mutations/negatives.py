"""Edits that make no mistake: nothing may be found that was not found before.

N1 imports `fully_shard` under another name.
N2 binds it through `functools.partial`.
N3 moves the sharding statement into a helper in the same file.
N4 makes the mistake of M1a, with sharding and optimizer in two branches that exclude each other.
N5 makes the mistake of M1a on FSDP1 with `use_orig_params=True`, which keeps the parameters.
N6 makes the mistake of M2 with another package's `fully_shard`.
N7 makes the mistake of M7 behind a test of torch's version.
N8 takes the state dict under the test for rank 0 above the sharding call, from the model that is still whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from recall.editing import Edits, before, parse
from recall.mutation import Edit, Mutation
from recall.mutations import granularity, migration, order
from recall.reading import Body, Sharding, View, bound, inside, names

HELPER = "shard_in_a_helper"


def alias_sites(view: View) -> Iterator[Edit]:
    """N1."""
    for node in migration.plain_imports(view):
        aliases = node.names
        assert not isinstance(aliases, cst.ImportStar)
        if any(alias.evaluated_name == "fully_shard" and alias.asname is not None for alias in aliases):
            continue
        new = cst.AsName(cst.Name("make_units"))
        edits = Edits()
        for alias in aliases:
            if alias.evaluated_name == "fully_shard":
                edits.replace(alias, alias.with_changes(asname=new))
        for name in inside(view.source.tree):
            if isinstance(name, cst.Call) and view.generation(name) == 2 and isinstance(name.func, cst.Name):
                edits.replace(name.func, cst.Name("make_units"))
        yield Edit(node, "", edits)


def partial_sites(view: View) -> Iterator[Edit]:
    """N2: all sharding calls of a function."""
    for body in view.functions():
        shards = [s for s in body.shards if s.generation == 2 and isinstance(s.call.func, cst.Name)]
        if not shards:
            continue
        edits = Edits()
        for shard in shards:
            args = [cst.Arg(shard.call.func), *shard.call.args[1:]]
            made = cst.Call(cst.parse_expression("functools.partial"), args)
            edits.replace(
                shard.call, cst.Call(made, [shard.call.args[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)])
            )
        yield Edit(shards[0].call, body.qualname, edits, "import functools")


def helper_sites(view: View) -> Iterator[Edit]:
    """N3: the last sharding call of a function becomes a helper's."""
    for body in view.functions():
        shards = [s for s in body.shards if s.generation == 2 and body.is_plain(s.call)]
        if not shards:
            continue
        shard = shards[-1]
        given = sorted(names(shard.call) & (body.parameters() | bound(body.node)))
        call = view.text(shard.call)
        made = parse(f"def {HELPER}({', '.join(given)}):\n    return {call}\n")
        top = _top(view, body)
        if top is None:
            continue
        edits = Edits().replace(shard.call, cst.parse_expression(f"{HELPER}({', '.join(given)})"))
        edits.put(top, [top.visit(edits), made])  # type: ignore[list-item]
        yield Edit(shard.call, body.qualname, edits)


def _top(view: View, body: Body) -> cst.BaseStatement | None:
    """The statement at the top of the file that a function stands in, where it is a function or class."""
    for statement in view.source.tree.body:
        if isinstance(statement, cst.FunctionDef | cst.ClassDef) and any(n is body.node for n in inside(statement)):
            return statement
    return None


def exclusive_sites(view: View) -> Iterator[Edit]:
    """N4: where M1a has a site whose first sharding statement can be put into a branch of its own."""
    for body in view.functions():
        shards = [s for s in body.shards if s.generation == 2]
        for site in order.inline_sites(view) if shards else ():
            if site.function != body.qualname:
                continue
            moved = cst.ensure_type(site.at, cst.SimpleStatementLine)
            block = body.block(moved)
            inner = [b for b in block if any(b is body.statement(s.call) or b in list(body.up(s.call)) for s in shards)]
            outer = inner and all(
                any(b is body.statement(s.call) or b in list(body.up(s.call)) for b in inner) for s in shards
            )
            if not outer or any(isinstance(n, cst.Return) for b in inner for n in inside(b)):
                continue
            first = block.index(inner[0])
            run = block[first : block.index(inner[-1]) + 1]
            if moved in run:
                continue
            guard = cst.If(
                cst.parse_expression("build_optimizer_alone"),
                cst.IndentedBlock([moved.with_changes(leading_lines=())]),
                cst.Else(cst.IndentedBlock(run)),
            )
            edits = Edits().put(moved, []).put(run[0], [guard])
            for rest in run[1:]:
                edits.put(rest, [])
            setup = "import os\nbuild_optimizer_alone = os.environ.get('ALONE') == '1'"
            yield Edit(moved, body.qualname, edits, setup)


def kept_sites(view: View) -> Iterator[Edit]:
    """N5: M1a on FSDP1, with the keyword added to each wrapper of the function."""
    for body in view.functions():
        wraps = [s for s in body.shards if s.generation == 1]
        if not wraps or any(s.generation == 2 for s in body.shards):
            continue
        for site in order.inline_sites(view):
            if site.function == body.qualname:
                yield Edit(site.at, site.function, _with_keyword(site.edits, wraps))


def _with_keyword(edits: Edits, wraps: list[Sharding]) -> Edits:
    kept = cst.Arg(cst.Name("True"), keyword=cst.Name("use_orig_params"))
    inner = Edits()
    for wrap in wraps:
        inner.replace(wrap.call, wrap.call.with_changes(args=[*wrap.call.args, kept]))
    both = Edits()
    both.statements = {
        old: [each.visit(inner) for each in new]  # type: ignore[misc]
        for old, new in edits.statements.items()
    }
    both.expressions = {**inner.expressions}
    return both


def other_package_sites(view: View) -> Iterator[Edit]:
    """N6: M2 in a file whose `fully_shard` is not torch's."""
    imports = list(migration.plain_imports(view))
    if not imports or sum(map(_imports_fully_shard, view.imports)) != len(imports):
        return
    for site in granularity.root_sites(view):
        for node in imports:
            assert node.module is not None
            site.edits.replace(node.module, cst.parse_expression("other_framework.parallel"))
        yield site


def _imports_fully_shard(node: cst.ImportFrom) -> bool:
    if isinstance(node.names, cst.ImportStar):
        return False
    return any(alias.evaluated_name == "fully_shard" for alias in node.names)


def version_sites(view: View) -> Iterator[Edit]:
    """N7: both imports, by torch's version."""
    for node in migration.plain_imports(view):
        line = next(
            (s for s in view.source.tree.body if isinstance(s, cst.SimpleStatementLine) and s.body[0] is node), None
        )
        if line is None:
            continue
        assert node.module is not None
        old = line.with_changes(body=[node.with_changes(module=migration.OLD)], leading_lines=())
        guard = cst.If(
            cst.parse_expression('version.parse(torch.__version__) >= version.parse("2.6")'),
            cst.IndentedBlock([line.with_changes(leading_lines=())]),
            cst.Else(cst.IndentedBlock([old])),
        )
        yield Edit(line, "", Edits().put(line, [guard]), "import torch\nfrom packaging import version")


def early_state_sites(view: View) -> Iterator[Edit]:
    """N8: the state of the whole model, taken by rank 0 above all sharding calls of the function."""
    for body in view.functions():
        found = granularity.roots(body)
        model = found[-1].module if found else ""
        block = body.block(body.statement(found[-1].call)) if found else []
        first = next(
            (b for b in block if any(body.statement(s.call) is b or b in list(body.up(s.call)) for s in body.shards)),
            None,
        )
        known = body.parameters() | {w for b in block for w in bound(b)}
        if first is None or not model or model.partition(".")[0] not in known:
            continue
        taken = parse(f"if torch.distributed.get_rank() == 0:\n    whole_state = {model}.state_dict()\n")
        yield Edit(first, body.qualname, Edits().put(first, before(first, [taken])), "import torch")


MUTATIONS = (
    Mutation("N1", "fully_shard under another name", alias_sites),
    Mutation("N2", "fully_shard through partial", partial_sites),
    Mutation("N3", "sharding moved into a helper", helper_sites),
    Mutation("N4", "M1a in branches that exclude each other", exclusive_sites),
    Mutation("N5", "M1a with use_orig_params=True", kept_sites),
    Mutation("N6", "M2 with another package's fully_shard", other_package_sites),
    Mutation("N7", "M7 behind a version test", version_sites),
    Mutation("N8", "rank 0's state dict above the sharding", early_state_sites),
)
