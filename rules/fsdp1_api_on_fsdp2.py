"""A method, a function or a class test of FSDP1 meets a model that `fully_shard` has sharded.

## What it finds

On a model that `fully_shard` has sharded, where nothing of it is wrapped by FSDP1:

- `model.no_sync()`, `model.summon_full_params()`, `model.check_is_root()`;
- `FSDP.summon_full_params(model)`, `FSDP.state_dict_type(model, ...)`, `FSDP.set_state_dict_type`,
  `FSDP.optim_state_dict` and its kin;
- `if isinstance(model, FSDP):` around something that FSDP needs, with nothing done in the other case;
  `assert isinstance(model, FSDP)`;
- `type(model) is Net`, where `Net` is the class that was sharded.

## Why it is wrong

Measured on torch 2.13.0 (two gloo ranks): `no_sync` raises AttributeError. `FSDP.summon_full_params` and
`FSDP.set_state_dict_type` **do nothing, without a word**: the parameters stay shards, the state dict holds DTensors.
`with FSDP.state_dict_type(...)` does nothing either, and raises `KeyError: None` at its end. `FSDP.optim_state_dict`
and `optim_state_dict_to_load` raise AttributeError ("'NoneType' object has no attribute ..."),
`FSDP.full_optim_state_dict` IndexError. `isinstance(model, FSDP)` is False, so that the branch is left out: no
clipping, no gathering. `fully_shard` gives the model a class of its own, a subclass `FSDPNet` of `Net`:
`type(model) is Net` is False from there on, `isinstance(model, Net)` stays True.

## How to mend it

Use FSDP2's own way.

The fix does so for `no_sync` where nothing else is entered with it and the body runs to its end, and for tests of the
class.

| FSDP1 | FSDP2 |
| --- | --- |
| `with model.no_sync():` | `model.set_requires_gradient_sync(False)`, and `True` before the last backward |
| `FSDP.summon_full_params(model)` | `param.full_tensor()`, or `model.unshard()` and `model.reshard()` |
| `FSDP.state_dict_type(model, FULL_STATE_DICT)` | `get_model_state_dict(model, options=...)` |
| `FSDP.optim_state_dict(model, optimizer)` | `get_optimizer_state_dict(model, optimizer)` |
| `isinstance(model, FSDP)` | `isinstance(model, FSDPModule)` |
| `type(model) is Net` | `isinstance(model, Net)` |

## When to leave it

Where the code serves both generations and tells them apart: an `else`, a test for `FSDPModule`, a model that is wrapped
by FSDP1 elsewhere in the run, a `try` that catches the AttributeError. Those are not reported.
`model.clip_grad_norm_()` belongs to fsdp1-clip-api, `no_sync()` behind `hasattr(model, "no_sync")` to ddp-no-sync-noop.
The rule cannot see what becomes of a test's outcome that is kept in a variable.

## References

- https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
- https://docs.pytorch.org/tutorials/intermediate/FSDP_tutorial.html (FSDP1 to FSDP2 migration guide)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import argument, is_path, receiver_of, text_of
from fsdp_lint.fix.edits import Fix, Replace, Rewrite
from fsdp_lint.fix.rewriting import as_isinstance, without_with
from fsdp_lint.fix.spelling import spelled
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import CheckClass, Shard, UseFSDP1
from fsdp_lint.trace.models.fsdp1 import NEEDED, STATIC, is_fsdp1
from fsdp_lint.trace.trace import Trace, called, fsdp2_only, related
from fsdp_lint.trace.values import Module

# What may stand under a test for FSDP1's class and is right with FSDP2, or has a fix of its own.
MENDED = frozenset({"clip_grad_norm_", "save", "full_tensor"})


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each use of FSDP1's API on a model of FSDP2's."""
    for use in trace.every(UseFSDP1):
        shard = fsdp2_only(trace, use.value, use)
        effect = STATIC.get(use.api.removeprefix("FSDP."), "raises AttributeError")
        caught = any(name == "AttributeError" or "suppress" in name for name in use.contexts)
        if shard is None or (caught and effect == "raises AttributeError"):
            continue
        yield Finding(
            at=use,
            message=f"`{use.api}` {effect} for `{called(use.value)}`, which `fully_shard` has sharded",
            because=[(shard, "it is sharded here")],
            fix=_switch(trace, use) if use.api == "no_sync()" else None,
        )
    for test in trace.every(CheckClass):
        if test.by == "isinstance":
            yield from _instance(trace, test)
        elif test.by == "type":
            yield from _type(trace, test)


def _switch(trace: Trace, use: UseFSDP1) -> Fix | None:
    """`set_requires_gradient_sync(False)` above what stood under `with model.no_sync():`, and `True` behind it."""
    if not any(related(one, use.value) for shard in trace.every(Shard) for one in (shard.module, *shard.group)):
        return None
    owner = receiver_of(use.site)
    if owner is None or not is_path(owner):
        return None
    switch = f"{text_of(owner)}.set_requires_gradient_sync"
    found = without_with(use.site, f"{switch}(False)", f"{switch}(True)")
    return Fix("Switch FSDP2's reduction off and on", (Rewrite(*found),)) if found is not None else None


def _instance(trace: Trace, test: CheckClass) -> Iterator[Finding]:
    """`isinstance(model, FSDP)` is never true."""
    if not test.names or not all(is_fsdp1(name) for name in test.names):
        return
    asserted = "assert" in test.contexts
    if test.otherwise or not (asserted or test.then & NEEDED):
        return
    shard = fsdp2_only(trace, test.value, test)
    if shard is not None:
        name = called(test.value)
        yield Finding(
            at=test,
            message=f"`fully_shard` does not make `{name}` a FullyShardedDataParallel: "
            + ("this assertion fails" if asserted else "what stands under this test is never done"),
            because=[(shard, "it is sharded here")],
            fix=_ask_for_fsdp2(test),
        )


def _ask_for_fsdp2(test: CheckClass) -> Fix | None:
    """FSDP2's class in the place of FSDP1's, where all that stands under the test goes with FSDP2, or can be mended."""
    asked = argument(test.site, "", 1)
    found = spelled(test.site, "torch.distributed.fsdp", "FSDPModule")
    if asked is None or not is_path(asked) or found is None or test.then & NEEDED - MENDED:
        return None
    return Fix("Ask for FSDP2's class", (Replace(asked, found[0]), *found[1]))


def _type(trace: Trace, test: CheckClass) -> Iterator[Finding]:
    """`type(model) is Net` is no longer true for a module that was itself sharded."""
    for shard in trace.every(Shard):
        module = shard.module
        if shard.generation != 2 or not isinstance(module, Module) or module.cls is None:
            continue
        if (
            module.cls.name in test.names
            and fsdp2_only(trace, test.value, test) is not None
            and shard.order < test.order
        ):
            if related(module, test.value) or _could_be(test, module):
                text = as_isinstance(test.site)
                yield Finding(
                    at=test,
                    message=f"`type({called(test.value)})` is not `{module.cls.name}` after `fully_shard`, which makes "
                    "a subclass of it",
                    because=[(shard, "it is sharded here")],
                    fix=Fix("Ask for subclasses, too", (Replace(test.site, text),)) if text is not None else None,
                )
                return


def _could_be(test: CheckClass, module: Module) -> bool:
    """True when the tested one is any of the model's modules, and the sharded module one of them."""
    return isinstance(test.value, Module) and bool(test.value.each) and test.value is not module


RULE = Rule(
    check,
    code="FSDP903",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.SAFE}),
    since="0.1.0",
)
