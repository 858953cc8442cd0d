"""The optimizer is built while a forward pass has left parameters whole.

## What it finds

An optimizer built from a model that is sharded with `fully_shard` and that has been called since, in a sanity or
evaluation pass for instance, with no backward pass in between. Functions, methods and files are followed.

## Why it is wrong

After a forward pass the root's unit stays gathered until the backward pass, and so `model.parameters()` gives plain
tensors for what the root itself holds: embedding, final norm, head. The optimizer keeps those, gradients arrive at the
sharded ones, and **these layers never train, without a word**. Measured on torch 2.13.0 with two gloo ranks (a model
with 22 parameters: 18 are DTensors after a pass under `no_grad`, the other four never change) and on torch 2.11 with
NCCL and foreach optimizers. The order of sharding and optimizer looks right. Where only the blocks are sharded and not
the root, each block is a root of its own, and all parameters are whole after a pass.

## How to mend it

Build the optimizer before the first pass, or call `model.reshard()` right before it is built. From torch 2.8 on
`reshard_after_forward=True` for the root serves as well; 2.4 to 2.7 do not heed it for the root (measured on each: the
same four parameters never change).

## When to leave it

After a backward pass, `model.state_dict()` or `model.reshard()` everything is sharded again (measured), and with FSDP1
the parameter objects stay the same: the rule is silent there. It is silent, too, where the pass happens in code that it
cannot see, and where the optimizer is handed to such code. It does not see a `reshard()` in a decorator or in a forward
hook. If sharding comes after the optimizer, that is optimizer-before-shard's business.

## References

- https://github.com/pytorch/pytorch/issues/149205
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (reshard_after_forward, reshard)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.calls import asked
from fsdp_lint.fix.edits import Fix, InsertBefore
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import BuildOptimizer, Event, Forward, Shard
from fsdp_lint.trace.granularity import own_parts
from fsdp_lint.trace.trace import Trace, called, covers, flag_of, gathered_since, related
from fsdp_lint.trace.values import Const, Params, Value
from fsdp_lint.trace.versions import newest_is_below

ROOT_RESHARDS_SINCE = "2.8"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each optimizer that holds whole parameters of a sharded model."""
    for build in trace.every(BuildOptimizer):
        if trace.looked_after(build.optimizer):
            continue
        for params in build.optimizer.holds:
            taken = params.taken or build
            found = _whole(trace, params, taken) if not trace.shards_after(params) else None
            if found is None:
                continue
            root, forward, model = found
            names = ", ".join(f"`{name}`" for name in (own_parts(trace, root, root.module) or [])[:4])
            held = f"what the root holds ({names})" if names else "what the root holds"
            yield Finding(
                at=build,
                message=f"`{called(build.optimizer)}` gets parameters of `{called(model)}` that a forward has left "
                f"whole: {held} will never be trained{_in_spite_of_the_flag(root)}",
                because=[
                    (root, f"`{called(root.module)}` is sharded here"),
                    (forward, f"`{called(forward.module)}` is called here: its root stays gathered afterwards"),
                ],
                fix=_fix(trace, taken, root, model),
            )
            break


def _whole(trace: Trace, params: Params, taken: Event) -> tuple[Shard, Forward, Value] | None:
    """The unit that is whole when the parameters are taken, the pass that left it so, and the model asked for them."""
    for model in params.of:
        units = [s for s in trace.shards(model, 2) if trace.before(s, taken) and s.order < taken.order]
        for root in units:
            if any(other is not root and covers(other.module, root.module) for other in units):
                continue
            forward = gathered_since(trace, root, taken)
            if forward is not None and _is_left_whole(trace, root) and _concerns(trace, root, model):
                return root, forward, model
    return None


def _is_left_whole(trace: Trace, root: Shard) -> bool:
    """True when the root keeps its parameters whole after a forward, which is the default; of old it always does."""
    return newest_is_below(trace.torch, ROOT_RESHARDS_SINCE) or _asks_for_whole(root)


def _in_spite_of_the_flag(root: Shard) -> str:
    if _asks_for_whole(root):
        return ""
    return f" (before torch {ROOT_RESHARDS_SINCE} `reshard_after_forward` does nothing for the root)"


def _asks_for_whole(root: Shard) -> bool:
    said = root.kwargs.get("reshard_after_forward")
    if said is None or (isinstance(said, Const) and said.value is None):
        return root.kwargs_known
    return flag_of(root, "reshard_after_forward", False) is False


def _concerns(trace: Trace, root: Shard, model: Value) -> bool:
    """True when the parameters that are asked for may lie in the root's own unit."""
    return own_parts(trace, root, root.module if covers(model, root.module) else model) != []


def _fix(trace: Trace, taken: Event, root: Shard, model: Value) -> Fix | None:
    """`model.reshard()` above the statement that takes the parameters."""
    if not related(model, root.module) or any(
        flag_of(unit, "reshard_after_forward", True) is not True for unit in trace.shards(model, 2) if unit is not root
    ):
        return None
    name = asked(taken.site, ("parameters", "named_parameters"))
    if name is None:
        return None
    return Fix("Shard what the pass has left whole before", (InsertBefore(taken.site, f"{name}.reshard()"),))


RULE = Rule(
    check,
    code="FSDP110",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
