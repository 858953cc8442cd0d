"""Python's own functions and containers, as far as FSDP values go through them."""

from __future__ import annotations

from dataclasses import replace

from fsdp_lint.trace.events import Copy
from fsdp_lint.trace.generators import untested
from fsdp_lint.trace.models import fsdp1, init
from fsdp_lint.trace.models.api import NOTHING, Call, Handler, Machine, constant_name
from fsdp_lint.trace.models.tensors import combine, read_number
from fsdp_lint.trace.values import (
    FIRST_PARAMETER,
    Choice,
    Condition,
    Const,
    Dimensions,
    Instance,
    Literal,
    Mapping,
    Module,
    Object,
    Params,
    Partial,
    Rank,
    Sequence,
    StateDict,
    Tensor,
    Unknown,
    Value,
    WorldSize,
    parts,
)


def range_(run: Machine, call: Call) -> Value:
    """`range(...)`: one number that stands for all."""
    times = call.args[0] if len(call.args) == 1 else Unknown()
    return Sequence(items=[Unknown(name="i")], exact=False, times=times, chosen_by=tuple(call.args))


def listed(run: Machine, call: Call) -> Value:
    """`list`, `tuple`, `set` of an iterable."""
    if not call.args:
        return run.new(Sequence())
    value = call.args[0]
    if isinstance(value, Params):
        return run.take(value, call.site)
    if isinstance(value, Mapping) and not value.rest and not value.open:
        names = sorted(value.items, key=str) if call.name == "sorted" else list(value.items)
        return run.new(Sequence(items=[Const(value=name) for name in names]))
    if isinstance(value, Mapping | StateDict | Tensor):
        return value
    if isinstance(value, Module | Sequence):
        items, exact = run.items(value, call.site)
        made = run.new(Sequence(items=items, exact=exact))
        if isinstance(value, Sequence):
            made.times, made.children_of, made.chosen_by = value.times, value.children_of, value.chosen_by
        return made
    items, exact = run.items(value, call.site)
    return run.new(Sequence(items=items, exact=exact))


def reversed_(run: Machine, call: Call) -> Value:
    """`reversed(...)`."""
    made = listed(run, call)
    if isinstance(made, Sequence):
        made.items = [last_first(run, item) for item in reversed(made.items)]
    return made


def last_first(run: Machine, item: Value) -> Value:
    """One of many modules, drawn so that parts come before what holds them."""
    match item:
        case Module(each="modules", owner=Value() as owner):
            return run.element(owner, "modules", backwards=True)
        case Choice(options=((Module(each="modules") as old, guards),)):
            drawn = last_first(run, old)
            return Choice(options=((drawn, tuple(_asked_of(drawn, guard, old) for guard in guards)),))
        case Sequence(items=[Unknown() as name, Module(each="modules") | Choice() as old]):
            drawn = last_first(run, old)
            return Sequence(items=[Unknown(name=name.name, inputs=(drawn,)), drawn])
    return item


def _asked_of(drawn: Value, test: Literal, old: Value) -> Literal:
    """A test of one value as a test of another."""
    about = frozenset(drawn.number if number == old.number else number for number in test.about)
    return replace(test, subject=drawn if test.subject is old else test.subject, about=about)


def sorted_(run: Machine, call: Call) -> Value:
    """`sorted(...)`."""
    made = listed(run, call)
    if isinstance(made, Sequence):
        made.items = _in_order(run, made.items, call)
    return made


def sort(run: Machine, call: Call) -> Value:
    """`list.sort(...)`."""
    if isinstance(call.self_value, Sequence):
        call.self_value.items = _in_order(run, call.self_value.items, call)
    return NOTHING


def reverse(run: Machine, call: Call) -> Value:
    """`list.reverse()`."""
    if isinstance(call.self_value, Sequence):
        call.self_value.items = [last_first(run, item) for item in reversed(call.self_value.items)]
    return NOTHING


def _in_order(run: Machine, items: list[Value], call: Call) -> list[Value]:
    """Items as a call sorts them. What a key makes of modules is not known: whoever sorts them by one wants parts to
    come before what holds them."""
    if "key" not in call.kwargs and "reverse" not in call.kwargs:
        return items
    return [last_first(run, item) for item in sorted(items, key=_depth, reverse=True)]


def _depth(item: Value) -> int:
    """How deep in the model the modules of an item lie."""
    return max((len(list(part.line())) for part in parts(item) if isinstance(part, Module)), default=0)


