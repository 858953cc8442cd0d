"""What a run says about one finding: the question, the answer, and where in the measures to look for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fsdp_lint.verify.measures import Attempt, Reading, Run


@dataclass(frozen=True)
class Evidence:
    """What a run says about one mistake: seen or not, or None where it cannot say; and why."""

    seen: bool | None
    text: str


@dataclass(frozen=True)
class Case:
    """One run to be asked about one finding: `sites` are the lines of the finding and its witnesses in that run's
    text, as path:line; `new` those that only the fixed text has. `other` is the run of the other text, where there is
    one."""

    run: Run
    sites: frozenset[str]
    other: Run | None = None
    fixed: bool = False
    new: frozenset[str] = frozenset()


Probe = Callable[[Case], Evidence]


def no_step(run: Run) -> Evidence:
    """Nothing can be said: no optimizer step was made."""
    return Evidence(None, f"no optimizer step was made: {run.ended}")


def readings_of(case: Case, how: str = "") -> list[list[Reading]]:
    """By rank, what was read at the finding's lines, all of it or in one way."""
    return [
        [one for one in record.readings if one.site in case.sites and one.values and how in ("", one.how)]
        for record in case.run.alive
    ]


def attempts_of(case: Case, how: str) -> list[list[Attempt]]:
    """By rank, what was attempted at the finding's lines in this way."""
    return [[one for one in record.attempts if one.site in case.sites and one.how == how] for record in case.run.alive]
