"""A sharded module is used without calling it, so its parameters are not gathered.

## What it finds

- `model.forward(x)` on a sharded module;
- a part of a sharded model that is no unit of its own, called from outside the model's forward (`model.embed(x)`);
- a method of a sharded model other than its forward that calls the model's own parts (`model.generate(x)`), without
  `register_fsdp_forward_method`.

Where a loss or a shell around the model is a module of the project that is not sharded itself, its forward counts as
outside.

## Why it is wrong

FSDP gathers the parameters of a unit in hooks around its forward. Without them the layer meets its own shard.
Measured on torch 2.13.0: "aten.embedding.default got mixed torch.Tensor and DTensor" (FSDP2), "weight must be 2-D"
(FSDP1).

## How to mend it

Call the module itself, `model(x)`. For another method say `register_fsdp_forward_method(model, "generate")` once
after sharding; with FSDP1 use `FSDP.summon_full_params(model)` around it.

## When to leave it

Between the root's forward and the backward the root's own parameters are gathered, so a call of `model.lm_head(h)`
after `h = model(x)` works, and the rule is silent there. It is silent, too, inside `unshard()` and
`summon_full_params`.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
  (register_fsdp_forward_method)
- https://github.com/pytorch/pytorch/issues/109385
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, function_of, receiver_of, text_of
from fsdp_lint.fix.edits import ChangeCall, Edit, Fix, InsertAfter
from fsdp_lint.fix.spelling import spelled
from fsdp_lint.rule import Applicability, Finding, Rule, Severity, Site
from fsdp_lint.trace.events import Backward, Forward, RegisterForward, Shard, Unshard
from fsdp_lint.trace.trace import Trace, called, covers, last_pass, related, site_at_depth, touches
from fsdp_lint.trace.values import Module, Value


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each call that goes around the hooks of the unit that holds the module's parameters."""
    reported: set[Site] = set()
    for use in trace.every(Forward):
        shard = _bypassed(trace, use)
        if shard is None or _is_gathered(trace, use, shard):
            continue
        at, method = _outside(trace, use)
        if at in reported or (method and _is_registered(trace, method, use)):
            continue
        reported.add(at)
        yield Finding(
            at=at,
            message=_message(use, shard, method),
            because=[
                (shard, f"`{called(shard.module)}` is sharded here: it is gathered around its own forward only"),
                *([(use, f"`{called(use.module)}` is called here")] if at is not use.site and at != use.site else []),
            ],
            fix=_fix(trace, use, at, method),
        )


def _bypassed(trace: Trace, use: Forward) -> Shard | None:
    """The sharding call whose hooks should have run."""
    units = [s for s in trace.every(Shard) if _shards_before(trace, s, use)]
    if use.bypass:
        own = [s for s in units if _is_unit(s, use.module)]
        return own[-1] if own and not _inside_own_class(use) else None
    if any(_is_unit(s, use.module) for s in units) or _is_wrapper(use.module):
        return None
    around = [s for s in units if covers(s.module, use.module)]
    return around[0] if around and _has_parameters(use.module) else None


def _shards_before(trace: Trace, shard: Shard, use: Forward) -> bool:
    return trace.before(shard, use) and not (shard.loops and shard.order > use.order)


def _is_unit(shard: Shard, module: Value) -> bool:
    """True for the sharded module and, with FSDP1, for its wrapper; not for what is inside the wrapper."""
    if shard.generation == 1:
        return module is shard.result
    return any(module is one for one in (shard.module, *shard.group))


def _is_wrapper(module: Value) -> bool:
    return isinstance(module, Module) and module.wraps is not None


