"""Parameters of FSDP1 are put into groups by their number of dimensions, which is one for each of them.

## What it finds

An optimizer's groups whose parameters were picked by `p.ndim`, `p.dim()` or `len(p.shape)` from a model that
`FullyShardedDataParallel` has wrapped before, where no parameter of one dimension gets into one of them: the usual way
to decay matrices and to leave out biases and norms.

## Why it is wrong

FSDP1 keeps what a unit holds in one flat tensor. Outside of forward and backward `model.parameters()` gives these flat
tensors, and with `use_orig_params=True` each rank's flat pieces of them: measured on torch 2.13.0 with two ranks,
`p.ndim` is 1 for all of 3 and of 10 parameters. The group for matrices is empty, which no optimizer complains of, and
all weights train with the settings of biases: without any weight decay, as a rule.

## How to mend it

Pick the parameters before the wrap and wrap with `use_orig_params=True`, which keeps them: build the optimizer first,
or remember the names. Behind the wrap these have `_fsdp_wrapped_module.` in them, and with `use_orig_params=False` a
name is a unit's. With `fully_shard`, parameters are DTensors, which keep their shape.

## When to leave it

Where the shapes are asked for within `FSDP.summon_full_params(model)`, with `ShardingStrategy.NO_SHARD`, or with
modules that FSDP1 ignores; the rule is silent there. It does not look at groups that are picked by name, which is right
with `use_orig_params=True` only.

## References

- https://github.com/pytorch/pytorch/issues/101343 (weight decay for some parameters)
- https://github.com/mlfoundations/open_clip/pull/358 ("since FSDP flattens everything, `p.ndim` is always < 2")
- https://github.com/verl-project/verl/pull/7215 (selective weight decay)
- https://docs.pytorch.org/docs/stable/fsdp.html (`use_orig_params`)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import BuildOptimizer, CompareDimensions, Event, Shard
from fsdp_lint.trace.trace import Trace, called, gives_whole_gradients, is_asked_for_class
from fsdp_lint.trace.values import Dimensions, Guards, Literal, Params, Tensor, Value, implied


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each optimizer with groups by number of dimensions."""
    told: set[int] = set()
    for test in trace.every(CompareDimensions):
        params = test.tensor.source
        if not isinstance(params, Params) or params.taken is None:
            continue
        build = _grouped(trace, params, test)
        if build is None or build.order in told:
            continue
        for module in params.of:
            shard = _flattened(trace, module, params.taken, test)
            if shard is not None:
                told.add(build.order)
                yield Finding(
                    at=test,
                    message=f"each parameter of `{called(module)}` has one dimension here, since FSDP1 has wrapped it: "
                    "a group of the optimizer stays empty",
                    because=[(shard, "it is wrapped here"), (build, "the groups are given to the optimizer here")],
                )
                break


def _grouped(trace: Trace, params: Params, test: CompareDimensions) -> BuildOptimizer | None:
    """The optimizer that gets groups of these parameters, one of which no flat parameter gets into."""
    for build in trace.every(BuildOptimizer):
        if build.optimizer.groups > 1 and trace.before(test, build, build.optimizer):
            for held in build.optimizer.holds:
                passed = test.filter if held is params else held.taken.guards if held.taken is not None else ()
                if _keeps_out_flat_ones(passed, test.tensor):
                    return build
    return None


def _keeps_out_flat_ones(guards: Guards, tensor: Tensor) -> bool:
    """True when no parameter of one dimension passes all of these tests."""
    for literal in guards:
        for value in literal.values:
            if isinstance(value, Dimensions) and value.tensor is tensor:
                flat = Literal(("equals", value.number, 1), True)
                if implied(literal.key, not literal.holds, (flat,)):
                    return True
    return False


def _flattened(trace: Trace, module: Value, taken: Event, test: Event) -> Shard | None:
    """The call of FSDP1 that has made flat tensors of all parameters of a module when they are taken."""
    shard = trace.covering(module, taken, 1)
    if shard is None or not shard.kwargs_known or gives_whole_gradients(shard) or trace.ignores_some(module):
        return None
    whole = any("summon_full_params" in name for event in (taken, test) for name in event.contexts)
    if whole or is_asked_for_class(test, module) or trace.covering(module, taken, 2) is not None:
        return None
    return shard if trace.before(shard, taken, module) else None


RULE = Rule(check, code="FSDP111", severity=Severity.ERROR, since="0.1.0")
