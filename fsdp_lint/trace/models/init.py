"""How a model gets its values: seeds, meta devices and to_empty, nn.init and reset_parameters, buffers."""

from __future__ import annotations

import re

import libcst as cst

from fsdp_lint.source.file import Site
from fsdp_lint.source.structure import inner
from fsdp_lint.trace.events import CallMethod, Initialise, Materialise, RegisterBuffer, Seed
from fsdp_lint.trace.models import frameworks
from fsdp_lint.trace.models.api import NOTHING, Call, Handler, Machine, constant_name, flag
from fsdp_lint.trace.values import (
    Choice,
    Const,
    Module,
    Object,
    Params,
    Rank,
    Sequence,
    StateDict,
    Tensor,
    Unknown,
    Value,
    parts,
)

RANDOM = frozenset(
    {
        "normal_",
        "uniform_",
        "trunc_normal_",
        "xavier_uniform_",
        "xavier_normal_",
        "kaiming_uniform_",
        "kaiming_normal_",
        "orthogonal_",
        "sparse_",
        "bernoulli_",
        "exponential_",
        "log_normal_",
        "cauchy_",
        "geometric_",
        "random_",
    }
)
# Their values depend on the shape, or on where in the tensor an entry stands.
SHAPED = frozenset(
    {
        "xavier_uniform_",
        "xavier_normal_",
        "kaiming_uniform_",
        "kaiming_normal_",
        "orthogonal_",
        "sparse_",
        "eye_",
        "dirac_",
    }
)
INIT = RANDOM | SHAPED | {"zeros_", "ones_", "constant_"}
# Functions of torch that make tensors of numbers, besides those that only the shape is known of.
NUMBERS = frozenset({"torch.linspace", "torch.logspace", "torch.tensor"})
# What a tensor tells that is none.
READ = frozenset({"item", "tolist", "numpy", "shape", "size", "numel", "dim", "device", "dtype", "cpu", "cuda", "to"})
# What differs between processes without the rank in it.
OWN = re.compile(r"^(time|time_ns|perf_counter|monotonic|getpid|urandom|now|utcnow|uuid4|token_bytes)\(")

SEED_NAME = re.compile(
    r"^_?((set|init|fix|manual|setup|enable|make|apply|global)_.*seed|seed_(all|everything|everywhere)|set_?seed|seed)",
    re.IGNORECASE,
)


def written(value: Value) -> tuple[Value, ...]:
    """The modules whose parameters or buffers `value` is."""
    if isinstance(value, Tensor):
        source = value.source
        if isinstance(source, Params):
            return source.of
        return (source.of,) if isinstance(source, StateDict) else ()
    if isinstance(value, Params):
        return value.of
    return (value,)


def init_function(run: Machine, call: Call) -> Value:
    """`torch.nn.init.normal_(tensor, ...)` and its like."""
    name = call.name.rpartition(".")[2]
    tensor = call.first("tensor")
    note(run, call, tensor, f"nn.init.{name}", name)
    return tensor


def in_place_on_all(run: Machine, call: Call) -> Value:
    """`torch._foreach_copy_(parameters, ...)` and its like."""
    name = call.name.rpartition(".")[2]
    note(run, call, call.first("self"), f"torch.{name}", name)
    return NOTHING


def vector_to_parameters(run: Machine, call: Call) -> Value:
    """`torch.nn.utils.vector_to_parameters(vector, parameters)`."""
    note(run, call, call.get(1, "parameters") or Unknown(), "vector_to_parameters", "copy_")
    return NOTHING


def note(run: Machine, call: Call, tensor: Value, how: str, name: str) -> None:
    """Records that values are written into a tensor."""
    of = tuple(module for part in parts(tensor) for module in written(part) if not isinstance(module, Const))
    if of:
        run.emit(
            Initialise,
            call.site,
            of=of,
            how=how,
            tensor=tensor,
            random=name in RANDOM,
            shaped=name in SHAPED,
            generator=call.kwargs.get("generator"),
        )


def in_place(run: Machine, value: Value, name: str, call: Call) -> None:
    """`tensor.normal_()`, `tensor.copy_(...)` ... of a parameter, a shard or something of a module."""
    if (isinstance(value, Tensor) and value.form in ("parameter", "local", "shard", "entry")) or (
        isinstance(value, Unknown) and value.owner is not None
    ):
        note(run, call, value, f".{name}()", name)


def reset_parameters(run: Machine, call: Call) -> Value:
    """`module.reset_parameters()`."""
    run.emit(Initialise, call.site, of=(call.self_value,), how=".reset_parameters()", random=True)
    return NOTHING


