"""What a save writes: where, how much, of which tensors; and whether one process can read the model back from it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from fsdp_lint.verify.instrument.models import Models, local
from fsdp_lint.verify.instrument.sites import Sites
from fsdp_lint.verify.kept import set_aside

_LARGEST = 2**31  # bytes of a model up to which its values are kept for the comparison with the file


class Saves:
    """Follows torch.save, pickle.dump, safetensors and distributed checkpoints. A file that is there already is set
    aside first. `done` is called after each save."""

    def __init__(self, sites: Sites, models: Models, notes: Path, done: Callable[[], None]) -> None:
        self.sites = sites
        self.models = models
        self.notes = notes
        self.done = done
        self.made: list[dict[str, Any]] = []
        self._inside = False

    def install(self) -> None:
        """Follows saves from here on."""
        self._follow(torch, "save", 1)
        torch.serialization.save = torch.save
        self._follow(pickle, "dump", 1)
        with contextlib.suppress(ImportError):
            self._follow(importlib.import_module("safetensors.torch"), "save_file", 1)
        with contextlib.suppress(ImportError):
            checkpoint: Any = importlib.import_module("torch.distributed.checkpoint")
            self._follow(checkpoint, "save", None)
            saver: Any = importlib.import_module("torch.distributed.checkpoint.state_dict_saver")
            saver.save = checkpoint.save

    def _follow(self, home: Any, name: str, place: int | None) -> None:
        real = getattr(home, name)

        @functools.wraps(real)
        def save(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return real(*args, **kwargs)
            self._inside = True
            try:
                path, site = _path(args, kwargs, place), self.sites.here()
                if path:
                    set_aside(path, self.notes)
                result = real(*args, **kwargs)
                content = args[0] if args else kwargs.get("obj", kwargs.get("state_dict", kwargs.get("tensors")))
                self._note(content, path, site, place is not None)
            finally:
                self._inside = False
            self.done()
            return result

        setattr(home, name, save)

    def _note(self, content: Any, path: str, site: str, plain: bool) -> None:
        found = list(tensors_in(content))
        if not found:
            return
        self.made.append(
            {
                "path": path,
                "site": site,
                "bytes": _size(path),
                "tensors": len(found),
                "dtensors": sum(isinstance(t, DTensor) for _, t in found) if plain else 0,
            }
        )
        self._keep_values()

    def _keep_values(self) -> None:
        """This rank's part of every parameter, for the comparison with the file."""
        self.models.find()
        parameters = list(self.models.parameters())
        if sum(local(p).numel() * local(p).element_size() for _, p in parameters) > _LARGEST:
            return
        kept = {}
        for name, value in parameters:
            split = [p.dim for p in value.placements if p.is_shard()] if isinstance(value, DTensor) else []
            kept[name] = (local(value).detach().cpu().clone(), split[0] if split else None)
        rank = dist.get_rank() if dist.is_initialized() else 0
        with (self.notes / f"{rank}.values").open("wb") as file:
            pickle.Pickler(file).dump(kept)


def _path(args: Any, kwargs: Any, place: int | None) -> str:
    """Where the save goes; "" where it goes into an open stream that has no name."""
    names = ("f", "filename", "file") if place is not None else ("checkpoint_id",)
    where = next((kwargs[name] for name in names if name in kwargs), None)
    if where is None and place is not None and len(args) > place:
        where = args[place]
    if where is None and place is None:
        where = getattr(kwargs.get("storage_writer"), "path", None)
    where = where if isinstance(where, (str, os.PathLike)) else getattr(where, "name", None)
    return os.path.abspath(where) if isinstance(where, (str, os.PathLike)) else ""


def _size(path: str) -> int | None:
    if os.path.isdir(path):
        return sum(each.stat().st_size for each in Path(path).rglob("*") if each.is_file())
    return os.path.getsize(path) if path and os.path.exists(path) else None


def tensors_in(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor in a saved object, with its name there."""
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from tensors_in(value, f"{name}.{key}" if name else str(key))
    elif isinstance(content, (list, tuple)):
        for number, value in enumerate(content):
            yield from tensors_in(value, f"{name}.{number}")
    elif callable(getattr(content, "state_dict", None)) and not isinstance(content, type):
        yield from tensors_in(content.state_dict(), name)
