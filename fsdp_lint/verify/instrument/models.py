"""The models of the program, found among its living objects, and the bytes that are held for them by kind.

Nothing here keeps a reference to a parameter, weak or strong, while the program builds its model: `to_empty` refuses
to swap a tensor that somebody refers to weakly.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor


class Models:
    """The outermost modules that hold what is trained."""

    def __init__(self) -> None:
        self.roots: list[Any] = []  # from the first step on kept, so that they can be read when the program has ended
        self.optimizers: list[weakref.ref[Any]] = []
        self.sites: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def built(self, optimizer: Any, site: str) -> None:
        """An optimizer was built here."""
        self.optimizers.append(weakref.ref(optimizer))
        self.sites[optimizer] = site

    @property
    def living_optimizers(self) -> list[Any]:
        return [optimizer for ref in self.optimizers if (optimizer := ref()) is not None]

    def find(self) -> None:
        """Looks through all living modules, once, for those that have gradients, are sharded, or are in an optimizer.

        A plain module around sharded ones is the root, as a wrapper is around its model.
        """
        if self.roots:
            return
        held = {id(p) for optimizer in self.living_optimizers for p in _held_by(optimizer)}
        modules = [each for each in gc.get_objects() if isinstance(each, torch.nn.Module)]
        matter = [each for each in modules if _matters(each, held)]
        inner = {id(part) for each in matter for part in each.modules() if part is not each}
        self.roots = [each for each in matter if id(each) not in inner]

    def forget(self) -> None:
        """What was found may be models that the program has tried and dropped: they are looked for again."""
        self.roots = []

    def reshard(self) -> None:
        """FSDP2's root stays gathered after a forward: its own parameters are the sharded ones."""
        for root in self.roots:
            for part in root.modules():
                if hasattr(part, "reshard") and hasattr(part, "_get_fsdp_state"):
                    part.reshard()

    def parameters(self) -> Iterator[tuple[str, Any]]:
        """Name and parameter of every root; a name is unique."""
        for number, root in enumerate(self.roots):
            prefix = f"{number}:" if number else ""
            for name, parameter in root.named_parameters():
                yield prefix + name, parameter

    def buffers(self) -> Iterator[tuple[str, Any]]:
        """Name and buffer of every root."""
        for number, root in enumerate(self.roots):
            prefix = f"{number}:" if number else ""
            for name, buffer in root.named_buffers():
                yield prefix + name, buffer

    def stale(self, optimizer: Any) -> list[Any]:
        """Parameters in the optimizer that are no parameters of a model."""
        mine = {id(parameter) for _, parameter in self.parameters()}
        return [parameter for parameter in _held_by(optimizer) if id(parameter) not in mine] if mine else []

    def parameters_by_optimizer(self) -> dict[str, tuple[int, int]]:
        """By the line where optimizers were built: how many of their parameters are not the models', and how many there
        are."""
        found: dict[str, tuple[int, int]] = {}
        for optimizer in self.living_optimizers:
            site = self.sites.get(optimizer, "")
            stale, count = found.get(site, (0, 0))
            found[site] = (stale + len(self.stale(optimizer)), count + len(_held_by(optimizer)))
        return found

    def dead(self) -> int:
        """How many parameters are alive that no module has, FSDP's own gathered ones left out."""
        used: set[int] = set()
        loose = {}
        for each in gc.get_objects():
            if isinstance(each, torch.nn.Module):
                used |= {id(parameter) for parameter in each._parameters.values()}
            elif type(each).__name__ == "FSDPParam":
                used |= {id(getattr(each, name, None)) for name in ("_unsharded_param", "sharded_param")}
            elif isinstance(each, torch.nn.Parameter):
                loose[id(each)] = each
        return len(loose.keys() - used)

    def held(self, seen: set[int]) -> dict[str, int]:
        """Bytes by kind: parameters, gradients, state of the optimizers, parameters that only an optimizer holds. The
        storages are added to `seen`."""
        parameters = [parameter for _, parameter in self.parameters()]
        optimizers = self.living_optimizers
        stale = [parameter for optimizer in optimizers for parameter in self.stale(optimizer)]
        state = [value for optimizer in optimizers for value in _tensors(list(optimizer.state.values()))]
        return {
            "parameters": storage_bytes(parameters, seen),
            "gradients": storage_bytes((p.grad for p in parameters if p.grad is not None), seen),
            "optimizer_state": storage_bytes(state, seen),
            "optimizer_only": storage_bytes(stale, seen)
            + storage_bytes((p.grad for p in stale if p.grad is not None), seen),
        }

    def size(self) -> tuple[int, int]:
        """Elements and bytes of the whole models, whatever part of them this rank has."""
        elements = size = 0
        flat = [flat for root in self.roots for part in root.modules() if (flat := _flat_parameter(part)) is not None]
        flattened = {id(each) for one in flat for each in (one, *(getattr(one, "_params", None) or ()))}
        whole = [(one._unpadded_unsharded_size.numel(), one) for one in flat]
        whole += [(each.numel(), each) for _, each in self.parameters() if id(each) not in flattened]
        for count, parameter in whole:
            elements += count
            size += count * parameter.element_size()
        return elements, size

    def wrapper(self) -> str:
        """What the first root is wrapped in: "ddp", "fsdp1", "fsdp2" or "" for nothing."""
        kinds = {_wrapped(part) for root in self.roots for part in root.modules()}
        return next((kind for kind in ("ddp", "fsdp1", "fsdp2") if kind in kinds), "")

    def units(self) -> dict[str, str]:
        """FSDP's units: the module's name, and "leaf" where it has no children, "root" or "inner" otherwise."""
        found, seen = {}, set()
        for root in self.roots:
            for name, part in root.named_modules():
                key = _unit_of(part)
                if key is not None and key not in seen:
                    seen.add(key)
                    inside = getattr(part, "_fsdp_wrapped_module", part)  # FSDP1 wraps, FSDP2 does not
                    kind = "root" if part is root else "inner" if any(True for _ in inside.children()) else "leaf"
                    found[name] = kind
        return found


