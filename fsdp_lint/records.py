"""What was measured of a rule's own programs, kept as JSON and shown on the rule's page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MISTAKE, FIX, LOOK_ALIKE = "mistake", "fix", "look-alike"
CONFIRMED, QUIET = "confirmed", "quiet"
_WHAT = {MISTAKE: "`{}`, the mistake", FIX: "with its fix", LOOK_ALIKE: "`{}`, which only looks like it"}
_HOW = {
    "nccl": "one rank a GPU, NCCL",
    "simulate": "one rank of {}, the others are pretended",
    "shared": "{} ranks on one GPU, gloo",
    "cpu": "{} CPU ranks, gloo",
}


@dataclass(frozen=True)
class Measured:
    """One program's run: what it is, what was found in it and seen in the run, and its figures; None for what was not
    measured. `held` are the bytes of the model and its optimizer that one rank holds, `collectives` are those of one
    step, by kind."""

    what: str
    program: str
    found: bool
    said: str
    held: int | None
    peak_bytes: int | None
    collectives: Mapping[str, int] | None
    parameters_changed: float | None
    ended: str


@dataclass(frozen=True)
class Record:
    """What one machine has measured of a rule on one day, in one mode. `verdict` is that on the mistake; `quiet` says
    that nothing was found or seen in the look-alike, None where there is none that runs."""

    rule: str
    mode: str
    ranks: int
    device: str
    torch: str
    date: str
    verdict: str
    quiet: bool | None
    programs: tuple[Measured, ...]

    @property
    def holds(self) -> bool:
        """Whether the mistake was seen and is gone with the fix, and the look-alike is quiet."""
        return self.verdict == CONFIRMED and self.quiet is not False

    @property
    def how(self) -> str:
        """The mode in words."""
        return _HOW.get(self.mode, self.mode).format(self.ranks)

    def save(self, folder: Path) -> Path:
        """Writes it, in place of what the same kind of machine has measured before; the file."""
        device = self.device.lower().replace(" ", "-")
        path = folder / f"{self.rule}-{self.mode}{'' if self.device == 'cpu' else f'-{device}'}.json"
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dataclasses.asdict(self), indent=2) + "\n", encoding="utf-8")
        return path


def load(folder: Path, rule: str) -> list[Record]:
    """The records of a rule that are in this folder."""
    found = [_record(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob(f"{rule}-*.json"))]
    return [record for record in found if record.rule == rule]


def _record(told: dict[str, Any]) -> Record:
    return Record(**{**told, "programs": tuple(Measured(**each) for each in told["programs"])})


def as_markdown(records: Sequence[Record]) -> str:
    """A table for each record."""
    parts = []
    for each in records:
        device = "" if each.device == "cpu" else f"{each.device}, "
        how = each.how[:1].upper() + each.how[1:]
        parts.append(
            f"{how}, {device}torch {each.torch}, {each.date} (`fsdp-lint verify --rule {each.rule} "
            f"--mode {each.mode}`): **{each.verdict}**."
        )
        head = ["program", "what the run shows", "held, bytes", "peak, bytes", "collectives a step", "changed"]
        rows = [_row(one) for one in each.programs]
        lines = [head, ["---"] * len(head), *rows]
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in lines))
    return "\n\n".join(parts)


def as_text(record: Record) -> str:
    """The same for a terminal."""
    device = "" if record.device == "cpu" else f", {record.device}"
    quiet = {True: ", the look-alike is quiet", False: ", the look-alike is NOT quiet", None: ""}[record.quiet]
    lines = [f"{record.rule}: {record.verdict}{quiet} ({record.how}{device}, torch {record.torch})"]
    for one in record.programs:
        held, peak, collectives, changed = _figures(one, "not measured")
        lines.append(f"  {_WHAT[one.what].format(one.program).replace('`', '')}: {one.said}")
        lines.append(
            f"    bytes held {held}, peak {peak}, collectives a step: {collectives}, parameters changed: {changed}"
        )
    return "\n".join(lines) + "\n"


def _row(one: Measured) -> list[str]:
    return [_WHAT[one.what].format(one.program), one.said.replace("|", "\\|"), *_figures(one)]


def _figures(one: Measured, unknown: str = "-") -> list[str]:
    sizes = [None if each is None else f"{each:,}" for each in (one.held, one.peak_bytes)]
    kinds = None if one.collectives is None else [f"{count} {kind}" for kind, count in one.collectives.items()]
    made = None if kinds is None else ", ".join(kinds) or "none"
    changed = None if one.parameters_changed is None else f"{one.parameters_changed:.0%}"
    return [unknown if each is None else each for each in (*sizes, made, changed)]
