"""What a save writes: where, how much, of which tensors; and whether one process can read the model back from it."""

from __future__ import annotations

import builtins
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
    aside first. `done` is called after each save, and with a `pretended` group before it: that one would write what
    is not there. `step()` is how many steps were made."""

    def __init__(
        self,
        sites: Sites,
        models: Models,
        notes: Path,
        pretended: bool,
        done: Callable[[], None],
        step: Callable[[], int],
    ) -> None:
        self.sites = sites
        self.models = models
        self.notes = notes
        self.pretended = pretended
        self.done = done
        self.step = step
        self.made: list[dict[str, Any]] = []
        self._inside = False
        self._kept = -1

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

        self._follow_overwriting()

    def _follow_overwriting(self) -> None:
        """Sets aside a checkpoint also where the program opens it for writing, or moves another file to its place."""
        real_open, notes = builtins.open, self.notes

        @functools.wraps(real_open)
        def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            if "w" in mode and _is_checkpoint(file):
                set_aside(os.path.abspath(file), notes)
            return real_open(file, mode, *args, **kwargs)

        def moving(real: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(real)
            def move(source: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
                if _is_checkpoint(target):
                    set_aside(os.path.abspath(target), notes)
                return real(source, target, *args, **kwargs)

            return move

        builtins.open = open_
        os.replace, os.rename = moving(os.replace), moving(os.rename)

    def _follow(self, home: Any, name: str, place: int | None) -> None:
        real = getattr(home, name)

        @functools.wraps(real)
        def save(*args: Any, **kwargs: Any) -> Any:
            if self._inside:
                return real(*args, **kwargs)
            self._inside = True
            try:
                path, site = _path(args, kwargs, place), self.sites.here()
                content = args[0] if args else kwargs.get("obj", kwargs.get("state_dict", kwargs.get("tensors")))
                if self.pretended and self._note(content, path, site, place is not None):
                    self.done()
                if path:
                    set_aside(path, self.notes)
                result = real(*args, **kwargs)
                if not self.pretended and self._note(content, path, site, place is not None):
                    self.keep_values()
                    (self.notes / f"saved-{self.step()}").touch()
            finally:
                self._inside = False
            self.done()
            return result

        setattr(home, name, save)

    def _note(self, content: Any, path: str, site: str, plain: bool) -> bool:
        """Notes a save of tensors; whether it is one."""
        found = list(tensors_in(content))
        if not found and not (isinstance(content, Mapping) and not content and path):
            return False  # an empty state dict is a save: ranks that gather nothing write it over the one that does
        self.made.append(
            {
                "path": path,
                "site": site,
                "bytes": None if self.pretended else _size(path),
                "tensors": len(found),
                "dtensors": sum(isinstance(t, DTensor) for _, t in found) if plain else 0,
                "step": self.step(),
            }
        )
        return True

    def made_before(self, step: int) -> bool:
        """Whether any rank has saved after fewer steps than these, and not before the first."""
        return any(0 < int(each.name.partition("-")[2]) < step for each in self.notes.glob("saved-*"))

    def keep_if_saved(self) -> None:
        """Keeps this rank's values if another rank has saved since the last step; the next one is about to begin."""
        if not self.made and (self.notes / f"saved-{self.step()}").exists():
            self.keep_values()

    def keep_for_others(self, awaited: bool) -> None:
        """Keeps this rank's values if another rank has saved, or is awaited to, and this one has not."""
        if not self.made and self._kept in (-1, self.step()) and (awaited or any(self.notes.glob("claim-*"))):
            self.keep_values()

    def keep_values(self) -> None:
        """This rank's part of every parameter, for the comparison with the file, as of the last save: a rank that does
        not save itself keeps them when it leaves."""
        rank = dist.get_rank() if dist.is_initialized() else int(os.environ.get("RANK", "0"))
        path = self.notes / f"{rank}.values"
        if self.pretended:
            return
        self.models.find()
        self.models.reshard()
        parameters = list(self.models.parameters())
        if sum(local(p).numel() * local(p).element_size() for _, p in parameters) > _LARGEST:
            return
        kept = {}
        for name, value in parameters:
            split = [p.dim for p in value.placements if p.is_shard()] if isinstance(value, DTensor) else []
            kept[name] = (local(value).detach().cpu().clone(), split[0] if split else None)
        self._kept = self.step()
        inside, self._inside = self._inside, True  # to pickle a tensor is to save it
        with path.open("wb") as file:
            pickle.Pickler(file).dump((self.step(), kept))
        self._inside = inside


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


def _is_checkpoint(file: Any) -> bool:
    return isinstance(file, (str, os.PathLike)) and str(file).endswith((".pt", ".pth", ".ckpt", ".safetensors"))


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