def to_empty(run: Machine, call: Call) -> Value:
    """`module.to_empty(device=...)`."""
    run.emit(Materialise, call.site, of=call.self_value, device=call.get(-1, "device"))
    return call.self_value


def unknown_method(run: Machine, function: Value, call: Call) -> None:
    """A method of a module of which nothing is known."""
    owner = function.owner
    if owner is None:
        return
    if function.key.endswith("_") and not function.key.startswith("_"):
        if any(isinstance(one, Module) or one.number in run.touched for one in owner.line()):
            in_place(run, owner, function.key, call)
    elif isinstance(owner, Module) or owner.number in run.touched or frameworks.SHARDS.search(function.key):
        run.emit(CallMethod, call.site, of=owner, method=function.key)


def note_attribute(run: Machine, owner: Value, name: str, site: Site) -> None:
    """A module is asked for an attribute that only some kind of models has."""
    if name in frameworks.HAS_BLOCKS and name.startswith("_") and isinstance(owner, Module | Unknown):
        run.emit(CallMethod, site, of=owner, method=name)


def buffers(run: Machine, call: Call) -> Value:
    """`module.buffers()`: tensors of the module, of which no more is known."""
    return Sequence(items=[run.child(call.self_value, "buffers()")], exact=False)


def named_buffers(run: Machine, call: Call) -> Value:
    """`module.named_buffers()`."""
    pair = Sequence(items=[Unknown(name="name"), run.child(call.self_value, "buffers()")])
    return Sequence(items=[pair], exact=False)


def register_buffer(run: Machine, call: Call) -> Value:
    """`module.register_buffer(name, tensor, persistent=True)`."""
    owner, name, content = call.self_value, constant_name(call.get(0, "name")), call.get(1, "tensor")
    persistent = call.get(2, "persistent")
    empty = isinstance(content, Const) and content.value is None
    if not name or not isinstance(owner, Module):
        return NOTHING
    if name in owner.buffers:
        note_buffer(run, owner, name, call.site)
    elif not empty:
        owner.buffers.add(name)
        run.emit(
            RegisterBuffer,
            call.site,
            of=owner,
            buffer=name,
            persistent=True if persistent is None else flag(persistent),
            writers=writers_of(owner, name),
        )
    return NOTHING


def plain_tensor(run: Machine, owner: Module, name: str, value: Value, site: Site) -> None:
    """A tensor that is made where the model is, and that its methods read: no buffer, so nothing moves it."""
    writers = writers_of(owner, name) if _is_made_here(value) else None
    # `to_empty()` goes through `_apply`, which may be the class's own.
    if writers is None or "_apply" in writers or not _is_read(owner, name):
        return
    owner.buffers.add(name)
    run.emit(RegisterBuffer, site, of=owner, buffer=name, persistent=False, writers=writers - {"__init__"}, plain=True)


def _is_made_here(value: Value, hops: int = 12) -> bool:
    """True for a tensor that torch's functions make of numbers, on the device that is set."""
    if isinstance(value, Object):
        return value.cls == "torch.Tensor" and "device" not in value.kwargs
    if type(value) is not Unknown or hops == 0 or any(_is_device(one) for one in value.inputs):
        return False
    if value.key.startswith("torch."):
        given = [part for each in value.inputs for part in parts(each)]
        return value.key in NUMBERS or any(_is_made_here(one, hops - 1) for one in given)
    if {value.key, value.name.removesuffix("(...)").rpartition(".")[2]} & READ:
        return False
    if value.owner is not None:
        return _is_made_here(value.owner, hops - 1)
    # A method of a tensor with arguments has it first; arithmetic has it on one side.
    inputs = value.inputs[:1] if value.name.endswith("(...)") else value.inputs
    return any(_is_made_here(one, hops - 1) for one in inputs)


def _is_device(value: Value) -> bool:
    if isinstance(value, Const):
        return isinstance(value.value, str)
    return "device" in (value.name, value.key) or (isinstance(value, Object) and value.cls == "torch.device")


def _is_read(owner: Module, name: str) -> bool:
    """True when a method of its class other than `__init__` reads the attribute."""
    node = owner.cls.node if owner.cls is not None else None
    methods = [s for s in node.body.body if isinstance(s, cst.FunctionDef)] if node is not None else []
    return any(name in _own_names(method) for method in methods if method.name.value != "__init__")


