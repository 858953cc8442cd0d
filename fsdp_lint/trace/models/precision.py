"""Types of numbers: what casts a module, which policies ask for which type, and gradient scalers."""

from __future__ import annotations

from fsdp_lint.trace.events import BuildScaler, Cast
from fsdp_lint.trace.models.api import NOTHING, Call, Machine
from fsdp_lint.trace.values import Const, External, Module, Object, Unknown, Value

# Stands for what is set for all of torch, under which its settings are stored.
_DEFAULTS = Unknown(name="torch")

SCALERS = (
    "torch.amp.GradScaler",
    "torch.amp.grad_scaler.GradScaler",
    "torch.cuda.amp.GradScaler",
    "torch.cuda.amp.grad_scaler.GradScaler",
    "torch.cpu.amp.GradScaler",
)
SHARDED_SCALERS = ("torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler",)
SHORT = {"half": "float16", "float": "float32", "double": "float64"}
LOW = frozenset({"bfloat16", "float16"})
BY_METHOD = {"half": "float16", "bfloat16": "bfloat16", "float": "float32", "double": "float64"}


def dtype_of(value: Value | None) -> str | None:
    """Torch's name of the type that a value stands for (`bfloat16`); None where it stands for none, or is not known."""
    if isinstance(value, External) and value.dotted.startswith("torch."):
        name = value.dotted.removeprefix("torch.")
        name = SHORT.get(name, name)
        return name if name.startswith(("float", "bfloat")) and "." not in name else None
    if isinstance(value, Const) and isinstance(value.value, str):
        name = {"bf16": "bfloat16", "fp16": "float16"}.get(value.value, value.value.removeprefix("torch."))
        return name if name in LOW or name == "float32" else None
    return None


def note_cast(run: Machine, call: Call, how: str) -> None:
    """`module.to(torch.bfloat16)` and its like: the event, where the type is known."""
    for value in call.values():
        dtype = dtype_of(value)
        if dtype is not None and not isinstance(value, Const):
            run.emit(Cast, call.site, value=call.self_value, dtype=dtype, how=how)


def note_loaded(run: Machine, call: Call, loaded: Value, how: str) -> None:
    """`from_pretrained(..., torch_dtype=torch.bfloat16)`: the model comes in that type."""
    for keyword in ("torch_dtype", "dtype"):
        dtype = dtype_of(call.kwargs.get(keyword))
        if dtype is not None:
            run.emit(Cast, call.site, value=loaded, dtype=dtype, how=f"{how}({keyword}=...)")


def default_type(run: Machine, call: Call) -> Value:
    """`torch.set_default_dtype(...)`: parameters that are made from here on are of that type."""
    made = Object(cls="torch.set_default_dtype", args=(call.first(),), site=call.site)
    run.store(_DEFAULTS, "dtype", made)
    return NOTHING


def note_built(run: Machine, made: Module) -> None:
    """A model is made while another default type than float32 is set: it is of that type."""
    default = run.stored(_DEFAULTS, "dtype")
    if isinstance(default, Object) and default.site is not None:
        dtype = dtype_of(default.args[0])
        if dtype in LOW:
            run.emit(Cast, default.site, value=made, dtype=dtype, how="set_default_dtype(...)")


def by_method(run: Machine, call: Call) -> Value:
    """`module.half()`, `.bfloat16()`, `.float()`, `.double()`: gives the module back."""
    method = call.name.rpartition(".")[2]
    if method in BY_METHOD:
        run.emit(Cast, call.site, value=call.self_value, dtype=BY_METHOD[method], how=f".{method}()")
    return call.self_value


def _scaler(sharded: bool, run: Machine, call: Call) -> Value:
    made = run.new(Unknown(name="scaler"))
    enabled = call.kwargs.get("enabled")
    run.emit(BuildScaler, call.site, scaler=made, sharded=sharded, enabled=enabled)
    return made


def plain_scaler(run: Machine, call: Call) -> Value:
    """`torch.amp.GradScaler(...)`."""
    return _scaler(False, run, call)


def sharded_scaler(run: Machine, call: Call) -> Value:
    """FSDP1's `ShardedGradScaler(...)`."""
    return _scaler(True, run, call)


def param_dtype(policy: Value | None) -> str | None:
    """The type in which a policy computes (`bfloat16`), "" where nothing is cast; None when that is not known."""
    if policy is None or (isinstance(policy, Const) and policy.value is None):
        return ""
    if not isinstance(policy, Object):
        return None
    given = policy.get(0, "param_dtype")
    if given is None or (isinstance(given, Const) and given.value is None):
        return ""
    return dtype_of(given)


def casts_output(policy: Value | None) -> bool:
    """True where a policy says in which type a unit gives its outputs, or that its inputs are not to be cast."""
    if not isinstance(policy, Object):
        return False
    output, inputs = policy.get(2, "output_dtype"), policy.get(3, "cast_forward_inputs")
    # What is spelled out as it is by default says nothing.
    return not (_is_default(output, None) and _is_default(inputs, True))


def _is_default(value: Value | None, default: bool | None) -> bool:
    return value is None or (isinstance(value, Const) and value.value is default)


FUNCTIONS = {
    "torch.set_default_dtype": default_type,
    **dict.fromkeys(SCALERS, plain_scaler),
    **dict.fromkeys(SHARDED_SCALERS, sharded_scaler),
}
