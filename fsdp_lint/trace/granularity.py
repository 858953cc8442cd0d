"""Questions about the size of FSDP units: leaves, blocks, roots, and what is left over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fsdp_lint.trace.events import (
    BuildOptimizer,
    CallMethod,
    Compile,
    Event,
    Forward,
    Handed,
    LoadState,
    Rework,
    Shard,
    ShardEach,
)
from fsdp_lint.trace.models.frameworks import HAS_BLOCKS, NO_SHARDERS, SHARDS, has_blocks
from fsdp_lint.trace.trace import Trace, called, covers, related, touches
from fsdp_lint.trace.values import (
    FIRST_PARAMETER,
    Const,
    External,
    Literal,
    Module,
    Object,
    Partial,
    Tensor,
    Value,
    exclusive,
    options_of,
    origins,
    parts,
)

LEAVES = frozenset(
    {
        "Linear",
        "Conv1d",
        "Conv2d",
        "Conv3d",
        "LayerNorm",
        "RMSNorm",
        "GroupNorm",
        "BatchNorm1d",
        "BatchNorm2d",
        "Bilinear",
    }
)
# Norms alone may be units for the sake of their own dtype.
NORMS = frozenset({"LayerNorm", "RMSNorm", "GroupNorm", "BatchNorm1d", "BatchNorm2d"})
ANY_LEAF = LEAVES | {"Embedding"}
FEW = 100_000
CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")
# The classes of torch.nn (2.13) that hold parameters, or may; InstanceNorm does on demand only.
PARAMETRIC = re.compile(
    r"(Lazy)?(Linear|Bilinear|Conv(Transpose)?[123]d|(Sync)?BatchNorm([123]d)?)|Embedding(Bag)?|(Layer|RMS|Group)Norm"
    r"|MultiheadAttention|Transformer\w*|(RNN|LSTM|GRU)(Cell|Base|CellBase)?|PReLU|Parameter(List|Dict)"
    r"|AdaptiveLogSoftmaxWithLoss|LinearCrossEntropyLoss|Module|DataParallel"
)


def last_name(dotted: str) -> str:
    """The last part of a dotted name."""
    return dotted.rpartition(".")[2]


def leaf_reason(trace: Trace, shard: Shard) -> str:
    """Why a `fully_shard` call makes leaves into units; empty when it does not."""
    module = shard.module
    if not isinstance(module, Module):
        return ""
    if any(g.key == ("has children", module.number) and not g.holds for g in shard.guards):
        return f"every layer of `{called(module.owner or module)}` without children becomes an FSDP unit"
    if module.each == "modules" and module.owner is not None:
        tests = [g for g in shard.guards if g.subject is module]
        # A test of the name, or of being the root, leaves nothing out but the root.
        about = [g for g in shard.guards if g not in tests and _speaks_of(g, module) and not _only_the_root(g, module)]
        if about:
            return ""
        if not tests:
            return f"every module of `{called(module.owner)}` becomes an FSDP unit"
        return _filtered(tests, module.owner)
    inside = _block_around(module)
    if inside is not None and _leaf_of_loop(trace, module) and shard.loops and not _filters(shard, module):
        return f"every layer inside a block of `{called(inside)}` becomes an FSDP unit"
    return ""


def _only_the_root(guard: Literal, module: Module) -> bool:
    """True for tests that keep the model itself away, or what holds no parameters."""
    if guard.key[0] == "none" and not guard.holds and any(one.name == FIRST_PARAMETER for one in guard.values):
        return True
    return guard.key[0] == "has name" or (guard.key[0] == "is" and module.number in guard.key)


def _filtered(tests: list[Literal], owner: Value) -> str:
    allowed = [name for test in tests if test.holds for name in test.classes]
    if not allowed:
        return ""
    leaves = sorted({last_name(name) for name in allowed if name.startswith("torch.nn.")} & LEAVES)
    if not set(leaves) - NORMS:
        return ""
    return f"every {' and '.join(leaves)} of `{called(owner)}` becomes an FSDP unit"


def _speaks_of(guard: Literal, module: Module) -> bool:
    return module.number in guard.about


def _filters(shard: Shard, module: Module) -> bool:
    return any(g.subject is module or _speaks_of(g, module) for g in shard.guards)


def _block_around(module: Module) -> Value | None:
    """The model in whose block `module` lies, when it was drawn from inside an element of a list of blocks."""
    owner = module.owner
    if not isinstance(owner, Module) or module.key in ("",):
        return None
    if owner.library is not None and last_name(owner.library) in CONTAINERS and not _is_block(owner):
        return None
    return owner.owner.owner or owner.owner if _is_block(owner) and owner.owner is not None else None


def _is_block(module: Module) -> bool:
    """An element of a container of the model, or one drawn from `layers`."""
    if module.each in ("items", "children") and module.key == "[]":
        return True
    owner = module.owner
    return isinstance(owner, Module) and owner.library is not None and last_name(owner.library) in CONTAINERS


def _leaf_of_loop(trace: Trace, module: Module) -> bool:
    """True for what is drawn from a block, and for a leaf by its name beside others that are units too.

    One alone is there for its own sake: a router in float32, an output layer.
    """
    if module.each == "children":
        return True
    if module.library is None or last_name(module.library) not in ANY_LEAF:
        return False
    units = {shard.module.number for shard in trace.every(Shard)}
    owner = module.owner
    beside = [one for one in owner.children.values() if owns_parameters(one)] if isinstance(owner, Module) else []
    return len(beside) < 2 or sum(one.number in units for one in beside) > 1


def policy_reason(shard: Shard) -> str:
    """Why an FSDP1 wrap policy makes leaves into units; empty when it does not."""
    policy = shard.kwargs.get("auto_wrap_policy")
    for option, _ in options_of(policy) if policy is not None else ():
        found = _policy(option)
        if found:
            return found
    return ""


def _policy(value: Value) -> str:
    if isinstance(value, External):
        if last_name(value.dotted) == "always_wrap_policy":
            return "`always_wrap_policy` makes every module an FSDP unit"
        return ""
    name, kwargs, args = parts_of_policy(value)
    if name == "size_based_auto_wrap_policy":
        least = kwargs.get("min_num_params")
        if isinstance(least, Const) and isinstance(least.value, int | float) and least.value < FEW:
            return f"`min_num_params={least.value:,}` makes nearly every layer an FSDP unit"
    if name in ("ModuleWrapPolicy", "transformer_auto_wrap_policy"):
        classes = kwargs.get("transformer_layer_cls") or kwargs.get("module_classes") or (args[0] if args else None)
        leaves = sorted({last_name(n) for n in _class_names(classes) if n.startswith("torch.nn.")} & LEAVES)
        if leaves:
            return f"the wrap policy makes every {' and '.join(leaves)} an FSDP unit"
    return ""


def parts_of_policy(value: Value) -> tuple[str, dict[str, Value], tuple[Value, ...]]:
    """The name of a wrap policy and what it is given; an empty name for other values."""
    if isinstance(value, Partial) and isinstance(value.function, External):
        return last_name(value.function.dotted), value.kwargs, value.args
    if isinstance(value, Object):
        return last_name(value.cls), value.kwargs, value.args
    return "", {}, ()


def _class_names(value: Value | None) -> list[str]:
    return [p.dotted for p in parts(value) if isinstance(p, External)] if value is not None else []


# roots ----------------------------------------------------------------------------------------------------------


def model_of(trace: Trace, module: Value) -> Value:
    """The outermost model that `module` is part of, as far as this run knows it."""
    outer = module
    for one in module.line():
        if isinstance(one, Module) and one.program and not any(s.module is one for s in trace.every(Shard)):
            break
        if isinstance(one, Module) or any(touches(one, s.module) for s in trace.every(Shard) if s.module is not one):
            outer = one if isinstance(one, Module) or _acts_as_module(trace, one) else outer
    return outer


def _acts_as_module(trace: Trace, value: Value) -> bool:
    """True when the run treats the value as a module: it is called, sharded, or asked for its parameters."""
    for event in trace.events:
        if isinstance(event, Shard | Forward) and related(event.module, value):
            return True
        if isinstance(event, BuildOptimizer):
            if any(m is value for params in event.optimizer.holds for m in params.of):
                return True
    return False


def is_trained(trace: Trace, model: Value, after: Event) -> bool:
    """True when the run goes on with the model after the event: an optimizer gets its parameters, or it is called."""
    for event in trace.events:
        if event.order <= after.order or exclusive(event.guards, after.guards):
            continue
        if isinstance(event, BuildOptimizer) and any(
            related(m, model) for params in event.optimizer.holds for m in params.of
        ):
            return True
        if isinstance(event, Forward) and related(event.module, model):
            return True
    return False


def is_loaded(trace: Trace, model: Value, after: Event) -> bool:
    """True when the run puts a state dict into the whole model after the event: it is as it will be trained."""
    return any(
        event.order > after.order
        and not exclusive(event.guards, after.guards)
        and any(related(one, model) for one in event.into)
        for event in trace.every(LoadState)
    )


def handed_to_shard(trace: Trace, module: Value, until: Event) -> Iterator[Handed]:
    """The calls that come before an event, or may, by which unknown code gets a module that it may shard in part."""
    return (event for event in trace.handed_before(module, until) if not event.to.startswith(NO_SHARDERS))


def asked_to_shard(trace: Trace) -> Iterator[CallMethod]:
    """The calls of methods of unknown modules that may shard them, by their names."""
    return (event for event in trace.every(CallMethod) if SHARDS.search(event.method))


def treated_blocks(trace: Trace, model: Value, at: Event) -> Event | None:
    """Where a loop makes each item of a list in the model ready by itself, on the path of an event: these are blocks.

    Each is compiled, has its activations computed anew, or its weights split over ranks.
    """
    for event in trace.events:
        if isinstance(event, Rework | Compile) and event.loops and event.entry == at.entry and event.order < at.order:
            module = event.module
            item = module.key.startswith("[") or (isinstance(module, Module) and module.each in ("items", "children"))
            inside = covers(model, module) or model.number in origins(module)
            if item and inside and not is_leaf(module) and not related(module, model):
                if not exclusive(event.guards, at.guards):
                    return event
    return None


def recomputes_blocks(trace: Trace, model: Value, at: Event) -> bool:
    """True when the model is asked to compute the activations of its blocks anew, as transformers' models are."""
    return any(
        event.method in HAS_BLOCKS and related(event.of, model) and not exclusive(event.guards, at.guards)
        for event in trace.every(CallMethod)
    )


