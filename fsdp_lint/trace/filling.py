"""Questions about a model's values: where they come from, what writes them, and whether all ranks have the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from fsdp_lint.trace.events import (
    CallMethod,
    Collective,
    Event,
    Forward,
    Handed,
    Initialise,
    LoadState,
    Materialise,
    Seed,
    Shard,
    UseParameters,
)
from fsdp_lint.trace.models.frameworks import is_untrained
from fsdp_lint.trace.trace import SCHEDULERS, Trace, flag_of, related, touches
from fsdp_lint.trace.values import (
    External,
    Instance,
    Mesh,
    Module,
    Params,
    StateDict,
    Tensor,
    Unknown,
    Value,
    exclusive,
    options_of,
    parts,
)

# Methods of models that write no parameter, by their names.
READING = re.compile(
    r"^_?(set_(requires|is|reshard|modules|unshard|gradient|all)|get|num|count|print|enable|disable|gradient_|config|log|"
    r"train|eval|parameters|freeze|unfreeze|forward|generate|named|is_|has_|state_dict|compile|summary|estimate|"
    r"tie_weights|requires_grad|zero_grad|no_sync|clip|encode|decode|predict|loss|sample|save|push|size|device|dtype|register|named_|modules|children|__)"
)
SENDING = frozenset({"broadcast", "scatter", "broadcast_object_list", "distribute_tensor", "all_reduce", "all_gather"})
# How torch's own layers call their parameters.
LAYERS_OWN = frozenset({"weight", "bias"})
READERS = re.compile(
    r"summary|param_count|count_param|num_param|numel|print|^log|watch|describe|report|memory|flops|compile"
)
FILLERS = re.compile(r"load|restore|init|resume|checkpoint|ckpt|materiali|weights|reset", re.IGNORECASE)


def first_use(trace: Trace, model: Value, after: Event) -> Forward | None:
    """The first call of the model, or of something in or around it, that comes after the event on its path."""
    for event in trace.every(Forward):
        if event.order > after.order and touches(event.module, model) and trace.before(after, event):
            return event
    return None


def fills(trace: Trace, model: Value, after: Event, until: Event) -> Iterator[Event]:
    """What writes into the model, or may do so, after one event and before another."""
    for event in trace.events:
        if event.order >= until.order:
            return
        if exclusive(event.guards, after.guards) or exclusive(event.guards, until.guards):
            continue
        if (event.order > after.order and _writes(event, model)) or _keeps(event, model):
            yield event


def _writes(event: Event, model: Value) -> bool:
    match event:
        case Initialise(of=of) | LoadState(into=of):
            return not of or any(type(one) is Unknown or touches(one, model) for one in of)
        case UseParameters(params=params, how="update" | "data"):
            return any(touches(one, model) for one in params.of)
        case Collective(op=op, on=on):
            return op in SENDING and any(_is_of(one, model) for one in on)
    return _may_write(event, model)


def _may_write(event: Event, model: Value) -> bool:
    """True for a method or unknown code that may write anything of the model, and where FSDP1 sends rank 0's states."""
    match event:
        case CallMethod(of=one, method=method):
            return touches(one, model) and not READING.match(method)
        case Handed(values=values, to=to):
            return _gets(values, to, model)
        case Shard(generation=1, module=module):
            return touches(module, model) and flag_of(event, "sync_module_states", False) is not False
    return False


def _gets(values: tuple[Value, ...], to: str, model: Value) -> bool:
    """True for unknown code that gets the model, or an object that may hold it and whose name says that it fills."""
    if to in ("print", "return") or SCHEDULERS.search(to) or READERS.search(to.rpartition(".")[2]):
        return False
    for part in (part for value in values for part in parts(value)):
        if _is_of(part, model) or (isinstance(part, Instance) and FILLERS.search(to)):
            return True
    return False


def _keeps(event: Event, model: Value) -> bool:
    """True where an object that is not known gets the model: it may fill it later."""
    if not isinstance(event, Handed) or not FILLERS.search(event.to):
        return False
    return any(_is_of(part, model) for value in event.values for part in parts(value))


def _is_of(value: Value, model: Value) -> bool:
    """True for the model, its parameters, one of them, or its state dict."""
    if isinstance(value, Params):
        return any(touches(one, model) for one in value.of)
    if isinstance(value, StateDict):
        return touches(value.of, model)
    if isinstance(value, Tensor):
        return value.source is not None and _is_of(value.source, model)
    if any(_is_of(made_from, model) for one in value.line() if isinstance(one, Unknown) for made_from in one.inputs):
        return True
    return touches(value, model)


def writes_buffer(event: Event, model: Value, buffer: str, writers: frozenset[str]) -> bool:
    """True when the event gives a buffer of the model a new value, or may do so. `writers` are the methods that do."""
    match event:
        case Initialise(of=of, tensor=tensor, how=how):
            if tensor is not None:
                keys = {one.key for one in tensor.line()}
                return bool(keys & {buffer, "buffers()"}) and any(touches(one, model) for one in of)
            return how.strip(".()") in writers and any(touches(one, model) for one in of)
        case Collective(op=op, on=on):
            return op in SENDING and any(_is_of(one, model) and not isinstance(one, Params | Tensor) for one in on)
    return _may_write(event, model)


