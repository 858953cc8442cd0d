"""Tensors and DTensors: which operations keep a shard, reduce it, gather it or read it."""

from __future__ import annotations

from collections.abc import Iterable

from fsdp_lint.source.file import Site
from fsdp_lint.trace.events import Backward, Collective, DivideByWorld, ReadScalar, ReduceLocal, UseParameters
from fsdp_lint.trace.models import init
from fsdp_lint.trace.models.api import NOTHING, Call, Machine
from fsdp_lint.trace.values import Const, Dimensions, Params, Product, Tensor, Unknown, Value, WorldSize, parts

# What a reduction of a DTensor gives, measured on torch 2.13.0 with two ranks: these stay partial, and stay so through
# linear operations ...
SUMS = frozenset({"sum", "mean", "dot", "any", "all"})
# ... these stay partial until anything at all is computed from them ...
NORMS = frozenset({"norm", "vector_norm", "matrix_norm", "max", "min", "amax", "amin"})
# ... and these are whole at once.
WHOLE = frozenset(
    {
        "std",
        "var",
        "prod",
        "median",
        "logsumexp",
        "argmax",
        "argmin",
        "allclose",
        "equal",
        "quantile",
        "dist",
        "count_nonzero",
        "cosine_similarity",
        "mse_loss",
        "l1_loss",
    }
)
REDUCTIONS = SUMS | NORMS | WHOLE
LINEAR = frozenset(
    {"detach", "float", "double", "to", "clone", "neg", "stack", "div", "mul", "squeeze", "view", "reshape"}
)
METADATA = frozenset(
    {
        "numel",
        "nelement",
        "size",
        "shape",
        "dim",
        "ndim",
        "dtype",
        "device",
        "requires_grad",
        "element_size",
        "is_cuda",
        "stride",
        "data_ptr",
        "placements",
        "device_mesh",
        "is_floating_point",
        "is_contiguous",
        "untyped_storage",
        "storage",
        "layout",
        "is_leaf",
        "nbytes",
        "itemsize",
        "is_meta",
        "is_complex",
        "ndimension",
        "name",
    }
)
COPIES = frozenset({"clone", "deepcopy", "copy"})
COMPARISONS = frozenset({"gt", "lt", "ge", "le", "eq", "ne", "isnan", "isinf", "isfinite"})
SHARDED = frozenset({"parameter", "gradient", "shard", "entry"})
ORDER = ("full", "copy", "number", "norm", "local", "local-reduced", "shard", "partial-norm", "partial")
PARTIAL = frozenset({"partial", "partial-norm"})


def attribute(run: Machine, value: Tensor, name: str) -> Value | None:
    """`tensor.name`; None for methods."""
    if name in METADATA and name not in ("numel", "size", "dim", "stride", "data_ptr", "element_size", "nelement"):
        if name in ("ndim", "shape"):
            return Dimensions(name=name, tensor=value)
        # A test of what is trained leaves some parameters, and their modules, out.
        return Unknown(name=name, inputs=(value,) if name == "requires_grad" else ())
    if name == "grad":
        return _one(run, value, "grad", Tensor(name=f"{value.name}.grad", source=value.source, form="gradient"))
    if name in ("data", "T", "mT", "real", "_local_tensor"):
        form = "local" if name == "_local_tensor" else value.form
        return _one(run, value, name, Tensor(name=f"{value.name}.{name}", source=value.source, form=form))
    return None


def _one(run: Machine, value: Tensor, key: str, made: Tensor) -> Value:
    made.inputs = (value,)
    made.loops = value.loops
    run.store(value, key, made)
    return made


READ = frozenset({"shard", "partial", "partial-norm", "parameter", "gradient", "norm"})


def derived(run: Machine, value: Tensor, form: str, *more: Tensor) -> Tensor:
    """A tensor computed from others."""
    return run.new(Tensor(name=value.name, source=value.source, form=form, inputs=(value, *more)))


