"""A sharded parameter is initialised through its local shard.

## What it finds

`nn.init` or an in-place draw (`normal_`, `uniform_` ...) on `parameter.to_local()` of a sharded model.

## Why it is wrong

Every rank draws for its own shard as if that were the whole parameter. With one seed, as models are made, **all shards
get the same numbers** (measured with torch 2.13.0 on the CPU and 2.11 with NCCL), and what depends on the shape is
computed from the shard's: Xavier's bound was 0.177 instead of 0.137 with two ranks. Orthogonal or identity matrices are
so within each shard only. No error says so.

## How to mend it

Initialise the parameter itself: `nn.init.normal_(parameter)`. Its type, DTensor, draws other numbers on each rank and
knows the whole shape (on the CPU torch repeats the shards in that way, too, with a warning; on GPUs it does not).

## When to leave it

Where each rank has a seed of its own at this point, or draws from a `generator`, and the numbers do not depend on the
shape: the rule is silent there, as it is for constants (`zeros_`, `fill_`), which are right through a shard. It does
not know how a generator was seeded.

## References

- https://docs.pytorch.org/docs/stable/distributed.tensor.html (random operators)
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, function_of, is_path, receiver_of, text_of
from fsdp_lint.fix.edits import Fix, Replace
from fsdp_lint.rule import Applicability, Finding, Rule, Severity, Site
from fsdp_lint.trace.events import Initialise, Seed
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import Const, Tensor, exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each draw into a local shard."""
    for event in trace.every(Initialise):
        tensor = event.tensor
        if not isinstance(tensor, Tensor) or tensor.form != "local" or not (event.random or event.shaped):
            continue
        shard = next((s for s in (trace.sharded(module, event, 2) for module in event.of) if s is not None), None)
        if shard is None or (not event.shaped and _seeded_by_rank(trace, event)):
            continue
        yield Finding(
            at=event,
            message=f"`{event.how}` draws into this rank's shard as if it were the whole parameter: "
            + ("its shape is the shard's" if event.shaped else "with one seed all shards get the same numbers"),
            because=[(shard, f"`{called(shard.module)}` is sharded here")],
            fix=_fix(event),
        )


def _seeded_by_rank(trace: Trace, event: Initialise) -> bool:
    """True when the ranks draw from other seeds here, or when that is not known."""
    if event.generator is not None and not (isinstance(event.generator, Const) and event.generator.value is None):
        return True
    seeds = [s for s in trace.every(Seed) if s.order < event.order and not exclusive(s.guards, event.guards)]
    return bool(seeds) and seeds[-1].differs != ""


def _fix(event: Initialise) -> Fix | None:
    target = argument(event.site, "tensor", 0) if event.how.startswith("nn.init") else receiver_of(event.site)
    parameter = receiver_of(target) if target is not None else None
    function = function_of(target) if target is not None else None
    if target is None or parameter is None or function is None or not is_path(parameter):
        return None
    if text_of(function) != f"{text_of(parameter)}.to_local" or text_of(target) != f"{text_of(parameter)}.to_local()":
        return None
    return Fix("Initialise the parameter itself", (Replace(Site(target.source, target.node), text_of(parameter)),))


RULE = Rule(check, code="FSDP614", severity=Severity.ERROR, since="0.1.0", fixes=frozenset({Applicability.SAFE}))
