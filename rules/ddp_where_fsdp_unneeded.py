"""FSDP on a model that would fit with DistributedDataParallel.

## What it finds

A sharded model whose number of parameters can be computed from the code alone (literal layer sizes, ranges,
comprehensions, configuration classes with literal defaults), and whose whole training state takes at most a quarter
of one GPU's memory (setting `gpu-memory`, 80 GiB unless you say otherwise). It is one that an optimizer gets; a model
that is frozen, even in part, and a single layer that is sharded are not spoken of.

## Why it is wrong

It is not wrong, and the rule only advises. With AdamW in fp32 every parameter needs 16 bytes: 4 for itself, 4 for its
gradient, 8 for the optimizer's two moments. DDP keeps all of that on every GPU, FSDP a share of it, at the price of
about 1.5 times DDP's traffic (measured on torch 2.13.0 with four ranks: 1.46 times with the defaults, 1.00 with
`reshard_after_forward=False`). Activations are not sharded by either.

## How to mend it

Use `DistributedDataParallel`, or keep FSDP with `reshard_after_forward=False`.

## When to leave it

Where activations fill the memory, where the code is a small version of a larger run, or where one code path is to
serve all sizes.

## References

- https://github.com/allenai/OLMo/issues/762
- https://github.com/facebookresearch/fairseq/issues/4529
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import BuildOptimizer, Shard
from fsdp_lint.trace.freezing import frozen_before
from fsdp_lint.trace.granularity import is_leaf, model_of, owns_parameters
from fsdp_lint.trace.models.sizes import parameter_count
from fsdp_lint.trace.trace import Trace, called, related, touches
from fsdp_lint.trace.values import Mesh, Module, Value, exclusive, options_of

BYTES = 16
SHARE = 0.25
GIB = 1 << 30


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each root that is small enough."""
    for shard in trace.every(Shard):
        if trace.in_test(shard) or not related(model_of(trace, shard.module), shard.module) or shard.group:
            continue
        # One call may get one of several models: the largest of them counts.
        beside = [other for other in trace.every(Shard) if (other.site, other.stack) == (shard.site, shard.stack)]
        if any(not _fits(trace, other) for other in beside) or _means_more(shard):
            continue
        if _is_a_part(shard.module) or not _is_trained_whole(trace, shard):
            continue
        count = parameter_count(shard.module) or 0
        share = count * BYTES / (trace.gpu_memory * GIB)
        yield Finding(
            at=shard,
            message=f"`{called(shard.module)}` would fit with DDP: {count:,} parameters x {BYTES} bytes "
            f"(fp32 weight, gradient, two Adam moments) = {_size(count * BYTES)} on each GPU, "
            f"{share:.1%} of {trace.gpu_memory:g} GiB",
        )


def _fits(trace: Trace, shard: Shard) -> bool:
    count = parameter_count(shard.module)
    return bool(count) and (count or 0) * BYTES <= SHARE * trace.gpu_memory * GIB


def _is_a_part(module: Value) -> bool:
    """True for a single layer, and for one of several that a LightningModule, or a class like it, holds itself."""
    if is_leaf(module):
        return True
    owner = module.owner
    others = owner.children.values() if isinstance(owner, Module) else ()
    return any(other is not module and owns_parameters(other) for other in others)


def _is_trained_whole(trace: Trace, shard: Shard) -> bool:
    """True when an optimizer gets the model, and nothing of it is frozen before: what is not needs no moments."""
    trained = any(
        touches(module, shard.module) and not exclusive(build.guards, shard.guards)
        for build in trace.every(BuildOptimizer)
        for params in build.optimizer.holds
        for module in params.of
    )
    return trained and frozen_before(trace, shard) == []


def _means_more(shard: Shard) -> bool:
    """True when the call asks for what DDP cannot give: CPU offload or a mesh of several dimensions."""
    if "offload_policy" in shard.kwargs or "cpu_offload" in shard.kwargs:
        return True
    mesh = shard.kwargs.get("mesh")
    return mesh is not None and any(_is_hybrid(option) for option, _ in options_of(mesh))


def _is_hybrid(value: Value) -> bool:
    sizes = value.sizes if isinstance(value, Mesh) else None
    return sizes is not None and len(getattr(sizes, "items", [])) > 1


def _size(size: int) -> str:
    if size >= 1_000_000_000:
        return f"{size / 1_000_000_000:.1f} GB"
    return f"{size / 1_000_000:.0f} MB" if size >= 1_000_000 else f"{size / 1000:.0f} kB"


RULE = Rule(check, code="FSDP207", severity=Severity.INFO, since="0.1.0")
