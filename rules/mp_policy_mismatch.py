"""The blocks of a model and the model itself are sharded with different mixed precision.

## What it finds

`fully_shard` on the blocks with a `MixedPrecisionPolicy` that casts, and on the model around them without one, or with
another `param_dtype`; or the other way round.

## Why it is wrong

A policy casts the parameters and the inputs of its own unit only. Where the blocks compute in bfloat16 and the root
does not, the head gets bfloat16 inputs for its float32 weights; where only the root does, the blocks do. The first
forward raises "mat1 and mat2 must have the same dtype" or "mixed dtype (CPU)" (measured on torch 2.13.0, policies on
the blocks only, on the root only, of two types; with float and with integer inputs). Different `reduce_dtype` is
right, and so is offloading only some units (measured).

## How to mend it

Pass the same `mp_policy` to every call, the one for the model included.

## When to leave it

Where the types are kept apart on purpose: a policy with `output_dtype` or `cast_forward_inputs` is not reported, nor
are norms, routers and other single layers with a policy of their own, forwards under autocast, a root without
parameters of its own, and policies that come from elsewhere.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`MixedPrecisionPolicy`)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, keywords, text_of
from fsdp_lint.fix.edits import ChangeCall, Fix
from fsdp_lint.fix.moves import means_the_same
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Forward, Shard
from fsdp_lint.trace.granularity import is_leaf, own_parts
from fsdp_lint.trace.models.precision import casts_output, param_dtype
from fsdp_lint.trace.trace import Trace, called, covers, related
from fsdp_lint.trace.values import exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each model whose blocks have another policy than itself."""
    for root in trace.every(Shard):
        if root.generation != 2 or not root.kwargs_known or casts_output(root.kwargs.get("mp_policy")):
            continue
        inner = [s for s in trace.shards(root.module, 2) if _is_block_of(s, root)]
        # What is still said in FSDP1's words belongs to fsdp1-kwargs-on-fully-shard.
        if any("mixed_precision" in shard.kwargs for shard in (root, *inner)):
            continue
        if not inner or not _owns(trace, root) or _under_autocast(trace, root):
            continue
        types = {param_dtype(s.kwargs.get("mp_policy")) for s in inner}
        own = param_dtype(root.kwargs.get("mp_policy"))
        if own is None or None in types or len(types) != 1 or own in types:
            continue
        if any(casts_output(s.kwargs.get("mp_policy")) for s in inner):
            continue
        theirs = types.pop()
        yield Finding(
            at=root,
            message=f"`{called(root.module)}` computes in {own or 'its own type'}, its part "
            f"`{called(inner[-1].module)}` in {theirs or 'its own type'}: the first forward mixes the two",
            because=[(inner[-1], "the part is sharded here")],
            fix=_fix(root, inner),
        )


def _is_block_of(shard: Shard, root: Shard) -> bool:
    if related(shard.module, root.module) or not covers(root.module, shard.module) or not shard.kwargs_known:
        return False
    return not exclusive(shard.guards, root.guards) and not is_leaf(shard.module) and shard.entry == root.entry


def _owns(trace: Trace, root: Shard) -> bool:
    """False where every parameter of the root is surely in one of the inner units."""
    rest = own_parts(trace, root, root.module)
    return rest is None or bool(rest)


def _under_autocast(trace: Trace, root: Shard) -> bool:
    return any(
        any("autocast" in name for name in event.contexts) and related(event.module, root.module)
        for event in trace.every(Forward)
    )


def _fix(root: Shard, inner: list[Shard]) -> Fix | None:
    """The policy that one side spells out goes to the other, where it stands in the same body."""
    other = inner[-1]
    if len(inner) > 1 and len({shard.site for shard in inner}) > 1:
        return None
    if root.site.source is not other.site.source or root.stack != other.stack:
        return None
    giver, taker = (other, root) if "mp_policy" in keywords(other.site) else (root, other)
    text = argument(giver.site, "mp_policy")
    if text is None or "mp_policy" in keywords(taker.site) or "\n" in text_of(text):
        return None
    if not means_the_same(text, taker.site):
        return None
    return Fix("Pass the same mp_policy", (ChangeCall(taker.site, put={"mp_policy": text_of(text)}),))


RULE = Rule(
    check,
    code="FSDP702",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
