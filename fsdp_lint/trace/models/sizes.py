"""Parameter counts of torch.nn layers from the literal sizes in the code."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from fsdp_lint.trace.values import Const, Module, Object, Sequence, Tensor, Value

CONTAINERS = frozenset({"ModuleList", "Sequential", "ModuleDict"})
FREE = frozenset(
    {
        "ReLU",
        "GELU",
        "SiLU",
        "Tanh",
        "Sigmoid",
        "Softmax",
        "LogSoftmax",
        "Dropout",
        "Dropout1d",
        "Dropout2d",
        "Identity",
        "Flatten",
        "Unflatten",
        "LeakyReLU",
        "ELU",
        "Softplus",
        "Hardswish",
        "Mish",
        "MaxPool1d",
        "MaxPool2d",
        "AvgPool1d",
        "AvgPool2d",
        "AdaptiveAvgPool1d",
        "AdaptiveAvgPool2d",
        "Upsample",
        "CrossEntropyLoss",
        "MSELoss",
    }
)


class _NotKnown(Exception):
    """A size is no literal."""


def parameter_count(module: Value) -> int | None:
    """The number of elements in all parameters of a module; None where a size is not in the code."""
    try:
        return _count(module, set())
    except _NotKnown:
        return None


def _count(module: Value, seen: set[int]) -> int:
    if not isinstance(module, Module) or module.each:
        raise _NotKnown
    if module.number in seen:
        return 0
    seen.add(module.number)
    if module.wraps is not None:
        return _count(module.wraps, seen)
    if module.count is None:
        raise _NotKnown
    if module.library is not None and module.cls is None:
        return module.count * _library(module, seen)
    if module.cls is None or not module.built or not (module.children or module.parameters):
        raise _NotKnown
    own = sum(_weight(value) for value in module.parameters.values())
    return module.count * (own + sum(_count(child, seen) for child in module.children.values()))


def _library(module: Module, seen: set[int]) -> int:
    assert module.library is not None
    name = module.library.rpartition(".")[2]
    if name in CONTAINERS:
        return sum(_count(child, seen) for child in module.children.values())
    if name in FREE:
        return 0
    if name not in FORMULAS or not module.library.startswith("torch.nn."):
        raise _NotKnown
    return FORMULAS[name](_Sizes(module))


class _Sizes:
    """The arguments of a layer as numbers."""

    def __init__(self, module: Module) -> None:
        self.module = module

    def value(self, at: int, name: str) -> Value | None:
        if name in self.module.kwargs:
            return self.module.kwargs[name]
        return self.module.args[at] if 0 <= at < len(self.module.args) else None

    def number(self, at: int, name: str, default: int | None = None) -> int:
        value = self.value(at, name)
        if value is None and default is not None:
            return default
        if isinstance(value, Const) and isinstance(value.value, int) and not isinstance(value.value, bool):
            return value.value
        raise _NotKnown

    def flag(self, at: int, name: str, default: bool) -> int:
        value = self.value(at, name)
        if value is None:
            return int(default)
        if isinstance(value, Const) and isinstance(value.value, bool):
            return int(value.value)
        raise _NotKnown

    def shape(self, at: int, name: str, default: int | None = None) -> list[int]:
        value = self.value(at, name)
        if value is None and default is not None:
            return [default]
        return _shape([value] if value is not None else [])


def _shape(values: list[Value]) -> list[int]:
    if len(values) == 1 and isinstance(values[0], Sequence) and values[0].exact:
        values = values[0].items
    found = []
    for value in values:
        if not isinstance(value, Const) or not isinstance(value.value, int) or isinstance(value.value, bool):
            raise _NotKnown
        found.append(value.value)
    if not found:
        raise _NotKnown
    return found


def _weight(value: Value) -> int:
    source = value.source if isinstance(value, Tensor) else None
    if isinstance(source, Object) and source.cls == "torch.Tensor":
        return prod(_shape(list(source.args)))
    raise _NotKnown


def _linear(s: _Sizes) -> int:
    inner, outer = s.number(0, "in_features"), s.number(1, "out_features")
    return inner * outer + outer * s.flag(2, "bias", True)


def _embedding(s: _Sizes) -> int:
    return s.number(0, "num_embeddings") * s.number(1, "embedding_dim")


def _layer_norm(s: _Sizes) -> int:
    size = prod(s.shape(0, "normalized_shape"))
    return size * (1 + s.flag(3, "bias", True)) * s.flag(2, "elementwise_affine", True)


def _rms_norm(s: _Sizes) -> int:
    return prod(s.shape(0, "normalized_shape")) * s.flag(2, "elementwise_affine", True)


def _batch_norm(s: _Sizes) -> int:
    return 2 * s.number(0, "num_features") * s.flag(3, "affine", True)


def _conv(dimensions: int) -> Callable[[_Sizes], int]:
    def formula(s: _Sizes) -> int:
        inner, outer = s.number(0, "in_channels"), s.number(1, "out_channels")
        kernel = s.shape(2, "kernel_size")
        size = prod(kernel) if len(kernel) > 1 else kernel[0] ** dimensions
        return inner // s.number(6, "groups", 1) * outer * size + outer * s.flag(7, "bias", True)

    return formula


def _attention(s: _Sizes) -> int:
    size = s.number(0, "embed_dim")
    bias = s.flag(3, "bias", True)
    key, value = s.number(6, "kdim", size), s.number(7, "vdim", size)
    return size * (2 * size + key + value) + bias * 4 * size


def _encoder_layer(s: _Sizes) -> int:
    size, wide = s.number(0, "d_model"), s.number(2, "dim_feedforward", 2048)
    s.number(1, "nhead")
    if s.value(-1, "bias") is not None:
        raise _NotKnown
    return 4 * size * size + 4 * size + 2 * size * wide + wide + size + 4 * size


def _decoder_layer(s: _Sizes) -> int:
    size = s.number(0, "d_model")
    return _encoder_layer(s) + 4 * size * size + 4 * size + 2 * size


FORMULAS: dict[str, Callable[[_Sizes], int]] = {
    "Linear": _linear,
    "Embedding": _embedding,
    "LayerNorm": _layer_norm,
    "RMSNorm": _rms_norm,
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "Conv1d": _conv(1),
    "Conv2d": _conv(2),
    "Conv3d": _conv(3),
    "MultiheadAttention": _attention,
    "TransformerEncoderLayer": _encoder_layer,
    "TransformerDecoderLayer": _decoder_layer,
}
