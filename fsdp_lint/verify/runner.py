"""One run of a program: its ranks are started, watched and ended, and what they wrote down is read. No torch here."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fsdp_lint.verify import kept, overlay
from fsdp_lint.verify.hang import first_difference, read_calls, two_ways
from fsdp_lint.verify.measures import Call, RankRecord, Run, Trouble
from fsdp_lint.verify.overlay import Overlay
from fsdp_lint.verify.plan import Plan
from fsdp_lint.verify.processes import Ending, Limits, fork_ranks, free_port, torchrun_environment
from fsdp_lint.verify.progress import Silent

GRACE = 8.0  # seconds that the other ranks get once one has failed
_OF_A_LOG = 4000  # characters of a rank's output that are kept
_COMMUNICATION = (
    "Timed out waiting",
    "Connection closed by peer",
    "Connection reset by peer",
    "Read error",
    "Watchdog caught collective operation timeout",
    "NCCL communicator was aborted",
    "Broken pipe",
    "op.preamble.length",
)


def instrument() -> Any:
    """The instrument, which imports torch. Raises ImportError where torch is not installed."""
    return importlib.import_module("fsdp_lint.verify.instrument")


def run(plan: Plan, progress: Silent | None = None, name: str = "run") -> Run:
    """Runs the program as the plan says. Leaves no process, file, port or shared memory behind."""
    progress = progress or Silent()
    with _notes() as notes:
        began = time.monotonic()
        progress.begin(name, notes, plan.processes)
        endings = _start(plan, notes, progress)
        records = [_record(notes, rank) for rank in range(plan.processes)]
        troubles = [t for rank, ending in enumerate(endings) if (t := _trouble(rank, ending, records, notes))]
        records = _with_reloads(records, notes, progress)
        kept.restore(notes)
        calls = read_calls(notes, plan.processes) if troubles and plan.mode != "simulate" else []
        difference = first_difference(calls)
        own = [t for t in troubles if not _is_hang(t, calls, plan.patience)]
        hung = bool(troubles) and not own and plan.mode != "simulate"
        done = Run(
            mode=plan.mode,
            ranks=plan.ranks,
            records=records,
            troubles=tuple(own or troubles),
            difference=difference if hung else None,
            hung=hung,
            calls=calls if hung else [],
            loaded=overlay.loaded(notes),
            files=_files(records),
            seconds=time.monotonic() - began,
        )
    progress.end(done.ended)
    return done


def _files(records: list[RankRecord | None]) -> tuple[str, ...]:
    """The program's files that were loaded, those in which an error ended the load too."""
    loaded = {path for record in records if record for path in record.visited}
    failed = {
        os.path.realpath(line.rpartition(":")[0])
        for record in records
        if record and record.trouble
        for line in record.trouble.lines
    }
    return tuple(sorted(loaded | failed))


@contextmanager
def _notes() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="fsdp-lint-verify-"))
    try:
        yield folder
    finally:
        kept.restore(folder)
        shutil.rmtree(folder, ignore_errors=True)


# What each rank gets besides torchrun's variables. When a collective has timed out, NCCL's watchdog leaves all ranks
# four times this long to write their logs before it ends them, 60 s unless it is told less.
_TAME = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "500"}


def _start(plan: Plan, notes: Path, progress: Silent) -> list[Ending]:
    start: Callable[[Plan, int, Path], int] = instrument().run
    port = free_port()
    inherited = Overlay(plan.texts, notes).save()
    world = plan.ranks if plan.mode == "simulate" else plan.processes

    def environment(rank: int) -> dict[str, str]:
        given = torchrun_environment(rank, world, port)
        ours = {f"FSDP_LINT_{name}": given[name] for name in ("MASTER_ADDR", "MASTER_PORT")}
        return {**_TAME, **given, **ours, **inherited}

    limits = Limits(whole=plan.timeout, grace=GRACE, warning=signal.SIGUSR2)
    return fork_ranks(lambda rank: start(plan, rank, notes), environment, plan.processes, notes, limits, progress.look)


def _record(notes: Path, rank: int) -> RankRecord | None:
    """What the rank wrote down at its end, or else what it had until its last step."""
    for note in (notes / f"{rank}.json", notes / f"{rank}.so-far.json"):
        if note.is_file():
            record = RankRecord.from_json(json.loads(note.read_text(encoding="utf-8")))
            made = notes / f"{rank}.steps"
            return dataclasses.replace(record, steps=int(made.read_text())) if record.cut and made.is_file() else record
    return None


def _trouble(rank: int, ending: Ending, records: list[RankRecord | None], notes: Path) -> Trouble | None:
    """What went wrong in a rank; None where it came to its end."""
    record = records[rank]
    log = notes / f"{rank}.log"
    said = log.read_text(encoding="utf-8", errors="replace")[-_OF_A_LOG:] if log.is_file() else ""
    if record is not None and not record.cut:
        trouble = record.trouble
        return None if trouble is None else dataclasses.replace(trouble, rank=rank, log=said)
    if ending.late:
        kind, text = "late", "was still running when the time was up"
    elif ending.signal is not None:
        kind, text = "died", f"was ended by {_signal(ending.signal)}"
    else:
        kind, text = "died", f"left with exit code {ending.code}"
    text += f" after {record.steps} steps" if record is not None else ""
    # We send it to a rank only when its time is up; a rank that sends it to itself is rare.
    text += " [which is what a full memory ends in]" if ending.signal == signal.SIGKILL else ""
    last = read_calls(notes, rank + 1)[rank]
    idle = time.time() - (notes / f"{rank}.calls").stat().st_mtime if last else 0.0
    return Trouble(kind, text, "", rank, said, last=last[-1].site if last else "", idle=idle)


def _signal(number: int) -> str:
    """A signal as people know it: "SIGSEGV (Segmentation fault)"."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    return f"{name} ({signal.strsignal(number)})"


def _is_hang(trouble: Trouble, calls: list[list[Call]], patience: float) -> bool:
    """Whether a rank ended because another did not come to the same collective: its communication says so, or it was
    ended by abort, or was late, where ranks went two ways; or the other made none for longer than is to be waited."""
    if any(word in trouble.text or word in trouble.log[-1500:] for word in _COMMUNICATION):
        return trouble.kind != "memory"
    if trouble.kind == "late":
        return two_ways(calls) or (trouble.idle >= patience and first_difference(calls) is not None)
    return trouble.kind == "died" and "SIGABRT" in trouble.text and two_ways(calls)


def _with_reloads(records: list[RankRecord | None], notes: Path, progress: Silent) -> list[RankRecord | None]:
    """The records, with what one process reads back from each file that was saved; it may die of it."""
    steps = {save.path: save.step for r in records if r is not None for save in r.saves if save.path}
    if not steps:
        return records
    check = instrument().reload
    progress.say("what was saved is read back")

    def read(_: int) -> int:
        found = {p: check(p, notes, len(records), step) for p, step in sorted(steps.items()) if os.path.exists(p)}
        (notes / "reloads.json").write_text(json.dumps(found), encoding="utf-8")
        return 0

    logs = notes / "reload"
    logs.mkdir()
    fork_ranks(read, lambda _: {}, 1, logs, Limits(whole=120.0, grace=1.0))
    told = notes / "reloads.json"
    found = json.loads(told.read_text(encoding="utf-8")) if told.is_file() else {}
    return [r and dataclasses.replace(r, saves=_judged(r, found)) for r in records]


def _judged(record: RankRecord, found: dict[str, str | None]) -> tuple[Any, ...]:
    return tuple(dataclasses.replace(save, reload=found.get(save.path)) for save in record.saves)
