"""The optimizer gets parameters that the model will not keep.

## What it finds

An optimizer built from the parameters of a model, or of a part of it, before the last `fully_shard(...)` or
`FullyShardedDataParallel(...)` call on that model. The parameters may have been put into a list or into parameter
groups first; what counts is when they were taken. Functions, methods and other files of the project are followed.

## Why it is wrong

`fully_shard` replaces the parameters of the module by sharded ones. The optimizer keeps the old ones, and no gradient
ever reaches them: **the model does not train, and nothing says so**. Measured with torch 2.7.1 to 2.13.0 on the CPU
and 2.11 with NCCL: after any number of steps with AdamW (plain, foreach, fused) or SGD, 0 of 52 parameters had
changed, the optimizer held no state, and `optimizer.zero_grad()` no longer cleared the model's gradients, so that
their norm grew from step to step. The full, unsharded parameters stay in memory besides: 4 + 8/R bytes a parameter
instead of 16/R with R ranks. An optimizer built between the sharding of the blocks and that of the root trains the
blocks only.

Frameworks shard at a point of their own. Lightning's Trainer calls `__init__`, `setup`, `configure_model` and
`configure_optimizers` in this order, and Fabric's `ModelParallelStrategy` shards in `fabric.setup`, which hands the
optimizer back as it was. Measured with lightning 2.6.6 and torch 2.13.0, two gloo ranks: an optimizer, or a list of
parameters, made in `__init__` or `setup` of a module that shards in `configure_model` changes 0 parameters, and so does
`fabric.setup(model, optimizer)`, without a word.

FSDP1 does the same with `use_orig_params=False`, its default. With `use_orig_params=True` it keeps the parameter
objects, and the order does not matter (measured on torch 2.4 to 2.13). In accelerate's plugin for FSDP1,
`use_orig_params=False` does it too: `accelerator.prepare(model)` leaves an optimizer behind that was made before, and
`prepare(optimizer)` later wraps it as it is (read in accelerate 1.15, where only FSDP2's way gives optimizers the new
parameters). The rule reports it where the setting is written, and model and optimizer are prepared apart.

## How to mend it

Build the optimizer after the last sharding call on the model. Learning rate schedulers and everything else that holds
the optimizer follow it.

## When to leave it

Where a library gives the optimizer the new parameters, as `accelerator.prepare(model, optimizer)` does, or where the
parameters stay the same, as with Lightning's `FSDPStrategy` (`use_orig_params=True` is its default). The rule is silent
when the optimizer is handed to code that it cannot see, when its groups are filled again, or when a later optimizer
takes its place.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://docs.pytorch.org/docs/stable/fsdp.html (the warning on optimizers)
- https://lightning.ai/docs/pytorch/stable/common/lightning_module.html (in which order hooks are called)
- https://lightning.ai/docs/fabric/stable/advanced/model_parallel/fsdp.html (set up the model, then make the optimizer)
- https://github.com/huggingface/accelerate/pull/3394 (how `prepare` puts the new parameters in)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import Fix, MoveAfter
from fsdp_lint.fix.locate import can_move_after, movable_around, siblings
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import (
    BuildOptimizer,
    Event,
    Handed,
    RepointOptimizer,
    Shard,
    ShardBySettings,
    Step,
    TakeParameters,
    UseParameters,
)
from fsdp_lint.trace.trace import (
    Trace,
    called,
    common_depth,
    happens_inside,
    keeps_parameters,
    site_at_depth,
    touches,
)
from fsdp_lint.trace.values import Module, Optimizer, Value

# What a function that builds an optimizer may do besides, so that its call can be moved.
QUIET = (BuildOptimizer, TakeParameters, UseParameters, Handed)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each optimizer that holds parameters from before a sharding call."""
    for build in trace.every(BuildOptimizer):
        for params in build.optimizer.holds:
            late = [s for s in trace.shards_after(params) if not keeps_parameters(s)]
            if not late or _is_cared_for(trace, build, late[-1]):
                continue
            taken = params.taken
            early = trace.before(build, late[-1], params) or taken is None or happens_inside(taken, build)
            yield Finding(
                at=build,
                message=f"`{called(build.optimizer)}` gets parameters of `{called(params.of[0])}` that sharding "
                "replaces: they will never be trained",
                because=[
                    *([] if early or taken is None else [(taken, "these parameters are taken here")]),
                    (late[-1], f"`{called(late[-1].module)}` is sharded here: it has other parameters from now on"),
                ],
                fix=_fix(trace, _takings(trace, build), late[-1]),
            )
            break
    yield from _by_settings(trace)