def reduced(run: Machine, value: Tensor, how: str, site: Site, *more: Tensor) -> Value:
    """The reduction of a tensor."""
    if value.form in ("local",):
        made = derived(run, value, "local-reduced", *more)
        run.emit(ReduceLocal, site, tensor=made, how=how)
        return made
    name = how.strip(".()").rpartition(".")[2]
    if value.form in SHARDED:
        form = "partial" if name in SUMS else "partial-norm" if name in NORMS else "full"
    else:
        form = "full" if value.form in PARTIAL else value.form
    made = derived(run, value, form, *more)
    made.by = name
    return made


def combine(run: Machine, tensors: Iterable[Tensor], linear: bool) -> Tensor:
    """The elementwise result of several tensors; what is not linear makes partial ones whole."""
    found = list(tensors)
    forms = [_elementwise(t.form) for t in found]
    if not linear or "full" in forms:
        forms = ["full" if form in PARTIAL else form for form in forms]
    elif len(found) > 1:
        forms = ["full" if form == "partial-norm" else form for form in forms]
    form = max(forms, key=lambda f: ORDER.index(f) if f in ORDER else 0)
    leader = found[forms.index(form)]
    return derived(run, leader, form, *(t for t in found if t is not leader))


def _elementwise(form: str) -> str:
    return "shard" if form in SHARDED else form


def method(run: Machine, value: Tensor, name: str, call: Call) -> Value:
    """`tensor.name(...)`."""
    others = [p for a in call.values() for p in parts(a) if isinstance(p, Tensor)]
    if name in METADATA:
        if name in ("dim", "ndimension"):
            return Dimensions(name=name, inputs=(value,), tensor=value)
        return Unknown(name=name, inputs=(value,))
    if name == "full_tensor":
        run.emit(Collective, call.site, op="full_tensor", on=(value,))
        return derived(run, value, "full")
    if name == "redistribute":
        run.emit(Collective, call.site, op="redistribute", on=(value,))
        return derived(run, value, "full")
    if name == "to_local":
        form = value.form if value.form in ("full", "number", "norm", "copy") else "local"
        made = derived(run, value, form if value.form not in PARTIAL else "local-reduced")
        made.cut = call.site
        return made
    if name == "item":
        return read_number(run, value, call.site, ".item()")
    if name == "backward":
        run.emit(Backward, call.site, loss=value)
        return NOTHING
    if name == "tolist":
        return derived(run, value, "number")
    if name in ("register_hook", "register_post_accumulate_grad_hook"):
        _use(run, value, "hook" if name == "register_hook" else "accumulate-hook", call.site)
        return Unknown()
    if name == "requires_grad_":
        _use(run, value, "requires_grad", call.site, call.get(0, "requires_grad") or Const(value=True))
        return value
    if name in REDUCTIONS and _along_dimension(name, call):
        return derived(run, value, _elementwise(value.form), *others)
    if name in REDUCTIONS:
        return reduced(run, value, f".{name}()", call.site, *others)
    if name in COMPARISONS:
        return compared(run, [value, *others])
    if name in COPIES:
        _use(run, value, "copy", call.site)
        return derived(run, value, "copy" if value.form == "parameter" else _elementwise(value.form))
    if name.endswith("_") and not name.startswith("_"):
        init.in_place(run, value, name, call)
        change_in_place(run, value, call.first("value"), name in ("div_", "divide_", "true_divide_"), call.site)
        for other in others:
            _use(run, other, "update", call.site)
        return value
    if name == "detach":
        return derived(run, value, value.form)
    if value.form == "parameter" and name not in ("to", "cpu", "cuda", "float", "view", "flatten"):
        _use(run, value, "read", call.site)
    return combine(run, [value, *others], linear=name in LINEAR)


def compared(run: Machine, tensors: Iterable[Tensor]) -> Tensor:
    """The elementwise comparison of tensors: partial ones are made whole first."""
    return combine(run, tensors, linear=False)


def _along_dimension(name: str, call: Call) -> bool:
    """True when a reduction leaves dimensions, so that no single number comes of it."""
    if "dim" in call.kwargs or "axis" in call.kwargs:
        return True
    return name in ("sum", "mean", "any", "all", "max", "min", "amax", "amin") and bool(call.args)


