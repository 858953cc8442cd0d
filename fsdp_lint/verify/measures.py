"""What was measured, as plain data: of one rank, as it writes it down, and of one run, put together from its ranks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Held:
    """Bytes that one rank holds after an optimizer step, by kind, as local storages. `other` is what remains of all
    that is allocated; None where that is not known."""

    parameters: int
    gradients: int
    optimizer_state: int
    optimizer_only: int
    other: int | None

    @property
    def training(self) -> int:
        """Without what is not of the model or the optimizer."""
        return self.parameters + self.gradients + self.optimizer_state + self.optimizer_only


@dataclass(frozen=True)
class Collective:
    """The collectives of one kind, made for one FSDP unit ("" for none), in one step: how many, how many bytes, and
    the largest."""

    kind: str
    unit: str
    count: int
    bytes: int
    largest: int


@dataclass(frozen=True)
class Call:
    """A collective that a rank began: its kind, bytes, the ranks of its group, and the user's line."""

    kind: str
    bytes: int
    group: str
    site: str


@dataclass(frozen=True)
class Save:
    """A file that was written: where it was asked for, its bytes, how many tensors and DTensors went into it, after how
    many steps, and what a reload in one process gives ("equal", "differs", why it cannot be read, None where that was
    not tried)."""

    path: str
    site: str
    bytes: int | None
    tensors: int
    dtensors: int
    step: int = 0
    reload: str | None = None


@dataclass(frozen=True)
class Reading:
    """A number that the program took from a DTensor or its local part: where, how, and the values read there."""

    site: str
    how: str
    partial: bool
    values: tuple[float, ...]


@dataclass(frozen=True)
class Attempt:
    """What was asked of a parameter at a line (a "hook" on it, an assignment to its "data"), how often, and how often
    something came of it."""

    site: str
    how: str
    count: int
    worked: int


@dataclass(frozen=True)
class Whole:
    """Whole tensors that a rank took into memory at a line, from a "state" dict that it gathered or a "file" that it
    read: the most bytes of one call."""

    site: str
    how: str
    bytes: int


@dataclass(frozen=True)
class Layout:
    """How parameters lie on a mesh: for each dimension its name, its size, and whether it shards."""

    dimensions: tuple[tuple[str, int, bool], ...]


@dataclass(frozen=True)
class Trouble:
    """What ended a rank before its time: "error" or "memory" (an exception), "pretended" (an exception that comes of
    the group of `simulate`), "died" (a signal) or "late"; "refused" where the mode cannot be had and nothing ran. Of an
    exception `causes` tells those that it came of, `lines` all the program's own lines on the way; of a rank that could
    say nothing, `last` is the line of its last collective, and `idle` the seconds since it began."""

    kind: str
    text: str
    site: str
    rank: int = 0
    log: str = ""
    causes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    last: str = ""
    idle: float = 0.0

    @property
    def place(self) -> str:
        """Where it was, in words; "" where nothing is known. Where the last collective was is not where it ended."""
        if self.site:
            return f" at {os.path.relpath(self.site)}"
        return f"; its last collective was at {os.path.relpath(self.last)}" if self.last else ""


