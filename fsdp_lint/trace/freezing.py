"""Questions about what is frozen: which layers of an FSDP1 unit train when it is made, and which do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fsdp_lint.trace.events import Event, Freeze, Shard, Thaw, UseParameters
from fsdp_lint.trace.granularity import owns_parameters, parts_of_policy
from fsdp_lint.trace.trace import Trace, covers, touches, whenever
from fsdp_lint.trace.values import Class, Const, External, Module, Sequence, Value, exclusive

Classes = list[tuple[Path, str] | str]


def policy_classes(shard: Shard) -> Classes | None:
    """The classes that an FSDP1 wrap policy makes into units: file and name, or dotted name. Empty without a policy;
    None where they are not known."""
    given = shard.kwargs.get("auto_wrap_policy")
    if given is None or (isinstance(given, Const) and given.value is None):
        return []
    name, kwargs, args = parts_of_policy(given)
    if name not in ("ModuleWrapPolicy", "transformer_auto_wrap_policy"):
        return None
    classes = kwargs.get("transformer_layer_cls") or kwargs.get("module_classes") or (args[0] if args else None)
    if not isinstance(classes, Sequence) or not classes.exact:
        return None
    found = [_class(one) for one in classes.items]
    return [each for each in found if each] if all(found) else None


def _class(value: Value) -> tuple[Path, str] | str:
    if isinstance(value, Class):
        return value.path, value.qualname
    return value.dotted if isinstance(value, External) else ""


def units_of(module: Module, classes: Classes) -> Iterator[Module]:
    """A module, and the parts of it that are of certain classes."""
    yield module
    todo = list(module.children.values())
    while todo:
        child = todo.pop()
        if is_of(child, classes):
            yield child
        todo.extend(child.children.values())


def layers_of(unit: Module, apart: Classes) -> Iterator[Module]:
    """The innermost parts of a module that are known to hold parameters, but for those of units of their own."""
    for child in unit.children.values():
        if is_of(child, apart):
            continue
        if child.children:
            yield from layers_of(child, apart)
        elif child.library is not None and owns_parameters(child):
            yield child


def is_of(module: Module, classes: Classes) -> bool:
    """True when a module is known to be of one of certain classes."""
    if module.cls is not None and (module.cls.path, module.cls.qualname) in classes:
        return True
    return module.library is not None and module.library in classes


def frozen_before(trace: Trace, shard: Shard) -> list[tuple[Event, Value, bool]] | None:
    """What is frozen (True) or thawed in a model before a sharding call, in order; None where that is not known."""
    found: list[tuple[Event, Value, bool]] = []
    for event in trace.events[: shard.order]:
        for module, frozen in _frozen_by(event):
            if event.entry != shard.entry or exclusive(event.guards, shard.guards) or not touches(module, shard.module):
                continue
            # A test of names, or of one of many modules, picks some: which ones is not known.
            picked = isinstance(module, Module) and module.each
            if frozen is None or picked or not (isinstance(event, Freeze | Thaw) or whenever(event, shard)):
                return None
            found.append((event, module, frozen))
    return found


def _frozen_by(event: Event) -> Iterator[tuple[Value, bool | None]]:
    """The modules that an event freezes (True) or thaws; None where what it does is not known."""
    match event:
        case Freeze(module=module):
            yield module, True
        case Thaw(module=module):
            yield module, False
        case UseParameters(how="requires_grad", params=params, to=to):
            frozen = not to.value if isinstance(to, Const) and isinstance(to.value, bool) else None
            yield from ((module, frozen) for module in params.of)


def is_frozen(layer: Module, history: list[tuple[Event, Value, bool]]) -> bool:
    """Whether a layer is frozen after all that was frozen and thawed."""
    return next((frozen for _, module, frozen in reversed(history) if covers(module, layer)), False)
