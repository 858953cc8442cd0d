"""torch.nn: modules, containers, and the methods that all modules have."""

from __future__ import annotations

import re

from fsdp_lint.source.file import Site
from fsdp_lint.trace.events import Collective, Forward, LoadState, MoveModule, SetDivisor, TakeState, UseCuda
from fsdp_lint.trace.models import init, precision
from fsdp_lint.trace.models.api import NOTHING, Call, Machine, constant_name, flag
from fsdp_lint.trace.models.environment import bare_cuda
from fsdp_lint.trace.values import (
    Const,
    Mapping,
    Module,
    Object,
    Params,
    Sequence,
    StateDict,
    Tensor,
    Unknown,
    Value,
)

DIVISORS = ("set_gradient_divide_factor", "set_reduce_scatter_divide_factor", "set_force_sum_reduction_for_comms")
# What of torch.nn has parts of its own, or may.
COMPOUND = frozenset(
    {
        "Module",
        "ModuleList",
        "ModuleDict",
        "Sequential",
        "MultiheadAttention",
        "Transformer",
        "TransformerEncoder",
        "TransformerDecoder",
        "TransformerEncoderLayer",
        "TransformerDecoderLayer",
        "AdaptiveLogSoftmaxWithLoss",
        "TripletMarginWithDistanceLoss",
    }
)
LAYER = re.compile(r"torch\.nn\.(modules\.\w+\.)?([A-Z]\w*)")
CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")


def make(run: Machine, dotted: str, call: Call) -> Value:
    """A library module; containers hold what they are given."""
    made = run.new(
        Module(
            library=dotted,
            args=tuple(call.args),
            kwargs=dict(call.kwargs),
            built=True,
        )
    )
    last = dotted.rpartition(".")[2]
    if last in CONTAINERS:
        fill(run, made, last, call)
    return made


def fill(run: Machine, made: Module, last: str, call: Call) -> None:
    """A container of the kind `last` gets what its `__init__` is given."""
    if call.open:
        for value in call.rest:
            _extend(run, made, value, call.site)
    if last == "Sequential" and len(call.args) != 1:
        for at, item in enumerate(call.args):
            run.adopt(made, str(at), item)
        return
    for value in call.args:
        if isinstance(value, Mapping):
            for key, item in value.items.items():
                run.adopt(made, str(key), item)
            for item in value.rest:
                _many(item, None)
                run.adopt(made, "[]", item)
        elif isinstance(value, Module):
            run.adopt(made, str(len(made.children)), value)
        else:
            _extend(run, made, value, call.site)


def _many(item: Value, count: int | None) -> None:
    if isinstance(item, Module):
        item.count = count


def _extend(run: Machine, made: Module, value: Value, site: Site) -> None:
    items, exact = run.items(value, site)
    times = value.times if isinstance(value, Sequence) else None
    count = times.value if isinstance(times, Const) and isinstance(times.value, int) and len(items) == 1 else None
    for item in items:
        if isinstance(item, Unknown):
            made.children.setdefault("[]", run.element(made, "items"))
            continue
        if not exact and isinstance(item, Module) and item.count == 1:
            _many(item, count)
        run.adopt(made, str(len(made.children)), item)


def members(run: Machine, module: Module) -> tuple[list[Value], bool]:
    """What iterating a container gives."""
    if module.library is not None and module.library.rpartition(".")[2] in CONTAINERS and module.children:
        found: list[Value] = [*module.items()]
        return found, all(isinstance(m, Module) and m.count == 1 for m in found)
    return [run.element(module, "items")], False


def append(run: Machine, call: Call) -> Value:
    """`container.append(module)`."""
    owner = call.self_value
    item = call.first("module")
    run.attach(owner, "[-1]", item, call.site)
    if isinstance(owner, Module) and isinstance(item, Module):
        if run.loops:
            item.count = None
        run.adopt(owner, str(len(owner.children)), item)
    return owner


def extend(run: Machine, call: Call) -> Value:
    """`container.extend(modules)`."""
    if isinstance(call.self_value, Module):
        _extend(run, call.self_value, call.first(), call.site)
    return call.self_value


def add_module(run: Machine, call: Call) -> Value:
    """`module.add_module(name, child)` and `register_module`."""
    owner, child = call.self_value, call.get(1, "module")
    name = constant_name(call.get(0, "name"))
    if child is not None:
        run.attach(owner, name or "?", child, call.site)
    if isinstance(owner, Module) and isinstance(child, Module) and child is not owner and not child.owner:
        run.adopt(owner, name or f"[{len(owner.children)}]", child)
    return NOTHING