def passed_by(trace: Trace, model: Value, after: Event, until: Event) -> tuple[Module, str] | None:
    """A module and the name of an nn.Parameter of its own that the initialisation between two events does not reach.

    None where something else than an initialisation that can be followed may write it.
    """
    from fsdp_lint.trace.models.init import writers_of  # it loads libcst, which rules may not when they are listed

    events = list(fills(trace, model, after, until))
    written = [event for event in events if isinstance(event, Initialise)]
    root = next((one for one in reversed(list(model.line())) if isinstance(one, Module) and one.built), None)
    if root is None or not written or len(written) < len(events):
        return None
    for module in _modules_in(root):
        for name in module.parameters:
            writers = writers_of(module, name)
            if writers is not None and not any(_writes_parameter(event, name, writers) for event in written):
                return module, name
    return None


def _modules_in(module: Module, deep: int = 8) -> Iterator[Module]:
    yield module
    for child in module.children.values() if deep else ():
        yield from _modules_in(child, deep - 1)


def _writes_parameter(event: Initialise, name: str, writers: frozenset[str]) -> bool:
    """True unless the event writes another parameter, by its name, or runs a method that does not write this one."""
    tensor = event.tensor
    if tensor is None:
        return event.how.strip(".()") in writers
    if isinstance(tensor, Tensor) and isinstance(tensor.source, Params) and tensor.source.name.endswith("parameters()"):
        return True
    word = tensor.name.removesuffix(".data").rpartition(".")[2] if isinstance(tensor, Tensor) else tensor.key
    return word == name or word not in LAYERS_OWN


# the same on all ranks -------------------------------------------------------------------------------------------


def seed_of(trace: Trace, model: Module, shard: Shard) -> Seed | None:
    """The seed from which a model was made, on the path of its sharding; None where none was set."""
    found: Seed | None = None
    for seed in trace.every(Seed):
        if seed.order >= model.born or seed.entry != shard.entry:
            break
        if exclusive(seed.guards, shard.guards):
            continue
        # Behind the with-block the numbers go on as before it.
        if any("fork_rng" in name for name in seed.contexts if name not in model.within):
            continue
        found = seed
    return found


def agreed(trace: Trace, model: Module, shard: Shard, use: Event) -> bool:
    """True when something makes the ranks' values the same after the model was made, or may do so."""
    same_seed, drawn = False, False
    for event in trace.events[model.born :]:
        if event.order >= use.order:
            return False
        if exclusive(event.guards, shard.guards) or exclusive(event.guards, use.guards):
            continue
        if isinstance(event, Seed):
            same_seed = event.differs != "rank"
        elif isinstance(event, Materialise):
            if touches(event.of, model):
                return True
        elif isinstance(event, Initialise):
            drawn = drawn or event.random
            agrees = same_seed or event.order > shard.order or not drawn
            if agrees and any(touches(one, model) for one in event.of):
                return True
        elif _writes(event, model) and not (isinstance(event, Shard) and event is shard):
            return True
    return False


def made_here(value: Value) -> Module | None:
    """The model, where this run makes it with random values: not one that a library loads, nor an unknown one."""
    for option, _ in options_of(value):
        inner: Value | None = option
        while isinstance(inner, Module) and inner.wraps is not None:
            inner = inner.wraps
        if not isinstance(inner, Module):
            continue
        if inner.built and (inner.cls is not None or _is_plain(inner)):
            return inner
        if inner.library is not None and is_untrained(inner.library):
            return inner
    return None


def _is_plain(module: Module) -> bool:
    return module.library is not None and module.library.startswith("torch.nn.")


def meshes_of(shard: Shard) -> list[Mesh]:
    """The meshes that a sharding call gets, one for each way to it; those that are not known are left out."""
    given = shard.kwargs.get("mesh" if shard.generation == 2 else "device_mesh")
    return [option for option, _ in options_of(given) if isinstance(option, Mesh)] if given is not None else []


def is_hybrid(shard: Shard) -> bool | None:
    """Whether a sharding call shards within groups and replicates across them; None when that is not known."""
    if not shard.kwargs_known or "dp_mesh_dims" in shard.kwargs:
        return None
    strategy = shard.kwargs.get("sharding_strategy")
    if shard.generation == 1 and strategy is not None:
        return "HYBRID" in strategy.dotted if isinstance(strategy, External) else None
    given = shard.kwargs.get("mesh" if shard.generation == 2 else "device_mesh")
    if given is None:
        return False
    dimensions = given.dimensions() if isinstance(given, Mesh) else None
    return None if dimensions is None else dimensions == 2


@dataclass(frozen=True)
class Start:
    """A sharded model that is trained from values which this run draws at random on each rank for itself."""

    model: Module
    shard: Shard
    seed: Seed | None


def own_starts(trace: Trace) -> Iterator[Start]:
    """The sharded models for which nothing makes the ranks' random values the same but the seed."""
    for shard in roots(trace):
        model = made_here(shard.module)
        if model is None or model.born > shard.order or trace.in_test(shard):
            continue
        if shard.generation == 1 and (
            not shard.kwargs_known or flag_of(shard, "sync_module_states", False) is not False
        ):
            continue
        use = first_use(trace, model, shard)
        if use is None or trace.replicated(model, shard) or agreed(trace, model, shard, use):
            continue
        yield Start(model, shard, seed_of(trace, model, shard))


def roots(trace: Trace) -> Iterator[Shard]:
    """The last sharding call of each model: the one of which all others are part."""
    shards = list(trace.every(Shard))
    for at, shard in enumerate(shards):
        if not any(
            related(other.module, shard.module) or (touches(other.module, shard.module) and _outer(other, shard))
            for other in shards[at + 1 :]
            if not exclusive(other.guards, shard.guards)
        ):
            yield shard


def _outer(other: Shard, shard: Shard) -> bool:
    return any(one.number == other.module.number for one in shard.module.line())
