"""Reads saved files back in one process and compares them with what the ranks held when they were written."""

from __future__ import annotations

import importlib
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from fsdp_lint.verify.instrument.models import local
from fsdp_lint.verify.instrument.saves import tensors_in

_LARGEST = 2**31


def reload(path: str, notes: Path, ranks: int, step: int) -> str | None:
    """What one process reads from the file that was saved after `step` steps, against the whole model: "equal",
    "differs: ..." or "unreadable: ...".

    None where that cannot be said: the values of that step were not kept by all ranks, or the file holds none of the
    model's parameters.
    """
    parts = []
    for kept in sorted(notes.glob("*.values")):
        with kept.open("rb") as file:
            after, values = pickle.load(file)
            parts += [values] if after == step else []
    if len(parts) != ranks or not parts[0]:
        return None
    try:
        saved = _read(Path(path))
    except Exception as error:
        return f"unreadable: {type(error).__name__}: {str(error).splitlines()[0][:160]}"
    return _compare(parts, saved)


def _read(path: Path) -> list[tuple[str, Any]]:
    if path.is_dir():
        with tempfile.TemporaryDirectory() as folder:
            whole = Path(folder) / "whole.pt"
            importlib.import_module("torch.distributed.checkpoint.format_utils").dcp_to_torch_save(path, whole)
            return list(tensors_in(torch.load(whole, weights_only=False)))
    if path.suffix == ".safetensors":
        return list(tensors_in(importlib.import_module("safetensors.torch").load_file(path)))
    try:
        return list(tensors_in(torch.load(path, map_location="cpu", weights_only=False)))
    except pickle.UnpicklingError:
        with path.open("rb") as file:
            return list(tensors_in(pickle.load(file)))


def _compare(parts: list[dict[str, Any]], saved: list[tuple[str, Any]]) -> str | None:
    by_name: dict[str, list[Any]] = {}
    for name, value in saved:
        for tail in _tails(name):
            by_name.setdefault(tail, []).append(value)
    missing, differing, known = [], [], 0
    for name, (first, dim) in parts[0].items():
        found = by_name.get(_plain(name), [])
        known += bool(found)
        whole = first if dim is None else torch.cat([part[name][0] for part in parts if name in part], dim)
        if not found:
            missing.append(name)
        elif not any(_equal(value, whole) for value in found):
            differing.append(name)
    if not known:
        return None
    wrong = differing + missing
    total = len(parts[0])
    return "equal" if not wrong else f"differs: {len(wrong)} of {total} parameters, {_plain(wrong[0])} among them"


def _plain(name: str) -> str:
    for word in ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.", "module."):
        name = name.replace(word, "")
    return name.rpartition(":")[2]


def _tails(name: str) -> list[str]:
    words = _plain(name).split(".")
    return [".".join(words[start:]) for start in range(len(words))]


def _equal(value: Any, whole: Any) -> bool:
    if isinstance(value, DTensor):  # one process sees this rank's part of it, whatever shape it claims
        value = local(value)
    value = value.detach().cpu()
    return bool(value.shape == whole.shape and torch.equal(value.to(whole.dtype), whole))
