"""Processes that the program would start as its ranks, which it has already: `spawn` runs here, others are refused."""

from __future__ import annotations

import functools
import importlib
import multiprocessing.process
import os
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from fsdp_lint.verify.instrument.mapping import Mapping, asked_by_torch
from fsdp_lint.verify.instrument.sites import Sites

_OF_A_RANK = {"init_process_group", "init_device_mesh"}


class StartsRanks(RuntimeError):
    """The program starts processes of its own, each to be a rank."""


def spawn_here(mapping: Mapping) -> None:
    """From here on what `spawn` is to start runs in the rank that asks, and no other process becomes a rank."""
    home: Any = importlib.import_module("torch.multiprocessing.spawn")
    real = home.start_processes

    @functools.wraps(real)
    def start_processes(fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, *rest: Any, **kwargs: Any) -> Any:
        if asked_by_torch():
            return real(fn, args, nprocs, join, *rest, **kwargs)
        mapping.note("spawn: its function runs in our ranks")
        fn(int(os.environ["RANK"]), *args)
        return None if join else types.SimpleNamespace(join=lambda *_, **__: True, processes=[], pids=list)

    for place in (torch.multiprocessing, home):
        place.spawn = place.start_processes = start_processes
    base: Any = multiprocessing.process.BaseProcess
    start = base.start

    @functools.wraps(start)
    def start_other(process: Any) -> None:
        if not dist.is_initialized() and _is_a_rank(process, mapping.sites):
            raise StartsRanks(
                "the program starts processes of its own as its ranks; verify starts the ranks: "
                "start it as torchrun would, or use torch.multiprocessing.spawn"
            )
        start(process)

    base.start = start_other


def _is_a_rank(process: Any, sites: Sites) -> bool:
    """Whether what it runs, or the program's own functions that this names, makes a group."""
    waiting: list[Any] = [process._target or type(process).run]
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        for code, names in _codes(value, sites):
            if _OF_A_RANK & set(code.co_names):
                return True
            waiting += _named(code, names, sites)
    return False


def _codes(value: Any, sites: Sites) -> Iterator[tuple[types.CodeType, dict[str, Any]]]:
    """The code of a function of the program's, of what is inside it, and of a class's methods; with its globals."""
    value = getattr(value, "func", value)  # of a partial
    value = getattr(value, "__wrapped__", getattr(value, "__func__", value))
    if isinstance(value, type):
        for each in vars(value).values():
            if isinstance(each, types.FunctionType):
                yield from _codes(each, sites)
    if not isinstance(value, types.FunctionType) or not sites.own(value.__code__.co_filename):
        return
    codes = [value.__code__]
    for code in codes:
        codes += [each for each in code.co_consts if isinstance(each, types.CodeType)]
        yield code, value.__globals__


def _named(code: types.CodeType, names: dict[str, Any], sites: Sites) -> list[Any]:
    """What the code names, of its own module and of the program's modules that it names."""
    found = [names[name] for name in code.co_names if name in names]
    modules = [each for each in found if isinstance(each, types.ModuleType) and sites.own(_file(each))]
    return found + [vars(each)[name] for each in modules for name in code.co_names if name in vars(each)]


def _file(module: types.ModuleType) -> str:
    return getattr(module, "__file__", None) or "<built in>"
