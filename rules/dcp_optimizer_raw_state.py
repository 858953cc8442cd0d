"""A checkpoint is read into the state dict of a fresh optimizer, which has no state yet.

## What it finds

`torch.distributed.checkpoint.load` of a dictionary that holds `optimizer.state_dict()` (directly, or through an object
with `state_dict` and `load_state_dict` methods), where the optimizer has made no step before.

## Why it is wrong

`load` fills the tensors that it is given, and asks the file for no others. Optimizers make their state in the first
step, so the state dict of a fresh one has none. Measured on torch 2.13.0 with AdamW, FSDP2 and FSDP1 alike: the
learning rate comes back, **no moment is restored, and no error is raised**. The run goes on as with a new optimizer.

## How to mend it

Take the state by `get_optimizer_state_dict(model, optimizer)` for `save` and for `load`, which makes the state first,
and give it back by `set_optimizer_state_dict(model, optimizer, state)`. `get_state_dict` and `set_state_dict` do both
for the model, too.

## When to leave it

Where the optimizer keeps no state (SGD without momentum) or makes it at once (Adagrad), or where a step with zero
gradients was made on purpose before the load. The rule sees these, and is silent where unknown code got the optimizer.

## References

- https://docs.pytorch.org/tutorials/recipes/distributed_checkpoint_recipe.html
- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import Edit, Fix
from fsdp_lint.fix.gathering import as_optimizer_state, as_set_optimizer_state
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Collective, LoadState, Step, TakeState
from fsdp_lint.trace.saving import raw_optimizer_states, shards_of
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import Const, Optimizer, Unknown, exclusive

EAGER = ("Adagrad",)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each load into the state of a fresh optimizer."""
    for load in trace.every(LoadState):
        if load.form != "filled" or load.state is None:
            continue
        for state, optimizer in raw_optimizer_states(load.state):
            shard = next(shards_of(trace, optimizer, load), None)
            if shard is None or not _is_fresh(trace, optimizer, load):
                continue
            taken = trace.taken(state)
            yield Finding(
                at=load,
                message=f"`{called(optimizer)}` has made no step yet, so its `state_dict()` holds no state: "
                "nothing of it is restored",
                because=[
                    (shard, f"`{called(shard.module)}` is sharded here"),
                    *([(taken, "the empty state is taken here")] if taken is not None else []),
                ],
                fix=_fix(trace, load),
            )
            break


def _fix(trace: Trace, load: LoadState) -> Fix | None:
    """The state that is loaded into is made by `get_optimizer_state_dict`, and so is each that is saved: the names in
    the file are others then. What was loaded is set by `set_optimizer_state_dict`."""
    edits: list[Edit] = []
    taken = {id(optimizer) for _, optimizer in raw_optimizer_states(load.state or Unknown())}
    saved = [on for event in trace.every(Collective) if event.op.endswith("checkpoint.save") for on in event.on]
    stored = {id(state) for value in (load.state or Unknown(), *saved) for state, _ in raw_optimizer_states(value)}
    for take in trace.every(TakeState):
        state = take.state
        if id(state) not in stored or not isinstance(state.of, Optimizer):
            continue
        made = as_optimizer_state(trace, take, state.of)
        if made is None:
            return None
        edits += made
    for put in trace.every(LoadState):
        if put.how == "load_state_dict" and isinstance(put.into[0], Optimizer) and id(put.into[0]) in taken:
            made = as_set_optimizer_state(trace, put, put.into[0])
            if made is None:
                return None
            edits += made
    return Fix("Make, and set, the optimizer's state by its parameters' names", tuple(edits), Applicability.UNSAFE)


def _is_fresh(trace: Trace, optimizer: Optimizer, load: LoadState) -> bool:
    if optimizer.cls in EAGER or (optimizer.cls == "SGD" and not _has_momentum(optimizer)):
        return False
    for step in trace.every(Step):
        if step.optimizer is optimizer and step.order < load.order and not exclusive(step.guards, load.guards):
            return False
    return not any(event.order < load.order for event in trace.handed_over(optimizer))


def _has_momentum(optimizer: Optimizer) -> bool:
    momentum = optimizer.kwargs.get("momentum")
    return momentum is not None and not (isinstance(momentum, Const) and not momentum.value)


RULE = Rule(
    check,
    code="FSDP304",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
