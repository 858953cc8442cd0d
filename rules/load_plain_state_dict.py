"""A plain state dict is loaded into a model whose parameters are DTensors.

## What it finds

`model.load_state_dict(state)` (with or without `assign=True`), or `set_model_state_dict` without
`full_state_dict=True`, on a model that `fully_shard` has sharded, where `state` holds whole tensors: it was read by
`torch.load` or safetensors, gathered, or taken from a model that is not sharded.

## Why it is wrong

The parameters of the model are DTensors, and a plain tensor cannot be copied into one. Measured on torch 2.13.0:
`load_state_dict` raises "aten.copy_.default: got mixed torch.Tensor and DTensor" for every parameter, with
`strict=False` too, and so does `set_model_state_dict`. With `assign=True` it fails with "'Parameter' object has no
attribute '_local_tensor'" and leaves the model half assigned.

## How to mend it

Call `set_model_state_dict(model, state, options=StateDictOptions(full_state_dict=True))`, which cuts each tensor. Add
`broadcast_from_rank0=True` if only rank 0 has read the file. On torch 2.4 the tensors are not cut without it (measured:
the same error), and no fix is offered to projects that allow 2.4. Or load before the model is sharded, or use
`torch.distributed.checkpoint.load`.

## When to leave it

Where the entries are DTensors: they went through `distribute_tensor`, or `torch.distributed.checkpoint.load` has filled
a state dict of this model, or each rank reads back its own file, or the program has itself saved shards. The rule is
silent there, and where unknown code had the state dict in its hands. It does not see parameters that are copied one by
one. `load_state_dict` of an optimizer is not looked at. Where sharding and the load belong to modes of different names
(`strategy == "fsdp2"`, `kind == "adapter"`), a run may never make both, and the rule is silent.

## References

- https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, receiver_of, text_of
from fsdp_lint.fix.edits import Edit, Fix, Replace
from fsdp_lint.fix.spelling import spelled
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import LoadState
from fsdp_lint.trace.loading import by_other_modes, plain_state, surely_sharded
from fsdp_lint.trace.trace import Trace, called, rank_guard
from fsdp_lint.trace.values import Optimizer
from fsdp_lint.trace.versions import oldest_is_below

CUTS_SINCE = "2.5"

HOME = "torch.distributed.checkpoint.state_dict"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each plain state dict that a sharded model gets."""
    for load in trace.every(LoadState):
        model = load.into[0]
        if load.form != "own" or isinstance(model, Optimizer) or trace.in_test(load):
            continue
        shard = surely_sharded(trace, model, load, 2)
        words = plain_state(trace, load) if shard is not None and not by_other_modes(shard, load) else ""
        if shard is None or not words:
            continue
        yield Finding(
            at=load,
            message=f"`{called(model)}` is sharded and gets a plain state dict, {words}: its parameters are DTensors",
            because=[(shard, f"`{called(shard.module)}` is sharded here")],
            fix=_fix(load) if not oldest_is_below(trace.torch, CUTS_SINCE) else None,
        )


def _fix(load: LoadState) -> Fix | None:
    """`set_model_state_dict(model, state, options=...)` in its place, where all ranks call it."""
    owner, state = receiver_of(load.site), argument(load.site, "state_dict", 0)
    setter, options = spelled(load.site, HOME, "set_model_state_dict"), spelled(load.site, HOME, "StateDictOptions")
    if load.how != "load_state_dict" or rank_guard(load) is not None:
        return None
    if owner is None or state is None or setter is None or options is None:
        return None
    strict = argument(load.site, "strict", 1)
    flags = "full_state_dict=True" + (f", strict={text_of(strict)}" if strict is not None else "")
    text = f"{setter[0]}({text_of(owner)}, {text_of(state)}, options={options[0]}({flags}))"
    edits: tuple[Edit, ...] = (Replace(load.site, text), *options[1], *setter[1])
    return Fix("Let set_model_state_dict cut the tensors", edits, Applicability.UNSAFE)


RULE = Rule(
    check,
    code="FSDP303",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
