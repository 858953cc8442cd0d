"""Parameters that FSDP is told to ignore are trained all the same.

## What it finds

`ignored_params=` of `fully_shard`, or `ignored_modules=` and `ignored_states=` of FSDP1, with parameters that an
optimizer gets, that are not frozen, and whose gradients nobody averages.

## Why it is wrong

What is ignored is neither sharded nor reduced: each rank trains it on its own data alone, and **the ranks drift apart
without a word**. Measured on torch 2.13.0, two gloo ranks: after three steps the ignored layer differs on the two.
Besides, a foreach or fused optimizer (the default on CUDA) raises "got mixed torch.Tensor and DTensor" when plain and
sharded parameters lie in one group.

## How to mend it

Freeze what is ignored with `requires_grad_(False)`, or average its gradients after each backward pass and give it a
parameter group of its own.

## When to leave it

Where another call shards the ignored module (experts on a mesh of their own), where DDP or `replicate` looks after it,
where a hook on its parameters may average their gradients, or where it is handed to code that the rule cannot see.
Where it does not know what is ignored it is silent. Of parameters that are picked by their names it speaks where every
sharding call in the model picks so, and where none is frozen, nor asked whether it is. Before torch 2.7 `fully_shard`
has no `ignored_params` and raises a TypeError.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (ignored_params)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import BuildOptimizer, Freeze, Shard, UseParameters
from fsdp_lint.trace.trace import IGNORING, Trace, called, covers, ignored_by, related, touches
from fsdp_lint.trace.values import Params, Sequence, Tensor, Value, exclusive, parts
from fsdp_lint.trace.versions import newest_is_below

IGNORES_SINCE = "2.7"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each call that is told to ignore what is trained."""
    for shard in trace.every(Shard):
        if shard.generation == 2 and (
            "ignored_params" not in shard.kwargs or newest_is_below(trace.torch, IGNORES_SINCE)
        ):
            continue  # It raises; in FSDP1's words that is fsdp1-kwargs-on-fully-shard.
        trained: dict[str, BuildOptimizer] = {}
        for module in ignored_by(shard):
            build = _trained_by(trace, module, shard)
            if build and not _is_sharded_apart(trace, module, shard) and not _is_cared_for(trace, module, shard):
                trained.setdefault(f"the parameters of `{called(module)}`", build)
        for model in _picked_from(shard):
            build = _trained_by(trace, model, shard)
            if build and _each_picks(trace, model) and not _is_cared_for(trace, model, shard):
                trained.setdefault(f"parameters of `{called(model)}` that are picked by their names", build)
        if trained:
            build = next(iter(trained.values()))
            yield Finding(
                at=shard,
                message=f"FSDP ignores {' and '.join(trained)}, which `{called(build.optimizer)}` "
                "trains: each rank trains its own",
                because=[(build, "the optimizer gets them here")],
            )


def _picked_from(shard: Shard) -> list[Value]:
    """The models around what is sharded of whose parameters the call ignores some, picked as they are walked."""
    found: dict[int, Value] = {}
    for ignored in (shard.kwargs[name] for name in IGNORING if name in shard.kwargs):
        for part in parts(ignored) if isinstance(ignored, Sequence) and not ignored.exact else ():
            match part:
                case Tensor(form="parameter", source=Params(named=True, of=of)):
                    found.update((one.number, one) for one in of if covers(one, shard.module))
    return list(found.values())


def _each_picks(trace: Trace, model: Value) -> bool:
    """True where every sharding call in a model ignores some of its parameters: none shards them apart."""
    inside = [shard for shard in trace.every(Shard) if touches(shard.module, model)]
    return all(any(one is model for one in _picked_from(shard)) for shard in inside)


def _trained_by(trace: Trace, module: Value, shard: Shard) -> BuildOptimizer | None:
    for build in trace.every(BuildOptimizer):
        held = [of for params in build.optimizer.holds for of in params.of]
        if any(covers(of, module) for of in held) and not exclusive(build.guards, shard.guards):
            return build
    return None


def _is_sharded_apart(trace: Trace, module: Value, shard: Shard) -> bool:
    return any(
        (other is not shard and covers(module, other.module))
        or (covers(other.module, module) and not covers(other.module, shard.module))
        for other in trace.every(Shard)
    )


def _is_cared_for(trace: Trace, module: Value, shard: Shard) -> bool:
    if any(covers(event.module, module) or covers(module, event.module) for event in trace.every(Freeze)):
        return True
    for use in trace.every(UseParameters):
        if use.how in ("requires_grad", "hook", "accumulate-hook") and any(touches(of, module) for of in use.params.of):
            return True
    handed = any(
        related(one, module) for event in trace.handed(module) for value in event.values for one in parts(value)
    )
    return handed or trace.replicated(module, shard) or trace.averaged(module)


RULE = Rule(check, code="FSDP206", severity=Severity.WARNING, since="0.1.0")