@dataclass(frozen=True)
class RankRecord:
    """All that one rank wrote down.

    `optimizers` holds, by the line where they were built, how many of their parameters are not the model's, and how
    many there are; `stale` and `optimizer_parameters` are the sums. `dead` parameters are alive and no module's.
    `built` holds checksums of parameters as they were when they were sharded, `plain` of those that every rank holds
    whole, `shards` of the others with the shard's place in the mesh; `started` is the same before the first step and
    without constants. `made_at` counts the program's own collectives by line, neither FSDP's nor DTensors';
    `compile_site` is where torch.compile was first asked for, `optimizer_site` where the first optimizer was built.
    `gpus` holds the peak on each GPU by its number, `backend` what moves the parameters' data, as "nccl for cuda". Of
    the counted step, `memory` has bytes by milliseconds, `timeline` each collective: milliseconds, kind, unit, bytes;
    `backwards` is how many it had. Where no optimizer was built the steps are `by_backwards`; where no step was made,
    `unstepped` are all collectives. A record is `cut` where its rank was ended by a signal: it has what was measured
    until then, and no values to compare with those of other ranks.
    """

    torch: str
    device: str
    ended: str
    steps: int
    by_backwards: bool = False
    backwards: int = 0
    unstepped: tuple[Collective, ...] = ()
    held: Held | None = None
    peak_bytes: int | None = None
    reserved_bytes: int | None = None
    startup_peak_bytes: int | None = None
    collectives: tuple[Collective, ...] = ()
    losses: tuple[float | None, ...] = ()
    step_ms: tuple[float, ...] = ()
    model_bytes: int = 0
    elements: int = 0
    dead: int | None = None
    built: Mapping[str, str] = field(default_factory=dict)
    trained: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    without_gradient: tuple[str, ...] = ()
    stale: int = 0
    optimizer_parameters: int = 0
    optimizers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    plain: Mapping[str, str] = field(default_factory=dict)
    buffers: Mapping[str, str] = field(default_factory=dict)
    shards: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    sharded: int = 0
    units: Mapping[str, str] = field(default_factory=dict)
    wrapper: str = ""
    batch: str = ""
    saves: tuple[Save, ...] = ()
    readings: tuple[Reading, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    wholes: tuple[Whole, ...] = ()
    layouts: tuple[Layout, ...] = ()
    started: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    backend: str = ""
    made_at: Mapping[str, int] = field(default_factory=dict)
    memory: tuple[tuple[float, int], ...] = ()
    timeline: tuple[tuple[float, str, str, int], ...] = ()
    mapped: tuple[str, ...] = ()
    compiled: bool = False
    compile_site: str = ""
    optimizer_site: str = ""
    visited: tuple[str, ...] = ()
    trouble: Trouble | None = None
    cut: bool = False

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> RankRecord:
        """The record that `dataclasses.asdict` made of it."""
        known = {one.name for one in fields(cls)}
        made = {name: _frozen(value) for name, value in told.items() if name in known}
        for name, kind in _PARTS.items():
            value = made.get(name)
            if isinstance(value, tuple):
                made[name] = tuple(kind(**each) for each in value)
            elif value is not None:
                made[name] = kind(**value)
        return cls(**made)


_PARTS: Mapping[str, Callable[..., Any]] = {
    "attempts": Attempt,
    "collectives": Collective,
    "held": Held,
    "layouts": Layout,
    "readings": Reading,
    "saves": Save,
    "trouble": Trouble,
    "unstepped": Collective,
    "wholes": Whole,
}


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _frozen(each) for key, each in value.items()}
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Run:
    """One run of the program on all its ranks. In `simulate` there is one rank, which stands for all. `calls` are the
    logs of collectives, by rank, where they tell of a hang."""

    mode: str
    ranks: int
    records: Sequence[RankRecord | None]
    troubles: Sequence[Trouble] = ()
    difference: str | None = None
    hung: bool = False
    loaded: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    seconds: float = 0.0
    calls: Sequence[Sequence[Call]] = ()

    @property
    def alive(self) -> list[RankRecord]:
        """The ranks that could still write down what they had measured; where all are cut, what they had."""
        known = [record for record in self.records if record is not None]
        return [record for record in known if not record.cut] or known

    @property
    def first(self) -> RankRecord | None:
        """The record of the lowest rank that has one."""
        return self.alive[0] if self.alive else None

    @property
    def steps(self) -> int:
        """Steps of the first optimizer that every rank made."""
        return min((record.steps for record in self.alive), default=0)

    @property
    def counted(self) -> str:
        """The step whose bytes and collectives are told, in words."""
        return "the second step" if self.first is not None and self.first.steps > 1 else "the first and only step"

    @property
    def moves_values(self) -> bool:
        """Whether collectives really move data, so that losses and values mean something."""
        return self.mode != "simulate"

    @property
    def cannot(self) -> str:
        """What the mode cannot do, where that has ended the run; "" where it was something else."""
        beyond = [trouble.text for trouble in self.troubles if trouble.kind == "pretended"]
        if beyond:
            return beyond[0]
        if self.mode == "shared" and any("SIGSEGV" in f"{trouble.text} {trouble.log}" for trouble in self.troubles):
            return "gloo cannot do this with tensors on a GPU (SIGSEGV)"
        return ""

    @property
    def ended(self) -> str:
        """How it ended, in a few words."""
        if self.hung:
            return "hung"
        if self.troubles:
            return self.troubles[0].text
        return self.first.ended if self.first is not None else "nothing was recorded"

    @property
    def held(self) -> Held | None:
        """Of the rank that holds most."""
        known = [record.held for record in self.alive if record.held is not None]
        return max(known, key=lambda held: held.training, default=None)

    @property
    def peak_bytes(self) -> int | None:
        """Of the rank where it is highest; None in `shared`, where gloo's own copies are on the GPU too."""
        if self.mode == "shared":
            return None
        return max((record.peak_bytes for record in self.alive if record.peak_bytes is not None), default=None)

    @property
    def collectives(self) -> tuple[Collective, ...] | None:
        """Those of one step of the first rank; None where no step was counted."""
        return self.first.collectives if self.first is not None and self.first.steps else None

    @property
    def losses(self) -> list[float] | None:
        """By step, the mean over the ranks; None where values do not move or no loss was seen."""
        if not self.moves_values or not self.alive:
            return None
        steps = zip(*(record.losses[: self.steps] for record in self.alive), strict=False)
        known = [[loss for loss in each if loss is not None] for each in steps]
        return [sum(each) / len(each) for each in known if each] or None

    @property
    def changed(self) -> tuple[int, int] | None:
        """How many of the model's trainable parameters have changed on any rank, and how many there are."""
        if not self.moves_values or not self.alive or not self.steps:
            return None
        trained = {name for record in self.alive for name in record.trained}
        changed = {name for record in self.alive for name in record.changed}
        return len(trained & changed), len(trained)

    @property
    def parameters_changed(self) -> float | None:
        """The share of the model's trainable parameters that have changed, 0 to 1."""
        counts = self.changed
        return counts[0] / counts[1] if counts and counts[1] else None

    @property
    def step_ms(self) -> float | None:
        """The median of the timed steps of the first rank, in milliseconds; None where ranks share a GPU."""
        times = sorted(self.first.step_ms) if self.first is not None and self.mode != "shared" else []
        return times[len(times) // 2] if times else None

    @property
    def disagreeing(self) -> list[str] | None:
        """Names of unsharded parameters of a sharded model, or of replicas, whose values differ between ranks; None
        where that cannot be seen."""
        if not self.moves_values or len(self.alive) < 2:
            return None
        return _unequal([record.plain for record in self.alive])

    @property
    def built_unequal(self) -> list[str] | None:
        """Names of parameters whose values differed between ranks when they were sharded; None where not seen."""
        if not self.moves_values or len(self.alive) < 2 or not any(record.built for record in self.alive):
            return None
        return _unequal([record.built for record in self.alive])

    @property
    def repeated(self) -> tuple[int, int] | None:
        """Of the sharded parameters that do not start as constants, how many have equal shards on ranks that hold
        different parts, and how many there are; None where not seen."""
        if not self.moves_values or not any(record.started for record in self.alive):
            return None
        names = sorted({name for record in self.alive for name in record.started})
        parts = [{record.started[name] for record in self.alive if name in record.started} for name in names]
        several = [each for each in parts if len({place for place, _ in each}) > 1]
        return sum(len({value for _, value in each}) < len(each) for each in several), len(several)

    @property
    def buffers_unequal(self) -> list[str] | None:
        """Names of buffers whose values differ between ranks; None where not seen."""
        if not self.moves_values or len(self.alive) < 2:
            return None
        return _unequal([record.buffers for record in self.alive])

    @property
    def saves(self) -> list[tuple[int, Save]]:
        """Every file that was written, with the rank."""
        return [(rank, save) for rank, r in enumerate(self.records) if r is not None for save in r.saves]


def _unequal(values: Sequence[Mapping[str, str]]) -> list[str]:
    names = sorted({name for each in values for name in each})
    return [name for name in names if len({each.get(name) for each in values}) > 1]


def collective_totals(collectives: Sequence[Collective]) -> list[tuple[str, int, int]]:
    """By kind: kind, count and bytes, the most bytes first."""
    totals: dict[str, tuple[int, int]] = {}
    for one in collectives:
        count, size = totals.get(one.kind, (0, 0))
        totals[one.kind] = (count + one.count, size + one.bytes)
    return sorted(((kind, *total) for kind, total in totals.items()), key=lambda t: (-t[2], t[0]))
