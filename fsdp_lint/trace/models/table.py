"""All models in one place: what a library call, method or attribute means."""

from __future__ import annotations

from collections.abc import Container

import libcst as cst

from fsdp_lint.project.index import Import
from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import inner
from fsdp_lint.trace.events import (
    CheckClass,
    Collective,
    DivideByWorld,
    Forward,
    Handed,
    RepointOptimizer,
    Seed,
    UseCuda,
)
from fsdp_lint.trace.models import (
    checkpoint,
    collectives,
    configs,
    data,
    declared,
    environment,
    frameworks,
    fsdp,
    fsdp1,
    init,
    modules,
    optim,
    precision,
    python,
    surgery,
    tensors,
)
from fsdp_lint.trace.models.api import Call, Handler, Machine, constant_name
from fsdp_lint.trace.values import MISSING as MISSING
from fsdp_lint.trace.values import (
    Bound,
    Condition,
    Const,
    Entering,
    External,
    Function,
    Instance,
    Loaded,
    Mapping,
    Mesh,
    Method,
    Module,
    Object,
    Optimizer,
    Params,
    Rank,
    Sequence,
    StateDict,
    Tensor,
    Unknown,
    Value,
    WorldSize,
    parts,
)

# Environment variables that a launcher sets for each process.
PROCESS_VARIABLES = frozenset({*environment.VARIABLES, *environment.WORLD})

FUNCTIONS: dict[str, Handler] = {
    **fsdp.FUNCTIONS,
    **modules.FUNCTIONS,
    **environment.FUNCTIONS,
    **checkpoint.FUNCTIONS,
    **data.FUNCTIONS,
    **init.FUNCTIONS,
    **collectives.FUNCTIONS,
    **tensors.FUNCTIONS,
    **python.FUNCTIONS,
    **fsdp1.FUNCTIONS,
    **precision.FUNCTIONS,
    **surgery.FUNCTIONS,
    **configs.FUNCTIONS,
}
CONTAINERS = modules.CONTAINERS
NULL_CONTEXT, EXIT_STACKS = python.NULL_CONTEXT, python.EXIT_STACKS
MODULE_METHODS: dict[str, Handler] = {**modules.METHODS, **fsdp.METHODS, **surgery.METHODS}
UNKNOWN_METHODS: dict[str, Handler] = {
    **{name: modules.METHODS[name] for name in modules.UNKNOWN_METHODS},
    **fsdp.METHODS,
    **surgery.METHODS,
}
FLAGS = fsdp1.FLAGS
# The key of a number that was divided by the number of processes.
SHARE = "one's share"
# Methods of accelerate's and Fabric's objects, known by name.
GATHERING = {"get_state_dict": modules.save_method, "save_state": modules.save_method}


def known(dotted: str) -> bool:
    """True when the table has something to say of a library name."""
    return dotted in FUNCTIONS


def copied(name: str, defined: Container[str]) -> str:
    """The dotted name of what a file defines under a name, where it is a copy of a library's; empty elsewhere."""
    return checkpoint.copied(name, defined)


def handler(dotted: str) -> Handler | None:
    """The model of a library call."""
    return FUNCTIONS.get(dotted)


def import_of(module: str, attribute: str | None, level: int) -> Import:
    """An import as the project resolves it."""
    return Import(module, attribute, level)


def words(node: cst.CSTNode) -> set[str]:
    """All names in an expression."""
    if isinstance(node, cst.Name):
        return {node.value}
    return {word for child in inner(node) for word in words(child)}


def rank_scope(name: str) -> Value | None:
    """A rank, for a parameter that is named like one."""
    scope = {"rank": "world", "global_rank": "world", "world_rank": "world", "local_rank": "local"}.get(name)
    if scope is not None:
        return Rank(name=name, scope=scope)
    return None


def process_part(names: list[str], at: int) -> Value | None:
    """The rank or size in `rank, world_size = setup()`, by the names together; None for other parts."""
    known = [rank_scope(name) for name in names]
    sizes = [environment.is_size_name(name) for name in names]
    if sum(scope is not None for scope in known) + sum(sizes) < 2:
        return None
    return WorldSize(name=names[at]) if sizes[at] else known[at]


def worth_a_look(names: set[str]) -> bool:
    """True for the names of a function that says which process this is, makes a model or FSDP1's wrap policy, or makes
    parts of a model ready."""
    telling = (environment.TELLING, frameworks.FRESH_MODELS, fsdp.FUNCTION_POLICIES, fsdp.REWORK_NAMES)
    return any(not names.isdisjoint(each) for each in telling)