def dict_(run: Machine, call: Call) -> Value:
    """`dict(...)`."""
    if call.args and isinstance(call.args[0], Params):
        return run.take(call.args[0], call.site)
    if call.args and isinstance(call.args[0], StateDict) and not call.kwargs:
        return call.args[0]
    made = run.new(Mapping())
    for value in call.args:
        pairs = _pairs(run.possible(value))
        if pairs is None:
            run.merge(made, value)
        for at, content in pairs or ():
            if isinstance(at, Const) and isinstance(at.value, str | int):
                made.items[at.value] = content
            else:
                made.rest.append(content)
    for key, content in call.kwargs.items():
        made.items[key] = content
    made.open = made.open or call.open
    made.rest.extend(call.rest)
    return made


def defaultdict(run: Machine, call: Call) -> Value:
    """`collections.defaultdict(factory)`."""
    factory, *contents = call.args or [NOTHING]
    made = dict_(run, Call(site=call.site, args=contents, kwargs=call.kwargs, open=call.open, rest=call.rest))
    if isinstance(made, Mapping):
        made.default = factory
    return made


def _pairs(value: Value) -> list[tuple[Value, Value]] | None:
    """The keys and contents in a list of pairs; None for other values, and for lists of something else."""
    if not isinstance(value, Sequence):
        return None
    found: list[tuple[Value, Value]] = []
    for item in value.items:
        if not isinstance(item, Sequence) or not item.exact or len(item.items) != 2:
            return None
        found.append((item.items[0], item.items[1]))
    return found


def asdict(run: Machine, call: Call) -> Value:
    """`dataclasses.asdict(...)`."""
    owner = run.possible(call.first())
    if not isinstance(owner, Instance):
        return Unknown(inputs=tuple(call.values()))
    return run.new(Mapping(items={name: run.attribute(owner, name) for name in run.field_names(owner.cls)}))


def enumerate_(run: Machine, call: Call) -> Value:
    """`enumerate(...)`."""
    items, exact = run.items(call.first(), call.site)
    pairs: list[Value] = []
    for at, item in enumerate(items):
        number: Value = Const(value=at) if exact else Unknown(name="i")
        pairs.append(Sequence(items=[number, item]))
    return Sequence(items=pairs, exact=exact, chosen_by=(call.first(),))


def zip_(run: Machine, call: Call) -> Value:
    """`zip(...)`."""
    columns = [run.items(value, call.site) for value in call.args]
    if columns and all(exact for _, exact in columns):
        return Sequence(items=[Sequence(items=list(row)) for row in zip(*(c for c, _ in columns), strict=False)])
    return Sequence(items=[Sequence(items=[untested(c[0]) if c else Unknown() for c, _ in columns])], exact=False)


def map_(run: Machine, call: Call) -> Value:
    """`map(function, iterable)`."""
    items, exact = run.items(call.get(1, "") or Unknown(), call.site)
    return Sequence(
        items=[run.invoke(call.args[0], Call(site=call.site, args=[item], name="map")) for item in items],
        exact=exact,
    )


def reduce_(run: Machine, call: Call) -> Value:
    """`functools.reduce(function, iterable, initial)`."""
    items, _ = run.items(call.get(1, "") or Unknown(), call.site)
    result = call.get(2, "initial") or (items.pop(0) if items else Unknown())
    for item in items:
        result = run.invoke(call.first(), Call(site=call.site, args=[result, item], name="reduce"))
    return result


def filter_(run: Machine, call: Call) -> Value:
    """`filter(function, iterable)`: an iterator over parameters stays un-walked."""
    value = call.get(1, "") or Unknown()
    if isinstance(value, Params):
        return value
    items, _ = run.items(value, call.site)
    function = call.first()
    if isinstance(function, Const):
        return Sequence(items=items, exact=False)
    kept: list[Value] = []
    for item in items:
        outcome = run.invoke(function, Call(site=call.site, args=[item], name="filter"))
        if isinstance(outcome, Const) and not outcome.value:
            continue
        if not isinstance(outcome, Const | Condition):
            outcome = run.opaque_test(("truth", outcome.number), "other", item)
        kept.append(Choice(options=((item, outcome.true),)) if isinstance(outcome, Condition) else item)
    return Sequence(items=kept, exact=False)


def chain(run: Machine, call: Call) -> Value:
    """`itertools.chain(...)`."""
    return _joined(run, list(call.args), call)