def assign_attribute(run: Machine, value: Value, name: str, site: Site, to: Value) -> bool:
    """`value.name = to` where that has a meaning of its own, of parameters; False where it is just stored."""
    if not isinstance(value, Tensor) or not isinstance(value.source, Params) or value.form != "parameter":
        return False
    how = {"requires_grad": "requires_grad", "data": "data", "grad": "gradient"}.get(name)
    if how is not None:
        _use(run, value, how, site, to)
    return True


def change_in_place(run: Machine, value: Tensor, by: Value, divides: bool, site: Site) -> None:
    """`parameter.data -= x`, `parameter.grad /= x`: the very tensor is changed."""
    _use(run, value, "update", site)
    if divides and is_world_size(by):
        run.emit(DivideByWorld, site, value=value, of=value, by=by)


def is_world_size(value: Value) -> bool:
    """True for the number of all processes, and for a product with it."""
    if isinstance(value, Product):
        return any(is_world_size(factor) for factor in value.inputs)
    return isinstance(value, WorldSize) and value.owner is None


def _use(run: Machine, value: Tensor, how: str, site: Site, to: Value | None = None) -> None:
    if isinstance(value.source, Params) and value.form in ("parameter", "gradient"):
        run.emit(UseParameters, site, params=value.source, how=how, to=to)


def read_number(run: Machine, value: Value, site: Site, how: str) -> Value:
    """A tensor becomes a Python number."""
    if isinstance(value, Tensor):
        if value.form in READ:
            run.emit(ReadScalar, site, tensor=value, how=how)
        return derived(run, value, "number")
    return Unknown(inputs=(value,))


def function(run: Machine, name: str, call: Call) -> Value | None:
    """`torch.name(...)` with a tensor among the arguments; None when there is none."""
    tensors = [p for a in call.values() for p in parts(a) if isinstance(p, Tensor)]
    if not tensors:
        return None
    if name in REDUCTIONS:
        joined = combine(run, tensors, linear=True)
        return reduced(run, joined, f"torch.{name}()", call.site)
    if name in ("tensor", "as_tensor", "cat", "sqrt", "square", "pow", "abs", "add"):
        return combine(run, tensors, linear=False)
    if name in ("stack", "mul", "div"):
        return combine(run, tensors, linear=True)
    if name.startswith("_foreach_") or name in ("get_total_norm", "zeros_like", "empty_like", "ones_like"):
        return Unknown(inputs=tuple(call.values())) if "like" in name else derived(run, tensors[0], "norm")
    if name in ("isnan", "isinf", "isfinite", "clamp", "where", "nan_to_num", "maximum", "minimum", "flatten"):
        return combine(run, tensors, linear=False)
    return Unknown(inputs=tuple(call.values()))


def clip_grad_norm(run: Machine, call: Call) -> Value:
    """`torch.nn.utils.clip_grad_norm_(parameters, max_norm)`."""
    holds = run.collect(call.first("parameters"), call.site)
    for params in holds:
        run.emit(UseParameters, call.site, params=params, how="clip")
    run.emit(Collective, call.site, op="clip_grad_norm_", on=tuple(holds))
    return run.new(Tensor(name="norm", source=holds[0] if holds else None, form="norm"))


def distribute(run: Machine, call: Call) -> Value:
    """`distribute_tensor(tensor, mesh, placements)`: scatters from rank 0."""
    run.emit(Collective, call.site, op="distribute_tensor", on=tuple(call.args[:1]))
    return Unknown()


def unknown_method(run: Machine, value: Value, name: str, call: Call) -> Value | None:
    """Tensor methods that are known by name alone; None for others."""
    if name == "full_tensor":
        run.emit(Collective, call.site, op="full_tensor", on=(value,))
        return Unknown(name=f"{value.name}.full_tensor()")
    if name == "backward":
        run.emit(Backward, call.site, loss=value)
        return NOTHING
    return None


FUNCTIONS = {
    "torch.nn.utils.clip_grad_norm_": clip_grad_norm,
    "torch.nn.utils.clip_grad.clip_grad_norm_": clip_grad_norm,
    "torch.distributed.tensor.distribute_tensor": distribute,
    "torch.distributed._tensor.distribute_tensor": distribute,
}