# attributes -----------------------------------------------------------------------------------------------------


def external_attribute(run: Machine, dotted: str, name: str) -> Value | None:
    """An attribute of a library thing; None for an ordinary one."""
    if dotted == "os.environ":
        return run.external(f"os.environ.{name}")
    return None


def value_attribute(run: Machine, value: Value, name: str) -> Value | None:
    """An attribute that is known for its value's kind or by its name; None for others."""
    if isinstance(value, Tensor):
        return tensors.attribute(run, value, name)
    if isinstance(value, Object) and name in value.kwargs:
        return value.kwargs[name]
    if isinstance(value, Unknown | Instance | Module | Object):
        scope = environment.rank_zero_name(name)
        if scope is not None:
            return run.rank_test(scope)
        scope = configs.writes(run, value) if name == "should_save" else ""
        if scope:
            return run.rank_test(scope)
        if name in ("num_processes", "world_size"):
            return environment.world_size(run, _no_call())
    return None


def _no_call() -> Call:
    return Call(site=None)  # type: ignore[arg-type]


def value_item(run: Machine, value: Value, index: Value, node: cst.Subscript) -> Value | None:
    """An item that is known for its container's kind; None for others."""
    if isinstance(value, External) and value.dotted == "os.environ" and isinstance(index, Const):
        return environment._variable(run, str(index.value))
    if isinstance(value, Mesh):
        return environment.mesh_slice(value, index)
    if isinstance(index, Const) and index.value == "params" and optimizer_of_groups(value) is not None:
        return _params_of_group(run, value)
    if isinstance(value, Params):
        return Tensor(name=f"{value.name}[...]", source=value, form="parameter", loops=value.loops)
    if isinstance(value, StateDict):
        return Tensor(name=f"{value.name}[...]", source=value, form="entry")
    if isinstance(value, Tensor):
        # An element or a slice of a DTensor is whole (measured on torch 2.13.0).
        return tensors.derived(run, value, "full" if value.form in tensors.SHARDED else value.form)
    return None


def _params_of_group(run: Machine, group: Value) -> Value | None:
    """`group["params"]` of an optimizer: parameters that it holds; None where it holds none that are known."""
    optimizer = optimizer_of_groups(group)
    held = [params for params in optimizer.holds if params.taken is not None] if optimizer is not None else []
    if not held:
        return None
    last = max(held, key=lambda params: params.taken.order if params.taken is not None else 0)
    of = tuple({module.number: module for params in held for module in params.of}.values())
    return run.new(Params(name='group["params"]', owner=group, of=of, taken=last.taken))


def set_buffer(run: Machine, container: Value, index: Value, site: Site) -> None:
    """`module._buffers[name] = value`, `module.name[...] = value`: a buffer gets a new value."""
    for owner in container.line():
        if isinstance(owner, Module):
            name = index.value if container.key == "_buffers" and isinstance(index, Const) else container.key
            init.note_buffer(run, owner, str(name) if name != "_buffers" else "buffers()", site)
            return


def set_item(run: Machine, container: External, index: Value, site: Site) -> None:
    """`os.environ[name] = value`."""
    if container.dotted == "os.environ":
        environment.set_variable(run, constant_name(index), site)


def set_attribute(run: Machine, owner: Module, name: str, site: Site) -> bool:
    """`module.name = value`: a buffer gets a new value, and stays the module's. True where it is one."""
    if name in owner.buffers or owner.each:
        init.note_buffer(run, owner, name, site)
    return name in owner.buffers


def set_tensor(run: Machine, owner: Module, name: str, value: Value, site: Site) -> None:
    """`self.name = torch.arange(...)` in an `__init__`, under the meta device."""
    init.plain_tensor(run, owner, name, value, site)


def has_method(value: Value, name: str) -> bool:
    """True when the method of such a value has a model."""
    match value:
        case Module():
            return name in MODULE_METHODS
        case Optimizer():
            return name in optim.METHODS
        case Sequence():
            return name in python.SEQUENCE_METHODS
        case Object(cls=cls) if cls in EXIT_STACKS:
            return name in python.EXIT_STACK_METHODS
        case Entering() if name in python.CONTEXT_METHODS:
            return True
        case Mapping():
            return name in python.MAPPING_METHODS
        case Tensor() | StateDict() | Params():
            return True
        case Mesh():
            return name in ("get_rank", "get_local_rank", "size", "get_group", "get_coordinate")
        case Unknown() | Object():
            return name in UNKNOWN_METHODS or name in ("full_tensor", "backward", "item", *GATHERING)
    return False