def left_over(trace: Trace, model: Value, at: Event) -> list[str] | None:
    """Names of the parts of a model that hold parameters and that no sharding call covers; None when not known."""
    return _outside(model, [s for s in trace.every(Shard) if not exclusive(s.guards, at.guards)])


def own_parts(trace: Trace, unit: Shard, module: Value) -> list[str] | None:
    """Names of the parts of a module, the sharded one or a part of it, that lie in no smaller unit; None when not
    known."""
    others = [s for s in trace.every(Shard) if not covers(s.module, unit.module)]
    inner = [s for s in others if not exclusive(s.guards, unit.guards)]
    if isinstance(module, Module) and _covered(module, inner):
        return []
    return _outside(module, inner)


def _outside(model: Value, shards: list[Shard]) -> list[str] | None:
    if not isinstance(model, Module) or not model.built or (model.cls is None and not model.children):
        return None
    found: list[str] = []
    for name, value in model.parameters.items():
        if isinstance(value, Tensor):
            found.append(name)
    for name, child in model.children.items():
        if owns_parameters(child) and not _covered(child, shards):
            found.append(name)
    return found


def _covered(module: Module, shards: list[Shard]) -> bool:
    if any(covers(one, module) for s in shards for one in (s.module, *s.group)):
        return True
    if module.library is not None and last_name(module.library) in CONTAINERS and module.children:
        return all(_covered(child, shards) for child in module.children.values() if owns_parameters(child))
    drawn = [s.module for s in shards if s.module.owner is module and isinstance(s.module, Module) and s.module.each]
    return bool(drawn)


