"""What the user expects of the after-run, `peak<=40GiB` or `saving>=30%`, and whether it holds."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from fsdp_lint.verify.measures import Run
from fsdp_lint.verify.plan import CannotRun

_SIZES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_UNITS = {"": 1, "%": 0.01, "MS": 1, **_SIZES}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
_FORM = re.compile(r"\s*([a-z_]+)\s*(<=|>=|==|<|>)\s*(-?[0-9][0-9_,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)\s*([A-Za-z%]*)\s*")


@dataclass(frozen=True)
class Expectation:
    """A quantity, how it is compared, and with what."""

    text: str
    quantity: str
    compare: str
    limit: float

    @classmethod
    def parse(cls, text: str) -> Expectation:
        """From the command line. Raises CannotRun."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise CannotRun(f"--expect {text!r} is not like 'peak<=40GiB' or 'saving>=30%'")
        quantity, compare, number, unit = found.groups()
        if quantity not in QUANTITIES:
            raise CannotRun(f"--expect {text!r}: no quantity {quantity!r}; there are {', '.join(QUANTITIES)}")
        if unit.upper() not in _UNITS:
            raise CannotRun(f"--expect {text!r}: no unit {unit!r}")
        if (unit == "%") != (QUANTITIES[quantity][1] == "%") and unit:
            raise CannotRun(f"--expect {text!r}: {quantity} is not measured in {unit}")
        return cls(text.strip(), quantity, compare, float(re.sub("[_,]", "", number)) * _UNITS[unit.upper()])

    def check(self, before: Run, after: Run) -> Kept:
        """Whether it holds."""
        value = QUANTITIES[self.quantity][0](before, after)
        return Kept(self.text, value, None if value is None else _COMPARE[self.compare](value, self.limit))


@dataclass(frozen=True)
class Kept:
    """An expectation, the value that was measured, and whether it holds; None where it was not measured."""

    text: str
    value: float | None
    holds: bool | None


def _saving(before: Run, after: Run) -> float | None:
    if not before.peak_bytes or after.peak_bytes is None:
        return None
    return 1 - after.peak_bytes / before.peak_bytes


def _collectives(run: Run) -> float | None:
    return None if run.collectives is None else float(sum(one.count for one in run.collectives))


QUANTITIES: dict[str, tuple[Callable[[Run, Run], float | None], str]] = {
    "peak": (lambda _, after: after.peak_bytes, "B"),
    "held": (lambda _, after: after.held.training if after.held else None, "B"),
    "saving": (_saving, "%"),
    "changed": (lambda _, after: after.parameters_changed, "%"),
    "collectives": (lambda _, after: _collectives(after), ""),
    "step": (lambda _, after: after.step_ms, "ms"),
}
