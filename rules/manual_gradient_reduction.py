"""Gradients are reduced or divided by hand, though FSDP has averaged them.

## What it finds

With a model that FSDP1 or FSDP2 has sharded: `all_reduce`, `reduce` or `broadcast` of gradients or of local shards,
over all ranks; gradients divided by the number of processes; and a loss divided by it before `backward()`, or
multiplied by one over it.

## Why it is wrong

FSDP reduces the gradients in the backward and divides them by the number of ranks. Measured on torch 2.13.0 with two
ranks: `all_reduce` of a DTensor raises NotImplementedError, of `p.grad.to_local()` it **adds up shards of different
rows** and says nothing; a loss or gradients that are divided once more make the learning rate R times smaller (the
parameters are off by 3e-3 after two steps of SGD). FSDP1's gradients are plain tensors that hold each rank's own
piece, so there `all_reduce` is silent, too.

## How to mend it

Drop it: after `backward()` the gradients are the mean over the ranks. To log the mean loss, reduce a detached copy
of it; for a loss that is summed over all tokens, multiply by the number of ranks or call
`set_gradient_divide_factor(1.0)`.

## When to leave it

For parameters that FSDP leaves alone: those of a model of which only the blocks are sharded, `ignored_params`, and
those of another model. Reductions over a group of their own (tensor or expert parallelism), losses that are multiplied
by the number of ranks as well, and models whose divide factor is set are not reported; nor are reductions of norms, and
of values that are only logged.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`set_gradient_divide_factor`)
- https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.agreement import sources
from fsdp_lint.trace.events import Attach, Backward, Collective, DivideByWorld, Event, SetDivisor, Shard
from fsdp_lint.trace.trace import Trace, called, covers, touches
from fsdp_lint.trace.values import Module, Params, Product, Tensor, Unknown, Value, parts

REDUCING = frozenset({"all_reduce", "reduce", "broadcast"})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each reduction or division of what FSDP has averaged."""
    for event in trace.events:
        if trace.in_test(event):
            continue
        if isinstance(event, Collective) and event.plain:
            yield from _reduced(trace, event)
        elif isinstance(event, DivideByWorld):
            yield from _divided_gradients(trace, event)
        elif isinstance(event, Backward):
            yield from _divided_loss(trace, event)


def _reduced(trace: Trace, event: Collective) -> Iterator[Finding]:
    if event.op not in REDUCING or event.group is not None:
        return
    for part in (part for value in event.on[:1] for part in parts(value)):
        if not isinstance(part, Tensor) or not _is_gradient(part):
            continue
        shard = _shard_of(trace, part, event)
        if shard is not None and not _is_set_otherwise(trace, shard):
            what = "added up" if event.op != "broadcast" else "overwritten"
            yield _finding(event, shard, f"each rank has its own shard of a gradient, and they are {what} here")
            return


def _divided_gradients(trace: Trace, event: DivideByWorld) -> Iterator[Finding]:
    """Where the gradients are added up before, that says it all."""
    if not isinstance(event.value, Tensor) or not _is_gradient(event.value):
        return
    shard = _shard_of(trace, event.value, event)
    added = any(True for each in trace.every(Collective) if each.plain for _ in _reduced(trace, each))
    if shard is not None and not added and not _is_set_otherwise(trace, shard):
        yield _finding(event, shard, "gradients are divided by the number of ranks a second time")


def _is_gradient(tensor: Tensor) -> bool:
    """True for gradients and their local shards, and for the local shards of parameters."""
    return tensor.form == "gradient" or tensor.form == "local"


def _finding(event: Event, shard: Shard, message: str) -> Finding:
    return Finding(
        at=event,
        message=f"{message}: FSDP has averaged them in the backward",
        because=[(shard, f"`{called(shard.module)}` is sharded here")],
    )


def _shard_of(trace: Trace, tensor: Tensor, at: Event) -> Shard | None:
    """The sharding call by which all parameters behind a tensor are sharded."""
    if not isinstance(tensor.source, Params):
        return None
    for module in tensor.source.of:
        shard = trace.covering(module, at)
        if shard is not None and not trace.ignores_some(module) and not _came_later(trace, module, shard):
            return shard
    return None


def _came_later(trace: Trace, module: Value, shard: Shard) -> bool:
    """True for what became part of the model after it was sharded: it stays plain, and nobody averages it."""
    return any(
        event.content is not None and covers(event.content, module) and event.order > shard.order
        for event in trace.every(Attach)
    )


def _is_set_otherwise(trace: Trace, shard: Shard) -> bool:
    return any(touches(event.module, shard.module) for event in trace.every(SetDivisor))


def _divided_loss(trace: Trace, backward: Backward) -> Iterator[Finding]:
    path = list(sources((backward.loss,)))
    numbers = {value.number for value in path}
    divisions = [e for e in trace.every(DivideByWorld) if e.value.number in numbers and e.order < backward.order]
    below = {value.number for division in divisions for value in sources((division.by,))}
    if any(_undoes(value) for value in path if value.number not in below):
        return
    for division in divisions:
        shard = _shard_of_loss(trace, division.of, backward)
        if shard is not None and not _is_set_otherwise(trace, shard):
            yield Finding(
                at=division,
                message="the loss is divided by the number of ranks, and so are its gradients once more: "
                "FSDP averages them in the backward",
                because=[
                    (shard, f"`{called(shard.module)}` is sharded here"),
                    (backward, "the gradients are computed here"),
                ],
            )
            return


def _shard_of_loss(trace: Trace, loss: Value, at: Event) -> Shard | None:
    """The sharding call of the model from whose outputs a value was computed."""
    for value in sources((loss,)):
        shard = trace.covering(value, at) if isinstance(value, Module | Unknown) else None
        if shard is not None:
            return shard
    return None


def _undoes(value: Value) -> bool:
    """True for a loss that is multiplied by the number of ranks, and for one that autograd has reduced."""
    return isinstance(value, Product) or "reduce" in value.name


RULE = Rule(check, code="FSDP406", severity=Severity.ERROR, since="0.1.0")
