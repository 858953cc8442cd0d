"""One step in its order: how many bytes were allocated after each operation, and when each collective was begun."""

from __future__ import annotations

import time
from collections.abc import Callable

_POINTS = 240  # of memory that are kept, the highest of their share of the operations each
_MOST = 3000  # collectives that are kept


class Timeline:
    """Follows one step, between `begin` and `end`. Times are in milliseconds of the thread that starts operations,
    since the step began; what a GPU does with them later is not seen."""

    def __init__(self, allocated: Callable[[], int]) -> None:
        self.on = False
        self._allocated = allocated
        self._began = 0.0
        self._seen: list[tuple[float, int]] = []
        self.collectives: list[tuple[float, str, str, int]] = []

    def begin(self) -> None:
        """The step begins."""
        self.on, self._began = True, time.perf_counter()
        self.see()

    def end(self) -> None:
        """The step is over."""
        self.on = False

    def see(self) -> None:
        """An operation has been started."""
        if self.on:
            self._seen.append((self._now(), self._allocated()))

    def collective(self, kind: str, unit: str, size: int) -> None:
        """A collective is about to begin."""
        if self.on and len(self.collectives) < _MOST:
            self.collectives.append((self._now(), kind, unit, size))

    @property
    def memory(self) -> list[tuple[float, int]]:
        """Milliseconds and bytes, in order."""
        share = -(-len(self._seen) // _POINTS)
        parts = [self._seen[start : start + share] for start in range(0, len(self._seen), share)] if share else []
        return [max(part, key=lambda point: point[1]) for part in parts]

    def _now(self) -> float:
        return round((time.perf_counter() - self._began) * 1000, 3)
