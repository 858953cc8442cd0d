"""A proof as a table for people and as JSON for programs. What a mode cannot know is said, never a number."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fsdp_lint.verify.measures import Collective, Run, Save, collective_totals
from fsdp_lint.verify.proof import Proof
from fsdp_lint.verify.verdicts import Verdict

UNKNOWN = "not measured in this mode"
_MOST_UNITS = 12  # rows of the table of units
NOT_REACHED = "no step was made"
KINDS = ("parameters", "gradients", "optimizer_state", "optimizer_only", "other")


# --------------------------------------------------------------------------------------------------------- JSON


def to_json(proof: Proof) -> str:
    """The whole proof; null where the mode cannot know."""
    told = as_json(proof)
    if proof.beside:
        told["beside"] = [as_json(other) for other in proof.beside]
    return json.dumps(told, indent=2, allow_nan=False) + "\n"


def as_json(proof: Proof) -> dict[str, Any]:
    """What was found in one mode."""
    first = proof.before.first
    return {
        "mode": proof.plan.mode,
        "ranks": proof.plan.ranks,
        "device": first.device if first is not None else None,
        "torch": first.torch if first is not None else None,
        "before": _run(proof.before),
        "after": _run(proof.after.run) if proof.after is not None else None,
        "verdicts": [_verdict(verdict) for verdict in proof.verdicts],
    }


def _run(run: Run) -> dict[str, Any]:
    held = run.held
    return {
        "held": {kind: getattr(held, kind) for kind in KINDS} if held is not None else None,
        "peak_bytes": run.peak_bytes,
        "collectives": [
            {"kind": kind, "count": count, "bytes": size} for kind, count, size in collective_totals(run.collectives)
        ]
        if run.collectives is not None
        else None,
        "losses": [_finite(loss) for loss in run.losses] if run.losses is not None else None,
        "parameters_changed": run.parameters_changed,
        "step_ms": run.step_ms,
        "ended": run.ended,
    }


def _finite(value: float) -> float | None:
    return value if value == value and abs(value) != float("inf") else None


def _verdict(verdict: Verdict) -> dict[str, Any]:
    place = verdict.finding.place
    return {
        "code": verdict.finding.code,
        "name": verdict.finding.name,
        "filename": place.path,
        "location": {"row": place.row, "column": place.column},
        "verdict": verdict.verdict,
        "because": verdict.because,
    }


# -------------------------------------------------------------------------------------------------------- table


def to_text(proof: Proof) -> str:
    """What people read."""
    return "\n".join(_lines(proof)) + "\n"


def failure(proof: Proof) -> str:
    """What the program itself said before it failed."""
    return "".join(trouble.log.rstrip() + "\n" for trouble in proof.before.troubles[:1] if trouble.log.strip())


def _lines(proof: Proof) -> Iterator[str]:
    for each in (proof, *proof.beside):
        yield from _measured(each)
    yield from _verdicts(proof)
    for kept in proof.kept:
        yield f"expect {kept.text}: {in_words(kept.holds)} ({number(kept.value)})"


def _measured(proof: Proof) -> Iterator[str]:
    """What was measured in one mode."""
    first = proof.before.first
    device = f", {first.device}, torch {first.torch}" if first is not None else ""
    yield f"{proof.plan.target.name}: mode {proof.plan.mode}, {ranks(proof)}{device}"
    if not proof.ran_here:
        yield f"could not be run in this mode: {proof.obstacle}"
    yield ""
    if not proof.before.records:
        return
    runs = [proof.before] + ([proof.after.run] if proof.after is not None else [])
    told = [[name, *(cell.text for cell in cells)] for name, cells in rows(proof.before, runs)]
    yield from _table([("", "before", "after")[: len(runs) + 1], *told])
    yield ""
    yield from _units(runs)
    yield from fixed(proof)
    for run, name in zip(runs, ("before", "after"), strict=False):
        yield from remarks(run, name, runs[0])
    yield ""


def conclusion(proof: Proof) -> str:
    """One sentence: how many verdicts of which kind, and whether expectations hold; or that it could not be run."""
    if not proof.ran:
        return f"It could not be run: {proof.obstacle}"
    counts = Counter(verdict.verdict for verdict in proof.verdicts)
    told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items()) or "none"
    wrong = sum(not kept.holds for kept in proof.kept)
    expected = f" Expectations: {len(proof.kept) - wrong} of {len(proof.kept)} hold." if proof.kept else ""
    return f"Findings: {told}.{expected}{_stopped(proof)}"


def _stopped(proof: Proof) -> str:
    """That the time was up before a step was made, where it was."""
    runs = {"before": proof.before} | ({"after": proof.after.run} if proof.after is not None else {})
    early = [f"{name}: {run.ended}" for name, run in runs.items() if not run.steps and "time limit" in run.ended]
    return f" {'; '.join(early)}." if early else ""


def ranks(proof: Proof) -> str:
    """How many ranks ran, and how."""
    if proof.plan.mode == "simulate":
        return f"one rank of {proof.plan.ranks} (the others are pretended, no data moves)"
    shared = " that share one GPU" if proof.plan.mode == "shared" else ""
    return f"{proof.plan.ranks} ranks{shared}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()


@dataclass(frozen=True)
class Cell:
    """What a run says in a row: in words, and as the number that it stands for, where it is one."""

    text: str
    value: float | None = None


def rows(before: Run, runs: Sequence[Run]) -> Iterator[tuple[str, list[Cell]]]:
    """All that is measured, by name, for each run."""
    for kind in KINDS:
        yield f"held: {kind.replace('_', ' ')}", [_size(run, getattr(run.held, kind, None)) for run in runs]
    yield "peak in the steps", [_size(run, run.peak_bytes) for run in runs]
    reserved = [run.first.reserved_bytes if run.first is not None else None for run in runs]
    if any(reserved):
        yield "peak reserved", [_size(run, each) for run, each in zip(runs, reserved, strict=True)]
    kinds = [kind for run in runs for kind, _, _ in collective_totals(run.collectives or ())]
    for kind in dict.fromkeys(kinds):
        yield f"{kind} a step", [_collective(run, kind) for run in runs]
    yield "loss by step", [_losses(run) for run in runs]
    yield "parameters changed", [_changed(run) for run in runs]
    yield "step time", [_time(run) for run in runs]
    yield "ended", [Cell(run.ended.partition(" [")[0][:60]) for run in runs]


def _unknown(run: Run) -> Cell:
    return Cell(UNKNOWN if run.steps else NOT_REACHED)


def _size(run: Run, value: int | None) -> Cell:
    return _unknown(run) if value is None else Cell(in_bytes(value), value)


def in_bytes(value: float) -> str:
    """With a unit, to be read."""
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= size:
            return f"{value / size:.2f} {unit}"
    return f"{value:.0f} B"


def _collective(run: Run, kind: str) -> Cell:
    for each, count, size in collective_totals(run.collectives or ()):
        if each == kind:
            return Cell(f"{count} x, {in_bytes(size)}", size)
    return Cell("-") if run.collectives is not None else _unknown(run)


def _units(runs: Sequence[Run]) -> Iterator[str]:
    rows = units(runs)
    if rows:
        head = ("FSDP unit", "collective", *("before", "after")[: len(runs)])
        yield from _table([head, *rows[:_MOST_UNITS]])
        if len(rows) > _MOST_UNITS:
            yield f"... and {len(rows) - _MOST_UNITS} rows more"
        yield ""


def units(runs: Sequence[Run]) -> list[list[str]]:
    """Which FSDP unit made which collectives; units that differ in a number only, and in nothing else, share a row."""
    columns = [_by_unit(run) for run in runs]
    keys = list(dict.fromkeys(key for column in columns for key in column))
    if not any(unit for unit, _ in keys):
        return []
    return [[unit or "(none)", kind, *(_made(column.get((unit, kind))) for column in columns)] for unit, kind in keys]


def _by_unit(run: Run) -> dict[tuple[str, str], list[Collective]]:
    """The collectives of one step by the unit's name, with "*" for numbers, and kind."""
    found: dict[tuple[str, str], list[Collective]] = {}
    for one in run.collectives or ():
        found.setdefault((re.sub(r"\d+", "*", one.unit), one.kind), []).append(one)
    return found


