"""A hook on the gradient of a sharded parameter, which never runs.

## What it finds

`parameter.register_hook(...)` for parameters of a model that `fully_shard` has sharded, or shards later on.

## Why it is wrong

Autograd computes the gradient of the gathered parameter, and FSDP2 writes the reduced shard into `.grad` of the sharded
one by itself. Measured on torch 2.13.0: a hook that was registered after sharding is **never called, without a
word**, and so is one from before, which stays with the parameter that sharding replaces. What it was to do to the
gradient (a mask, a scale, a clamp, a check) is not done.

## How to mend it

Register it by `register_post_accumulate_grad_hook`, after the model is sharded. It gets the parameter instead of the
gradient, and changes `parameter.grad`, this rank's shard of the mean over the ranks. Measured: it runs each time, from
torch 2.5 on. On 2.4 it is not called, either: change the gradients between `backward()` and `step()` there; no fix is
offered to projects that allow 2.4.

## When to leave it

Hooks on activations run as ever, and so do those on parameters that are not sharded and on FSDP1's; they are not
reported, nor are models with `ignored_params`, nor hooks that a backward before sharding calls. A hook on parameters
that were taken before sharding and get it afterwards is stale-param-reference's business.

## References

- https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_post_accumulate_grad_hook.html
- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import Fix, Replace
from fsdp_lint.fix.rewriting import as_hook_after
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Backward, Shard, Step, UseParameters
from fsdp_lint.trace.loading import surely_sharded
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import Value
from fsdp_lint.trace.versions import oldest_is_below

CALLED_SINCE = "2.5"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each hook that never runs."""
    for use in trace.every(UseParameters):
        if use.how != "hook" or trace.in_test(use):
            continue
        for module in use.params.of:
            shard, when, sharded = _sharding(trace, use, module)
            if shard is None or trace.ignores_some(module):
                continue
            yield Finding(
                at=use,
                message=f"this hook on a parameter of `{called(module)}` is never called: {when}",
                because=[(shard, f"`{called(shard.module)}` is sharded here")],
                fix=_fix(trace, use) if sharded else None,
            )
            break


def _sharding(trace: Trace, use: UseParameters, module: Value) -> tuple[Shard | None, str, bool]:
    """The sharding call that makes the hook void, how, and whether it comes before the hook."""
    taken = use.params.taken
    if taken is None:
        return None, "", False
    early = surely_sharded(trace, module, taken, 2)
    if early is not None:
        return early, "the parameter is sharded, and its gradient goes around autograd", True
    for shard in trace.shards(module, 2):
        if any(use.order < backward.order < shard.order for backward in trace.every(Backward)):
            continue
        if trace.before(use, shard, module) and not trace.before(shard, use, module):
            return shard, "sharding replaces the parameter", False
    return None, "", False


def _fix(trace: Trace, use: UseParameters) -> Fix | None:
    """The same, done to the gradient that FSDP leaves. Where several backward passes add to one gradient, it is done
    to their sum, and what the names in it stand for may not fit a shard: then it is not safe."""
    made = as_hook_after(use.site)
    if made is None or oldest_is_below(trace.torch, CALLED_SINCE):
        return None
    text, plain = made
    once = all(_has_its_step(trace, backward) for backward in trace.every(Backward))
    kind = Applicability.SAFE if plain and once else Applicability.UNSAFE
    return Fix("Change the gradient when it is there", (Replace(use.site, text),), kind)


def _has_its_step(trace: Trace, backward: Backward) -> bool:
    """True for a backward pass that no other follows before a step."""
    if not backward.loops:
        return sum(1 for _ in trace.every(Backward)) == 1
    return any(s.loops == backward.loops and s.guards == backward.guards for s in trace.every(Step))


RULE = Rule(
    check,
    code="FSDP404",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE, Applicability.UNSAFE}),
    since="0.1.0",
)
