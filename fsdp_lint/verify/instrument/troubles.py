"""The error that ended a rank, told without the frames of ours that stood between the program and torch."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import torch

from fsdp_lint.verify.instrument.sites import Sites
from fsdp_lint.verify.measures import Trouble

_CPU_IS_FULL = "can't allocate memory"  # what the CPU's allocator raises, as a RuntimeError
_OURS = str(Path(__file__).parents[1])
_MOST = 2000  # characters of a message, in which the error of a mistake is looked for
_OBJECTS = (
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
    "send_object_list",
)
_STATES = ("optim_state_dict", "full_optim_state_dict", "sharded_optim_state_dict")
_OF_DDP = "c10d/comm.cpp"  # where its reducer asserts on a group that gives it no work to wait for
_CHAIN = 8  # errors that an error came of


def show(error: BaseException) -> None:
    """Prints the error as Python does."""
    told = traceback.TracebackException.from_exception(error)
    _clean(told, set())
    print("".join(told.format()), end="", file=sys.stderr)


def _clean(told: traceback.TracebackException | None, done: set[int]) -> None:
    if told is None or id(told) in done:
        return
    done.add(id(told))
    told.stack = traceback.StackSummary.from_list([f for f in told.stack if not f.filename.startswith(_OURS)])
    for other in (told.__cause__, told.__context__, *(getattr(told, "exceptions", None) or ())):
        _clean(other, done)


def trouble_of(error: BaseException, sites: Sites, rank: int) -> Trouble:
    """What is written down of it."""
    if isinstance(error, SystemExit):
        text = f"exit code {error.code}" if isinstance(error.code, int) else str(error.code)
        return Trouble("error", text, sites.of(error.__traceback__), rank)
    memory = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    full = isinstance(error, (memory, MemoryError)) or _CPU_IS_FULL in str(error)
    chain = list(_chain(error))
    return Trouble(
        kind="memory" if full else "error",
        text=_first_line(error),
        site=sites.of(error.__traceback__),
        rank=rank,
        causes=tuple(f"{type(each).__name__}: {str(each)[:_MOST]}" for each in chain),
        lines=tuple(dict.fromkeys(line for each in chain for line in sites.all_of(each.__traceback__))),
    )


def what_is_pretended(error: BaseException | None) -> str:
    """The operation that an error came out of because other ranks are only pretended; "" where it is another error."""
    for each in _chain(error):
        if _OF_DDP in str(each):
            return "DDP"
        for frame, _ in traceback.walk_tb(each.__traceback__):
            name, file = frame.f_code.co_name, Path(frame.f_code.co_filename).name
            if name in _OBJECTS and file == "distributed_c10d.py":
                return name
            if name in _STATES and file == "fully_sharded_data_parallel.py":
                return f"FSDP.{name}"
    return ""


def cannot_be_pretended(operation: str) -> str:
    """Why `simulate` does not go on with it."""
    if operation == "DDP":
        return "DDP does not run in a simulated group"
    what = "objects" if operation in _OBJECTS else "states"
    return f"{operation} exchanges {what}, which the pretended group cannot do"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those that it came of."""
    for _ in range(_CHAIN):
        if error is None:
            return
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _first_line(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0][:300]}" if said else type(error).__name__