def chain_from(run: Machine, call: Call) -> Value:
    """`itertools.chain.from_iterable(...)`."""
    return _joined(run, run.items(call.first(), call.site)[0], call)


def _joined(run: Machine, iterables: list[Value], call: Call) -> Value:
    lazy = [v for v in iterables if isinstance(v, Params)]
    if lazy and len(lazy) == len(iterables) and all(v.taken is None for v in lazy):
        return Params(name=lazy[0].name, of=tuple(m for v in lazy for m in v.of))
    items: list[Value] = []
    exact = not lazy and not call.open
    for value in iterables:
        found, all_of_them = ([value], False) if isinstance(value, Params) else run.items(value, call.site)
        items.extend(found)
        exact = exact and all_of_them
    return Sequence(items=items, exact=exact)


def islice(run: Machine, call: Call) -> Value:
    """`itertools.islice(iterable, start, stop, step)`: each so many items one."""
    if len(call.args) < 4 or isinstance(call.args[0], Params):
        return Unknown(name="islice(...)", inputs=tuple(call.values()))
    items, _ = run.items(call.args[0], call.site)
    return run.new(Sequence(items=items, exact=False, chosen_by=tuple(call.args)))


def number(run: Machine, call: Call) -> Value:
    """`int`, `float`, `bool` of something."""
    value = call.first()
    if isinstance(value, Tensor):
        return read_number(run, value, call.site, f"{call.name}()")
    if isinstance(value, Rank | WorldSize | Condition):
        return value
    if isinstance(value, Const) and isinstance(value.value, int | float):
        return value
    return value if type(value) is Unknown else Unknown(inputs=(value,))


def aggregate(run: Machine, call: Call) -> Value:
    """`sum`, `max`, `min` of tensors."""
    tensors = [p for v in call.values() for p in parts(v) if isinstance(p, Tensor)]
    if tensors:
        return combine(run, tensors, linear=True)
    return Unknown(inputs=tuple(call.values()))


def any_(run: Machine, call: Call) -> Value:
    """`any`, `all`: a truth test of each tensor."""
    value = call.first()
    if isinstance(value, Sequence) and value.children_of is not None and not value.exact:
        return run.opaque_test(("has children", value.children_of.number), "other", value.children_of)
    if isinstance(value, Sequence) and value.children_of is not None and not value.items:
        return Const(value=call.name == "all")
    for tensor in [p for p in parts(value) if isinstance(p, Tensor)][:1]:
        read_number(run, tensor, call.site, f"{call.name}()")
        return Unknown(inputs=tuple(call.values()))
    return run.opaque_test((f"{call.name}()", value.number), "other", *call.values())


def getattr_(run: Machine, call: Call) -> Value:
    """`getattr(value, name, default)`."""
    name = constant_name(call.get(1, ""))
    owner = call.first()
    if name:
        init.note_attribute(run, owner, name, call.site)
        found = fsdp1.missing(run, call, name)
        return found if found is not None else run.attribute(owner, name)
    return run.child(owner, f"[{(call.get(1, '') or Unknown()).name or '?'}]")


def setattr_(run: Machine, call: Call) -> Value:
    """`setattr(value, name, content)`."""
    name, content = constant_name(call.get(1, "")), call.get(2, "")
    if name and content is not None:
        run.assign_attribute(call.first(), name, content, call.site)
    elif content is not None:
        run.attach(call.first(), (call.get(1, "") or Unknown()).name or "?", content, call.site)
        run.loosen(call.first())
    if isinstance(call.first(), Module):
        init.note_buffer(run, call.first(), name or "buffers()", call.site)
    return NOTHING


def next_(run: Machine, call: Call) -> Value:
    """`next(iterator)`; with a default it is not known whether there is anything."""
    value = call.first()
    if isinstance(value, Params):
        if call.get(1, "default") is not None:
            return Unknown(name=FIRST_PARAMETER, inputs=(*value.of,))
        return Tensor(name="parameter", source=run.take(value, call.site), form="parameter")
    items, _ = run.items(value, call.site)
    return items[0] if items else Unknown()


def first(run: Machine, call: Call) -> Value:
    """Functions that give their argument back."""
    return call.first()


def text(run: Machine, call: Call) -> Value:
    """Functions whose result is made from their arguments and whose effects do not matter."""
    return Unknown(name=call.name and f"{call.name}(...)", inputs=tuple(call.values()))


def length(run: Machine, call: Call) -> Value:
    """`len(value)`; of a shape it is the number of dimensions."""
    value = call.first()
    if isinstance(value, Dimensions):
        return Dimensions(name="ndim", tensor=value.tensor)
    return text(run, call)