def _made(collectives: list[Collective] | None) -> str:
    if collectives is None:
        return "-"
    count = len({one.unit for one in collectives})
    told = f"{sum(one.count for one in collectives)} x, {in_bytes(sum(one.bytes for one in collectives))}"
    return told if count == 1 else f"{told} ({count} units)"


def _losses(run: Run) -> Cell:
    losses = run.losses
    return Cell(" ".join(f"{loss:.4g}" for loss in losses[:6])) if losses else _unknown(run)


def _changed(run: Run) -> Cell:
    counts = run.changed
    return Cell(f"{counts[0]} of {counts[1]}", run.parameters_changed) if counts else _unknown(run)


def _time(run: Run) -> Cell:
    times = run.first.step_ms if run.first is not None else ()
    if not times or run.step_ms is None:
        return _unknown(run)
    return Cell(f"{run.step_ms:.1f} ms ({min(times):.1f} to {max(times):.1f})", run.step_ms)


def fixed(proof: Proof) -> Iterator[str]:
    """Which fixed files the after-run has loaded."""
    for path, wanted in sorted(proof.hashes.items()):
        loaded = proof.after.run.loaded.get(path) if proof.after is not None else None
        aside = proof.after is not None and path in proof.after.aside
        state = "loaded" if loaded == wanted else "not part of this run" if aside else "NOT loaded"
        yield f"fixed file {os.path.relpath(path)}: {state}, sha256 {wanted[:16]}"
    if proof.after is None:
        yield "no after-run: no fix changes a file (--after FILE runs one that was made by hand)"


