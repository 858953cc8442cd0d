"""Forked ranks and their end: whatever happens, no process, port or shared memory of theirs outlives the run."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import os
import random
import signal
import socket
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_SHARED_MEMORY = Path("/dev/shm")
_TRACKER_PATIENCE = 2.0  # seconds in which multiprocessing's own tracker may clean up after killed workers


class Terminated(BaseException):
    """The process was asked to end (SIGTERM, SIGHUP)."""


@dataclass(frozen=True)
class Limits:
    """How long ranks may take, in seconds: all of them together, and the others once one has failed. Then each gets the
    signal `warning`, if there is one, and `last_words` to write down what it knows."""

    whole: float
    grace: float
    warning: int | None = None
    last_words: float = 3.0


@dataclass(frozen=True)
class Ending:
    """How one rank ended: its exit code, or the signal that ended it; neither where it was killed for being late."""

    code: int | None = None
    signal: int | None = None

    @property
    def late(self) -> bool:
        """Whether the time was up."""
        return self.code is None and self.signal is None


def fork_ranks(
    target: Callable[[int], int],
    environment: Callable[[int], Mapping[str, str]],
    ranks: int,
    logs: Path,
    limits: Limits,
    watch: Callable[[], None] = lambda: None,
) -> list[Ending]:
    """Runs `target(rank)` in forked processes, whose exit codes it returns; `logs/RANK.log` takes what they print.
    `watch` is called again and again meanwhile.

    Each rank leads a session of its own. When this returns, or raises, every rank is gone with all that it started.
    """
    with _adopting_orphans() as owned:
        running: dict[int, int] = {}
        try:
            gc.collect()
            gc.freeze()  # for good: to look through all of torch again before each fork takes a quarter of a second
            parent = os.getpid()
            for rank in range(ranks):
                pid = _fork()
                if pid == 0:
                    _be_a_rank(target, rank, environment(rank), logs / f"{rank}.log", parent)
                running[pid] = rank
            endings = _wait_for(running, limits, watch)
        finally:
            _end_all(list(running), owned)
    return [endings.get(rank, Ending()) for rank in range(ranks)]


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP raise Terminated, so that what is to be cleaned up is cleaned up."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated(signal.Signals(number).name)

    old = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def free_port() -> int:
    """A port that nobody listens on, below those that the system gives to outgoing connections. Raises OSError."""
    for port in random.sample(range(15000, 30000), 100):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise OSError("no free port")


def torchrun_environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    """The variables that torchrun gives to a rank of one machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


# ------------------------------------------------------------------------------------------------ the child's side


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the process has threads; the ranks need none of them
        return os.fork()


def _be_a_rank(
    target: Callable[[int], int], rank: int, environment: Mapping[str, str], log: Path, parent: int
) -> NoReturn:
    """Runs in the forked child and never returns to the parent's code."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        _die_with(parent)
        _write_to(log)
        os.environ.update(environment)
        code = target(rank)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _die_with(parent: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _write_to(log: Path) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    faulthandler.register(signal.SIGUSR1, file=2)


# ----------------------------------------------------------------------------------------------- the parent's side


def _wait_for(running: Mapping[int, int], limits: Limits, watch: Callable[[], None]) -> dict[int, Ending]:
    """The ending of each rank that ended by itself in time."""
    endings: dict[int, Ending] = {}
    waiting = dict(running)
    _collect(waiting, endings, limits.whole, limits.grace, watch)
    if waiting and limits.warning is not None:
        _signal(waiting, limits.warning)
        _collect(waiting, endings, limits.last_words, limits.last_words, watch)
    if waiting:  # the log is to say where each of them stood
        _signal(waiting, signal.SIGUSR1)
        time.sleep(0.3)
    return endings


def _collect(
    waiting: dict[int, int], endings: dict[int, Ending], whole: float, grace: float, watch: Callable[[], None]
) -> None:
    """Moves each rank that ends in this time from the waiting ones to the endings."""
    deadline = time.monotonic() + whole
    while waiting and time.monotonic() < deadline:
        for pid, rank in list(waiting.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del waiting[pid]
                endings[rank] = _ending(status)
                if status != 0:
                    deadline = min(deadline, time.monotonic() + grace)
        watch()
        time.sleep(0.01)


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _ending(status: int) -> Ending:
    if os.WIFSIGNALED(status):
        return Ending(signal=os.WTERMSIG(status))
    return Ending(code=os.WEXITSTATUS(status))


@dataclass(frozen=True)
class _Owned:
    """What was there before the run and is not to be touched: our other children, and shared memory by name."""

    children: frozenset[int]
    memory: frozenset[str]


@contextlib.contextmanager
def _adopting_orphans() -> Iterator[_Owned]:
    """Inside, what ranks leave behind becomes a child of this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    memory = frozenset(str(path) for path in _SHARED_MEMORY.glob("*"))
    yield _Owned(frozenset(_children_of({os.getpid()})), memory)


def _end_all(ranks: list[int], owned: _Owned) -> None:
    """Kills the ranks and all that they started, also what left their sessions, and takes away their shared memory."""
    own = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    main = threading.current_thread() is threading.main_thread()
    old = signal.pthread_sigmask(signal.SIG_BLOCK, own) if main else None
    try:
        memory: set[str] = set()
        for pid in ranks:
            memory |= _shared_memory({pid, *_descendants({pid})})
            _kill(pid)
        for pid in ranks:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        _end_orphans(owned, memory)
        for name in memory - owned.memory:
            with contextlib.suppress(OSError):
                os.unlink(name)
    finally:
        if old is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _end_orphans(owned: _Owned, memory: set[str]) -> None:
    """Kills what the ranks left, which is ours by now, until nothing new appears."""
    patience = time.monotonic() + _TRACKER_PATIENCE
    while left := [pid for pid in _children_of({os.getpid()}) if pid not in owned.children]:
        memory |= _shared_memory({*left, *_descendants(set(left))})
        for pid in left:
            if not _tracks_resources(pid) or time.monotonic() > patience:
                _kill(pid)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _children_of(parents: set[int]) -> Iterator[int]:
    """Children of these processes, the ended ones that nobody has waited for too; none where there is no /proc."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int(entry.read_text(errors="replace").rpartition(")")[2].split()[1]) in parents:
                yield int(entry.parent.name)


def _descendants(parents: set[int]) -> set[int]:
    found: set[int] = set()
    while new := set(_children_of(parents | found)) - found:
        found |= new
    return found


def _tracks_resources(pid: int) -> bool:
    """Whether it is multiprocessing's own process that removes named semaphores once all its users are gone."""
    with contextlib.suppress(OSError):
        return b"resource_tracker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _shared_memory(pids: set[int]) -> set[str]:
    """The files in /dev/shm that these processes have mapped, and that a kill would leave there."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
                name = line.partition(f" {_SHARED_MEMORY}/")[2]
                if name and not name.endswith("(deleted)"):
                    found.add(f"{_SHARED_MEMORY}/{name}")
    return found