def register_parameter(run: Machine, call: Call) -> Value:
    """`module.register_parameter(name, parameter)`."""
    owner, content = call.self_value, call.get(1, "param")
    name = constant_name(call.get(0, "name"))
    if content is not None:
        run.attach(owner, name or "?", content, call.site)
        if isinstance(owner, Module) and name:
            run.adopt(owner, name, content)
    return NOTHING


def parameters(run: Machine, call: Call) -> Value:
    """`module.parameters()`: an iterator that nobody has walked yet."""
    return run.new(Params(name=f"{call.self_value.name}.parameters()", of=(call.self_value,)))


def named_parameters(run: Machine, call: Call) -> Value:
    """`module.named_parameters()`."""
    return run.new(Params(name=f"{call.self_value.name}.named_parameters()", of=(call.self_value,), named=True))


def modules(run: Machine, call: Call) -> Value:
    """`module.modules()`: every module in it, itself first."""
    return Sequence(items=[run.element(call.self_value, "modules")], exact=False)


def named_modules(run: Machine, call: Call) -> Value:
    """`module.named_modules()`."""
    return Sequence(items=[_pair(run.element(call.self_value, "modules"))], exact=False)


def _children(run: Machine, owner: Value) -> tuple[list[Value], bool]:
    if isinstance(owner, Module) and not owner.children and _is_leaf(owner.library or ""):
        return [], True
    if isinstance(owner, Module) and owner.children and (owner.built or owner.library):
        found: list[Value] = list(owner.children.values())
        return found, all(isinstance(m, Module) and m.count == 1 for m in found)
    return [run.element(owner, "children")], False


def _is_leaf(library: str) -> bool:
    """True for layers of torch.nn in which there are no others."""
    layer = LAYER.fullmatch(library)
    return layer is not None and layer[2] not in COMPOUND


def children(run: Machine, call: Call) -> Value:
    """`module.children()`; of a container these are its items."""
    found, exact = _children(run, call.self_value)
    return Sequence(items=found, exact=exact, children_of=call.self_value)


def named_children(run: Machine, call: Call) -> Value:
    """`module.named_children()`."""
    found, exact = _children(run, call.self_value)
    return Sequence(items=[_pair(item) for item in found], exact=exact, children_of=call.self_value)


def _pair(item: Value) -> Value:
    key = Const(value=item.key) if item.key and not item.key.startswith("[") else Unknown(name="name", inputs=(item,))
    return Sequence(items=[key, item])


def values(run: Machine, call: Call) -> Value:
    """`container.values()`."""
    owner = call.self_value
    found, exact = members(run, owner) if isinstance(owner, Module) else ([run.child(owner, "[]")], False)
    return Sequence(items=found, exact=exact)


def items(run: Machine, call: Call) -> Value:
    """`container.items()`."""
    found = values(run, call)
    assert isinstance(found, Sequence)
    return Sequence(items=[_pair(item) for item in found.items], exact=found.exact)


def state_dict(run: Machine, call: Call) -> Value:
    """`module.state_dict()`."""
    state = run.new(StateDict(name=f"{call.self_value.name}.state_dict()", of=call.self_value, form="raw"))
    run.emit(TakeState, call.site, state=state)
    return state


def load_state_dict(run: Machine, call: Call) -> Value:
    """`module.load_state_dict(state)`."""
    run.emit(LoadState, call.site, into=(call.self_value,), state=call.get(0, "state_dict"), how="load_state_dict")
    return Unknown()


def forward(run: Machine, call: Call) -> Value:
    """`module.forward(...)`: the module's hooks do not run."""
    made = Unknown(name="output", inputs=(call.self_value, *call.values()))
    run.emit(Forward, call.site, module=call.self_value, bypass="forward", result=made)
    return made


def to(run: Machine, call: Call) -> Value:
    """`module.to(...)`, `.cuda()`, `.half()` ...: gives the module back."""
    target = call.get(0, "device")
    if bare_cuda(target):
        run.emit(UseCuda, call.site, value=call.self_value, how='.to("cuda")')
    precision.note_cast(run, call, ".to()")
    if target is not None:
        run.emit(MoveModule, call.site, of=call.self_value, device=target, how=".to()")
    return call.self_value


