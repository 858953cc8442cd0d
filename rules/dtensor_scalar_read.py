"""A number is read from a sharded tensor: it is this rank's part of the value.

## What it finds

`.item()`, `float()`, `int()`, `bool()` or a truth test on a sum, mean, norm, maximum, minimum or any/all of a parameter
or gradient of a model sharded with `fully_shard`, without `full_tensor()` before.

## Why it is wrong

The reduction of a DTensor stays partial until somebody asks for the whole, and reading it asks for nothing. Measured
on two ranks: a sum of 0.740 and 1.379 where the true one is 2.120; the usual hand-written gradient norm gives 0.715
and 0.709 for 1.007, with gloo and NCCL alike. In a condition the ranks take different branches, and hang. Torch 2.4
has no `any` and no `isinf` for DTensors and raises a NotImplementedError for these; where your project allows 2.4, the
message says so of `any`, and there is no fix.

`clip_grad_norm_(...).item()` is the same mistake with torch 2.4 to 2.9 only (10.17 for 12.02 on each of them); from
2.10 on it gives the true norm. The rule looks at the newest torch release that your project allows.

## How to mend it

Call `.full_tensor()` before the number is read: `x.norm().full_tensor().item()`. It is a collective, so all ranks
must reach it. On torch 2.4 it is `x.full_tensor().isnan().any()`.

## When to leave it

Where the local value is brought together afterwards, by `all_reduce` for instance; the rule sees that and is silent.
So it is between `unshard()` and `reshard()`, where parameters are whole.
What is computed from such a reduction by a comparison, a root, a power or an addition is whole on every rank (measured
on torch 2.13.0), and so is a single element; both are not reported. Assertions and tests are not looked at.

A chain with `to_local()` in it is to-local-arithmetic's business.

## References

- https://github.com/pytorch/pytorch/issues/144054
- https://github.com/pytorch/pytorch/issues/166638
- https://github.com/pytorch/pytorch/issues/170862 (clip_grad_norm_)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, function_of, receiver_of, text_of
from fsdp_lint.fix.calls import is_parameter
from fsdp_lint.fix.edits import Fix, Wrap
from fsdp_lint.rule import Applicability, Finding, Rule, Severity, Site
from fsdp_lint.trace.events import ReadScalar, Shard
from fsdp_lint.trace.reading import agreed_later, sharded_source
from fsdp_lint.trace.trace import Trace, called, rank_guard, whenever
from fsdp_lint.trace.versions import newest_is_below, newest_is_between, oldest_is_below

ANY_SINCE = "2.5"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each number that is read from a sharded tensor."""
    for event in trace.every(ReadScalar):
        if "assert" in event.contexts or trace.in_test(event):
            continue
        clip = event.tensor.form == "norm"
        if clip and not newest_is_between(trace.torch, "2.4", "2.10"):
            continue
        shard = sharded_source(trace, event.tensor, event)
        if shard is None or agreed_later(trace, event.tensor):
            continue
        raises = event.tensor.by == "any" and oldest_is_below(trace.torch, ANY_SINCE)
        yield Finding(
            at=event,
            message=_message(event, raises=raises, always=newest_is_below(trace.torch, ANY_SINCE)),
            because=[(shard, f"`{called(shard.module)}` is sharded here")],
            fix=_fix(event, shard) if not raises else None,
        )


def _message(event: ReadScalar, *, raises: bool, always: bool) -> str:
    if raises and always:
        return "torch 2.4 has no `any` of a sharded tensor, and raises a NotImplementedError"
    what = "the norm that torch 2.4 to 2.9 give" if event.tensor.form == "norm" else "a sharded tensor"
    also = " (torch 2.4 has no `any`, and raises a NotImplementedError)" if raises else ""
    return f"{event.how} of {what} is this rank's part of the value, not the whole{also}"


def _fix(event: ReadScalar, shard: Shard) -> Fix | None:
    """`.full_tensor()` before the number is read, where all ranks come by and the model is sharded in every run."""
    read = _read(event)
    if read is None or rank_guard(event) is not None or not whenever(shard, event):
        return None
    # Other callers may hand over numbers and plain tensors.
    kind = Applicability.DISPLAY if is_parameter(read) else Applicability.UNSAFE
    return Fix("Gather the value before it is read", (Wrap(read, "", ".full_tensor()"),), kind)


def _read(event: ReadScalar) -> Site | None:
    """The expression whose value is read."""
    if event.how == "comparison":
        return None
    function = function_of(event.site)
    if function is not None and text_of(function) in ("float", "int", "bool"):
        return argument(event.site, "x", 0)
    if function is not None and text_of(function).endswith((".item", ".tolist")):
        return receiver_of(event.site)
    return event.site if event.how == "truth value" else None


RULE = Rule(
    check,
    code="FSDP402",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE, Applicability.DISPLAY}),
    since="0.1.0",
)
