"""The types of CUDA tensors by name, which are those of the CPU, and CUDA's generators, which are the CPU's one."""

from __future__ import annotations

import functools
from typing import Any

import torch

from fsdp_lint.verify.instrument.mapping import Mapping

_PREFIX = "torch.cuda."


def map_types(mapping: Mapping, ranks: int) -> None:
    """From here on `torch.cuda.FloatTensor` and the others name types of the CPU, as do their names in text."""
    home: Any = torch.cuda
    kinds: dict[str, Any] = {name: getattr(torch, name) for name in dir(home) if isinstance(vars(home)[name], _KIND)}
    kinds["default_generators"] = (torch.default_generator,) * ranks
    for name in kinds:
        delattr(home, name)

    def found(name: str) -> Any:
        if name not in kinds:
            raise AttributeError(f"module 'torch.cuda' has no attribute {name!r}")
        mapping.note(_PREFIX + name)
        return kinds[name]

    home.__getattr__ = found
    default = torch.set_default_tensor_type

    @functools.wraps(default)
    def set_default_tensor_type(kind: Any) -> None:
        default(of_cpu(kind, mapping))

    torch.set_default_tensor_type = set_default_tensor_type


_KIND: Any = type(torch.FloatTensor)


def of_cpu(kind: Any, mapping: Mapping) -> Any:
    """The name of the CPU's type for that of CUDA's; anything else itself."""
    if not isinstance(kind, str) or not kind.startswith(_PREFIX):
        return kind
    mapping.note(kind)
    return "torch." + kind.removeprefix(_PREFIX)