def _has_parameters(module: Value) -> bool:
    """Modules that are known to hold parameters; activations, dropout and what is not known are left alone."""
    if not isinstance(module, Module) or module.each:
        return False
    if module.library is not None:
        return module.library.rpartition(".")[2] in (
            "Linear",
            "Embedding",
            "LayerNorm",
            "RMSNorm",
            "Conv1d",
            "Conv2d",
            "Conv3d",
            "MultiheadAttention",
            "TransformerEncoderLayer",
            "TransformerDecoderLayer",
            "GRU",
            "LSTM",
            "BatchNorm1d",
            "BatchNorm2d",
            "GroupNorm",
            "EmbeddingBag",
        ) or any(_has_parameters(child) for child in module.children.values())
    return bool(module.parameters) or any(_has_parameters(child) for child in module.children.values())


def _inside_own_class(use: Forward) -> bool:
    return any(owner is use.module for _, owner in use.methods)


def _is_gathered(trace: Trace, use: Forward, shard: Shard) -> bool:
    if any("unshard" in name or "summon" in name for name in use.contexts):
        return True
    if any(touches(event.module, use.module) and event.order < use.order for event in trace.every(Unshard)):
        return True
    around = [(depth, owner) for depth, owner in use.methods if owner is not use.module]
    if any(_may_be_gathered(trace, owner) and not _is_called(trace, use, depth, owner) for depth, owner in around):
        return True
    if use.bypass:
        return False
    last = last_pass(trace, shard.module, use)
    return last is not None and not isinstance(last, Backward)


def _is_called(trace: Trace, use: Forward, depth: int, owner: Value) -> bool:
    """True when the run sees the call of a module, in whose forward `use` happens, and nobody else gets that module."""
    at = site_at_depth(use, depth)
    seen = any(event.module is owner and event.site == at for event in trace.every(Forward))
    return seen and not any(True for _ in trace.handed_over(owner))


def _may_be_gathered(trace: Trace, owner: Value) -> bool:
    """True for a module that is no part of a sharded one, as far as the run sees."""
    return not any(covers(s.module, owner) for s in trace.every(Shard) if s.generation == 2 or s.result is not owner)


def _outside(trace: Trace, use: Forward) -> tuple[Site, Value | None]:
    """The call from outside the model that leads here, and the model whose method it calls."""
    for depth, owner in use.methods:
        if touches(owner, use.module) and not _may_be_gathered(trace, owner):
            return site_at_depth(use, depth), owner
    return use.site, None


def _is_registered(trace: Trace, method: Value, use: Forward) -> bool:
    return any(related(event.module, method) for event in trace.every(RegisterForward))


def _message(use: Forward, shard: Shard, method: Value | None) -> str:
    if use.bypass:
        return f"`{called(use.module)}.{use.bypass}` goes around the hooks that gather its parameters"
    if method is not None:
        return (
            f"this method of `{called(method)}` calls `{called(use.module)}` outside its forward: "
            "the parameters are not gathered"
        )
    return (
        f"`{called(use.module)}` is called outside the forward of `{called(shard.module)}`, "
        "which gathers its parameters"
    )


def _fix(trace: Trace, use: Forward, at: Site, method: Value | None) -> Fix | None:
    """`model.forward(x)` becomes `model(x)`; a method that can be registered is a suggestion only."""
    called_here, model = function_of(at), receiver_of(at)
    if called_here is None or model is None:
        return None
    name = text_of(called_here).rpartition(".")[2]
    if at == use.site and use.bypass == "forward" == name:
        return Fix("Call the module itself", (ChangeCall(at, function=text_of(model)),))
    owner = next((s for s in trace.every(Shard) if method is not None and related(s.module, method)), None)
    sharded = argument(owner.site, "module", 0) if owner is not None and owner.generation == 2 else None
    register = spelled(owner.site, "torch.distributed.fsdp", "register_fsdp_forward_method") if owner else None
    if owner is None or sharded is None or register is None or owner.loops or not name.isidentifier():
        return None
    text = f'{register[0]}({text_of(sharded)}, "{name}")'
    edits: tuple[Edit, ...] = (InsertAfter(owner.site, text), *register[1])
    return Fix(f"Register `{name}` as a forward method after sharding", edits, Applicability.DISPLAY)


RULE = Rule(
    check,
    code="FSDP109",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE, Applicability.DISPLAY}),
    since="0.1.0",
)
