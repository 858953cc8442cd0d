"""The gradient scaler is not the one that this FSDP needs.

## What it finds

- `torch.amp.GradScaler` (or `torch.cuda.amp.GradScaler`) in a run that wraps its model with FSDP1: an error.
- `ShardedGradScaler` in a run that shards with `fully_shard`: advice.

## Why it is wrong

A scaler looks for inf and NaN in this rank's gradients. FSDP1's are plain tensors, this rank's flat shard: where one
rank finds an inf and the other does not, **one rank skips its step and the other makes it**. Measured on torch 2.13.0
(two gloo ranks, an inf in rank 0's shard): with `torch.amp.GradScaler` rank 0 skips and halves its scale (32768), rank
1 steps and keeps 65536; with `ShardedGradScaler` both skip. FSDP2's gradients are DTensors, for which the plain scaler
agrees across ranks (both skip, measured on torch 2.5 to 2.13; on 2.4 it raises a RecursionError as it unscales them);
`ShardedGradScaler` gives the same and is not needed.

## How to mend it

Use `torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler` with FSDP1, `torch.amp.GradScaler` with FSDP2.

## When to leave it

Where no loss is scaled: `enabled=False`, or bfloat16, which needs no scaler; the rule is silent where FSDP1's policy
says bfloat16, where the scaler and the wrapper stand on different branches, for `NO_SHARD`, and where FSDP1's own
scaler is made as well: the plain one may then belong to a model that is not sharded. So it is where scalers only step
optimizers of other models.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html
- https://docs.pytorch.org/docs/stable/amp.html
- https://github.com/pytorch/pytorch/issues/64632 (FSDP1 needs a sharded scaler)
- https://github.com/meta-pytorch/tnt/pull/997 (FSDP2 uses the plain one)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import keywords, positionals
from fsdp_lint.fix.edits import ChangeCall, Fix
from fsdp_lint.fix.spelling import spelled
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import BuildScaler, Handed, Shard
from fsdp_lint.trace.models.precision import param_dtype
from fsdp_lint.trace.trace import Trace, called, stepped
from fsdp_lint.trace.values import Condition, Const, External, Optimizer, exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each scaler that does not fit the sharding call."""
    for scaler in trace.every(BuildScaler):
        if isinstance(scaler.enabled, Const) and not scaler.enabled.value:
            continue
        shards = [shard for shard in trace.every(Shard) if _meets(shard, scaler)]
        old = [shard for shard in shards if shard.generation == 1]
        if not scaler.sharded and _is_for_others(trace, scaler, old):
            continue
        if not scaler.sharded and old and _apart(old, shards) and not any(_needs_none(shard) for shard in old):
            name = called(old[-1].module)
            yield Finding(
                at=scaler,
                message=f"each rank's scaler sees only its own shard of the gradients of `{name}`: the ranks disagree "
                "on inf, and some step where others skip",
                because=[(old[-1], "FSDP1 shards here")],
                fix=_fix(scaler, "torch.distributed.fsdp.sharded_grad_scaler", "ShardedGradScaler"),
            )
        elif scaler.sharded and shards and not old:
            yield Finding(
                at=scaler,
                message=f"`{called(shards[-1].module)}` is sharded by `fully_shard`, for which torch.amp.GradScaler is "
                "enough",
                because=[(shards[-1], "FSDP2 shards here")],
                fix=_fix(scaler, "torch.amp", "GradScaler"),
                severity=Severity.INFO,
            )


def _meets(shard: Shard, scaler: BuildScaler) -> bool:
    """True when a run can pass through both, with the scaler switched on."""
    if exclusive(shard.guards, scaler.guards):
        return False
    return not (isinstance(scaler.enabled, Condition) and exclusive(shard.guards, scaler.enabled.true))


def _apart(old: list[Shard], shards: list[Shard]) -> bool:
    """True when no run passes through a call of each generation: which of them comes, decides an option."""
    new = [shard for shard in shards if shard.generation == 2]
    return all(exclusive(one.guards, other.guards) for one in old for other in new)


def _is_for_others(trace: Trace, scaler: BuildScaler, shards: list[Shard]) -> bool:
    """True where FSDP1's scaler is made beside this one, or scalers only step optimizers of what is not sharded."""
    if any(other.sharded and not exclusive(other.guards, scaler.guards) for other in trace.every(BuildScaler)):
        return True
    scaled = [e for e in trace.every(Handed) if e.to.endswith(".step") and isinstance(e.values[0], Optimizer)]
    return bool(scaled) and not any(True for shard in shards for _ in stepped(trace, shard.module))


def _needs_none(shard: Shard) -> bool:
    """True where nothing is sharded, or no loss needs to be scaled, or where that is not known."""
    strategy = shard.kwargs.get("sharding_strategy")
    if isinstance(strategy, External) and strategy.dotted.endswith(".NO_SHARD"):
        return True
    return param_dtype(shard.kwargs.get("mixed_precision")) in ("bfloat16", "float32")


def _fix(scaler: BuildScaler, module: str, name: str) -> Fix | None:
    written = spelled(scaler.site, module, name)
    # torch.cuda.amp's scaler has another first argument.
    if written is None or positionals(scaler.site) or "process_group" in keywords(scaler.site):
        return None
    return Fix(f"Use {name}", (ChangeCall(scaler.site, function=written[0]), *written[1]))


RULE = Rule(
    check,
    code="FSDP703",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
