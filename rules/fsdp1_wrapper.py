"""A model is wrapped by FSDP1, where FSDP2's `fully_shard` is to be had.

## What it finds

`FullyShardedDataParallel(...)`, where the project's torch has `torch.distributed.fsdp.fully_shard` (2.6 and later). Off
by default, since FSDP1 still works: select it to see where a change to FSDP2 has to be made.

## Why it is wrong

It is not wrong. The documentation of torch recommends `fully_shard` for new code, and calls
`FSDP.state_dict_type`, `FSDP.set_state_dict_type` and the old functions for optimizer state deprecated (they print a
FutureWarning on 2.13.0). What FSDP2 gives: one DTensor a parameter in place of flat parameters, frozen and trained
parameters in one unit, less memory at the peak, state dicts without communication.

## How to mend it

Shard each block with `fully_shard`, then the model, and build the optimizer afterwards.

| FSDP1 | FSDP2 |
| --- | --- |
| `FSDP(model, auto_wrap_policy=ModuleWrapPolicy({Block}))` | `fully_shard` on each block, then on the model |
| `sharding_strategy=SHARD_GRAD_OP` | `reshard_after_forward=False` |
| `sharding_strategy=HYBRID_SHARD` | `mesh=` with two dimensions (replicate, shard) |
| `sharding_strategy=NO_SHARD` | DistributedDataParallel |
| `mixed_precision=MixedPrecision(...)` | `mp_policy=MixedPrecisionPolicy(...)`; buffers keep their type |
| `cpu_offload=CPUOffload(True)` | `offload_policy=CPUOffloadPolicy()` |
| `sync_module_states=True`, `param_init_fn=` | nothing: initialise or load on all ranks |
| `use_orig_params`, `limit_all_gathers`, `device_id`, prefetching | nothing |
| `model.clip_grad_norm_(1.0)` | `torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)` |
| `with model.no_sync():` | `model.set_requires_gradient_sync(False)` |
| `FSDP.state_dict_type(...)`, `FSDP.optim_state_dict` | `torch.distributed.checkpoint.state_dict` |
| `ShardedGradScaler()` | `torch.amp.GradScaler()` |

## When to leave it

Where FSDP1 does what you need; it is not removed. Wrappers in tests are not reported.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (FSDP1 to FSDP2 migration guide)
- https://docs.pytorch.org/docs/stable/fsdp.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Shard
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.versions import newest_is_below

SINCE = "2.6"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each FSDP1 wrapper."""
    if newest_is_below(trace.torch, SINCE):
        return
    for shard in trace.every(Shard):
        if shard.generation == 1 and not trace.in_test(shard):
            yield Finding(
                at=shard,
                message=f"`{called(shard.module)}` is wrapped by FSDP1; `fully_shard` is its successor",
            )


RULE = Rule(check, code="FSDP904", severity=Severity.INFO, since="0.1.0", on_by_default=False)
