"""Parameters that are to live on the CPU are put on an accelerator after sharding.

## What it finds

`fully_shard(..., offload_policy=CPUOffloadPolicy())`, after which the model is materialised or moved to an accelerator:
`to_empty(device="cuda")`, `.cuda()`, `.to("cuda")`.

## Why it is wrong

With this policy the sharded parameters stay on the CPU, and are copied to the accelerator for each use. FSDP checks
that when the model is called first, and raises: "FSDP parameters should be materialized on CPU when enabling CPU
offloading" (torch 2.6 to 2.13; the sources of 2.4 and 2.5 have no such check, and what comes of it there was not run).

## How to mend it

Materialise the model on the CPU: `model.to_empty(device="cpu")`, and leave `.cuda()` and `.to(...)` out. Buffers alone
may go to the accelerator.

## When to leave it

Moving the model before it is sharded is right: sharding takes it back to the CPU. The rule is silent where the policy
or the device is not known, where both depend on one test that excludes the conflict, and where the model comes back to
the CPU before it is called. Tests are left out: the settings that they are given say whether anything is offloaded.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (CPUOffloadPolicy)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument
from fsdp_lint.fix.edits import Fix, Replace
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Materialise, MoveModule, Shard
from fsdp_lint.trace.filling import first_use
from fsdp_lint.trace.models.environment import on_accelerator
from fsdp_lint.trace.trace import Trace, called, covers
from fsdp_lint.trace.values import Const, Guards, Object, exclusive, options_of
from fsdp_lint.trace.versions import newest_is_below

RAISES_SINCE = "2.6"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each move of offloaded parameters to an accelerator."""
    shards = [(shard, policy, guards) for shard in trace.every(Shard) for policy, guards in _policies(shard)]
    raises = "" if newest_is_below(trace.torch, RAISES_SINCE) else ": the first forward raises"
    for move in trace.events:
        if not isinstance(move, MoveModule | Materialise) or move.device is None or trace.in_test(move):
            continue
        for shard, policy, guards in shards:
            if move.order < shard.order or not trace.before(shard, move) or not covers(move.of, shard.module):
                continue
            wrong = [g for option, g in options_of(move.device) if on_accelerator(option)]
            meets = [g for g in wrong if not exclusive((*g, *move.guards), (*guards, *shard.guards))]
            if not meets or _comes_back(trace, move):
                continue
            yield Finding(
                at=move,
                message=f"`{called(move.of)}` is put on an accelerator, and its offload policy wants its parameters on "
                f"the CPU{raises}",
                because=[(policy.site or shard.site, "this policy keeps the parameters on the CPU")],
                fix=_fix(move),
            )
            break


def _policies(shard: Shard) -> Iterator[tuple[Object, Guards]]:
    """The offload policies that a sharding call may get, with what holds then."""
    policy = shard.kwargs.get("offload_policy") if shard.generation == 2 else None
    for option, guards in options_of(policy) if policy is not None else ():
        if isinstance(option, Object) and option.cls == "CPUOffloadPolicy":
            yield option, guards


def _comes_back(trace: Trace, move: MoveModule | Materialise) -> bool:
    """True when the model is on the CPU again before it is called."""
    use = first_use(trace, move.of, move)
    return any(
        other.order > move.order
        and (use is None or other.order < use.order)
        and covers(other.of, move.of)
        and isinstance(other.device, Const)
        and other.device.value == "cpu"
        for other in trace.every(MoveModule)
    )


def _fix(move: MoveModule | Materialise) -> Fix | None:
    """A device that is written as a text becomes the CPU."""
    site = argument(move.site, "device") if isinstance(move, Materialise) else None
    if site is None or not isinstance(move.device, Const):
        return None
    return Fix("Materialise the model on the CPU", (Replace(site, '"cpu"'),))


RULE = Rule(check, code="FSDP609", severity=Severity.ERROR, since="0.1.0", fixes=frozenset({Applicability.SAFE}))
