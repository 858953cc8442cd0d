"""The journey of a proof: run the program, find its mistakes, run it with the fixes, and judge."""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsdp_lint import engine
from fsdp_lint.findings import LocatedFinding, Report
from fsdp_lint.settings import Settings
from fsdp_lint.verify import runner, texts
from fsdp_lint.verify.expectations import Expectation, Kept
from fsdp_lint.verify.measures import Run
from fsdp_lint.verify.plan import CannotRun, Plan, Target
from fsdp_lint.verify.probes import LATE
from fsdp_lint.verify.processes import ended_by_signals
from fsdp_lint.verify.progress import Silent
from fsdp_lint.verify.verdicts import After, Verdict, judge

OLDEST = (2, 9)


@dataclass(frozen=True)
class Wish:
    """What the user asks for. None leaves the choice to what the machine has."""

    target: Target
    mode: str | None = None
    ranks: int | None = None
    steps: int = 6
    timeout: float = 600.0
    patience: float = 30.0
    fixes: str = "all"
    after: str | None = None
    expectations: tuple[Expectation, ...] = ()


@dataclass(frozen=True)
class Proof:
    """What came of it."""

    plan: Plan
    before: Run
    after: After | None
    verdicts: Sequence[Verdict]
    kept: Sequence[Kept]
    hashes: dict[str, str]
    errors: tuple[str, ...] = ()

    @property
    def ran(self) -> bool:
        """Whether the program came far enough for anything to be said: a step, a mistake that is seen or not, or an
        end for want of memory."""
        memory = any(trouble.kind == "memory" for trouble in self.before.troubles)
        return bool(self.before.steps or memory or any(v.verdict in _SAID for v in self.verdicts))

    @property
    def obstacle(self) -> str:
        """Why it did not run, in one line."""
        if not self.before.troubles:
            return f"{self.plan.target.name}: no optimizer step was made and there is no finding to judge"
        trouble = self.before.troubles[0]
        where = f" at {trouble.site}" if trouble.site else ""
        why = f"{self.plan.target.name} failed before its first step: {trouble.text}{where}"
        if self.plan.mode == "simulate":
            return f"{why}; if it is the simulated group that cannot do it, --mode cpu or nccl can"
        if self.plan.on_cpu and any(word in trouble.text for word in ("CUDA", "cuda", "NVIDIA", "nccl", "NCCL")):
            return f"{why}: this line needs a GPU and cannot be mapped to the CPU"
        return why

    @property
    def holds(self) -> bool:
        """Whether all seen mistakes are confirmed and all expectations hold."""
        return not any(verdict.open for verdict in self.verdicts) and all(kept.holds for kept in self.kept)


_SAID = ("confirmed", "seen", "not seen")


def prove(wish: Wish, settings: Settings, progress: Silent | None = None) -> Proof:
    """Runs the program, before and after. Raises CannotRun and what the engine raises."""
    progress = progress or Silent()
    try:
        return _prove(wish, settings, progress)
    finally:
        progress.leave()


def _prove(wish: Wish, settings: Settings, progress: Silent) -> Proof:
    entry = find_entry(wish.target)
    first = engine.analyse([Path(entry)], settings)
    plan = _plan(wish, first, progress)
    by_hand = None if wish.after is None else texts.from_hand(wish.after, entry, settings.root)
    with ended_by_signals():
        before = runner.run(plan, progress, "before")
        files = [Path(path) for path in before.files] or [Path(entry)]
        report = first if files == [Path(entry)] else engine.analyse(files, settings)
        replaced, errors = (by_hand, ()) if by_hand else texts.from_fixes(files, settings, wish.fixes == "all")
        after = _after(plan, replaced, progress) if replaced else None
    verdicts = judge(report.findings, before, after)
    kept = [each.check(before, after.run if after is not None else before) for each in wish.expectations]
    hashes = {path: hashlib.sha256(text).hexdigest() for path, text in replaced.items()}
    return Proof(plan, before, after, verdicts, kept, hashes, (*report.errors, *errors))


def _after(plan: Plan, replaced: dict[str, bytes], progress: Silent) -> After:
    run = runner.run(plan.after(replaced), progress, "after")
    missing = [
        os.path.relpath(path)
        for path, text in sorted(replaced.items())
        if run.loaded.get(path) != hashlib.sha256(text).hexdigest()
    ]
    return After(run, texts.as_pairs(replaced), tuple(missing))


def find_entry(target: Target) -> str:
    """The file that is run. Finds a module without importing its parents. Raises CannotRun."""
    if not target.module:
        if not os.path.isfile(target.script):
            raise CannotRun(f"{target.script}: no such script")
        return os.path.abspath(target.script)
    spec: importlib.machinery.ModuleSpec | None = None
    sys.path.insert(0, os.getcwd())
    try:
        first, *rest = target.module.split(".")
        spec = importlib.util.find_spec(first)
        for name in [*rest, ""]:
            if spec is None or (not name and spec.submodule_search_locations is None):
                break
            spec = importlib.machinery.PathFinder.find_spec(name or "__main__", spec.submodule_search_locations or [])
    except (ImportError, ValueError):
        spec = None
    finally:
        sys.path.remove(os.getcwd())
    if spec is None or spec.origin is None:
        raise CannotRun(f"no module named {target.module}")
    return spec.origin


def _plan(wish: Wish, first: Report, progress: Silent) -> Plan:
    if importlib.util.find_spec("torch") is None:
        raise CannotRun("verify runs the program, so it needs torch: pip install 'fsdp-lint[verify]'")
    progress.say("torch is loaded")
    instrument = runner.instrument()
    version = instrument.prepare()
    refuse_old(version)
    gpus = instrument.gpus()
    mode = wish.mode or ("nccl" if gpus > 1 else "simulate" if gpus else "cpu")
    ranks = wish.ranks or {"nccl": gpus, "simulate": 8, "cpu": 2}[mode]
    if mode == "nccl" and (ranks > gpus or not gpus):
        raise CannotRun(f"mode nccl needs one GPU a rank: {ranks} ranks, {gpus} GPUs; try --mode simulate or cpu")
    return Plan(
        target=wish.target,
        mode=mode,
        ranks=ranks,
        on_cpu=mode == "cpu" or not gpus,
        steps=wish.steps,
        timeout=wish.timeout,
        patience=wish.patience,
        until_saved=_late(first.findings),
    )


def _late(findings: Sequence[LocatedFinding]) -> bool:
    """Whether one of the mistakes shows only after the training loop."""
    return any(finding.name in LATE for finding in findings)


def refuse_old(version: str) -> None:
    """Raises CannotRun for a torch that would show other mistakes than the program's."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise CannotRun(
            f"torch {version} is older than 2.9: FSDP2 on gloo sums gradients there instead of averaging them "
            "(before 2.7 it does not run at all), so a run would show other mistakes than yours"
        )
