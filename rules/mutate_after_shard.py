"""Something new is put into a model that is sharded already.

## What it finds

A module or an `nn.Parameter` that becomes part of a sharded model, or replaces a part of it, with no sharding call on
it afterwards: `model.head = nn.Linear(...)`, `setattr`, `add_module`, `model.blocks.append(...)`, and the library calls
that do the same inside: `get_peft_model`, `inject_adapter_in_model`, `add_adapter`, `resize_token_embeddings`.

## Why it is wrong

FSDP knows what it found when it was called. What comes later stays a plain tensor: it is not sharded, and its
gradients are never reduced. Measured on torch 2.13.0, two gloo ranks, FSDP2 and FSDP1: a head that was replaced after
sharding trained without a word and **differed between the ranks** after three steps (0.191 on one, 0.094 on the other);
a foreach or fused optimizer, the default on CUDA, raises "got mixed torch.Tensor and DTensor" instead. A parameter that
replaces a sharded one raises at the first forward, "'Parameter' object has no attribute '_local_tensor'" (torch 2.5 to
2.13); after the first step, and on torch 2.4 before it, too, it is **silently thrown away**, and the old one is back.

## How to mend it

Make all changes to the model (heads, adapters, embeddings, quantised layers) before it is sharded. If something new
must come later, shard it with `fully_shard` as well.

## When to leave it

The rule is silent where what is new has no parameters or is frozen, where a sharding call on it follows, where its
gradients are averaged by hand, and where the run does not go on with the model. Tying parameters that exist already,
and wrappers such as `checkpoint_wrapper`, bring nothing new. It cannot see what other libraries do to a model inside
their calls.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://github.com/huggingface/peft/blob/main/docs/source/accelerate/fsdp.md (adapters come first)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import Attach, Freeze, Handed, Shard
from fsdp_lint.trace.granularity import brings_parameters, is_trained, model_of
from fsdp_lint.trace.trace import Trace, called, covers, related, touches
from fsdp_lint.trace.values import Module, Object, Tensor, exclusive


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each new part that no sharding call knows of."""
    for attach in trace.every(Attach):
        if attach.content is not None and not _is_plain_and_trained(trace, attach):
            continue
        earlier = [s for s in trace.every(Shard) if trace.before(s, attach) and s.order < attach.order]
        around = [s for s in earlier if covers(s.module, attach.module)]
        inside = [s for s in earlier if attach.content is None and touches(s.module, attach.module)]
        if not (around or inside) or _is_cared_for(trace, attach):
            continue
        shard = (around or inside)[0]
        yield Finding(
            at=attach,
            message=_message(attach),
            because=[(shard, f"`{called(shard.module)}` is sharded here")],
        )


def _message(attach: Attach) -> str:
    name = called(attach.module)
    if attach.content is None:
        return f"`{attach.how}` puts parameters into `{name}` after it was sharded: they are not sharded or reduced"
    new = f"{name}{attach.key}" if attach.key.startswith("[") else f"{name}.{attach.key}"
    if isinstance(attach.content, Module):
        return f"`{new}` is new after `{name}` was sharded: its parameters are neither sharded nor reduced"
    return f"`{new}` is a new parameter after `{name}` was sharded, which FSDP does not know of"


def _is_plain_and_trained(trace: Trace, attach: Attach) -> bool:
    """True for a module with new parameters that are not frozen, and for a parameter made of a plain tensor."""
    content = attach.content
    if isinstance(content, Module):
        frozen = any(
            covers(event.module, content) and (event.order > attach.order or covers(content, event.module))
            for event in trace.every(Freeze)
        )
        own_unit = any(covers(content, s.module) for s in trace.every(Shard))
        return brings_parameters(content) and not frozen and not own_unit
    return isinstance(content, Tensor) and isinstance(content.source, Object) and content.key != "frozen"


def _is_cared_for(trace: Trace, attach: Attach) -> bool:
    new = attach.content if isinstance(attach.content, Module) else attach.module
    for later in trace.events[attach.order + 1 :]:
        if exclusive(later.guards, attach.guards):
            continue
        if isinstance(later, Shard) and any(
            covers(one, new) or touches(one, new) for one in (later.module, *later.group)
        ):
            return True
        if isinstance(later, Handed) and later.to != "return" and later.site != attach.site:
            if any(related(one, attach.module) for one in later.values):
                return True
    return (
        trace.replicated(new, attach)
        or trace.averaged(new)
        or not is_trained(trace, model_of(trace, attach.module), attach)
    )


RULE = Rule(check, code="FSDP104", severity=Severity.ERROR, since="0.1.0")
