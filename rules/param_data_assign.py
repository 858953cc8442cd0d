"""The `data` of a sharded parameter is assigned, which changes nothing.

## What it finds

`parameter.data = value`, and `setattr(parameter, "data", value)`, for parameters of a model that `fully_shard` has
sharded before.

## Why it is wrong

A sharded parameter is a DTensor, which keeps its values in a local tensor of its own. Assigning `data` leaves that
alone. Measured on torch 2.7.1 to 2.13.0: **the values stay as they were and no error is raised**, whether the right
side is a plain tensor, a DTensor of the same layout, or made from `parameter.data` itself. Weights that are loaded,
pruned, averaged or clamped in this way are not.

## How to mend it

Change the parameter in place: `with torch.no_grad(): parameter.copy_(value)` with a DTensor as value (from
`distribute_tensor`, or computed from the parameter), or `parameter.to_local().copy_(shard)`.

## When to leave it

Methods that change `data` in place (`parameter.data.mul_(0.9)`, `parameter.data -= update`) work, and are not
reported; nor are assignments before the model is sharded, FSDP1's parameters, and models with `ignored_params`. Where
sharding and the assignment rest on options of their own, a run may never make both, and the rule is silent.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import Fix, Rewrite
from fsdp_lint.fix.rewriting import as_copy
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import UseParameters
from fsdp_lint.trace.loading import by_other_choices, surely_sharded
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import Tensor


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each assignment that has no effect."""
    for use in trace.every(UseParameters):
        taken = use.params.taken
        if use.how != "data" or taken is None or trace.in_test(use) or any("unshard" in name for name in use.contexts):
            continue
        for module in use.params.of:
            shard = surely_sharded(trace, module, taken, 2)
            if shard is None or by_other_choices(shard, use) or trace.ignores_some(module):
                continue
            yield Finding(
                at=use,
                message=f"a parameter of `{called(module)}` is sharded: assigning its `data` leaves its values "
                "as they are",
                because=[(shard, f"`{called(shard.module)}` is sharded here")],
                fix=_fix(use),
            )
            break


def _fix(use: UseParameters) -> Fix | None:
    """The values are copied; only what was made of sharded tensors fits."""
    made = use.to
    if not isinstance(made, Tensor) or made.form not in ("parameter", "gradient", "shard"):
        return None
    text = as_copy(use.site)
    return Fix("Copy the values", (Rewrite(use.site, text),), Applicability.UNSAFE) if text is not None else None


RULE = Rule(
    check,
    code="FSDP403",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