def _by_settings(trace: Trace) -> Iterator[Finding]:
    """accelerate with FSDP1: the model is prepared alone, after its optimizer was made."""
    for build in trace.every(BuildOptimizer):
        models = [module for params in build.optimizer.holds for module in params.of]
        late = [
            event
            for event in trace.every(ShardBySettings)
            if event.replaces and trace.before(build, event, build.optimizer) and _is_one_of(event.model, models)
        ]
        if not late or not _goes_on_alone(trace, build.optimizer):
            continue
        if any(other is not build and _same_models(other, build) for other in trace.every(BuildOptimizer)):
            continue
        yield Finding(
            at=build,
            message=f"`{called(build.optimizer)}` gets parameters of `{called(models[0])}` that `prepare` replaces: "
            "they will never be trained",
            because=[(late[-1], "with `use_orig_params=False` FSDP1 flattens them here, and no optimizer is told")],
        )


def _is_one_of(model: Value, models: list[Value]) -> bool:
    return any(touches(model, one) for one in models)


def _goes_on_alone(trace: Trace, optimizer: Optimizer) -> bool:
    """True for an optimizer that is used, and goes to no unknown code but `prepare`, there without a model."""
    if any(event.optimizer is optimizer for event in trace.every(RepointOptimizer)):
        return False
    handed = list(trace.handed_over(optimizer))
    used = bool(handed) or any(step.optimizer is optimizer for step in trace.every(Step))
    return used and all(
        event.to.rpartition(".")[2] == "prepare" and not any(isinstance(value, Module) for value in event.values)
        for event in handed
    )


def _is_cared_for(trace: Trace, build: BuildOptimizer, late: Shard) -> bool:
    optimizer = build.optimizer
    if trace.looked_after(optimizer):
        return True
    steps = [step for step in trace.every(Step) if step.optimizer is optimizer]
    if any(trace.before(late, step, optimizer) for step in steps):
        return False
    return any(
        other is not build and trace.before(late, other) and _same_models(other, build)
        for other in trace.every(BuildOptimizer)
    )


def _same_models(one: BuildOptimizer, other: BuildOptimizer) -> bool:
    models = [module for params in other.optimizer.holds for module in params.of]
    return any(touches(a, b) for params in one.optimizer.holds for a in params.of for b in models)


def _takings(trace: Trace, build: BuildOptimizer) -> list[Event]:
    """All that takes parameters for the optimizer before they are sharded: a list for each group, say."""
    early = [p for p in build.optimizer.holds if any(not keeps_parameters(s) for s in trace.shards_after(p))]
    return list(dict.fromkeys(params.taken or build for params in early))


def _fix(trace: Trace, takings: list[Event], late: Shard) -> Fix | None:
    """What takes the parameters goes behind the sharding, with what hangs on it, in the body that shows both."""
    moves = [move for taken in takings if (move := _move(trace, taken, late)) is not None]
    anchors = {move.anchor for move in moves}
    if len(moves) < len(takings) or len(anchors) != 1:
        return None
    # Each may go while the others stay; together they keep their order.
    together = {site for move in moves for site in move.statements}
    moved = tuple(site for site in siblings(moves[0].statements[0]) if site in together)
    if len(moved) < len(together):
        return None
    return Fix("Build the optimizer after the model is sharded", (MoveAfter(moved, anchors.pop()),))


def _move(trace: Trace, taken: Event, late: Shard) -> MoveAfter | None:
    """Where a function of the project takes them, its call is moved, if it does nothing else that order matters to."""
    depth = common_depth(taken, late)
    first, anchor = site_at_depth(taken, depth), site_at_depth(late, depth)
    if depth < len(taken.stack) and any(
        not isinstance(event, QUIET) for event in trace.events if event.stack[: depth + 1] == taken.stack[: depth + 1]
    ):
        return None
    moved = can_move_after(movable_around(first, anchor), anchor)
    return MoveAfter(moved, anchor) if moved is not None else None


RULE = Rule(
    check,
    code="FSDP101",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
