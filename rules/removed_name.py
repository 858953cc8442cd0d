"""A name that torch has removed, or will remove, is imported or used.

## What it finds

Imports of `default_auto_wrap_policy`, of the FSDP1 prototype `torch.distributed._composable.fully_shard`, of
`apply_activation_checkpointing_wrapper` and of others that are gone; the keyword `fsdp_auto_wrap_policy=`. As advice:
`save_state_dict` and `load_state_dict` of torch.distributed.checkpoint, which still work and are deprecated.

## Why it is wrong

The import raises ImportError on torch 2.13.0, the keyword a TypeError (each one measured). `save_state_dict` and
`load_state_dict` print a FutureWarning: they "will be removed in future versions".

| gone | instead |
| --- | --- |
| `torch.distributed.fsdp.wrap.default_auto_wrap_policy` | `size_based_auto_wrap_policy`, the same under another name |
| `torch.distributed._composable.fully_shard` (FSDP1 in place) | `torch.distributed.fsdp.fully_shard`, FSDP2 |
| `FSDP(..., fsdp_auto_wrap_policy=...)` | `auto_wrap_policy=` |
| `apply_activation_checkpointing_wrapper` | `apply_activation_checkpointing` |
| `torch.distributed.fsdp.wrap.ParamExecOrderWrapPolicy`, `config_auto_wrap` | nothing |
| `torch.distributed._tensor.parallel` | `torch.distributed.tensor.parallel` |
| `torch.distributed._composable.fsdp._fsdp_api` and other private modules there | `torch.distributed.fsdp` |

## How to mend it

Use the name that has taken its place.

## When to leave it

Where an older torch is meant: imports under `try`, `if` or a version test are not reported, nor are projects whose
torch setting ends before the name went. Names that have only moved to a public path, and are still found on the old
one, belong to old-fsdp2-import. `FSDP.state_dict_type` and FSDP1's other deprecated functions belong to fsdp1-wrapper.

## References

- https://github.com/pytorch/pytorch/blob/main/torch/distributed/fsdp/wrap.py
- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import ChangeCall, Fix, Replace
from fsdp_lint.fix.imports import module_of
from fsdp_lint.fix.renames import renamed
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import ImportNames, Shard
from fsdp_lint.trace.models.moved import REMOVED, Removed
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.versions import newest_is_below


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each name that is gone or will go."""
    for event in trace.every(ImportNames):
        if event.guarded:
            continue
        for name in event.names:
            gone = REMOVED.get(f"{event.module}.{name}") or REMOVED.get(event.module)
            if gone is not None and not newest_is_below(trace.torch, gone.since):
                yield _imported(event, name, gone)
                break
    for shard in trace.every(Shard):
        if shard.generation == 1 and "fsdp_auto_wrap_policy" in shard.kwargs:
            change = ChangeCall(shard.site, rename={"fsdp_auto_wrap_policy": "auto_wrap_policy"})
            yield Finding(
                at=shard,
                message=f"`fsdp_auto_wrap_policy` for `{called(shard.module)}` is `auto_wrap_policy` since torch 1.12",
                fix=Fix("Use the new keyword", (change,)),
            )


def _imported(event: ImportNames, name: str, gone: Removed) -> Finding:
    fate = "is deprecated" if gone.deprecated else f"is gone since torch {gone.since}"
    return Finding(
        at=event,
        message=f"`{name}` of `{event.module}` {fate}"
        + (f"; `{gone.instead}` has taken its place" if gone.instead else ""),
        fix=_fix(event, name, gone),
        severity=Severity.INFO if gone.deprecated else None,
    )


def _fix(event: ImportNames, name: str, gone: Removed) -> Fix | None:
    home, _, new = gone.instead.rpartition(".")
    place = module_of(event.site)
    if not gone.same or place is None or len(event.names) > 1:
        return None
    edits = [] if home == event.module else [Replace(place, home)]
    if new != name:
        uses = renamed(event.site, name, new)
        if uses is None:
            return None
        edits.extend(uses)
    return Fix(f"Use {new}", tuple(edits), Applicability.SAFE if gone.same == "safe" else Applicability.UNSAFE)


RULE = Rule(
    check,
    code="FSDP905",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE, Applicability.UNSAFE}),
    since="0.1.0",
)
