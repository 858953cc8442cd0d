"""A rule proved on this machine with its own programs: the mistake, its fix, and what only looks like it."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from fsdp_lint import examples
from fsdp_lint.records import FIX, LOOK_ALIKE, MISTAKE, Measured, Record
from fsdp_lint.settings import Settings
from fsdp_lint.verify import runner
from fsdp_lint.verify.evidence import Case
from fsdp_lint.verify.measures import Run, collective_totals
from fsdp_lint.verify.plan import CannotRun, Target
from fsdp_lint.verify.probes import probe_of
from fsdp_lint.verify.progress import Silent
from fsdp_lint.verify.proof import GRAVEST, Proof, Wish, prove
from fsdp_lint.verify.verdicts import CONFIRMED, NOT_OBSERVABLE

_INSTALLED = re.compile(r"/[^\s'\"()]*/(?=(?:site|dist)-packages/)")  # where this machine has its libraries
_TRIES = 8  # wrong programs that are run before the best verdict is taken


@dataclasses.dataclass(frozen=True)
class _Tried:
    """One wrong program, its proof in each mode, and the gravest verdict."""

    program: Path
    proofs: tuple[Proof, ...]
    verdict: str


@dataclasses.dataclass(frozen=True)
class Proved:
    """The rule: its name, its code, and whether it is advice. That is given by a formula, so of a look-alike a run says
    nothing: only that there is no finding."""

    name: str
    code: str
    advice: bool


def prove_rule(rule: Proved, wish: Wish, progress: Silent) -> list[Record]:
    """The record of each mode. Of the wrong programs that can run, the plainest that is confirmed counts, or the first.
    Raises CannotRun where none can run here."""
    name = rule.name
    programs = examples.of_rule(name)
    if programs is None:
        raise CannotRun(f"{name}: its programs are not installed")
    if probe_of(name) is None:
        raise CannotRun(f"{name}: a run does not show this mistake")
    gpus = _on_gpus(wish)
    bad = [each for each in examples.mistakes(programs) if examples.runs(each, gpus)]
    if not bad and not gpus and any(map(examples.needs_gpus, examples.mistakes(programs))):
        return [_of_gpus(rule, next(filter(examples.needs_gpus, examples.mistakes(programs))), wish)]
    if not bad:
        raise CannotRun(f"{name}: none of its programs runs with torch alone")
    tried: list[_Tried] = []
    for program in bad[:_TRIES]:
        tried.append(_try(program, rule, wish, progress))
        if tried[-1].verdict == CONFIRMED:
            break
    best = next((each for each in tried if each.verdict == CONFIRMED), tried[0])
    quiet, others = _look_alike(programs, rule, wish, progress)
    beside: Sequence[Proof | None] = others or [None] * len(best.proofs)
    return [_record(rule, best, proof, quiet, other) for proof, other in zip(best.proofs, beside, strict=True)]


def _look_alike(programs: Path, rule: Proved, wish: Wish, progress: Silent) -> tuple[Path | None, list[Proof]]:
    """The first right program in whose run nothing is seen, and its proofs; else the first of all that run."""
    right = [each for each in examples.look_alikes(programs) if examples.runs(each, _on_gpus(wish))][:_TRIES]
    first: tuple[Path | None, list[Proof]] = (None, [])
    for program in right:
        proofs = _proofs(program, rule, wish, None, progress)
        if not any(_looked_at(rule, proof)[0] for proof in proofs):
            return program, proofs
        first = first if first[1] else (program, proofs)
    return first


def _try(program: Path, rule: Proved, wish: Wish, progress: Silent) -> _Tried:
    cure = examples.twin(program)
    by_hand = cure if cure is not None and not cure.name.startswith("fixed_") else None
    proofs = tuple(_proofs(program, rule, wish, by_hand, progress))
    verdicts = [_verdict(proof, rule.name)[0] for proof in proofs]
    return _Tried(program, proofs, min(verdicts, key=GRAVEST.index))


def _proofs(program: Path, rule: Proved, wish: Wish, cure: Path | None, progress: Silent) -> list[Proof]:
    """The proof in each mode, in an empty folder: what the programs write is gone afterwards."""
    with _in_a_copy(program, cure) as (entry, after):
        progress.say(f"{rule.name}: {program.name}")
        ranks = wish.ranks or (examples.wanted(program).get("ranks") if _on_cpus(wish) else None)
        own = dataclasses.replace(wish, target=Target(str(entry)), after=after, ranks=ranks)
        proof = prove(own, Settings(entry.parent, extend_select=(rule.code,)), progress)
    return [each for each in (proof, *proof.beside) if each.before.records]  # not of modes that cannot be had


def _on_cpus(wish: Wish) -> bool:
    """Whether as many ranks run as the program wishes for: elsewhere it takes the GPUs that there are."""
    return wish.mode == "cpu" if wish.mode is not None else not _gpus()


def _on_gpus(wish: Wish) -> bool:
    """Whether programs that need CUDA run: where each rank has a GPU of its own."""
    return (wish.mode == "nccl" or (wish.mode is None and _gpus() > 1)) and _gpus() > 0


def _gpus() -> int:
    return int(runner.instrument().gpus()) if importlib.util.find_spec("torch") is not None else 0


def _of_gpus(rule: Proved, program: Path, wish: Wish) -> Record:
    """The record of a rule whose programs need GPUs that are not here: nothing was run, and which mode shows it."""
    mode = wish.mode or "cpu"
    nothing = Run(mode, wish.ranks or 2, ())
    probe = probe_of(rule.name)
    said = probe(Case(nothing, frozenset())) if probe is not None else None
    shown = f"--mode nccl on two GPUs shows it: {examples.wanted(program)['skip']}"
    told = said.text if said is not None and said.seen is None and "--mode nccl" in said.text else shown
    measured = Measured(MISTAKE, program.name, True, told, None, None, None, None, "not run")
    version = str(importlib.metadata.version("torch")) if importlib.util.find_spec("torch") is not None else ""
    today = datetime.date.today().isoformat()
    return Record(rule.name, mode, nothing.ranks, "cpu", version, today, NOT_OBSERVABLE, None, (measured,))


@contextlib.contextmanager
def _in_a_copy(program: Path, cure: Path | None) -> Iterator[tuple[Path, str | None]]:
    here = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="fsdp-lint-rule-") as name:
        folder = Path(name).resolve()
        copies = [_copied(each, folder) for each in (program, cure) if each is not None]
        os.chdir(folder)
        try:
            yield examples.entry(copies[0]), str(copies[1]) if cure is not None else None
        finally:
            os.chdir(here)


def _copied(program: Path, folder: Path) -> Path:
    if program.is_dir():
        return Path(shutil.copytree(program, folder / program.name))
    return Path(shutil.copy(program, folder))


def _verdict(proof: Proof, name: str) -> tuple[str, str]:
    found = [each for each in proof.verdicts_here if each.finding.name == name]
    if not found:
        return NOT_OBSERVABLE, "no finding in it"
    one = min(found, key=lambda each: GRAVEST.index(each.verdict))
    return one.verdict, one.because


def _record(rule: Proved, tried: _Tried, proof: Proof, quiet: Path | None, other: Proof | None) -> Record:
    verdict, because = _verdict(proof, rule.name)
    before, _, after = because.removeprefix("before: ").partition("; after: ")
    programs = [_measured(MISTAKE, tried.program, True, before, proof.before)]
    if proof.after is not None:
        programs.append(_measured(FIX, tried.program, False, after or "not looked at", proof.after.run))
    silent = None
    if quiet is not None and other is not None:
        seen, said = _looked_at(rule, other)
        silent = not seen
        programs.append(_measured(LOOK_ALIKE, quiet, _is_found(rule.name, other), said, other.before))
    first = proof.before.first
    return Record(
        rule=rule.name,
        mode=proof.plan.mode,
        ranks=proof.plan.ranks,
        device=first.device if first is not None else "cpu",
        torch=first.torch if first is not None else "",
        date=datetime.date.today().isoformat(),
        verdict=verdict,
        quiet=silent,
        programs=tuple(programs),
    )


def _is_found(name: str, proof: Proof) -> bool:
    return any(each.finding.name == name for each in proof.verdicts)


def _looked_at(rule: Proved, proof: Proof) -> tuple[bool, str]:
    """Whether a right program has a finding, or its run shows the mistake; and what is seen."""
    run, probe = proof.before, probe_of(rule.name)
    found = _is_found(rule.name, proof)
    told = "a finding" if found else "no finding"
    if run.hung or run.troubles or probe is None:
        return True, f"{told}; {run.ended}"
    evidence = probe(Case(run, frozenset()))
    return found or bool(evidence.seen and not rule.advice), f"{told}; {evidence.text}"


def _measured(what: str, program: Path, found: bool, said: str, run: Run) -> Measured:
    kinds = None if run.collectives is None else {k: count for k, count, _ in collective_totals(run.collectives)}
    return Measured(
        what=what,
        program=program.name,
        found=found,
        said=_INSTALLED.sub("", said),
        held=run.held.training if run.held is not None else None,
        peak_bytes=run.peak_bytes,
        collectives=kinds,
        parameters_changed=run.parameters_changed,
        ended=_INSTALLED.sub("", run.ended),
    )
