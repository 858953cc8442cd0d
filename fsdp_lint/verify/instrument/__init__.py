"""Runs inside the user's program: the only room that imports torch."""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import os
import random
import sys
import tempfile
import types
import warnings
from pathlib import Path

import torch

from fsdp_lint.verify.instrument import devices, groups, one_gpu
from fsdp_lint.verify.instrument.reload import reload as reload
from fsdp_lint.verify.instrument.sites import Sites
from fsdp_lint.verify.instrument.watch import Watch
from fsdp_lint.verify.overlay import Overlay, code_of
from fsdp_lint.verify.plan import Plan, Target

_LONGEST = 60  # characters of a folder in which a socket's path is not too long for the system
_WANTED = (  # what programs import late, loaded once, before the ranks are forked
    "torch.distributed.checkpoint.format_utils",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.nn.parallel",
    "torch._dynamo",
)


def prepare() -> str:
    """Loads what programs need of torch, so that forked ranks have it; the version of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _WANTED:
            importlib.import_module(name)
    return str(torch.__version__)


def gpus() -> int:
    """How many CUDA devices there are, asked without starting CUDA: a process that has may not fork ranks."""
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    return torch.cuda.device_count() if torch.backends.cuda.is_built() else 0


def run(plan: Plan, rank: int, notes: Path) -> int:
    """Runs the program as one rank, with the overlay and the instruments around it. Does not return in general."""
    entry, module = _entry(plan.target)
    sites = Sites(entry)
    overlay = Overlay(plan.texts, notes)
    overlay.install()
    watch = Watch(plan, rank, notes, sites)
    if plan.on_cpu:
        torch.set_num_threads(1)
        devices.map_to_cpu(watch.mapping, plan.ranks)
    if plan.mode == "shared":
        one_gpu.share(watch.mapping, plan.ranks)
    groups.lead(plan, watch.mapping)
    _seed(rank)
    _keep_sockets(notes)
    watch.install()
    error: BaseException | None = None
    try:
        _execute(plan.target, entry, module, overlay)
        ended = "the program ended"
    except SystemExit as stop:
        ended = "the program ended" if not stop.code else f"the program ended with exit code {stop.code}"
        error = stop if stop.code else None
    except BaseException as problem:
        ended, error = "an error", problem
    watch.leave(ended, error)
    return 1


def _seed(rank: int) -> None:
    """Processes that are started, not forked, draw other numbers each; and here the same again in another run."""
    random.seed(rank)
    torch.manual_seed(rank + 1)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(rank)


def _keep_sockets(notes: Path) -> None:
    """multiprocessing's folders, which ranks that are ended cannot take away, go with ours; private, and guarded."""
    folder = notes / "sockets"
    folder.mkdir(exist_ok=True)
    config = getattr(multiprocessing.current_process(), "_config", None)
    if isinstance(config, dict) and len(str(folder)) < _LONGEST:
        config["tempdir"] = tempfile.mkdtemp(dir=folder)


def _entry(target: Target) -> tuple[str, importlib.machinery.ModuleSpec | None]:
    """The file to be run; with `-m`, its module's spec too. Raises ImportError."""
    if not target.module:
        return os.path.abspath(target.script), None
    sys.path.insert(0, os.getcwd())
    name = target.module
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or spec.origin is None:
        raise ImportError(f"no module named {name}")
    return spec.origin, spec


def _execute(target: Target, entry: str, spec: importlib.machinery.ModuleSpec | None, overlay: Overlay) -> None:
    """What `python SCRIPT` or `python -m MODULE` does."""
    main = types.ModuleType("__main__")
    main.__file__ = entry
    main.__builtins__ = __builtins__  # type: ignore[attr-defined]
    main.__spec__ = spec
    if spec is not None:
        main.__package__ = spec.parent
        main.__loader__ = spec.loader
    else:
        main.__package__ = None
        sys.path.insert(0, os.path.dirname(entry))
    sys.modules["__main__"] = main
    sys.argv = [entry, *target.arguments]
    exec(code_of(entry, overlay), main.__dict__)