def call_method(run: Machine, value: Value, name: str, call: Call) -> Value:
    """Calls a method that has a model."""
    match value:
        case Tensor():
            return tensors.method(run, value, name, call)
        case Optimizer():
            return optim.METHODS[name](run, call)
        case Sequence():
            return python.SEQUENCE_METHODS[name](run, call)
        case Mapping():
            return python.MAPPING_METHODS[name](run, call)
        case StateDict():
            return _state_method(run, value, name)
        case Params():
            return _params_method(run, value, name, call)
        case Mesh():
            return Rank(name="rank", scope="group", owner=value) if "rank" in name else Unknown(name=name)
        case Object(cls=cls) if cls in EXIT_STACKS:
            return python.EXIT_STACK_METHODS[name](run, call)
        case Entering() if name in python.CONTEXT_METHODS:
            return python.CONTEXT_METHODS[name](run, call)
        case Unknown() | Object():
            return _unknown_method(run, value, name, call)
    return MODULE_METHODS[name](run, call) if name in MODULE_METHODS else Unknown()


def _unknown_method(run: Machine, value: Value, name: str, call: Call) -> Value:
    if isinstance(value, Object) and configs.is_framework(value):
        call.name = call.name or name
        found = configs.object_call(run, Method(owner=value, key=name, self_value=value, method=name), call)
        if found is not None or name in configs.FRAMEWORK_METHODS:
            return found if found is not None else Unknown(inputs=tuple(call.values()))
    known_tensor = tensors.unknown_method(run, value, name, call)
    if known_tensor is not None:
        return known_tensor
    if name in GATHERING:
        call.self_value = configs.gathers(run, value)
        return GATHERING[name](run, call)
    if name in UNKNOWN_METHODS:
        return UNKNOWN_METHODS[name](run, call)
    return run.child(value, f"{name}()")


def _state_method(run: Machine, state: StateDict, name: str) -> Value:
    entry = Tensor(name=f"{state.name}[...]", source=state, form="entry")
    if name == "items":
        return Sequence(items=[Sequence(items=[Unknown(name="key"), entry])], exact=False)
    if name in ("values",):
        return Sequence(items=[entry], exact=False)
    if name in ("pop", "get"):
        return entry
    if name == "copy":
        return state
    return Unknown()


def _params_method(run: Machine, params: Params, name: str, call: Call) -> Value:
    optimizer = optimizer_of_groups(params) if name in ("clear", "extend", "append") else None
    if optimizer is not None:
        run.emit(RepointOptimizer, call.site, optimizer=optimizer)
        return Unknown()
    taken = run.take(params, call.site)
    element = Tensor(name="parameter", source=taken, form="parameter", loops=tuple(run.loops))
    if name == "items":
        return Sequence(items=[Sequence(items=[Unknown(name="name"), element])], exact=False)
    if name == "values":
        return Sequence(items=[element], exact=False)
    if name in ("pop", "get"):
        return element
    return Unknown()


def items_of(run: Machine, value: Value, site: Site) -> tuple[list[Value], bool] | None:
    """What iterating gives, for the kinds that are known; None for others."""
    match value:
        case Params():
            taken = run.take(value, site)
            element: Value = Tensor(name="parameter", source=taken, form="parameter", loops=tuple(run.loops) or (-1,))
            if value.named:
                element = Sequence(items=[Unknown(name="name"), element])
            return [element], False
        case Module():
            return modules.members(run, value)
        case StateDict():
            return [Unknown(name="key")], False
        case Tensor():
            return [tensors.derived(run, value, value.form)], False
    return None


def unpacked(run: Machine, value: Value, at: int) -> Value | None:
    """One of the values of an unpacked one, for the kinds that are known; None for others."""
    if isinstance(value, Tensor):
        return tensors.derived(run, value, value.form)
    return None


def optimizer_of_groups(value: Value) -> Optimizer | None:
    """The optimizer whose param_groups `value` is, or is part of."""
    keys = []
    for one in value.line():
        if isinstance(one, Optimizer):
            return one if "param_groups" in keys else None
        keys.append(one.key)
    return None


# calls ----------------------------------------------------------------------------------------------------------


