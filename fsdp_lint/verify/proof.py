"""The journey of a proof: run the program, find its mistakes, run it with the fixes, and judge."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_lint import engine
from fsdp_lint.findings import LocatedFinding, Report, Severity
from fsdp_lint.settings import Settings
from fsdp_lint.verify import runner, texts
from fsdp_lint.verify.expectations import Expectation, Kept
from fsdp_lint.verify.measures import Run, Trouble
from fsdp_lint.verify.plan import CannotRun, Plan, Target
from fsdp_lint.verify.probes import LATE, LOADS
from fsdp_lint.verify.processes import ended_by_signals
from fsdp_lint.verify.progress import Silent
from fsdp_lint.verify.verdicts import After, Verdict, judge

OLDEST = (2, 9)
_BESIDE = 3  # steps of ranks that share a GPU beside a simulated run: gloo takes each gather through the host


@dataclass(frozen=True)
class Wish:
    """What the user asks for. None leaves the choice to what the machine has; `beside` are modes in which the same is
    done once more."""

    target: Target
    mode: str | None = None
    ranks: int | None = None
    steps: int = 6
    timeout: float = 600.0
    patience: float = 30.0
    fixes: str = "all"
    after: str | None = None
    expectations: tuple[Expectation, ...] = ()
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proof:
    """What came of it in one mode; `beside` are the proofs in other modes, which know other things."""

    plan: Plan
    before: Run
    after: After | None
    verdicts: Sequence[Verdict]
    kept: Sequence[Kept]
    hashes: dict[str, str]
    errors: tuple[str, ...] = ()
    beside: tuple[Proof, ...] = ()
    here: Sequence[Verdict] = ()

    @property
    def verdicts_here(self) -> Sequence[Verdict]:
        """The verdicts of this mode alone."""
        return self.here or self.verdicts

    @property
    def ran(self) -> bool:
        """Whether the program came far enough, in one of the modes, for anything to be said: a step, a mistake that is
        seen or not, a hang, or an end for want of memory."""
        return self.ran_here or any(other.ran for other in self.beside)

    @property
    def ran_here(self) -> bool:
        """The same of this mode alone."""
        memory = any(trouble.kind == "memory" for trouble in self.before.troubles)
        said = any(v.verdict in _SAID and v.finding.severity is not Severity.INFO for v in self.verdicts)
        return bool(self.before.steps or self.before.hung or memory or said)

    @property
    def obstacle(self) -> str:
        """Why it did not run, in one line."""
        if not self.before.troubles:
            return f"{self.plan.target.name}: {self._no_step}, and {self._unjudged}"
        trouble = self.before.troubles[0]
        if trouble.kind == "refused":
            return trouble.text
        if self.before.cannot:
            can = "--mode cpu or nccl can"
            return f"{self.plan.target.name} stops before its first step: {self.before.cannot}{trouble.place}; {can}"
        why = f"{self.plan.target.name} failed before its first step: {trouble.text}{trouble.place}"
        if self.plan.mode == "simulate":
            return f"{why}; if it is the simulated group that cannot do it, --mode cpu or nccl can"
        return why

    @property
    def _unjudged(self) -> str:
        count = len(self.verdicts)
        if not count:
            return "there is no finding to judge"
        return f"without one the {f'{count} findings' if count > 1 else 'finding'} cannot be judged"

    @property
    def _no_step(self) -> str:
        """What was missing for a step to be counted."""
        first = self.before.first
        if first is not None and "time limit" in first.ended:
            return first.ended
        built = first.optimizer_site if first is not None else ""
        if built:
            return f"the optimizer that is built at {os.path.relpath(built)} makes no step"
        if first is not None and not first.elements:
            return "no optimizer step and no backward was made, and no model was found"
        return "no optimizer step and no backward was made"

    @property
    def holds(self) -> bool:
        """Whether all seen mistakes are confirmed, all expectations hold, and the program comes to its end or to the
        steps that were wanted, with its fixes and in one of the modes."""
        right = not any(verdict.open for verdict in self.verdicts) and all(kept.holds for kept in self.kept)
        return right and not all(proof.broken_here for proof in (self, *self.beside))

    @property
    def broken_here(self) -> bool:
        """Whether the last run of this mode ended by an error or a hang."""
        last = self.before if self.after is None else self.after.run
        return last.hung or bool(last.troubles)

    def joined(self) -> Proof:
        """With the verdicts and expectations of all modes: of each finding the gravest verdict, of each expectation
        what the first mode says that could measure it."""
        all_ = [self, *self.beside]
        verdicts = [_gravest(each, all_) for each in _findings(all_)]
        kept = [
            next((one for one in each if one.holds is not None), each[0])
            for each in zip(*(proof.kept for proof in all_), strict=True)
        ]
        return dataclasses.replace(self, verdicts=verdicts, kept=kept, here=self.verdicts)


GRAVEST = ("not run", "seen", "confirmed", "not seen", "not observable")


def _findings(proofs: Sequence[Proof]) -> list[LocatedFinding]:
    return list(dict.fromkeys(verdict.finding for proof in proofs for verdict in proof.verdicts))


def _gravest(finding: LocatedFinding, proofs: Sequence[Proof]) -> Verdict:
    found = [(proof, verdict) for proof in proofs for verdict in proof.verdicts if verdict.finding == finding]
    # Of two that say the same, the one that has seen values move has the better evidence.
    proof, verdict = min(found, key=lambda one: (GRAVEST.index(one[1].verdict), not one[0].before.moves_values))
    return dataclasses.replace(verdict, because=f"{proof.plan.mode}: {verdict.because}")


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
    plans, refused = _plans(wish, first, progress)
    if not plans:
        raise CannotRun("; ".join(text for _, text in refused))
    by_hand = None if wish.after is None else texts.from_hand(wish.after, entry, settings.root)
    found = _Found(wish, settings, {(entry,): first})
    with ended_by_signals():
        ran = [_in_mode(plan, found, by_hand, progress, len(plans) > 1) for plan in plans]
    one, *others = [*ran, *(_refused(plan, text, wish) for plan, text in refused)]
    return dataclasses.replace(one, beside=tuple(others)).joined() if others else one


def _refused(plan: Plan, text: str, wish: Wish) -> Proof:
    """The proof in a mode that cannot be had here: that it was not run."""
    nothing = Run(plan.mode, plan.ranks, (), (Trouble("refused", text, ""),))
    return Proof(plan, nothing, None, (), [each.check(nothing, nothing) for each in wish.expectations], {})


@dataclass
class _Found:
    """What is found in the files that a run has loaded, and the fixes; asked for once, whatever the mode."""

    wish: Wish
    settings: Settings
    reports: dict[tuple[str, ...], Report]
    fixes: dict[tuple[str, ...], tuple[dict[str, bytes], tuple[str, ...]]] = field(default_factory=dict)

    def report(self, files: tuple[str, ...]) -> Report:
        if files not in self.reports:
            self.reports[files] = engine.analyse([Path(path) for path in files], self.settings)
        return self.reports[files]

    def texts(self, files: tuple[str, ...]) -> tuple[dict[str, bytes], tuple[str, ...]]:
        if files not in self.fixes:
            unsafe = self.wish.fixes == "all"
            self.fixes[files] = texts.from_fixes([Path(path) for path in files], self.settings, unsafe)
        return self.fixes[files]


def _in_mode(plan: Plan, found: _Found, by_hand: dict[str, bytes] | None, progress: Silent, named: bool) -> Proof:
    name = f"{plan.mode}, " if named else ""
    before = runner.run(plan, progress, f"{name}before")
    files = before.files or (find_entry(plan.target),)
    report = found.report(files)
    wanted = _until(plan, report.findings)
    if wanted != plan:  # only now it is known that a mistake in another file shows later than this run went
        plan, before = wanted, runner.run(wanted, progress, f"{name}before, to its save")
    replaced, errors = (by_hand, ()) if by_hand else found.texts(files)
    after = _after(plan, replaced, files, progress, f"{name}after") if replaced else None
    verdicts = judge(report.findings, before, after)
    wished = found.wish.expectations
    kept = [each.check(before, after.run if after is not None else before) for each in wished]
    hashes = {path: hashlib.sha256(text).hexdigest() for path, text in replaced.items()}
    return Proof(plan, before, after, verdicts, kept, hashes, (*report.errors, *errors))


def _after(plan: Plan, replaced: dict[str, bytes], files: Sequence[str], progress: Silent, name: str) -> After:
    """The run with the texts that replace files; `files` are those that the run before has loaded."""
    run = runner.run(plan.after(replaced), progress, name)
    missing = [path for path in sorted(replaced) if run.loaded.get(path) != hashlib.sha256(replaced[path]).hexdigest()]
    # A revision changes tests and other programs too, which no run loads; where none is loaded, nothing is proved.
    aside = [path for path in missing if path not in files] if len(missing) < len(replaced) else []
    not_loaded = tuple(os.path.relpath(path) for path in missing if path not in aside)
    return After(run, texts.as_pairs(replaced), not_loaded, tuple(aside))


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


def _plans(wish: Wish, first: Report, progress: Silent) -> tuple[list[Plan], list[tuple[Plan, str]]]:
    """What is to be run, and the modes that cannot be had here, with the reason."""
    if importlib.util.find_spec("torch") is None:
        raise CannotRun("verify runs the program, so it needs torch: pip install 'fsdp-lint[verify]'")
    if "torch" not in sys.modules:
        progress.say("torch is loaded")
    instrument = runner.instrument()
    version = instrument.prepare()
    refuse_old(version)
    gpus = instrument.gpus()
    plans, refused = [], []
    for mode in modes(wish, gpus):
        plan = _plan(mode, wish, gpus, first.findings)
        text = _obstacle(plan, gpus)
        if text:
            progress.say(text)
            refused.append((plan, text))
        else:
            plans.append(plan)
    return plans, refused


def modes(wish: Wish, gpus: int) -> tuple[str, ...]:
    """The modes. One GPU shows the memory of one rank of many, and then how ranks that share it train."""
    if wish.mode is not None:
        return tuple(dict.fromkeys((wish.mode, *wish.beside)))
    return ("nccl",) if gpus > 1 else ("simulate", "shared") if gpus else ("cpu",)


def _plan(mode: str, wish: Wish, gpus: int, findings: Sequence[LocatedFinding]) -> Plan:
    ranks = {"nccl": gpus, "simulate": 8, "shared": 2, "cpu": 2}[mode]
    if wish.ranks is not None and (mode != "shared" or wish.mode is not None):
        ranks = wish.ranks
    plan = Plan(
        target=wish.target,
        mode=mode,
        ranks=ranks,
        on_cpu=mode == "cpu" or not gpus,
        steps=min(wish.steps, _BESIDE) if mode == "shared" != wish.mode else wish.steps,
        timeout=wish.timeout,
        patience=wish.patience,
    )
    return _until(plan, findings)


def _obstacle(plan: Plan, gpus: int) -> str:
    """Why this machine cannot run it; "" where it can."""
    if plan.mode == "nccl" and (plan.ranks > gpus or not gpus):
        return f"mode nccl needs one GPU a rank: {plan.ranks or 2} ranks, {gpus} GPUs; try --mode simulate or cpu"
    if plan.mode == "shared" and not gpus:
        return "mode shared needs a GPU, and there is none: --mode cpu says the same of training without one"
    return ""


def _until(plan: Plan, findings: Sequence[LocatedFinding]) -> Plan:
    """The plan, so that the run goes as far as the mistakes need to show."""
    names = {finding.name for finding in findings}
    late, loads = not names.isdisjoint(LATE), not names.isdisjoint(LOADS)
    return dataclasses.replace(plan, until_saved=plan.until_saved or late, until_loaded=plan.until_loaded or loads)


def refuse_old(version: str) -> None:
    """Raises CannotRun for a torch that would show other mistakes than the program's."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise CannotRun(
            f"torch {version} is older than 2.9: FSDP2 on gloo sums gradients there instead of averaging them "
            "(before 2.7 it does not run at all), so a run would show other mistakes than yours"
        )