def shown(run: Machine, call: Call) -> Value:
    """`print(...)`."""
    if call.values():
        run.hand(call, "print")
    return NOTHING


def leave(run: Machine, call: Call) -> Value:
    """`sys.exit()`: nothing behind it is reached."""
    run.leave(failed=True)
    return NOTHING


def partial(run: Machine, call: Call) -> Value:
    """`functools.partial(function, ...)`."""
    if not call.args:
        return Unknown()
    return Partial(
        function=call.args[0],
        args=tuple(call.args[1:]),
        kwargs=dict(call.kwargs),
        open=call.open,
    )


def vars_(run: Machine, call: Call) -> Value:
    """`hasattr`, `callable` ...: a test of which only its identity is known."""
    owner = call.first()
    name = constant_name(call.get(1, ""))
    if isinstance(owner, Tensor) and name in ("full_tensor", "to_local", "_local_tensor", "placements", "device_mesh"):
        known = run.is_dtensor(owner)
        if known is not None:
            return Const(value=known)
    if call.name == "hasattr":
        has = fsdp1.has_attribute(run, call)
        if has is not None:
            return has
    of = fsdp1.asked(owner)
    if call.name == "issubclass" and of is not None and len(call.args) == 2:
        outcome = run.instance_test(of, call.args[1])
        return Const(value=outcome) if isinstance(outcome, bool) else outcome
    return run.opaque_test((call.name, owner.number, name), "other", owner)


def append(run: Machine, call: Call) -> Value:
    """`list.append(item)`."""
    owner = call.self_value
    if isinstance(owner, Sequence):
        owner.items.append(run.with_tests(_kept(run, call.first(), call)))
        if run.loops != list(owner.loops):
            owner.exact = False
    return NOTHING


def _kept(run: Machine, item: Value, call: Call) -> Value:
    """A parameter that goes into a list is held from there on."""
    if isinstance(item, Tensor) and item.form == "parameter" and isinstance(item.source, Params):
        kept = run.take(Params(name=item.source.name, key=item.source.key, of=item.source.of), call.site)
        return run.new(Tensor(name=item.name, source=kept, form="parameter"))
    return item


def insert(run: Machine, call: Call) -> Value:
    """`list.insert(at, item)`."""
    owner = call.self_value
    item = call.get(1, "")
    if isinstance(owner, Sequence) and item is not None:
        kept = run.with_tests(_kept(run, item, call))
        at = call.first()
        first = isinstance(at, Const) and at.value == 0
        owner.items.insert(0 if first else len(owner.items), last_first(run, kept) if first else kept)
        owner.exact = owner.exact and first and run.loops == list(owner.loops)
    return NOTHING


def extend(run: Machine, call: Call) -> Value:
    """`list.extend(items)`."""
    owner = call.self_value
    value = call.first()
    if isinstance(owner, Sequence):
        if isinstance(value, Params):
            owner.items.append(run.take(value, call.site))
            owner.exact = False
        else:
            items, exact = run.items(value, call.site)
            owner.items.extend(items if len(owner.items) < 2_000 else items[:16])
            owner.exact = owner.exact and exact and run.loops == list(owner.loops)
    return NOTHING


def clear(run: Machine, call: Call) -> Value:
    """`list.clear()`."""
    if isinstance(call.self_value, Sequence):
        call.self_value.items.clear()
    return NOTHING


def dict_get(run: Machine, call: Call) -> Value:
    """`dict.get(key, default)` and `pop`."""
    owner = call.self_value
    key = call.first()
    if isinstance(owner, Mapping) and isinstance(key, Const):
        if key.value in owner.items:
            found = owner.items[key.value]
            if call.name.endswith("pop"):
                del owner.items[key.value]
            return found
        if not owner.open and not owner.rest:
            return call.get(1, "default") or NOTHING
    if isinstance(owner, Mapping) and type(key) is Unknown and not call.name.endswith("pop"):
        one = _one_of(run, owner, key, call.get(1, "default") or NOTHING)
        if one is not None:
            return one
    return run.child(owner, f"[{key.name or getattr(key, 'value', '?')!r}]")