def call_library(run: Machine, dotted: str, call: Call) -> Value:
    """A call to a library function or class without a model of its own."""
    sharded = declared.of_framework(run, dotted, call)
    if sharded is not None:
        return sharded
    last = dotted.rpartition(".")[2]
    if init.SEED_NAME.search(last) and not dotted.startswith(("torch.", "numpy.", "random.")):
        return init.seed(run, call)
    if environment.rank_zero_name(last):
        return run.rank_test(environment.rank_zero_name(last) or "world")
    if last in ("get_rank", "global_rank", "get_global_rank"):
        return environment.get_rank(run, call)
    if last in ("get_local_rank", "local_rank"):
        return environment.local_rank(run, call)
    if last in ("get_world_size", "world_size"):
        return environment.world_size(run, call)
    if dotted.startswith(("torch.optim.lr_scheduler.", "torch.optim.swa_utils.")):
        return Object(cls=dotted, args=tuple(call.args), kwargs=dict(call.kwargs))
    if dotted.startswith("torch.optim.") or optim.is_optimizer_name(last):
        built = _optimizer(run, last, call)
        if built is not None:
            return built
    if last in fsdp.OBJECTS or last in fsdp.POLICIES:
        return Object(cls=last, args=tuple(call.args), kwargs=dict(call.kwargs), site=call.site)
    if dotted.startswith("torch.nn.") and last[:1].isupper() and not dotted.startswith("torch.nn.utils"):
        return modules.make(run, dotted, call)
    if last in frameworks.FRESH_MODELS:
        loaded = run.new(Module(library=dotted, args=tuple(call.args), kwargs=dict(call.kwargs)))
        precision.note_loaded(run, call, loaded, last)
        if last == "from_pretrained":
            checkpoint.note_pretrained(run, dotted, call, loaded)
        return loaded
    if dotted.startswith("torch."):
        found = tensors.function(run, last, call)
        if found is not None:
            return found
    return _other_library(run, dotted, call)


def _optimizer(run: Machine, name: str, call: Call) -> Value | None:
    first = call.get(0, "params") or call.kwargs.get("parameters")
    if first is None:
        return None
    if any(isinstance(p, Params) or (isinstance(p, Tensor) and p.form == "parameter") for p in parts(first)):
        return optim.build(run, name, call)
    return None


def _other_library(run: Machine, dotted: str, call: Call) -> Value:
    last = dotted.rpartition(".")[2]
    if environment.bare_cuda(call.kwargs.get("device")) and dotted.startswith("torch."):
        run.emit(UseCuda, call.site, value=Unknown(name=last), how='device="cuda"')
    if not frameworks.is_harmless(dotted):
        if frameworks.SETS_UP.search(last):
            run.emit(Seed, call.site, differs=None)
        if call.values():
            run.emit(Handed, call.site, values=tuple(call.values()), to=dotted)
    configs.note_setup(run, dotted, call)
    if frameworks.is_model_class(dotted):
        return run.new(Module(library=dotted, args=tuple(call.args), kwargs=dict(call.kwargs)))
    if last[:1].isupper():
        made = Object(cls=dotted, args=tuple(call.args), kwargs=dict(call.kwargs), site=call.site)
        configs.configure(run, dotted, call, made)
        return made
    key = dotted if dotted.startswith("torch.") else ""
    return Unknown(name=f"{last}(...)", key=key, inputs=tuple(call.values()))


def call_object(run: Machine, function: Object, call: Call) -> Value | None:
    """Calling the object that a library call gave (a loss, a decorated function ...)."""
    if function.cls.startswith("torch."):
        return Unknown(inputs=tuple(call.values()))
    return None


def call_unknown(run: Machine, function: Value, call: Call) -> Value | None:
    """A call to something unknown whose meaning is known by its name or by what happened to it; None for others."""
    if isinstance(function, Condition | Rank):
        return function
    name = call.name.rpartition(".")[2]
    known = configs.object_call(run, function, call)
    if known is not None:
        return known
    init.unknown_method(run, function, call)
    if init.SEED_NAME.search(name) and (function.owner is None or name != "manual_seed"):
        return init.seed(run, call)
    scope = environment.rank_zero_name(name)
    if scope is not None and not call.values():
        return run.rank_test(scope)
    if optim.is_optimizer_name(call.name):
        built = _optimizer(run, name, call)
        if built is not None:
            return built
    if name in ("init_process_group", "barrier", "wait_for_everyone"):
        if name != "init_process_group":
            by = function.owner if function.owner is not None and is_framework(function.owner) else None
            run.emit(Collective, call.site, op="barrier", on=(), plain=True, by=by)
        return Unknown()
    if isinstance(function.owner, Loaded) and function.key in ("get_tensor", "get", "pop"):
        return run.child(function.owner, "[?]")
    if name == "submit" and call.args and isinstance(call.args[0], Function | Bound | Method | External):
        return run.invoke(call.args[0], Call(site=call.site, args=call.args[1:], kwargs=call.kwargs, name="submit"))
    if name in ("clear", "extend", "append"):
        optimizer = optimizer_of_groups(function)
        if optimizer is not None and any("params" in one.key for one in function.line()):
            run.emit(RepointOptimizer, call.site, optimizer=optimizer)
            return Unknown()
    if function.number in run.touched:
        made = Unknown(name="output", inputs=(function, *call.values()))
        run.emit(Forward, call.site, module=function, result=made)
        return made
    return None


