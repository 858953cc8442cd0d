"""The units that FSDP gathers, as the tree that their names make; those that differ in a number only are one row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fsdp_lint.verify.measures import Run

ROOT = "(root)"


@dataclass(frozen=True)
class Unit:
    """Units of one name, but for numbers: how many, how deep they lie in the tree, and the bytes that their all-gathers
    bring in one step, together."""

    name: str
    count: int
    depth: int
    gathered: int

    @property
    def label(self) -> str:
        """The name, and how many they are."""
        return self.name if self.count == 1 else f"{self.name} ({self.count})"


def tree(run: Run) -> list[Unit]:
    """From the root down, each unit followed by those inside it. Empty where nothing is sharded or counted."""
    if run.collectives is None:
        return []
    gathered: dict[str, int] = {}
    for one in run.collectives:
        if one.unit:
            gathered[one.unit] = gathered.get(one.unit, 0) + (one.bytes if one.kind == "all_gather" else 0)
    known = [name or ROOT for name in (run.first.units if run.first is not None else ())]
    if not set(gathered) <= set(known):
        known = list(gathered)  # FSDP1 calls its units by their class
    names = sorted({re.sub(r"\d+", "*", name) for name in known}, key=_in_order)
    found = []
    for name in names:
        mine = [each for each in known if re.sub(r"\d+", "*", each) == name]
        found.append(Unit(name, len(mine), _depth(name, names), sum(gathered.get(each, 0) for each in mine)))
    return found


def _in_order(name: str) -> list[str]:
    return [] if name == ROOT else name.split(".")


def _depth(name: str, names: Sequence[str]) -> int:
    """How many units it lies in."""
    if name == ROOT:
        return 0
    return sum(name.startswith(f"{other}.") for other in names) + (ROOT in names)
