"""FSDP1 puts frozen and trained parameters into one unit.

## What it finds

`FullyShardedDataParallel` with `use_orig_params=False`, which is the default, around a model in which some layers are
frozen (`requires_grad_(False)`, or `requires_grad = False` in a loop over a part's parameters) and others of the same
unit are not: of the root's where the embedding is frozen and the head is trained, of a block's where its norm is
frozen. And around a model that `get_peft_model` has adapted, without a wrap policy or with one by the classes of
blocks: the adapters lie beside frozen weights.

## Why it is wrong

With `use_orig_params=False` FSDP1 joins all parameters of a unit into one, which can be trained or not, but not in
part. Measured on torch 2.13.0, it raises on every rank: "ValueError: Must flatten tensors with uniform `requires_grad`
when `use_orig_params=False`", or, with a wrap policy, "blocks.0 has both parameters with requires_grad=True and False".
The job has waited for its GPUs by then, and has loaded its model. Blocks that are frozen as a whole are units of
their own, and are right. So is the same with `use_orig_params=True`: measured, too.

## How to mend it

Pass `use_orig_params=True`. Or wrap what is frozen by itself, as peft's `fsdp_auto_wrap_policy` does, which also saves
the memory for its gradients; or move to `fully_shard`, which asks for nothing of the kind.

## When to leave it

Never: it raises. The rule is silent where names pick what is frozen, where unknown code gets the model before, where
parameters are ignored, where parts are wrapped by hand, with other policies, and where the model's layers are not
known. Parameters of different dtypes in one unit raise, too, also with `use_orig_params=True` (measured); nothing is
said of these.

## References

- https://github.com/pytorch/pytorch/issues/104690
- https://github.com/huggingface/peft/issues/1702
- https://github.com/huggingface/transformers/issues/27542
- https://github.com/declare-lab/flan-alpaca/issues/10
- https://github.com/ByteDance-Seed/Bagel/issues/104
- https://docs.pytorch.org/docs/stable/fsdp.html (`use_orig_params`)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import ChangeCall, Fix
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import Event, Shard
from fsdp_lint.trace.freezing import Classes, frozen_before, is_frozen, layers_of, policy_classes, units_of
from fsdp_lint.trace.trace import Trace, called, covers, flag_of, ignored_by, touches
from fsdp_lint.trace.values import Module

PEFT = "peft.PeftModel"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each call of FSDP1 that meets a unit with both."""
    for shard in trace.every(Shard):
        model, classes = shard.module, policy_classes(shard)
        if shard.generation != 1 or not isinstance(model, Module) or classes is None or not _joins(trace, shard):
            continue
        found = _adapted(trace, shard, model, classes) or _mixed(trace, shard, model, classes)
        if found is not None:
            yield found


def _joins(trace: Trace, shard: Shard) -> bool:
    """True when the call makes one parameter of all in a unit, and its units are those of the policy."""
    if not shard.kwargs_known or flag_of(shard, "use_orig_params", False) is not False or ignored_by(shard):
        return False
    if any(name in shard.kwargs for name in ("ignored_modules", "ignored_states")):
        return False
    inside = (s for s in trace.every(Shard) if s is not shard and s.order < shard.order)
    return not any(touches(s.module, shard.module) for s in inside)


def _adapted(trace: Trace, shard: Shard, model: Module, classes: Classes) -> Finding | None:
    """A model with adapters, where no class of the policy is a layer's."""
    if model.library != PEFT or any(isinstance(each, str) for each in classes):
        return None
    history = frozen_before(trace, shard)
    if history is None or not all(frozen for _, _, frozen in history):
        return None
    return _finding(shard, f"the adapters of `{called(model)}` lie in one unit with frozen weights", None)


def _mixed(trace: Trace, shard: Shard, model: Module, classes: Classes) -> Finding | None:
    history = frozen_before(trace, shard)
    handed = any(event.to != "print" for event in trace.handed_before(model, shard))
    if not history or handed:
        return None
    for unit in units_of(model, classes):
        layers = list(layers_of(unit, classes))
        frozen = next((each for each in layers if is_frozen(each, history)), None)
        trained = next((each for each in layers if not is_frozen(each, history)), None)
        if frozen is not None and trained is not None:
            why = next(event for event, module, off in reversed(history) if off and covers(module, frozen))
            said = f"`{_name(frozen)}` is frozen and `{_name(trained)}` is not, and both lie in one unit"
            return _finding(shard, said, (why, f"`{_name(frozen)}` is frozen here"))
    return None


def _name(layer: Module) -> str:
    return layer.name or called(layer)


def _finding(shard: Shard, said: str, why: tuple[Event, str] | None) -> Finding:
    return Finding(
        at=shard,
        message=f"{said}: FSDP1 with `use_orig_params=False` raises",
        because=[why] if why is not None else [],
        fix=Fix(
            "Keep the parameters as they are",
            (ChangeCall(shard.site, put={"use_orig_params": "True"}),),
            Applicability.UNSAFE,
        ),
    )


RULE = Rule(
    check,
    code="FSDP211",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