def _matters(module: Any, held: set[int]) -> bool:
    if any(_wrapped(part) for part in module.modules()):
        return True
    return any(p.grad is not None or id(p) in held for p in module.parameters())


def _wrapped(module: Any) -> str:
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return "ddp"
    if hasattr(module, "_get_fsdp_state"):
        return "fsdp2"
    return "fsdp1" if isinstance(module, torch.distributed.fsdp.FullyShardedDataParallel) else ""


def _unit_of(module: Any) -> int | None:
    """The group of parameters that is gathered for this module, as its id. Reads private state of FSDP, guarded."""
    if hasattr(module, "_get_fsdp_state"):
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        return next((id(group) for group in groups if group is not None and group.fsdp_params), None)
    flat = _flat_parameter(module)
    return None if flat is None else id(flat)


def _flat_parameter(module: Any) -> Any:
    """What FSDP1 has made of this module's parameters; None for other modules."""
    wrapper = torch.distributed.fsdp.FullyShardedDataParallel
    handle = getattr(module, "_handle", None) if isinstance(module, wrapper) else None
    return None if handle is None else handle.flat_param


def _held_by(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def local(tensor: Any) -> Any:
    """This rank's part of a DTensor, and any other tensor itself."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def fsdp1_pieces(parameters: Any) -> bool:
    """Whether one of these is a piece that FSDP1 has cut from a parameter, or from many."""
    return any(getattr(each, "_fsdp_flattened", False) for each in parameters)


def storage_bytes(tensors: Iterable[Any], seen: set[int]) -> int:
    """Bytes of the local storages, each once."""
    total = 0
    for tensor in tensors:
        part = local(tensor)
        if part.device.type == "meta":
            continue
        for inner in _inner(part):
            storage = inner.untyped_storage()
            if storage._cdata not in seen:
                seen.add(storage._cdata)
                total += storage.nbytes()
    return total


def _inner(tensor: Any) -> list[Any]:
    """The plain tensors inside a wrapper of other kind (quantised parameters, say)."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter) or not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    return [each for name in names for each in _inner(getattr(tensor, name))]