def note_buffer(run: Machine, owner: Value, name: str, site: Site) -> None:
    """Records that a buffer gets a new value."""
    run.emit(Initialise, site, of=(owner,), how=f".{name} = ...", tensor=run.child(owner, name))


def writers_of(module: Module, name: str) -> frozenset[str] | None:
    """The methods of its class that write a buffer or parameter, in whatever depth; None where it has other bases."""
    node = module.cls.node if module.cls is not None else None
    if node is None or any(_last(base.value) != "Module" for base in node.bases):
        return None
    methods = {s.name.value: s for s in node.body.body if isinstance(s, cst.FunctionDef)}
    calls = {method: _own_names(body) & methods.keys() for method, body in methods.items()}
    found = {method for method, body in methods.items() if _writes(body, name)}
    while more := {method for method, called in calls.items() if called & found} - found:
        found |= more
    return frozenset(found)


def _last(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def _own_names(node: cst.CSTNode) -> set[str]:
    """The names that are read of `self`."""
    if isinstance(node, cst.Attribute) and isinstance(node.value, cst.Name) and node.value.value == "self":
        return {node.attr.value}
    return {name for child in inner(node) for name in _own_names(child)}


def _writes(node: cst.CSTNode, name: str) -> bool:
    if isinstance(node, cst.AssignTarget) and name in _own_names(node.target):
        return True
    if isinstance(node, cst.AugAssign | cst.AnnAssign) and name in _own_names(node.target):
        return True
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        method = node.func.attr.value
        if method.endswith("_") and not method.endswith("__") and name in _own_names(node.func.value):
            return True
        if method == "register_buffer":
            return True
        if method.endswith("_") and any(name in _own_names(arg) for arg in node.args):
            return True
    return any(_writes(child, name) for child in inner(node))


# seeds ----------------------------------------------------------------------------------------------------------


def seed(run: Machine, call: Call) -> Value:
    """`torch.manual_seed(number)` and other libraries' functions that do the same."""
    number = call.first("seed")
    differs = differing(number)
    device_specific = flag(call.get(1, "device_specific"))
    if device_specific and differs == "":
        differs = "rank"
    run.emit(Seed, call.site, differs=differs, passed=run.passed(number, _is_own_number) if differs else None)
    return Unknown()


def _is_own_number(value: Value) -> bool:
    """True for a number that differs between processes, other than the bare rank."""
    return not isinstance(value, Rank) and bool(differing(value))


def own_seed(run: Machine, call: Call) -> Value:
    """`torch.seed()`: a number of this process's own."""
    run.emit(Seed, call.site, differs="process")
    return Unknown()


def differing(value: Value) -> str | None:
    """How a number differs between processes: by "rank" or "process", "" when it does not; None when unknown."""
    if isinstance(value, Choice):
        found = {differing(option) for option, _ in value.options}
        return found.pop() if len(found) == 1 else None
    todo, seen, answer = [value], set(), ""
    while todo:
        one = todo.pop()
        if one.number in seen:
            continue
        seen.add(one.number)
        if isinstance(one, Rank):
            if one.scope not in ("world", "local"):
                return None
            answer = "rank"
        elif isinstance(one, Unknown):
            if "rank" in one.name.lower() or "rank" in one.key.lower():
                return None
            if OWN.match(one.name):
                answer = answer or "process"
            todo.extend(one.inputs)
            if one.owner is not None and one.name.endswith(")"):
                todo.append(one.owner)
        elif isinstance(one, Choice):
            return None
        elif isinstance(one, Object):
            todo.extend(one.args)
    return answer


SEEDS = ("torch.manual_seed", "torch.random.manual_seed")

FUNCTIONS: dict[str, Handler] = {
    **{f"torch.nn.init.{name}": init_function for name in INIT},
    **dict.fromkeys(SEEDS, seed),
    **dict.fromkeys(
        (
            "accelerate.utils.set_seed",
            "transformers.set_seed",
            "transformers.trainer_utils.set_seed",
            "lightning.seed_everything",
            "pytorch_lightning.seed_everything",
            "lightning.fabric.seed_everything",
        ),
        seed,
    ),
    "torch.seed": own_seed,
    **{f"torch._foreach_{name}_": in_place_on_all for name in ("copy", "zero", "fill", "mul", "add", "lerp")},
    **{f"torch.nn.utils.{home}vector_to_parameters": vector_to_parameters for home in ("", "convert_parameters.")},
}
METHODS: dict[str, Handler] = {
    "to_empty": to_empty,
    "reset_parameters": reset_parameters,
    "buffers": buffers,
    "named_buffers": named_buffers,
    "register_buffer": register_buffer,
}
