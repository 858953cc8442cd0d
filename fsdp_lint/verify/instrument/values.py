"""Whether values move, agree between ranks, and are whole: checksums of local tensors, without a copy of them."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from fsdp_lint.verify.instrument.models import Models, fsdp1_pieces, local


def checksum(tensor: Any) -> str:
    """Equal for equal values; "" for what has none. `_version` would not do: foreach does not move a DTensor's."""
    part = local(tensor).detach()
    if part.device.type == "meta" or not part.numel():
        return ""
    if not part.is_floating_point():
        return f"{float(part.double().sum()) if not part.is_complex() else float(part.abs().double().sum())!r}"
    total = part.sum(dtype=torch.float64)
    return f"{float(total)!r} {float(torch.linalg.vector_norm(part, dtype=_wide(part)))!r}"


def _wide(part: Any) -> Any:
    return torch.float64 if part.device.type == "cpu" else torch.float32


def _is_constant(part: Any) -> bool:
    return part.device.type == "meta" or not part.numel() or bool(part.min() == part.max())


class Values:
    """The trainable parameters' checksums before the first step, to be compared after the last."""

    def __init__(self, models: Models) -> None:
        self.models = models
        self.before: dict[str, str] = {}
        self.built: dict[str, str] = {}

    def about_to_shard(self, module: Any) -> None:
        """Takes the checksums of what this call of fully_shard will shard."""
        for part in module if isinstance(module, (list, tuple)) else [module]:
            number = len(self.built)
            for name, parameter in part.named_parameters():
                if not isinstance(parameter, DTensor):
                    self.built[f"{number}:{name}"] = checksum(parameter)

    def remember(self) -> None:
        """Takes the checksums, once."""
        if not self.before:
            self.before = {n: checksum(p) for n, p in self.models.parameters() if p.requires_grad}

    def changed(self) -> list[str]:
        """Names of those that have other values now."""
        now = dict(self.models.parameters())
        return [name for name, value in self.before.items() if name in now and checksum(now[name]) != value]

    def replicated(self) -> tuple[dict[str, str], int]:
        """Checksums of parameters that every rank holds whole, and how many are sharded."""
        plain, sharded = {}, 0
        for name, parameter in self.models.parameters():
            if isinstance(parameter, DTensor):
                sharded += 1
            elif not fsdp1_pieces([parameter]):
                plain[name] = checksum(parameter)
        return plain, sharded

    def started(self) -> dict[str, tuple[str, str]]:
        """As `shards`, without what is one number everywhere: such shards are equal in the right program too."""
        constant = {n for n, p in self.models.parameters() if isinstance(p, DTensor) and _is_constant(local(p))}
        return {name: part for name, part in self.shards().items() if name not in constant and part[1]}

    def shards(self) -> dict[str, tuple[str, str]]:
        """Of every sharded parameter: which shard this is (its place in the mesh's sharding dimensions), and its
        checksum. Two replicas of a shard must agree, two shards of a random weight must not."""
        found = {}
        for name, parameter in self.models.parameters():
            if isinstance(parameter, DTensor):
                place = parameter.device_mesh.get_coordinate() or []
                split = [str(at) for at, kind in zip(place, parameter.placements, strict=True) if kind.is_shard()]
                found[name] = (",".join(split), checksum(parameter))
        return found

    def buffers(self) -> dict[str, str]:
        """Checksums of buffers."""
        return {name: checksum(buffer) for name, buffer in self.models.buffers()}


def batch_of(inputs: Any) -> str:
    """A hash of the first tensor of more than one element among a forward's inputs; "" where there is none."""
    for each in inputs:
        if isinstance(each, (list, tuple)):
            found = batch_of(each)
        elif isinstance(each, dict):
            found = batch_of(list(each.values()))
        elif isinstance(each, torch.Tensor) and each.numel() > 1 and each.device.type != "meta":
            data = local(each).detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
            found = hashlib.sha256(data).hexdigest()[:16]
        else:
            found = ""
        if found:
            return found
    return ""
