"""The way to skip the reduction of gradients is DDP's; on an FSDP model it does nothing.

## What it finds

Where a model is sharded and not wrapped by DDP:

- a test `isinstance(model, DistributedDataParallel)`, or `hasattr(model, "no_sync")`, around `no_sync()`, in code that
  an FSDP2 model goes through, with no `set_requires_gradient_sync` anywhere;
- `model.require_backward_grad_sync = ...`, an attribute that only DDP reads (FSDP1 and FSDP2).

## Why it is wrong

The program looks as if it reduced once in every few microbatches, and **reduces in each of them, without a word**.
Results are right; the time is lost: 4 microbatches cost 36 all-gathers and 20 reduce-scatters where 21 and 5 would do
(torch 2.13.0, 4 blocks). One project saw steps take four times as long. `require_backward_grad_sync = False` on
FSDP1 is accepted and ignored: the gradients arrive sharded as ever (measured on torch 2.13.0).

## How to mend it

Use `model.set_requires_gradient_sync(is_last_microbatch)` for FSDP2, `model.no_sync()` for FSDP1. With replicas (HSDP)
`set_requires_all_reduce` leaves out the part between them and holds no more memory.

## When to leave it

Where memory is short: gradients that are not reduced are held unsharded, 4 bytes a parameter.

A `no_sync()` that nothing asks for ends in an AttributeError, which is fsdp1-api-on-fsdp2's.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (`FSDPModule.set_requires_gradient_sync`)
- https://docs.pytorch.org/docs/stable/fsdp.html (`no_sync`)
- https://github.com/NVIDIA/cosmos-framework/issues/161 (4 times the time of a step)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import CheckClass, SetFlag, SetSync
from fsdp_lint.trace.trace import Trace, called, fsdp2_only, touches
from fsdp_lint.trace.values import Value, exclusive

SKIPS = frozenset({"no_sync", "require_backward_grad_sync"})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each test that only DDP passes, and for each attribute that only DDP reads."""
    for test in trace.every(CheckClass):
        if not _asks_for_ddp(test) or _has_own_way(trace, test.value):
            continue
        shard = fsdp2_only(trace, test.value, test)
        if shard is not None:
            yield Finding(
                at=test,
                message=f"`{called(test.value)}` is sharded by `fully_shard` and never passes this test: its gradients "
                "are reduced in every backward",
                because=[(shard, "it is sharded here")],
            )
    for flag in trace.every(SetFlag):
        shard = trace.sharded(flag.value, flag)
        # A model that DDP wraps on another path than FSDP is FSDP's on this one.
        if shard is None or trace.replicated(flag.value, shard) or exclusive(shard.guards, flag.guards):
            continue
        if not _has_own_way(trace, flag.value):
            yield Finding(
                at=flag,
                message=f"`{flag.name}` is DDP's: for `{called(flag.value)}`, which FSDP shards, it changes nothing",
                because=[(shard, "it is sharded here")],
            )


def _asks_for_ddp(test: CheckClass) -> bool:
    if test.by == "hasattr":
        return test.names == ("no_sync",) and bool(test.then & SKIPS or not test.then)
    names = {name.rpartition(".")[2] for name in test.names}
    return test.by == "isinstance" and names == {"DistributedDataParallel"} and bool(test.then & SKIPS)


def _has_own_way(trace: Trace, model: Value) -> bool:
    return any(touches(event.value, model) for event in trace.every(SetSync))


RULE = Rule(check, code="FSDP705", severity=Severity.WARNING, since="0.1.0")
