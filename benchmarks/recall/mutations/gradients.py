"""Local parts of sharded tensors taken for the whole.

M8 clips an FSDP1 model by `torch.nn.utils.clip_grad_norm_`: fsdp1-clip-api.
M10 takes `to_local()` instead of `full_tensor()` where the value is reduced, compared, read or saved:
    to-local-arithmetic, dtensor-scalar-read, shared-checkpoint-path, torch-save-sharded-state.
M13 takes `torch.amp.GradScaler` for FSDP1: gradscaler-flavour.
"""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from recall.editing import Edits
from recall.mutation import Edit, Mutation
from recall.reading import Body, View, last, written

REDUCES = frozenset({"sum", "mean", "norm", "max", "min", "std", "var", "any", "all", "item", "tolist", "equal"})
FREE = frozenset({"torch.sum", "torch.mean", "torch.equal", "torch.allclose", "torch.linalg.vector_norm", "torch.save"})


def clip_sites(view: View) -> Iterator[Edit]:
    """M8: the model's own clip method, which FSDP1 has, in a package that imports torch's."""
    for body in view.functions() if 1 in view.generations else ():
        for call in body.calls:
            if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "clip_grad_norm_":
                continue
            model = written(call.func.value)
            if not model or "utils" in model or "model" not in model.lower() or view.dotted(call.func.value):
                continue
            function = cst.parse_expression("torch.nn.utils.clip_grad_norm_")
            first = cst.Arg(cst.parse_expression(f"{model}.parameters()"))
            new = call.with_changes(func=function, args=[first, *call.args])
            yield Edit(call, body.qualname, Edits().replace(call, new), "import torch")


def local_sites(view: View) -> Iterator[Edit]:
    """M10: a gathered tensor whose value is used as a number, compared or saved."""
    for body in view.functions() if not view.is_test else ():
        for call in body.calls:
            if not isinstance(call.func, cst.Attribute) or call.func.attr.value != "full_tensor" or call.args:
                continue
            if _is_reduced(body, call) and not _holds_local(body) and not _is_norm(call.func.value):
                method = call.func.with_changes(attr=cst.Name("to_local"))
                yield Edit(call, body.qualname, Edits().replace(call.func, method))


def _is_reduced(body: Body, call: cst.Call) -> bool:
    """True for `x.full_tensor().norm()`, `torch.sum(x.full_tensor())` and `y = x.full_tensor()` with `y.item()`."""
    if _is_read(body, call):
        return True
    around = body.parents[call]
    if isinstance(around, cst.Assign) and len(around.targets) == 1 and isinstance(around.targets[0].target, cst.Name):
        name = around.targets[0].target.value
        uses = [n for n in body.nodes if isinstance(n, cst.Name) and n.value == name]
        return any(body.view.row(n) > body.view.row(call) and _is_read(body, n) for n in uses)
    return False


def _is_norm(node: cst.CSTNode) -> bool:
    """True for what a clip gives: since torch 2.10 it is whole on each rank, and `to_local` is right."""
    return "norm" in last(written(node))


def _is_read(body: Body, node: cst.CSTNode) -> bool:
    around = body.parents[node]
    if isinstance(around, cst.Attribute) and around.value is node:
        return around.attr.value in REDUCES and isinstance(body.parents[around], cst.Call)
    if isinstance(around, cst.Arg):
        outer = body.parents[around]
        return isinstance(outer, cst.Call) and body.view.dotted(outer.func) in FREE
    return isinstance(around, cst.Comparison) and not isinstance(around.comparisons[0].operator, cst.Is | cst.IsNot)


def _holds_local(body: Body) -> bool:
    return any(last(written(c.func)) == "all_reduce" for c in body.calls)


def scaler_sites(view: View) -> Iterator[Edit]:
    """M13: the sharded scaler is made in a file that wraps by FSDP1."""
    wraps = any(shard.generation == 1 for body in view.functions() for shard in body.shards)
    for body in view.functions() if wraps else ():
        for call in body.calls:
            if last(view.dotted(call.func) or written(call.func)) == "ShardedGradScaler":
                function = cst.parse_expression("torch.amp.GradScaler")
                yield Edit(call, body.qualname, Edits().replace(call.func, function), "import torch")


MUTATIONS = (
    Mutation("M8", "FSDP1 clipped by nn.utils", clip_sites, frozenset({"FSDP405"})),
    Mutation(
        "M10", "to_local() for full_tensor()", local_sites, frozenset({"FSDP401", "FSDP402", "FSDP302", "FSDP301"})
    ),
    Mutation("M13", "plain GradScaler for FSDP1", scaler_sites, frozenset({"FSDP703"})),
)
