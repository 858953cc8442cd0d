"""How far a run has come: each rank notes its phase; it is told in a line that moves, or in lines of a log."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

LOADING = "loading"
_OFTEN = 0.2  # seconds between two looks
_RARELY = 5.0  # seconds between two lines in a log


def note(notes: Path, rank: int, phase: str) -> None:
    """This rank has come so far. Nothing else depends on it, so a full disk does not matter here."""
    with contextlib.suppress(OSError):
        (notes / f"{rank}.phase").write_text(phase, encoding="utf-8")


class Silent:
    """Tells nothing: for those who do not watch."""

    def begin(self, run: str, notes: Path, ranks: int) -> None:
        """A run ("before", "after") begins; its ranks note their phases there."""

    def look(self) -> None:
        """Called again and again while ranks run."""

    def say(self, phase: str) -> None:
        """Something else than a rank is at work."""

    def end(self, ended: str) -> None:
        """The run is over."""

    def leave(self) -> None:
        """All is over, or something has been raised."""


class Shown(Silent):
    """Tells on `out`: on a terminal in one line that is overwritten, elsewhere in lines that stay, a few of them."""

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.out = out
        self.clock = clock
        self.moving = out.isatty() and os.environ.get("TERM") != "dumb"
        self._run, self._notes, self._ranks = "", Path(), 0
        self._began = self._looked = self._told = 0.0
        self._last = ""

    def begin(self, run: str, notes: Path, ranks: int) -> None:
        self._run, self._notes, self._ranks = run, notes, ranks
        self._began = self._looked = self._told = self.clock()
        self._last = ""
        self._show(f"{ranks} rank{'s' * (ranks > 1)} start")

    def look(self) -> None:
        now = self.clock()
        if now < self._looked + _OFTEN:
            return
        self._looked = now
        if self.moving or now >= self._told + _RARELY:
            phases = [_read(self._notes / f"{rank}.phase") for rank in range(self._ranks)]
            told = _in_words(phases)
            if self.moving or told != self._last:
                self._last, self._told = told, now
                self._show(f"{told}, {now - self._began:.0f} s")

    def say(self, phase: str) -> None:
        self._show(phase)

    def end(self, ended: str) -> None:
        if not self.moving:
            self._show(f"{ended}, {self.clock() - self._began:.1f} s")
        self._run = ""

    def leave(self) -> None:
        if self.moving:
            self._write("\r\x1b[K")

    def _show(self, text: str) -> None:
        line = f"{self._run}: {text}" if self._run else text
        if self.moving:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"\r\x1b[K{line[:width]}")
        else:
            self._write(f"fsdp-lint: {line}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # whoever read it has left; the proof goes on
            self.out.write(text)
            self.out.flush()


def shown() -> Shown:
    """On standard error."""
    return Shown(sys.stderr)


def _read(note: Path) -> str:
    try:
        return note.read_text(encoding="utf-8") or LOADING
    except OSError:
        return LOADING


def _in_words(phases: list[str]) -> str:
    """Each phase with its ranks: "rank 0: step 3 of 6, rank 1: step 2 of 6", or one for all of them."""
    ranks: dict[str, list[int]] = {}
    for rank, phase in enumerate(phases):
        ranks.setdefault(phase, []).append(rank)
    if len(ranks) == 1 and len(phases) > 1:
        return f"all ranks: {phases[0]}"
    return ", ".join(f"rank{'s' * (len(who) > 1)} {_span(who)}: {phase}" for phase, who in ranks.items())


def _span(ranks: list[int]) -> str:
    if len(ranks) > 2 and ranks == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]} to {ranks[-1]}"
    return " and ".join(map(str, ranks)) if len(ranks) < 3 else ", ".join(map(str, ranks))