def brings_parameters(module: Module) -> bool:
    """True when a module that was made anew holds parameters of its own, not only those of modules it was given."""
    parts = [child for child in module.children.values() if child.owner is module]
    if module.parameters or any(brings_parameters(part) for part in parts):
        return True
    return module.library is not None and last_name(module.library) not in CONTAINERS and owns_parameters(module)


def owns_parameters(module: Module) -> bool:
    """True where a module, or something in it, may hold parameters: plain functions of torch.nn hold none."""
    if module.library is None:
        return True
    last = last_name(module.library)
    if last in CONTAINERS:
        unknown = module.cls is not None and not module.children
        return unknown or bool(module.parameters) or any(owns_parameters(child) for child in module.children.values())
    return not module.library.startswith("torch.nn.") or (last[:1].isupper() and not _is_plain(module.library))


def _is_plain(library: str) -> bool:
    """True for classes of torch.nn that hold no parameters: activations, losses, pooling and the like."""
    last = last_name(library)
    return library.startswith("torch.nn.") and last[:1].isupper() and not PARAMETRIC.fullmatch(last)


def block_lists(model: Value) -> Iterator[tuple[str, Module]]:
    """The lists of blocks in a model whose structure is known: name and container."""
    todo: list[tuple[str, Value]] = [("", model)]
    while todo:
        path, value = todo.pop(0)
        if not isinstance(value, Module):
            continue
        if value.wraps is not None:
            todo.append((path, value.wraps))
        if value.library is not None and last_name(value.library) in ("ModuleList", "ModuleDict", "Sequential"):
            if _is_block_list(value):
                yield path, value
                continue
        for name, child in value.children.items():
            todo.append((f"{path}.{name}" if path else name, child))