def _one_of(run: Machine, owner: Mapping, key: Value, default: Value) -> Value | None:
    """An entry of a small dict under a key that is not known, or what is given where there is none."""
    found = [(item, run.is_key(key, name)) for name, item in owner.items.items()]
    if owner.open or owner.rest or not 0 < len(found) <= 4 or not all(guards for _, guards in found):
        return None
    none = tuple(literal.but(holds=False) for _, guards in found for literal in guards)
    return Choice(options=(*found, (default, none)))


def dict_update(run: Machine, call: Call) -> Value:
    """`dict.update(...)`."""
    if isinstance(call.self_value, Mapping):
        for value in call.args:
            run.merge(call.self_value, value)
        for key, content in call.kwargs.items():
            run.put(call.self_value, key, content)
        call.self_value.open = call.self_value.open or call.open
    return NOTHING


def dict_setdefault(run: Machine, call: Call) -> Value:
    """`dict.setdefault(key, value)`."""
    owner, key = call.self_value, call.first()
    content = call.get(1, "default") or NOTHING
    if isinstance(owner, Mapping) and isinstance(key, Const):
        if key.value not in owner.items:
            run.put(owner, key.value, content)
        return owner.items[key.value]
    return Unknown()


def dict_values(run: Machine, call: Call) -> Value:
    """`dict.values()`."""
    owner = call.self_value
    if isinstance(owner, Mapping):
        return Sequence(items=[*owner.items.values(), *owner.rest], exact=not (owner.rest or owner.open))
    return Unknown()


def dict_keys(run: Machine, call: Call) -> Value:
    """`dict.keys()`."""
    owner = call.self_value
    if isinstance(owner, Mapping) and not owner.rest and not owner.open:
        return Sequence(items=[Const(value=name) for name in owner.items])
    if isinstance(owner, Mapping) and owner.keys and not owner.items:
        return Sequence(items=list(owner.keys.values()), exact=False)
    return run.child(owner, "keys()")


def _key_of(content: Value) -> Value:
    """The key of something in a dict, where it is not known; of a module of a model it is the name."""
    drawn = isinstance(content, Module) and content.each
    return Unknown(name="name", inputs=(content,)) if drawn else Unknown(name="key")


def dict_items(run: Machine, call: Call) -> Value:
    """`dict.items()`."""
    owner = call.self_value
    if isinstance(owner, Mapping):
        pairs: list[Value] = [Sequence(items=[Const(value=k), v]) for k, v in owner.items.items()]
        rest = owner.rest or ([run.child(owner, "[?]")] if owner.open else [])
        pairs += [Sequence(items=[owner.keys.get(v.number) or _key_of(v), v]) for v in rest]
        return Sequence(items=pairs, exact=not (owner.rest or owner.open))
    return Unknown()


def copied(run: Machine, call: Call) -> Value:
    """`dict.copy()`."""
    owner = call.self_value
    if isinstance(owner, Mapping):
        return Mapping(items=dict(owner.items), rest=list(owner.rest), open=owner.open, born=owner.born)
    if isinstance(owner, Sequence):
        return Sequence(items=list(owner.items), exact=owner.exact)
    return owner


def copy_modules(run: Machine, call: Call, how: str) -> None:
    """Notes each module in the first argument, what a list or dict holds included, as copied."""
    for option in run.options(call.first()):
        with run.under(option):
            for part in parts(option.value):
                if isinstance(part, Module) or (type(part) is Unknown and part.number in run.touched):
                    run.emit(Copy, call.site, module=part, how=how)


def shallow_copy(run: Machine, call: Call) -> Value:
    """`copy.copy(x)`, and `copy.deepcopy(x)` of something that is no module."""
    call.self_value = call.first()
    if call.name.endswith("deepcopy"):
        copy_modules(run, call, "copy.deepcopy")
    if isinstance(call.self_value, Module):
        made = run.new(Module(name=call.self_value.name, cls=call.self_value.cls, library=call.self_value.library))
        made.built, made.forward = call.self_value.built, call.self_value.forward
        for name, child in call.self_value.children.items():
            copy = Module(name=child.name, cls=child.cls, library=child.library, count=child.count, owner=made)
            made.children[name] = copy
        return made
    if isinstance(call.self_value, Mapping | Sequence):
        return copied(run, call)
    if isinstance(call.self_value, StateDict | Tensor):
        return call.self_value
    return Unknown(inputs=(call.self_value,))