def cuda(run: Machine, call: Call) -> Value:
    """`module.cuda()`."""
    target = call.get(0, "device")
    if target is None or bare_cuda(target):
        run.emit(UseCuda, call.site, value=call.self_value, how=".cuda()")
    run.emit(MoveModule, call.site, of=call.self_value, device=Const(value="cuda"), how=".cuda()")
    return call.self_value


def cpu(run: Machine, call: Call) -> Value:
    """`module.cpu()`."""
    run.emit(MoveModule, call.site, of=call.self_value, device=Const(value="cpu"), how=".cpu()")
    return call.self_value


def set_divisor(run: Machine, call: Call) -> Value:
    """`module.set_gradient_divide_factor(number)` and its older names."""
    run.emit(SetDivisor, call.site, module=call.self_value)
    return NOTHING


def itself(run: Machine, call: Call) -> Value:
    """Methods that give the module back."""
    return call.self_value


def nothing(run: Machine, call: Call) -> Value:
    """Methods that change nothing that rules speak of."""
    return Unknown()


def get_submodule(run: Machine, call: Call) -> Value:
    """`module.get_submodule("a.b")`."""
    value: Value = call.self_value
    path = constant_name(call.get(0, "target"))
    if not path:
        return run.child(value, "[?]")
    for part in path.split("."):
        value = run.attribute(value, part)
    return value


def parameter(run: Machine, call: Call) -> Value:
    """`nn.Parameter(tensor)`."""
    content = call.first("data")
    trains = flag(call.get(1, "requires_grad"))
    made = run.new(Tensor(name="parameter", source=content, form="weight"))
    made.key = "frozen" if trains is False else ""
    return made


def new_tensor(run: Machine, call: Call) -> Value:
    """Factories such as torch.randn: the shape is kept."""
    if bare_cuda(call.kwargs.get("device")):
        run.emit(UseCuda, call.site, value=Unknown(name=call.name), how='device="cuda"')
    return Object(cls="torch.Tensor", args=tuple(call.args), kwargs=dict(call.kwargs))


def save_method(run: Machine, call: Call) -> Value:
    """`accelerator.get_state_dict(model)`, `save_state()`: all ranks must take part."""
    run.emit(Collective, call.site, op=call.name.rpartition(".")[2], on=tuple(call.args), by=call.self_value)
    return Unknown()


FUNCTIONS = {
    "torch.nn.Parameter": parameter,
    "torch.nn.parameter.Parameter": parameter,
    **{
        f"torch.{name}": new_tensor
        for name in ("randn", "rand", "zeros", "ones", "empty", "full", "arange", "randint", "eye")
    },
}
METHODS = {
    "parameters": parameters,
    "named_parameters": named_parameters,
    "modules": modules,
    "named_modules": named_modules,
    "children": children,
    "named_children": named_children,
    "values": values,
    "items": items,
    "append": append,
    "extend": extend,
    "insert": nothing,
    "add_module": add_module,
    "register_module": add_module,
    "register_parameter": register_parameter,
    "state_dict": state_dict,
    "load_state_dict": load_state_dict,
    "forward": forward,
    "to": to,
    "cuda": cuda,
    "get_submodule": get_submodule,
    **dict.fromkeys(DIVISORS, set_divisor),
    "cpu": cpu,
    **init.METHODS,
    **dict.fromkeys(("train", "eval", "type"), itself),
    **dict.fromkeys(precision.BY_METHOD, precision.by_method),
    **dict.fromkeys(
        (
            "compile",
            "zero_grad",
            "register_forward_hook",
            "register_forward_pre_hook",
            "set_is_last_backward",
            "set_reshard_after_backward",
            "set_modules_to_forward_prefetch",
            "set_modules_to_backward_prefetch",
        ),
        nothing,
    ),
}
UNKNOWN_METHODS = (
    "add_module",
    "register_module",
    "register_parameter",
    "parameters",
    "named_parameters",
    "modules",
    "named_modules",
    "children",
    "named_children",
    "state_dict",
    "load_state_dict",
    "forward",
    "to",
    "cuda",
    "to_empty",
    "get_submodule",
    "train",
    "eval",
    "cpu",
    "float",
    "half",
    "bfloat16",
    "values",
    "items",
    "zero_grad",
    "register_forward_hook",
    "reset_parameters",
    "buffers",
    "named_buffers",
    *DIVISORS,
)
