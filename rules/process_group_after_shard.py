"""The process group is made after the model is sharded.

## What it finds

`init_process_group(...)` behind the first `fully_shard(...)` or `FullyShardedDataParallel(...)` of a run that made none
before.

## Why it is wrong

Sharding needs the ranks. `fully_shard` without a process group makes one of its own, with torch's default backend and
on whatever device is current, and the later call raises "trying to initialize the default process group twice!"
(measured with torch 2.13.0); without a launcher's variables it is sharding that raises. FSDP1 raises "Default process
group has not been initialized". The job dies at its start, after the model was built.

## How to mend it

Call `init_process_group(...)` first, after `torch.cuda.set_device(...)` and before the model is sharded.

## When to leave it

Where other code has made a process group before: a launcher, Accelerate, Lightning, a setup function that the rule
cannot see. It is silent there, and where the call stands under a test such as `if not dist.is_initialized()`.

## References

- https://docs.pytorch.org/docs/stable/distributed.html (init_process_group)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import text_of
from fsdp_lint.fix.blocks import between, common_block, is_statement, statement_of
from fsdp_lint.fix.edits import Fix, InsertBefore, RemoveStatement
from fsdp_lint.fix.moves import speaks_of
from fsdp_lint.fix.names import names_bound, names_used
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import InitProcessGroup, SetDevice, Shard
from fsdp_lint.trace.trace import Trace, called, visible_from
from fsdp_lint.trace.values import exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each process group that is made after the first sharding call."""
    starts = list(trace.every(InitProcessGroup))
    for start in starts:
        if any(literal.kind == "single" for literal in start.guards):
            continue
        shard = next((s for s in trace.every(Shard) if s.order < start.order and trace.before(s, start)), None)
        if shard is None or trace.calls_unknown_setup(shard.order):
            continue
        if any(other.order < shard.order and not exclusive(other.guards, shard.guards) for other in starts):
            continue
        yield Finding(
            at=start,
            message=f"the process group is made after `{called(shard.module)}` was sharded, which needs one",
            because=[(shard, f"`{called(shard.module)}` is sharded here")],
            fix=_fix(trace, start, shard),
        )


def _fix(trace: Trace, start: InitProcessGroup, shard: Shard) -> Fix | None:
    """The call above the first sharding call, where both stand in one block and nothing in between is needed for it."""
    if any(device.order < start.order and device.order > shard.order for device in trace.every(SetDevice)):
        if start.device_id is None:
            return None
    anchor = visible_from(shard, start)
    pair = common_block(start.site, anchor) if anchor is not None else None
    home = statement_of(start.site)
    if anchor is None or pair is None or pair[0] != home or not is_statement(start.site):
        return None
    skipped = [pair[1], *between(pair[1], home)]
    # `init_process_group` reads the environment: what sets it stays in front.
    if any(names_bound(site.node) & names_used(home.node) or speaks_of(site, "environ") for site in skipped):
        return None
    edits = (InsertBefore(pair[1], text_of(start.site), of=(home,)), RemoveStatement(start.site))
    return Fix("Make the process group before the model is sharded", edits)


RULE = Rule(check, code="FSDP612", severity=Severity.ERROR, since="0.1.0", fixes=frozenset({Applicability.SAFE}))
