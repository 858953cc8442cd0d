"""Every small module becomes an FSDP unit of its own.

## What it finds

- `fully_shard` in a loop over `modules()` or `named_modules()` without a filter, or with one that lets linear layers
  through (norms alone may be units for the sake of their own dtype);
- a loop over the layers inside a block;
- `model.apply(fully_shard)`;
- FSDP1 with a policy that wraps `nn.Linear` or a norm, or `size_based_auto_wrap_policy` with `min_num_params` below
  100,000.

## Why it is wrong

A unit costs one all-gather in the forward, one in the backward, and one reduce-scatter. The bytes stay the same, but
there are many more collectives, and small ones are slow. Measured on torch 2.13.0: 873 collectives a step instead of 98
for a Llama-shaped model of 32 layers, 2,169 instead of 242 for 80 layers (a group of 64 ranks); with torch 2.11 on two
H200 with NCCL a step of a model of 937 million parameters took 1.8 times as long. Memory and losses do not change.

## How to mend it

Shard each transformer block, then the root. A block is the largest module that repeats, usually an element of
`model.layers`.

## When to leave it

Where small modules have to be units for another reason: quantised or adapter layers of another dtype, experts of a
mixture, per-sample gradients. A filter on your own block class is never reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://github.com/Lightning-AI/pytorch-lightning/issues/15976
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, is_path, receiver_of, text_of
from fsdp_lint.fix.blocks import is_statement
from fsdp_lint.fix.calls import call_on, for_each, loop_for
from fsdp_lint.fix.edits import Fix, RemoveStatement, Rewrite
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Shard, ShardEach
from fsdp_lint.trace.granularity import block_lists, block_paths, leaf_reason, policy_reason
from fsdp_lint.trace.trace import Trace, called, related
from fsdp_lint.trace.values import Module


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each call that makes leaf modules into units."""
    for each in trace.every(ShardEach):
        yield Finding(
            at=each, message=f"`{called(each.module)}.apply` makes every module of it an FSDP unit", fix=_of_apply(each)
        )
    for shard in trace.every(Shard):
        reason = leaf_reason(trace, shard) if shard.generation == 2 else policy_reason(shard)
        if reason:
            yield Finding(at=shard, message=reason, fix=_of_loop(trace, shard) if shard.generation == 2 else None)


def _of_apply(each: ShardEach) -> Fix | None:
    """`model.apply(shard)` becomes a loop over the blocks and a call for the root."""
    model, function = receiver_of(each.site), argument(each.site, "fn", 0)
    paths = block_paths(each.module)
    if model is None or function is None or not paths or not is_path(model) or not is_path(function):
        return None
    if not is_statement(each.site):
        return None
    name, shard = text_of(model), text_of(function)
    loops = [f"for block in {name}{path}:\n    {shard}(block)" for path in paths]
    return _fix(Rewrite(each.site, "\n".join([*loops, f"{shard}({name})"])))


def _of_loop(trace: Trace, shard: Shard) -> Fix | None:
    """The loop goes over the blocks, and the root follows where it is not sharded yet."""
    module, root = shard.module, shard.module.owner
    if not isinstance(module, Module) or not isinstance(root, Module):
        return None
    inside = module.each != "modules"
    found = loop_for(shard.site, innermost=inside)
    if found is None:
        return None
    loop, name = found
    others = [other for other in trace.every(Shard) if other.site != shard.site]
    if inside:
        if any(other.module is root for other in others):
            return _fix(RemoveStatement(loop))
        one = call_on(shard.site, name)
        return _fix(Rewrite(loop, one)) if one is not None else None
    lists = [container for _, container in block_lists(root)]
    if any(other.module.owner in lists or other.order < shard.order for other in others):
        return None
    loops = for_each(shard.site, [name + path for path in block_paths(root)])
    last = [] if any(related(other.module, root) for other in others) else [call_on(shard.site, name)]
    if not loops or None in last:
        return None
    return _fix(Rewrite(loop, "\n".join([loops, *(text for text in last if text)])))


def _fix(edit: Rewrite | RemoveStatement) -> Fix:
    return Fix("Shard each block, then the root", (edit,), Applicability.UNSAFE)


RULE = Rule(
    check,
    code="FSDP201",
    severity=Severity.WARNING,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
