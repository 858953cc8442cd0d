"""When gloo's threads have let go of a collective: until then they hold its tensors, as long as it happens to take."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

_TASKS = "/proc/self/task"
_NAME = "pt_gloo_runloop"
_LONGEST = 1.0  # seconds that are waited: ranks may make collectives in an order in which each must go on alone
_DONE_BY_WAITING = ("_reduce_scatter", "reduce_scatter")  # gloo makes them of others, and says so once it is waited for
_PAUSE = 0.0002  # seconds in which a thread that wants Python's lock gets it


def follow_waits(on: Callable[[], bool]) -> None:
    """From here on whoever waits for a collective in Python waits for gloo's threads too, while it is `on`."""
    kind: Any = dist.Work
    real = kind.wait

    @functools.wraps(real)
    def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
        done = real(work, *args, **kwargs)
        if on():
            let_go()
        return done

    kind.wait = wait


def finish(name: str, result: Any) -> None:
    """Waits until this collective, which has just been begun, is done, and let go of. A pretended one never says that
    it is done, and has no threads."""
    if not _threads():
        return
    last = result[-1] if isinstance(result, tuple) and result else result
    if isinstance(last, torch.ScriptObject) and "Work" in str(last._type()) and not name.startswith(_DONE_BY_WAITING):
        work, deadline = dist.Work.unbox(last), time.monotonic() + _LONGEST
        while not work.is_completed() and time.monotonic() < deadline:
            time.sleep(_PAUSE)
    let_go()


def let_go() -> None:
    """Waits until gloo's threads sleep: what they have carried is now held by the program, or by nobody. Where there is
    no /proc it does not wait."""
    threads, deadline, seen = _threads(), time.monotonic() + _LONGEST, 0
    # A thread that wants Python's lock sleeps too; in the pause it gets the lock, and is awake at the second look.
    while threads and seen < 2 and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        seen = seen + 1 if all(map(_sleeps, threads)) else 0


_known: dict[str, int | None] = {}  # by a thread's number the file that tells its state; None where it is not gloo's


def _threads() -> list[int]:
    try:
        numbers = os.listdir(_TASKS)
        for number in numbers:
            if number not in _known:
                name = Path(_TASKS, number, "comm").read_text(encoding="utf-8").strip()
                _known[number] = os.open(f"{_TASKS}/{number}/stat", os.O_RDONLY) if name == _NAME else None
    except OSError:
        return []
    return [file for number in numbers if (file := _known[number]) is not None]


def _sleeps(stat: int) -> bool:
    """Whether the thread of this file sleeps, or has ended."""
    try:
        return os.pread(stat, 300, 0).rpartition(b")")[2].split()[0] == b"S"
    except OSError:
        return True
