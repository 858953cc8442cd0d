"""A buffer is left as `to_empty()` found it, while the parameters get their values.

## What it finds

`model.to_empty(device=...)` on a model one of whose classes registers a buffer, followed by an initialisation or by
loading a state dict that does not reach that buffer: a non-persistent buffer (`persistent=False`) is in no state dict,
and `reset_parameters()` or `nn.init` over the parameters passes every buffer by. Also a tensor that `__init__` makes
under `torch.device("meta")` and keeps as a plain attribute (`self.freqs = torch.arange(...)`): `to_empty()` does not
see it at all.

## Why it is wrong

`to_empty()` replaces buffers as well as parameters by memory with whatever lay there. Measured with torch 2.13.0 on two
ranks: a rope table registered with `persistent=False` held garbage, **different on each rank, without an error**, after
the parameters had been reset or loaded. The outputs are NaN or simply wrong. A plain attribute stays on the meta
device, and the first forward raises (there: "Tensor on device meta is not on the expected device cpu!").

## How to mend it

Compute the buffers again after `to_empty()`, for example in the model's own `init_weights()`; or broadcast them from a
rank that has them.

## When to leave it

Where forward fills the buffer before it reads it (the rule looks for that), or where code that it cannot see does. It
is silent when the class has bases of the project's own, when a method of the model is called that it does not know,
and when the model is not called in what it can follow.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (to_empty, register_buffer)
- https://github.com/NovaSky-AI/SkyRL/issues/1709
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Event, Forward, Initialise, LoadState, Materialise, RegisterBuffer, Shard
from fsdp_lint.trace.filling import fills, first_use, writes_buffer
from fsdp_lint.trace.trace import Trace, called, touches
from fsdp_lint.trace.values import Module, Value, exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each `to_empty()` after which a buffer keeps what lay in memory."""
    for made in trace.every(Materialise):
        use = first_use(trace, made.of, made)
        if use is None or not any(touches(s.module, made.of) for s in trace.every(Shard)):
            continue
        fill = next(iter(fills(trace, made.of, made, use)), None)
        if not isinstance(fill, Initialise | LoadState):
            continue
        left = [each for each in _registered(trace, made) if not _is_written(trace, each, made, use)]
        buffers = [each for each in left if not each.plain]
        if buffers:
            yield _of_buffers(made, buffers, fill, use)
        elif left:
            yield _of_attribute(made, left[0], use)


def _of_buffers(made: Materialise, left: list[RegisterBuffer], fill: Event, use: Forward) -> Finding:
    names = " and ".join(sorted({f"`{each.buffer}`" for each in left})[:2])
    return Finding(
        at=made,
        message=f"`to_empty()` leaves the buffer {names} of `{called(left[0].of)}` as memory was, and nothing "
        "computes it anew",
        because=[
            (left[0], "the buffer is registered here"),
            (fill, "this gives the parameters their values, not the buffer"),
            (use, f"`{called(use.module)}` is called here"),
        ],
    )


def _of_attribute(made: Materialise, left: RegisterBuffer, use: Forward) -> Finding:
    return Finding(
        at=made,
        message=f"`{left.buffer}` of `{called(left.of)}` is no buffer: `to_empty()` leaves it on the meta device, and "
        "forward cannot use it there",
        because=[(left, "it is made here"), (use, f"`{called(use.module)}` is called here")],
    )


def _registered(trace: Trace, made: Materialise) -> list[RegisterBuffer]:
    """The buffers that the model has when it is materialised, and that its forward does not write."""
    return [
        each
        for each in trace.every(RegisterBuffer)
        if each.order < made.order
        and touches(each.of, made.of)
        and not exclusive(each.guards, made.guards)
        and each.persistent is not None
        and each.writers is not None
        and "forward" not in each.writers
        and not _is_replaced(each.of)
    ]


def _is_replaced(module: Value) -> bool:
    """True when another module has taken its place in the model."""
    owner = module.owner
    return isinstance(owner, Module) and bool(owner.children) and module not in owner.children.values()


def _is_written(trace: Trace, each: RegisterBuffer, made: Materialise, use: Event) -> bool:
    for event in trace.events[made.order + 1 : use.order]:
        if exclusive(event.guards, made.guards) or exclusive(event.guards, use.guards):
            continue
        if writes_buffer(event, made.of, each.buffer, each.writers or frozenset()):
            return True
        if each.persistent and isinstance(event, LoadState):
            return True
    return False


RULE = Rule(check, code="FSDP604", severity=Severity.ERROR, since="0.1.0")