class_asked = fsdp1.asked
is_framework = configs.is_framework
configure_derived = configs.configure_derived
class_named = fsdp1.asked_by_name


def is_there(run: Machine, value: Value) -> bool:
    """True for a method that a module has by how it was sharded."""
    return isinstance(value, Method) and fsdp1.has_method(run, value.self_value, value.method) is True


note_attribute = init.note_attribute


def note_built(run: Machine, made: Module) -> None:
    """A model of the project's own class is made."""
    precision.note_built(run, made)


def shards_by_name(name: str) -> bool:
    """True for functions whose names say that they may shard what they get."""
    return bool(frameworks.SHARDS.search(name.rpartition(".")[2]))


def is_model_name(name: str) -> bool:
    """True for names that people give to models and their parts."""
    return bool(frameworks.IS_MODEL.search(name))


def note_class(run: Machine, value: Value, classes: Value, by: str, site: Site) -> None:
    """A test of a module's class: the event, where FSDP1's class, DDP's or one of the project is asked for."""
    names = tuple(fsdp1.class_name(one) for one in parts(classes))
    if isinstance(value, Module | Unknown) and any(name for name in names):
        run.emit(CheckClass, site, value=value, by=by, names=names)


def assign_attribute(run: Machine, value: Value, name: str, site: Site, to: Value) -> bool:
    """`value.name = to` where that has a meaning of its own; False where it is just stored."""
    configs.switch_on(run, value, name, to, site)
    return tensors.assign_attribute(run, value, name, site, to)


def change_in_place(run: Machine, value: Tensor, by: Value, divides: bool, site: Site) -> None:
    """`tensor.data *= x` and its like."""
    tensors.change_in_place(run, value, by, divides, site)


def divide(run: Machine, value: Value, by: Value, result: Value, site: Site) -> None:
    """`result = value / by`: notes a division by the number of processes; of a number it is the share of one."""
    if tensors.is_world_size(by) and isinstance(value, Const) and isinstance(result, Unknown):
        result.key = SHARE
    elif tensors.is_world_size(by):
        run.emit(DivideByWorld, site, value=result, of=value, by=by)


def multiply(run: Machine, left: Value, right: Value, result: Value, site: Site) -> None:
    """`result = left * right`: notes where one of them is the share of one process."""
    for value, share in ((left, right), (right, left)):
        if isinstance(share, Unknown) and share.key == SHARE and not isinstance(value, Const):
            run.emit(DivideByWorld, site, value=result, of=value, by=share.inputs[1])


def combine(run: Machine, found: list[Tensor], linear: bool) -> Value:
    """Arithmetic with tensors."""
    return tensors.combine(run, found, linear)


# Names by which rules know blocks in which parameters get no memory.
ON_META = frozenset({"torch.device(meta)", "init_empty_weights", "init_on_device", "no_init_weights"})


def context_name(value: Value, node: cst.BaseExpression) -> str:
    """How a with-block is known to rules."""
    if isinstance(value, Object) and value.cls == "torch.device":
        return f"torch.device({constant_name(value.args[0]) if value.args else ''})"
    if isinstance(value, Object):
        return value.cls
    if isinstance(value, Unknown) and value.name:
        return value.name
    return next(iter(sorted(words(node))), "")


def is_context(node: cst.FunctionDef) -> bool:
    """True for a generator of which `contextlib.contextmanager`, or its asynchronous twin, makes a context."""
    return any(words(one.decorator) & {"contextmanager", "asynccontextmanager"} for one in node.decorators)


def is_suppress(value: Value) -> bool:
    """True for `contextlib.suppress`."""
    return isinstance(value, External) and value.dotted == "contextlib.suppress"


def fill(run: Machine, made: Module, container: str, call: Call) -> None:
    """A container of modules gets what its `__init__` is given."""
    modules.fill(run, made, container, call)


def backwards(run: Machine, value: Sequence) -> list[Value]:
    """The items of `value[::-1]`."""
    return [python.last_first(run, item) for item in reversed(value.items)]
