"""Hybrid sharding is meant, and `fully_shard` gets a mesh of one dimension or none.

## What it finds

A branch, a flag, a strategy or a function whose name says hybrid sharding (`hsdp`, `hybrid_shard`), in which
`fully_shard` is called without `mesh=`, or with a mesh that has one dimension; or a mesh whose only dimension has such
a name.

## Why it is wrong

`fully_shard` has no strategy argument: **the mesh decides**. Without one, or with one dimension, the model is sharded
over all ranks; there are no replicas, and each all-gather crosses the links between nodes that hybrid sharding is there
to avoid. The run is right and slow, and nothing says so. Measured on torch 2.13.0 with four ranks (`fsdp-lint verify
bad_table.py --after good_table.py --mode cpu --ranks 4` in `fixtures/hybrid_without_mesh/`): losses are the same; each
rank holds a quarter of the parameters (25 KiB of 100) and gathers from all four, where with a mesh of 2 x 2 it holds a
half and gathers from two, and one all-reduce a unit between the replicas makes their gradients equal.

## How to mend it

Make a mesh of two dimensions, the replicating one first, and pass it to every call:
`init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))`.

## When to leave it

Where the name means something else. The rule is silent where the mesh comes from code that it cannot see, and where the
model is replicated in another way (`replicate`, DistributedDataParallel).

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (mesh)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.filling import is_hybrid
from fsdp_lint.trace.trace import Trace, called, functions_around, touches
from fsdp_lint.trace.values import Const, Guards, Literal, Mesh, Sequence, Value, exclusive, options_of

HYBRID = re.compile(r"hsdp|hybrid_?-?shard|shard\w*_hybrid|hybrid_?fsdp|fsdp_?hybrid", re.IGNORECASE)
BARE = re.compile(r"^hybrid$", re.IGNORECASE)
ABOUT = re.compile(r"shard|fsdp|strategy|parallel|^mode$", re.IGNORECASE)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each model that a branch for hybrid sharding shards fully."""
    for shard in trace.every(Shard):
        if shard.generation != 2 or trace.replicated(shard.module, shard):
            continue
        if any(_outer(other, shard) for other in trace.every(Shard)):
            continue
        for mesh, guards in _meshes(shard):
            how, (meant, test) = _one_way(mesh), _meant(shard, guards, mesh)
            if not how or not meant or any(_in_two_ways(other, guards, test) for other in trace.every(Shard)):
                continue
            yield Finding(
                at=shard,
                message=f"`{meant}` asks for hybrid sharding, and `{called(shard.module)}` is sharded over all ranks: "
                + how,
            )
            break


def _meshes(shard: Shard) -> Iterator[tuple[Value | None, Guards]]:
    """The meshes that a call may get, each with the tests on its path; None: no mesh."""
    given = shard.kwargs.get("mesh")
    for mesh, guards in options_of(given) if given is not None else ((None, ()),):
        yield (None if isinstance(mesh, Const) and mesh.value is None else mesh), (*shard.guards, *guards)


def _one_way(mesh: Value | None) -> str:
    """In words that all ranks shard; empty for a mesh of two dimensions, and for one that is not known."""
    if mesh is None:
        return "no mesh is given"
    one = isinstance(mesh, Mesh) and mesh.dimensions() == 1 and mesh.of is None
    return "its mesh has one dimension" if one else ""


def _meant(shard: Shard, guards: Guards, mesh: Value | None) -> tuple[str, Literal | None]:
    """The user's word that says hybrid sharding, and the test that has it; empty where there is none."""
    for literal in guards:
        if not literal.holds:
            continue
        for word in literal.words:
            if HYBRID.search(word) or (BARE.match(word) and any(ABOUT.search(other) for other in literal.words)):
                return word, literal
    names = (*functions_around(shard), *_names_of(mesh))
    return next((name for name in names if HYBRID.search(name)), ""), None


def _names_of(mesh: Value | None) -> list[str]:
    """The names of the dimensions of a mesh that is made here, and no slice of another."""
    names = mesh.names if isinstance(mesh, Mesh) and mesh.of is None else None
    return [str(item.value) for item in names.items if isinstance(item, Const)] if isinstance(names, Sequence) else []


def _in_two_ways(other: Shard, guards: Guards, test: Literal | None) -> bool:
    """True for a call on the same path, or under the same test, that does get a mesh of two dimensions or an unknown
    one: on a single node the hybrid branch may well shard over all ranks."""
    if not other.kwargs_known or "dp_mesh_dims" in other.kwargs or (other.generation == 1 and is_hybrid(other)):
        return not exclusive(other.guards, guards)
    return any(not _one_way(mesh) and (test in more or not exclusive(more, guards)) for mesh, more in _meshes(other))


def _outer(other: Shard, shard: Shard) -> bool:
    """True for a later call on what the module is part of: that one is reported."""
    return (
        other.order > shard.order
        and touches(other.module, shard.module)
        and any(one is other.module for one in shard.module.line())
        and not exclusive(other.guards, shard.guards)
    )


RULE = Rule(check, code="FSDP611", severity=Severity.WARNING, since="0.1.0")