def holds_blocks(model: Value) -> bool:
    """True for a model that is known to hold a list of blocks, in its code or by the library that it comes from."""
    if any(True for _ in block_lists(model)):
        return True
    if not isinstance(model, Module):
        return False
    if model.library is not None and has_blocks(model.library):
        return True
    inner = [*model.children.values(), *([model.wraps] if model.wraps is not None else [])]
    return any(holds_blocks(one) for one in inner)


def block_paths(model: Value) -> list[str]:
    """How to go over all blocks of a model whose structure is known, from the model on: `.layers`, `.stages.values()`.

    Empty where there are none, and where a list holds small layers besides; a model that is such a list itself may.
    """
    found = []
    for path, container in block_lists(model):
        if path and any(is_leaf(child) for child in container.items()):
            return []
        if not all(part.isidentifier() for part in path.split(".") if part):
            return []
        items = ".values()" if last_name(container.library or "") == "ModuleDict" else ""
        found.append((f".{path}" if path else "") + items)
    return found


def block_classes(model: Value) -> list[tuple[Path, str]]:
    """The classes of a model's blocks: file and name. Empty where one of them is not a class of the project."""
    found: list[tuple[Path, str]] = []
    for _, container in block_lists(model):
        for block in container.items():
            if block.cls is None or "." in block.cls.qualname:
                return []
            if (block.cls.path, block.cls.qualname) not in found:
                found.append((block.cls.path, block.cls.qualname))
    return found


def _is_block_list(container: Module) -> bool:
    blocks = [c for c in container.items() if not is_leaf(c)]
    if not blocks:
        return False
    if len(blocks) >= 2:
        return True
    return blocks[0].count is None or blocks[0].count >= 2


def is_leaf(module: Value) -> bool:
    """True for library layers that hold no other modules."""
    return (
        isinstance(module, Module)
        and module.library is not None
        and (
            last_name(module.library) in ANY_LEAF
            or (_is_plain(module.library) and last_name(module.library) not in CONTAINERS)
        )
    )


def is_container(module: Value) -> bool:
    """True for elements of containers and for what was drawn from a model: no roots."""
    return isinstance(module, Module) and (bool(module.each) or module.key == "[]" or _in_container(module))


def _in_container(module: Module) -> bool:
    owner = module.owner
    return isinstance(owner, Module) and owner.library is not None and last_name(owner.library) in CONTAINERS


def nested_classes(shard: Shard) -> tuple[str, str] | None:
    """The names of two classes that a loop over `modules()` shards, the first holding the second; None for others.

    Such a loop meets a module before its parts.
    """
    module = shard.module
    if not isinstance(module, Module) or module.each != "modules" or module.backwards or module.owner is None:
        return None
    tests = [test for test in shard.guards if test.subject is module and test.holds]
    wanted = {last_name(name) for test in tests for name in test.classes}
    return _nested(module.owner, wanted, "") if wanted else None


def _nested(value: Value, wanted: set[str], around: str) -> tuple[str, str] | None:
    if not isinstance(value, Module):
        return None
    name = value.cls.name if value.cls is not None else last_name(value.library or "")
    if around and name in wanted and name != around:
        return around, name
    inner = [*value.children.values(), *([value.wraps] if value.wraps is not None else [])]
    found = (_nested(child, wanted, name if name in wanted else around) for child in inner)
    return next((each for each in found if each is not None), None)


def has_each(trace: Trace, model: Value) -> bool:
    """True when every module of the model is sharded by `apply`."""
    return any(touches(each.module, model) for each in trace.every(ShardEach))
