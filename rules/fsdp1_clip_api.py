"""The norm of the gradients is clipped by the function of the other FSDP.

## What it finds

`torch.nn.utils.clip_grad_norm_` over the parameters of a model that `FullyShardedDataParallel` wraps, and
`model.clip_grad_norm_(...)`, FSDP1's method, on a model that `fully_shard` has sharded.

## Why it is wrong

FSDP1's gradients are plain tensors, each rank's own piece, so the function clips every rank by the norm of its piece:
measured on torch 2.13.0 with two ranks, norms of 2.62 and 6.08 where the true one is 6.62, with `use_orig_params=True`
and with `False`. The pieces of one gradient are scaled by different factors, and no error is raised.

An FSDP2 model has no such method: "'FSDPNet' object has no attribute 'clip_grad_norm_'". Its gradients are DTensors,
of which `torch.nn.utils.clip_grad_norm_` takes the true norm: on torch 2.4 to 2.13 the clipped gradients are those of
one process. The norm that it returns is true by `.full_tensor()` on each of them, and by `.item()` from 2.10 on
(dtensor-scalar-read is about that).

## How to mend it

Call `model.clip_grad_norm_(max_norm)` on FSDP1's outermost module, and
`torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)` with FSDP2.

## When to leave it

With `ShardingStrategy.NO_SHARD` the gradients are whole, and the function is right (measured). Code that asks for the
class first, and `accelerator.clip_grad_norm_` and `fabric.clip_gradients`, which choose the right one, are not
reported. Other methods of FSDP1 on an FSDP2 model are fsdp1-api-on-fsdp2's business. The rule does not see parameters
that come out of an optimizer's groups.

## References

- https://docs.pytorch.org/docs/stable/fsdp.html (`clip_grad_norm_`)
- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (from FSDP1 to FSDP2)
- https://github.com/pytorch/torchtune/issues/2169
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, function_of, keywords, receiver_of, text_of
from fsdp_lint.fix.edits import Edit, Fix, Replace
from fsdp_lint.fix.spelling import spelled
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Collective, Shard
from fsdp_lint.trace.trace import Trace, called, gives_whole_gradients, is_asked_for_class, is_fsdp1_here, related
from fsdp_lint.trace.values import Module, Params, Value


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each clipping by the wrong function."""
    for clip in trace.every(Collective):
        for value in clip.on if clip.op == "clip_grad_norm_" else ():
            found = _of_pieces(trace, clip, value) if isinstance(value, Params) else _no_method(trace, clip, value)
            if found is not None:
                yield found
                break


def _of_pieces(trace: Trace, clip: Collective, params: Params) -> Finding | None:
    for module in params.of:
        shard = trace.sharded(module, clip, 1)
        if shard is None and is_fsdp1_here(clip, module):
            return Finding(
                at=clip,
                message=f"`{called(module)}` is an instance of FSDP1's class here: this clips each rank by the norm of "
                "its own piece",
            )
        if shard is None or gives_whole_gradients(shard) or trace.sharded(module, clip, 2) is not None:
            continue
        if is_asked_for_class(clip, module):
            continue
        return Finding(
            at=clip,
            message=f"`{called(module)}` is wrapped by FSDP1: this clips each rank by the norm of its own piece",
            because=[(shard, f"`{called(shard.module)}` is wrapped here")],
            fix=_by_method(clip, module),
        )
    return None


def _no_method(trace: Trace, clip: Collective, module: Value) -> Finding | None:
    shard = trace.sharded(module, clip, 2)
    if shard is None or is_asked_for_class(clip, module) or trace.sharded(module, clip, 1) is not None:
        return None
    if not any(related(one, module) for each in trace.every(Shard) for one in (each.module, *each.group)):
        return None
    return Finding(
        at=clip,
        message=f"`{called(module)}` is sharded by `fully_shard`, and has no `clip_grad_norm_`",
        because=[(shard, f"`{called(shard.module)}` is sharded here")],
        fix=_by_function(clip),
    )


def _by_method(clip: Collective, module: Value) -> Fix | None:
    """`model.clip_grad_norm_(max_norm)`, where the function gets `model.parameters()` of the wrapper itself."""
    params = argument(clip.site, "parameters", 0)
    function = function_of(params) if params is not None else None
    owner = receiver_of(params) if params is not None else None
    if owner is None or function is None or not text_of(function).endswith(".parameters"):
        return None
    if not isinstance(module, Module) or module.wraps is None or set(keywords(clip.site)) - {"max_norm", "norm_type"}:
        return None
    if argument(clip.site, "error_if_nonfinite", 3) is not None:
        return None
    words = _words(clip, 1)
    edit = Replace(clip.site, f"{text_of(owner)}.clip_grad_norm_({', '.join(words)})")
    return Fix("Call FSDP1's own method", (edit,)) if words else None


def _by_function(clip: Collective) -> Fix | None:
    """`torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)`."""
    owner, function = receiver_of(clip.site), spelled(clip.site, "torch.nn.utils", "clip_grad_norm_")
    words = _words(clip, 0)
    if owner is None or function is None or not words or set(keywords(clip.site)) - {"max_norm", "norm_type"}:
        return None
    text = f"{function[0]}({text_of(owner)}.parameters(), {', '.join(words)})"
    edits: tuple[Edit, ...] = (Replace(clip.site, text), *function[1])
    return Fix("Call torch.nn.utils.clip_grad_norm_", edits)


def _words(clip: Collective, start: int) -> list[str]:
    """The norm and its type as the call writes them; `start` is the norm's position."""
    given = keywords(clip.site)
    words = []
    for at, name in enumerate(("max_norm", "norm_type"), start):
        value = argument(clip.site, name, at)
        if value is not None:
            words.append(f"{name}={text_of(value)}" if name in given else text_of(value))
    return words


RULE = Rule(
    check,
    code="FSDP405",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
