"""FSDP2 or DTensor is imported from a private path of old.

## What it finds

`from torch.distributed._composable.fsdp import ...` and `from torch.distributed._tensor import ...`, where the public
path has the same names; and `import` of these modules as a whole.

## Why it is wrong

`torch.distributed.fsdp` has `fully_shard` since torch 2.6, `torch.distributed.tensor` has DTensor since 2.5. The old
paths still work on 2.13.0, without a warning (measured); being private they may go with any release, as
`torch.distributed._composable.fully_shard` did.

## How to mend it

Import from `torch.distributed.fsdp`, and DTensor from `torch.distributed.tensor`.

## When to leave it

Where the project supports torch below 2.6; imports under `try`, `if` or a version test are not reported, nor are
projects whose torch setting ends before 2.6. Where older releases are allowed besides newer ones, the fix is no
longer safe.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://docs.pytorch.org/docs/stable/distributed.tensor.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import Fix, RenameModule
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import ImportNames
from fsdp_lint.trace.models.moved import new_home, submodule
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.versions import newest_is_below, oldest_is_below

SINCE = "2.6"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each import from an old path."""
    for event in trace.every(ImportNames):
        whole = submodule(event.module, event.names)
        module, names = (whole, ()) if whole is not None else (event.module, event.names)
        home = new_home(module, names)
        if home is None or event.guarded or newest_is_below(trace.torch, SINCE):
            continue
        yield Finding(
            at=event,
            message=f"`{module}` is private and old; since torch {SINCE} "
            + (f"these names are in `{home}`" if names else f"what it has is in `{home}`"),
            fix=_fix(event, home, trace) if names else None,
        )


def _fix(event: ImportNames, home: str, trace: Trace) -> Fix:
    kind = Applicability.UNSAFE if oldest_is_below(trace.torch, SINCE) else Applicability.SAFE
    return Fix(f"Import from {home}", (RenameModule(event.site, home),), kind)


RULE = Rule(
    check,
    code="FSDP901",
    severity=Severity.WARNING,
    fixes=frozenset({Applicability.SAFE, Applicability.UNSAFE}),
    since="0.1.0",
)
