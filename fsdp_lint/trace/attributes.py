"""Attributes and items: what `value.name` and `value[index]` are."""

from __future__ import annotations

from typing import Any

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.trace.displays import Displays
from fsdp_lint.trace.events import TakeParameters
from fsdp_lint.trace.invocations import dotted
from fsdp_lint.trace.models import table
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.values import (
    Bound,
    Choice,
    Class,
    Const,
    External,
    Function,
    Instance,
    Mapping,
    Mesh,
    Method,
    Module,
    Optimizer,
    Params,
    ProjectModule,
    Sequence,
    Super,
    Tensor,
    Unknown,
    Value,
    is_number,
)

_WITH_INNER = frozenset({External, ProjectModule, Super, Class, Instance, Module})
BLOCK_CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")


class Attributes(Displays):
    """The part of the abstract machine that reads attributes and items."""

    def read(self, value: Value, name: str, node: cst.BaseExpression) -> Value:
        """`value.name` where it is read, noting parameters that are read from outside."""
        table.note_attribute(self, value, name, self.site(node))
        found = self.attribute(value, name)
        if self._is_weight(value, name, found):
            taken = Params(name=f"{value.name}.{name}", key=name, of=(value,))
            taken.taken = self.emit(TakeParameters, self.site(node), params=taken)
            return self.new(Tensor(name=f"{value.name}.{name}", source=taken, form="parameter"))
        return found

    def _is_weight(self, value: Value, name: str, found: Value) -> bool:
        if isinstance(value, Module) and name in value.parameters:
            return True
        if isinstance(value, Module) and name in value.buffers:
            return False
        if name not in ("weight", "bias") or not isinstance(found, Unknown):
            return False
        if isinstance(value, Module) and value.library is not None:
            return value.cls is None and value.library.startswith("torch.nn.")
        return any(one.number in self.touched for one in value.line())

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name`."""
        value = self.possible(value)
        if isinstance(value, Choice):
            return self.each_option(value, lambda option: self.attribute(option, name))
        stored = self.stored(value, name)
        if stored is not None and self._is_counted(value, name, stored):
            # No part of the object: of what that was made says nothing of how far it has counted.
            stored = Unknown(name=self.path_name(value, name))
            self.store(value, name, stored)
        if stored is not None:
            return self.child(value, name) if self._may_have_changed(value, name, stored) else stored
        return self._inner(value, name) if value.__class__ in _WITH_INNER else self._by_kind(value, name)

    def _inner(self, value: Value, name: str) -> Value:
        """An attribute of what the project or a library defines, and of what is made from that."""
        match value:
            case External(dotted=dotted):
                return table.external_attribute(self, dotted, name) or self.external(f"{dotted}.{name}")
            case ProjectModule(path=path):
                return self.load_global(path, name) or self.child(value, name)
            case Super(cls=cls, self_value=inner):
                return self._super_attribute(cls, inner, name)
            case Class():
                found = self.class_attribute(value, name)
                if found is None:
                    return self.child(value, name)
                function = found[1]
                if isinstance(function, Function) and isinstance(function.node, cst.FunctionDef):
                    if "classmethod" in {_last_word(d.decorator) for d in function.node.decorators}:
                        return Bound(name=name, function=function, self_value=value)
                return function
            case Instance(cls=cls):
                return self._instance_attribute(value, cls, name)
            case Module():
                return self._module_attribute(value, name)
        return self._by_kind(value, name)

    def _by_kind(self, value: Value, name: str) -> Value:
        known = table.value_attribute(self, value, name)
        if known is not None:
            return known
        if isinstance(value, Optimizer) and value.by is not None and not table.has_method(value, name):
            found = self.class_attribute(value.by, name)
            return self._bind(value, found[1]) if found is not None else self.child(value, name)
        if table.has_method(value, name):
            return Method(name=name, self_value=value, method=name, owner=value)
        return self.child(value, name)

    def _is_counted(self, value: Value, name: str, stored: Value) -> bool:
        """True for a number that a method of the object counts up: how often it has been called is not known."""
        if not is_number(stored) or not isinstance(value, Instance | Module) or value.cls is None:
            return False
        return self.counts(value.cls, name)

    def _may_have_changed(self, value: Value, name: str, stored: Value) -> bool:
        """True for a flag that an earlier entry has set, and that other methods of the object set, too: which of them
        have been called before this entry is not known."""
        if not self.entry or not isinstance(value, Instance) or self.stored_in[value.number, name] == self.entry:
            return False
        flag = isinstance(stored, Const) and isinstance(stored.value, bool)
        return flag and len(self.setters(value.cls, name)) > 1

    def _super_attribute(self, cls: Class, inner: Value, name: str) -> Value:
        lineage = self.lineage(inner.cls) if isinstance(inner, Instance | Module) and inner.cls else [cls]
        later = lineage[lineage.index(cls) + 1 :] if cls in lineage else self.lineage(cls)[1:]
        for base in later:
            if isinstance(base, Class):
                found = self.class_attribute(base, name)
                if found is not None and isinstance(found[1], Function):
                    return Bound(name=name, function=found[1], self_value=inner)
        if name == "__init__" and isinstance(inner, Module) and inner.cls and self.container_base(inner.cls):
            return Method(name=name, self_value=inner, method=name, key=self.container_base(inner.cls))
        if name in ("__init__", "forward", "__enter__", "__exit__"):
            return self.external("builtins.object")
        if table.has_method(inner, name):
            return Method(name=name, self_value=inner, method=name)
        return Unknown(name=f"super().{name}", owner=inner, key=name)

    def _instance_attribute(self, value: Instance, cls: Class, name: str) -> Value:
        found = self.class_attribute(cls, name)
        if found is None:
            if self.is_optimizer_class(cls) and table.has_method(Optimizer(), name):
                return Method(name=name, self_value=value, method=name)
            known = table.value_attribute(self, Unknown(name=value.name), name)
            return known or self._asked_for(value, cls, name) or self.child(value, name)
        return self._bind(value, found[1])

    def _asked_for(self, value: Instance, cls: Class, name: str) -> Value | None:
        """What the `__getattr__` of an object gives for a name; None where it has none, or where that is not known."""
        found = self.class_attribute(cls, "__getattr__")
        if found is None or not isinstance(found[1], Function) or not isinstance(found[1].node, cst.FunctionDef):
            return None
        site = Site(self.frame.source, found[1].node)
        given = self.enter(found[1], Call(site=site, args=[Const(value=name)], name="__getattr__"), value)
        return None if isinstance(given, Const) or (isinstance(given, Unknown) and given.owner is None) else given

    def _bind(self, value: Value, found: Value) -> Value:
        if not isinstance(found, Function) or not isinstance(found.node, cst.FunctionDef):
            return found
        words = {_last_word(d.decorator) for d in found.node.decorators}
        if "staticmethod" in words:
            return found
        if words & {"property", "cached_property", "abstractproperty"}:
            call = Call(site=Site(self.frame.source, found.node), name=found.name)
            said = self.declarations.of(found, call) if self.declarations.by_name else []
            if said and said[0].kind == "rank-guards":
                return self.rank_test("world")
            made = self.enter(found, call, value)
            if "cached_property" in words:
                self.store(value, found.name, made)
            return made
        if "classmethod" in words:
            owner = value.cls if isinstance(value, Instance | Module) and value.cls else value
            return Bound(name=found.name, function=found, self_value=owner)
        return Bound(name=found.name, function=found, self_value=value)

    def _module_attribute(self, value: Module, name: str) -> Value:
        if value.wraps is not None and name in ("module", "_orig_mod", "_fsdp_wrapped_module"):
            return value.wraps
        if name in value.children:
            return value.children[name]
        if name in value.parameters:
            return value.parameters[name]
        if value.cls is not None:
            found = self.class_attribute(value.cls, name)
            if found is not None:
                return self._bind(value, found[1])
        if table.has_method(value, name):
            return Method(name=name, self_value=value, method=name)
        if value.wraps is not None:
            return self.attribute(value.wraps, name)
        known = table.value_attribute(self, value, name)
        return known if known is not None else self.child(value, name)

    def row(self, value: Value) -> list[Value] | None:
        """The items of a tuple or named tuple, in order; None for other values."""
        if isinstance(value, Sequence) and value.exact:
            return value.items
        if isinstance(value, Instance) and "typing.NamedTuple" in self.library_bases(value.cls):
            return [self.attribute(value, name) for name in self.field_names(value.cls)]
        return None

    def subscript(self, node: cst.Subscript) -> Value:
        """`value[index]`."""
        value = self.possible(self.evaluate(node.value))
        if len(node.slice) != 1:
            indices = [self.evaluate(e.slice.value) for e in node.slice if isinstance(e.slice, cst.Index)]
            if isinstance(value, Mesh):
                return table.value_item(self, value, Sequence(items=indices), node) or self.child(value, "[,]")
            if isinstance(value, Tensor):
                return table.value_item(self, value, Unknown(), node) or value
            return self.child(value, "[,]")
        part = node.slice[0].slice
        if isinstance(part, cst.Slice):
            return self.each_option(value, lambda option: self._slice(option, part))
        if not isinstance(part, cst.Index):
            return Unknown(inputs=(value,))
        index = self.evaluate(part.value)
        return self.each_option(value, lambda option: self._item(option, index, node))

    def _slice(self, value: Value, part: cst.Slice) -> Value:
        low = self.evaluate(part.lower) if part.lower else Const(value=None)
        high = self.evaluate(part.upper) if part.upper else Const(value=None)
        chosen_by = (value, low, high, *([self.evaluate(part.step)] if part.step is not None else []))
        items: list[Value] | None = None
        step = self.evaluate(part.step) if part.step is not None else None
        if isinstance(step, Const) and step.value == -1 and not (part.lower or part.upper):
            if isinstance(value, Sequence):
                return Sequence(items=table.backwards(self, value), exact=value.exact)
        if isinstance(value, Sequence) and value.exact:
            items = value.items
        elif isinstance(value, Module) and value.library and value.library.rpartition(".")[2] in BLOCK_CONTAINERS:
            found, exact = self.items(value, self.site(part))
            items = found if exact else None
            if items is None:
                return Sequence(items=found, exact=False)
        if items is not None and isinstance(low, Const) and isinstance(high, Const) and part.step is None:
            return Sequence(items=items[low.value : high.value], exact=True)
        if isinstance(value, Tensor):
            return value
        if isinstance(value, Module | Unknown):
            return Sequence(
                items=[self.element(value, "items") if isinstance(value, Module) else self.child(value, "[]")],
                exact=False,
                chosen_by=chosen_by,
            )
        if isinstance(value, Sequence):
            return self.new(Sequence(items=list(value.items), exact=False, times=value.times, chosen_by=chosen_by))
        return value if isinstance(value, Params) else Unknown(inputs=(value,))

    def _item(self, value: Value, index: Value, node: cst.Subscript) -> Value:
        key = index.value if isinstance(index, Const) else None
        if (
            isinstance(value, Sequence)
            and isinstance(key, int)
            and value.exact
            and -len(value.items) <= key < len(value.items)
        ):
            return value.items[key]
        if isinstance(value, Sequence) and value.items and not value.exact:
            return value.items[0] if len(value.items) == 1 else Choice(options=tuple((i, ()) for i in value.items[:6]))
        if isinstance(value, Mapping):
            if isinstance(index, Choice):
                return self.each_option(index, lambda one: self._item(value, one, node))
            return self._entry(value, index, key)
        if isinstance(value, Instance):
            found = self.class_attribute(value.cls, "__getitem__")
            if found is not None and isinstance(found[1], Function):
                return self.enter(found[1], Call(site=self.site(node), args=[index]), value)
        if isinstance(value, Module):
            return self._submodule(value, key)
        known = table.value_item(self, value, index, node)
        if known is not None:
            return known
        return self.child(value, f"[{key!r}]" if key is not None else f"[{index.name or '?'}]")

    def _entry(self, value: Mapping, index: Value, key: Any) -> Value:
        """`value[index]` of a dict; `key` is the literal that the index is, None where it is none."""
        if key in value.items:
            return self.possible(value.items[key])
        if key is None and value.items and not value.rest and len(value.items) <= 4:
            return Choice(options=tuple((item, self.is_key(index, at)) for at, item in value.items.items()))
        if value.default is not None and (key is not None or not value.rest):
            made = self.invoke_plain(value.default, self.site(self.frame.source.abstract))
            if isinstance(made, Mapping | Sequence):
                if isinstance(made, Sequence):
                    made.exact = False
                if key is not None:
                    value.items[key] = made
                else:
                    value.rest.append(made)
                return made
        if len(value.rest) != 1 or value.items:
            return self.child(value, f"[{key!r}]")
        only = value.rest[0]
        if isinstance(only, Module) and only.each == "modules" and only.owner is not None:
            # What is looked up by a name among the modules of a model is one of them, not each.
            return self.child(only.owner, "[?]")
        return only

    def _submodule(self, value: Module, key: Any) -> Value:
        items, exact = self.items(value, Site(self.frame.source, self.frame.source.abstract))
        if exact and isinstance(key, int) and -len(items) <= key < len(items):
            return items[key]
        if isinstance(key, str) and key in value.children:
            return value.children[key]
        if len(items) == 1:
            return items[0]
        return self.element(value, "items")


def _last_word(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Call):
        node = node.func
    return dotted(node).rpartition(".")[2]