def thread(run: Machine, call: Call) -> Value:
    """`threading.Thread(target=, args=, kwargs=)`: the target is run."""
    target = call.kwargs.get("target")
    if target is not None:
        args, _ = run.items(call.kwargs.get("args") or Sequence(), call.site)
        kwargs = call.kwargs.get("kwargs")
        named = {k: v for k, v in kwargs.items.items() if isinstance(k, str)} if isinstance(kwargs, Mapping) else {}
        run.invoke(target, Call(site=call.site, args=args, kwargs=named, name="thread"))
    return Unknown(name="thread")


def null_context(run: Machine, call: Call) -> Value:
    """`contextlib.nullcontext(value)`."""
    return Object(cls=NULL_CONTEXT, args=tuple(call.values()))


def enter_context(run: Machine, call: Call) -> Value:
    """`stack.enter_context(context)`."""
    return run.enter_on(call.self_value, call.first("cm"), call.site)


def enter(run: Machine, call: Call) -> Value:
    """`context.__enter__()`."""
    return run.enter_on(call.self_value, call.self_value, call.site)


def at_exit(run: Machine, call: Call) -> Value:
    """`stack.callback(function, ...)`."""
    given = Call(
        site=call.site, args=call.args[1:], kwargs=call.kwargs, open=call.open, rest=call.rest, name="callback"
    )
    run.call_on_exit(call.self_value, call.first("callback"), given)
    return call.first("callback")


def close(run: Machine, call: Call) -> Value:
    """`stack.close()`."""
    run.close(call.self_value)
    return NOTHING


def typed(run: Machine, call: Call) -> Value:
    """`typing.cast(type, value)`: the value."""
    return call.get(1, "val") or Unknown()


_SAME: dict[str, Handler] = dict.fromkeys(("builtins.iter", "builtins.id"), first)
NULL_CONTEXT = "contextlib.nullcontext"
EXIT_STACKS = ("contextlib.ExitStack", "contextlib.AsyncExitStack")
EXIT_STACK_METHODS = {
    "enter_context": enter_context,
    "enter_async_context": enter_context,
    "callback": at_exit,
    "close": close,
}
CONTEXT_METHODS = {"__enter__": enter, "__exit__": close}
FUNCTIONS = {
    NULL_CONTEXT: null_context,
    "builtins.range": range_,
    **dict.fromkeys(("builtins.list", "builtins.tuple", "builtins.set", "builtins.frozenset"), listed),
    "builtins.sorted": sorted_,
    "builtins.reversed": reversed_,
    "builtins.dict": dict_,
    "collections.OrderedDict": dict_,
    "collections.defaultdict": defaultdict,
    "dataclasses.asdict": asdict,
    "builtins.enumerate": enumerate_,
    "builtins.zip": zip_,
    "builtins.map": map_,
    "builtins.filter": filter_,
    "functools.reduce": reduce_,
    "itertools.chain": chain,
    "itertools.chain.from_iterable": chain_from,
    "itertools.islice": islice,
    **dict.fromkeys(("builtins.int", "builtins.float", "builtins.bool"), number),
    **dict.fromkeys(("builtins.sum", "builtins.max", "builtins.min", "builtins.abs"), aggregate),
    **dict.fromkeys(("builtins.any", "builtins.all"), any_),
    "builtins.getattr": getattr_,
    "builtins.setattr": setattr_,
    "builtins.next": next_,
    "typing.cast": typed,
    "typing.assert_type": first,
    **_SAME,
    **dict.fromkeys(
        (
            "builtins.str",
            "builtins.repr",
            "builtins.type",
            "builtins.open",
            "builtins.format",
            "builtins.round",
            "builtins.vars",
            "builtins.object",
            "os.path.join",
            "pathlib.Path",
        ),
        text,
    ),
    **dict.fromkeys(("builtins.hasattr", "builtins.callable", "builtins.issubclass"), vars_),
    **dict.fromkeys(("sys.exit", "builtins.exit", "builtins.quit", "os._exit"), leave),
    "builtins.len": length,
    "builtins.print": shown,
    "functools.partial": partial,
    "copy.deepcopy": shallow_copy,
    "copy.copy": shallow_copy,
    "threading.Thread": thread,
    "multiprocessing.Process": thread,
}
SEQUENCE_METHODS = {
    "append": append,
    "add": append,
    "insert": insert,
    "extend": extend,
    "clear": clear,
    "copy": copied,
    "sort": sort,
    "reverse": reverse,
}
MAPPING_METHODS = {
    "get": dict_get,
    "pop": dict_get,
    "update": dict_update,
    "setdefault": dict_setdefault,
    "keys": dict_keys,
    "values": dict_values,
    "items": dict_items,
    "copy": copied,
}
