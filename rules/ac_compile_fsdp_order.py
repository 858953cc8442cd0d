"""The whole model is wrapped by torch.compile, and the wrapper is sharded: its state dict has other names.

## What it finds

`model = torch.compile(model)` of a whole model and then `fully_shard(model)` or `FullyShardedDataParallel(model)` on
the wrapper, or `fully_shard(torch.compile(model))`.

## Why it is wrong

`torch.compile(model)` returns a new module that holds the model as `_orig_mod`. **Every key of its state dict begins
with `_orig_mod.`** (measured with torch 2.13.0, FSDP2 and FSDP1: `_orig_mod.embed.weight`), so that a checkpoint of
this run does not load into the model alone, nor that of an uncompiled run into this one. If nothing inside is sharded,
the wrapper is one unit, too: 2 collectives a step instead of 11 with three blocks and the root.

The order alone costs nothing. Measured on torch 2.13.0, two ranks: compiling the model before sharding, between the
blocks and the root, after it, in place, or block by block gives the same 11 collectives a step, and so does activation
checkpointing inside or outside of FSDP2's units (9 all-gathers and 5 reduce-scatters with four blocks). Around FSDP1's
units, too, it costs nothing (9 and 5: the recomputation ends before the unit is resharded), unless it is reentrant (13
and 5).

## How to mend it

Compile in place, `model.compile()`, or each block, `block.compile()`, before it is sharded: neither makes a wrapper.
Activation checkpointing goes first, then compile, then `fully_shard`.

## When to leave it

Where all checkpoints go through `get_model_state_dict` or `get_state_dict`, which take the prefix off: the rule is
silent there, and where the code itself speaks of `_orig_mod`. It says nothing of blocks that are compiled one by one,
of `model.compile()`, nor of where activation checkpointing goes; nor of `torch.compile(model)` after sharding, whose
wrapper has such names as well, while the sharded model keeps its own.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.compile.html
- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (compile)
- https://github.com/pytorch/pytorch/issues/101107
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.compiling import takes_prefix_off, wrapped_whole
from fsdp_lint.trace.events import TakeState
from fsdp_lint.trace.filling import roots
from fsdp_lint.trace.granularity import is_trained
from fsdp_lint.trace.trace import Trace, called, related
from fsdp_lint.trace.values import Value


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each compiled model that is sharded through its wrapper."""
    for shard in roots(trace):
        compiled = wrapped_whole(trace, shard)
        if compiled is None or trace.in_test(shard) or not is_trained(trace, shard.result or shard.module, shard):
            continue
        if takes_prefix_off(trace) or _only_clean_states(trace, shard.module):
            continue
        yield Finding(
            at=compiled,
            message=f"`{called(shard.module)}` is sharded inside of torch.compile's wrapper: "
            "every key of its state dict begins with `_orig_mod.`",
            because=[(shard, "the wrapper is sharded here")],
        )


def _only_clean_states(trace: Trace, model: Value) -> bool:
    """True when state dicts of the model are taken, and all by functions that take the prefix off."""
    forms = {take.state.form for take in trace.every(TakeState) if related(take.state.of, model)}
    return bool(forms) and "raw" not in forms


RULE = Rule(check, code="FSDP108", severity=Severity.INFO, since="0.1.0")
