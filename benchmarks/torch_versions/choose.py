"""Which fixture programs are run on each torch: of each rule the simplest wrong one, and its right twin."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests"))

from ranks import Program, programs  # noqa: E402


@dataclass(frozen=True)
class Pair:
    """A wrong program and the right one of the same name; `generation` is that of the FSDP in them."""

    rule: str
    generation: int
    bad: str
    twin: str
    probe: str


def runnable() -> dict[str, Program]:
    """The programs that run on two CPU ranks, by name."""
    return {program.name: program for program in programs(REPO / "fixtures") if "skip" not in program.verify}


def pairs(rules: list[str]) -> Iterator[Pair]:
    """For each rule, or each of these, a pair for each generation of FSDP of which there are programs that run here."""
    found = runnable()
    seen: set[tuple[str, int]] = set()
    for program in sorted((program for program in found.values() if program.bad), key=_simplest_first):
        rule, twin, generation = _rule(program), _twin(program, found), _generation(program)
        if twin is not None and (rule, generation) not in seen and (not rules or rule in rules):
            seen.add((rule, generation))
            yield Pair(rule, generation, program.name, twin, program.probe)


def _rule(program: Program) -> str:
    return program.name.partition("/")[0].replace("_", "-")


def _twin(program: Program, found: dict[str, Program]) -> str | None:
    names = (program.name.replace("/bad_", f"/{word}_") for word in ("good", "fixed"))
    return next((name for name in names if name in found), None)


def _simplest_first(program: Program) -> tuple[bool, bool, int]:
    several = program.entry.name == "train.py"
    return several, not program.name.endswith("/bad_inline"), len(_text(program))


def _generation(program: Program) -> int:
    text = _text(program)
    return 1 if "FullyShardedDataParallel" in text and "fully_shard" not in text else 2


def _text(program: Program) -> str:
    files = program.entry.parent.rglob("*.py") if program.entry.name == "train.py" else [program.entry]
    return "".join(file.read_text(encoding="utf-8") for file in files)
