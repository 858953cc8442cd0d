"""A mesh for hybrid sharding whose first dimension is called the sharding one.

## What it finds

A mesh of two dimensions given to `fully_shard` (or as `device_mesh` to FSDP1) whose first dimension is named after
sharding (`shard`, `fsdp`) and whose second after replication (`replicate`, `ddp`), be it the whole mesh or a slice.

## Why it is wrong

`fully_shard` takes the dimensions by position: **the first replicates, the second shards; their names are not read**.
Measured with torch 2.13.0: a mesh named `("shard", "replicate")` gives placements `(Replicate, Shard)`. So the model is
sharded over the ranks that were to hold replicas, and replicated where it was to be sharded. No error says so: with
sizes (8, 4) each rank holds a quarter of the model instead of an eighth, and the heavy traffic crosses the wrong links.

## How to mend it

Put the replicating dimension first, in the sizes as well as in the names:
`init_device_mesh("cuda", (replicas, shards), mesh_dim_names=("replicate", "shard"))`.

## When to leave it

Where the names mean something else. The rule reads names only: it says nothing where the dimensions are called
otherwise, where the mesh comes from code that it cannot see, or where `dp_mesh_dims` tells torch which is which.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (mesh)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument
from fsdp_lint.fix.edits import Fix, Replace
from fsdp_lint.fix.swaps import swapped
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import MakeMesh, Shard
from fsdp_lint.trace.filling import meshes_of
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import Mesh

SHARDS = re.compile(r"shard|fsdp", re.IGNORECASE)
REPLICATES = re.compile(r"repl|(^|_)rep($|_)|ddp|^(dp|data|data_parallel)$", re.IGNORECASE)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each mesh that is declared with the sharding dimension first."""
    told: set[int] = set()
    for shard, mesh in _meshes(trace):
        if not shard.kwargs_known or "dp_mesh_dims" in shard.kwargs or not _is_turned(mesh):
            continue
        made = next((m for m in trace.every(MakeMesh) if m.mesh is (mesh.of or mesh)), None)
        if made is None or made.mesh.number in told:
            continue
        told.add(made.mesh.number)
        first, second = mesh.dimension_names()
        yield Finding(
            at=made,
            message=f"`{first}` is the first dimension of this mesh, and the first one replicates: sharding goes "
            f"over `{second}`",
            because=[(shard, f"`{called(shard.module)}` is sharded over this mesh, by position")],
            fix=_fix(made) if mesh is made.mesh else None,
        )


def _meshes(trace: Trace) -> Iterator[tuple[Shard, Mesh]]:
    """Each sharding call with each mesh that it may get."""
    for shard in trace.every(Shard):
        for mesh in meshes_of(shard):
            yield shard, mesh


def _is_turned(mesh: Mesh) -> bool:
    names = mesh.dimension_names()
    if len(names) != 2 or not SHARDS.search(names[0]) or not REPLICATES.search(names[1]):
        return False
    if REPLICATES.search(names[0]) or SHARDS.search(names[1]):
        return False
    declared = mesh.of.dimension_names() if mesh.of is not None else ()
    # A slice against the order of the declaration raises: there is nothing silent about it.
    return not (set(names) <= set(declared)) or declared.index(names[0]) < declared.index(names[1])


def _fix(made: MakeMesh) -> Fix | None:
    edits: list[Replace] = []
    for keyword, position in (("mesh_shape", 1), ("mesh_dim_names", None)):
        site = argument(made.site, keyword, position)
        text = swapped(site) if site is not None else None
        if site is None or text is None:
            return None
        edits.append(Replace(site, text))
    return Fix("Put the replicating dimension first", tuple(edits), Applicability.DISPLAY)


RULE = Rule(check, code="FSDP605", severity=Severity.ERROR, since="0.1.0", fixes=frozenset({Applicability.DISPLAY}))
