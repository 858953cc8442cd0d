"""`to_empty()` makes room for the parameters, and nothing writes values into it.

## What it finds

`model.to_empty(device=...)`, also as FSDP1's `param_init_fn`, after which the model is called without anything having
written into it: no `nn.init`, no `reset_parameters()` or `init_weights()`, no checkpoint loaded. Values that were
written before `to_empty()` are lost by it, and do not count. Also found: an `nn.Parameter` that a class of the project
makes itself, when all that follows is a loop over `reset_parameters()`, or over weights and biases, that passes it by.

## Why it is wrong

`to_empty()` allocates memory and keeps whatever lay there. **No error is raised and nothing warns**: measured with
torch 2.13.0 on two ranks, a model that was made on the meta device, sharded and materialised in this way gave NaN from
the first forward on (24,238 NaN values in 216,448 parameters); where the memory happens to hold numbers, the run
trains from garbage that differs from rank to rank.

## How to mend it

Write the values after `to_empty()`, before the model is called: run its own initialisation, or load a checkpoint. For
example `model.to_empty(device="cuda")`, then `model.init_weights()`; or
`set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))`.

## When to leave it

FSDP1 with `sync_module_states=True` sends rank 0's values into the others' empty memory; the rule knows that. It is
silent where the model goes through code that it cannot see, where a method of the model is called that it does not
know, and where the model is not called in what it can follow. Of parameters that an initialisation leaves out it
sees only the project's own, in classes without bases of the project, under names other than `weight` and `bias` unless
nothing writes any.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html (to_empty)
- https://docs.pytorch.org/docs/stable/meta.html
- https://github.com/pytorch/torchtitan/blob/main/docs/fsdp.md (meta-device initialisation)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Materialise, Shard
from fsdp_lint.trace.filling import fills, first_use, passed_by
from fsdp_lint.trace.trace import Trace, called, flag_of, touches


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each `to_empty()` that nothing follows but the use of the model."""
    for made in trace.every(Materialise):
        use = first_use(trace, made.of, made)
        shard = next((s for s in trace.every(Shard) if touches(s.module, made.of)), None)
        if use is None or shard is None or _is_synced(trace, made):
            continue
        left = passed_by(trace, made.of, made, use)
        if left is not None:
            yield Finding(
                at=made,
                message=f"`{left[1]}` of `{called(left[0])}` keeps what `to_empty()` found in memory: the "
                "initialisation after it passes it by",
                because=[(use, f"`{called(use.module)}` is called here")],
            )
        if any(True for _ in fills(trace, made.of, made, use)):
            continue
        yield Finding(
            at=made,
            message=f"`{called(use.module)}` is called with what `to_empty()` found in memory: nothing writes its "
            "parameters in between",
            because=[(use, f"`{called(use.module)}` is called here")],
        )


def _is_synced(trace: Trace, made: Materialise) -> bool:
    """True when FSDP1, whose `param_init_fn` this is, sends rank 0's values afterwards."""
    return any(
        shard.generation == 1 and shard.site in made.stack and flag_of(shard, "sync_module_states", False) is not False
        for shard in trace.every(Shard)
    )


RULE = Rule(check, code="FSDP603", severity=Severity.ERROR, since="0.1.0")