def remarks(run: Run, name: str, before: Run) -> Iterator[str]:
    """What else there is to say of a run: what was mapped, compiled, saved, and what went wrong. What was mapped in the
    run before is not said again."""
    first = run.first
    if first is not None and first.by_backwards:
        yield f"{name}: no optimizer of torch's was built, so a step is a backward"
    told = {} if name == "before" else _mapped(before)
    mapped = {what: site for what, site in _mapped(run).items() if what not in told}
    if mapped:
        yield f"{'' if name == 'before' else f'{name}: '}mapped, without editing the program:"
        yield from (f"  {what} ({_where(site)})" for what, site in mapped.items())
    if first is not None and (first.compiled or first.compile_site):
        asked = f" (asked for at {_where(first.compile_site)})" if first.compile_site else ""
        timed = "active in the steps that were timed" if first.compiled else "not active"
        yield f"{name}: torch.compile{asked} was {timed}; it is off in steps whose operations are counted"
    for save in first.saves if first is not None else ():
        yield f"{name}: {_save(save)}"
    for trouble in run.troubles[:1]:
        yield f"{name}: rank {trouble.rank} {trouble.text}{trouble.place}"
        yield from (f"  | {line}" for line in trouble.log.rstrip().splitlines()[-12:])
        if run.mode == "simulate" and run.steps and trouble.kind == "error":
            yield "  if it is the simulated group that cannot do it, --mode cpu or nccl can"
    if run.hung:
        yield f"{name}: the ranks hang: {run.difference or 'their collectives are the same as far as they were logged'}"


def _mapped(run: Run) -> dict[str, str]:
    """What was mapped, and where it was asked for."""
    return dict(line.split("\t") for line in run.first.mapped) if run.first is not None else {}


def _save(save: Save) -> str:
    size = in_bytes(save.bytes) if save.bytes is not None else "not written"
    read = f", reload: {save.reload}" if save.reload is not None else ""
    return f"rank 0 saved {os.path.basename(save.path)}, {size}, {save.dtensors} of {save.tensors} DTensors{read}"


def _verdicts(proof: Proof) -> Iterator[str]:
    if not proof.verdicts:
        yield "no findings"
    for verdict in proof.verdicts:
        place = verdict.finding.place
        yield f"{_where(f'{place.path}:{place.row}')}: {verdict.finding.code} {verdict.finding.name}: {verdict.verdict}"
        yield f"  {verdict.because}"


def _where(site: str) -> str:
    path, _, line = site.rpartition(":")
    return f"{os.path.relpath(path)}:{line}" if path else site


def in_words(holds: bool | None) -> str:
    """Whether an expectation holds."""
    return {True: "holds", False: "does not hold", None: "could not be measured"}[holds]


def number(value: float | None) -> str:
    """What an expectation was compared with."""
    return "not measured" if value is None else f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
