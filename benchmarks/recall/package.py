"""One package: its right code is run once; after an edit, only the runs that pass through the edited function."""

from __future__ import annotations

import ast
import functools
import pickle
import re
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_lint import engine, settings
from fsdp_lint.analysis import Analysis
from fsdp_lint.findings import LocatedFinding
from fsdp_lint.outcomes import Outcome as RunOutcome
from fsdp_lint.project.resolve import Project
from fsdp_lint.project.roots import Plan, Root
from fsdp_lint.registry import rules, select
from fsdp_lint.source.discover import discover
from fsdp_lint.source.limits import refuse
from fsdp_lint.trace.models import table
from fsdp_lint.trace.registries import fillers
from recall.mutation import Mutant
from recall.reading import GENERATION_1, GENERATION_2, View

Key = tuple[str, str, str]
NEAR = re.compile(
    rb"full_tensor\(|get_model_state_dict|to_empty\(|fsdp.*\(|shard_\w*\(|parallelize_\w*\(", re.IGNORECASE
)
GENERATIONS = {**dict.fromkeys(GENERATION_1, 1), **dict.fromkeys(GENERATION_2, 2)}
# So many runs that enter the edited function are tried for a finding, and so many for a false alarm.
MOST = 12
FEW = 5


@dataclass(frozen=True)
class Outcome:
    """What an edit brought: `found` is the named finding at the edited place; `others` are new findings besides."""

    mutant: Mutant
    found: bool
    others: tuple[LocatedFinding, ...]
    entered: bool


@dataclass
class _Run:
    root: Root
    entered: frozenset[tuple[Path, str]]
    findings: list[LocatedFinding] = field(default_factory=list)
    seconds: float = 0.0


class _Recorder(Analysis):
    """An analysis that keeps what each run has entered and found."""

    def __init__(self, project: Project, judge: engine.Judge, gpu_memory: float) -> None:
        super().__init__(project, judge, None, None, gpu_memory)
        self.runs: list[_Run] = []
        self.imported: list[LocatedFinding] = []

    def _run(self, root: Root) -> RunOutcome:
        began = time.perf_counter()
        outcome = super()._run(root)
        self.runs.append(_Run(root, outcome.entered, list(outcome.findings), time.perf_counter() - began))
        return outcome

    def _imports(self, path: Path) -> RunOutcome:
        outcome = super()._imports(path)
        self.imported += outcome.findings
        return outcome

    def again(self, plan: Plan, path: Path) -> None:
        """Goes by the plan for the right code; of an edited file, the imports are looked at anew."""
        self._plan, self._hot = plan, frozenset(plan.hot)
        self._fillers = fillers(self.project, self._indexes())
        self._imports(path)

    def run_one(self, root: Root) -> list[LocatedFinding]:
        """The findings of one run."""
        return list(self._run(root).findings)


class Package:
    """A folder of right code."""

    def __init__(self, folder: Path, kept: Path | None = None) -> None:
        self.folder = folder
        self.settings = settings.load(folder)
        self.files = tuple(discover([folder], self.settings.root, self.settings.exclude).files)
        self.seeds, _ = engine._seeds(engine._Scope(frozenset(self.files), self.files, (), {}))
        self.judging = engine.Judge(select(rules(), self.settings))
        self.project = Project(self.settings.root, (), refuse, table.known)
        began = time.perf_counter()
        if kept is not None and kept.exists():
            self.plan, self.imported, self.runs = pickle.loads(kept.read_bytes())
        else:
            self._run_right()
            if kept is not None:
                kept.write_bytes(pickle.dumps((self.plan, self.imported, self.runs)))
        self.seconds = time.perf_counter() - began

    def _run_right(self) -> None:
        """Runs the right code as it is."""
        base = _Recorder(self.project, self.judging, self.settings.gpu_memory)
        base.run(self.seeds, self.files, frozenset(self.files))
        self.plan, self.imported, self.runs = base._plan, base.imported, base.runs

    @functools.cached_property
    def views(self) -> list[View]:
        """The files that speak of FSDP, and those around them that gather state or build optimizers."""
        around = [path for path in self.plan.files if NEAR.search(self.project.read(path) or b"")]
        sources = [self.project.source(path) for path in sorted({*self.seeds, *around})]
        told = (self._mentioned(), self._generations())
        return [View(self.project, source, *told) for source in sources if source is not None]

    def _generations(self) -> frozenset[int]:
        found: set[int] = set()
        for path in self.plan.files:
            index = self.project.index(path)
            tables = (index.imports, index.inner_imports) if index is not None else ()
            for target in [each for known in tables for targets in known.values() for each in targets]:
                definition = self.project.target(path, target)
                if definition is not None and definition.name in GENERATIONS:
                    found.add(GENERATIONS[definition.name])
        return frozenset(found)

    def _mentioned(self) -> frozenset[str]:
        names: set[str] = set()
        for path in self.plan.files:
            index = self.project.index(path)
            if index is not None:
                names |= index.body_mentions | index.body_attributes
                for info in index.functions.values():
                    names |= (info.mentions | info.attributes) - {info.name}
        return frozenset(names)

    @property
    def findings(self) -> list[LocatedFinding]:
        """What is found in the right code."""
        return list(self._found_before())

    def right(self, mutant: Mutant) -> bool:
        """True when the code is right as it is: none of the named findings lies in the function already, and none at
        all where the edit must bring nothing."""
        rows = _rows_of(self._text(mutant.path), mutant.function)
        codes = mutant.mutation.codes
        return not any(
            (f.code in codes or (not codes and f.code != "FSDP901")) and self._touches(f, mutant.path, rows)
            for f in self._found_before()
        )

    def _found_before(self) -> Iterator[LocatedFinding]:
        yield from self.imported
        for run in self.runs:
            yield from run.findings

    def _text(self, path: Path) -> str:
        source = self.project.source(path)
        return source.text if source is not None else ""

    def judge(self, mutant: Mutant) -> Outcome:
        """Runs what the edit can change, short runs first, until the finding is there; then compares."""
        runs = [run for run in self.runs if _passes(run.entered, mutant)]
        runs.sort(key=lambda run: run.seconds)
        again = _Recorder(self._overlay(mutant), self.judging, self.settings.gpu_memory)
        again.again(self.plan, mutant.path)
        after = list(again.imported)
        named, others = self._new(after, mutant)
        for run in runs[: MOST if mutant.mutation.codes else FEW]:
            if named:
                break
            again._run(run.root)
            after += again.runs[-1].findings
            named, others = self._new(after, mutant)
        if self.judging.crashed:
            raise RuntimeError("; ".join(self.judging.crashed.values()))
        return Outcome(mutant, bool(named), tuple(others), bool(runs))

    def _new(self, after: list[LocatedFinding], mutant: Mutant) -> tuple[list[LocatedFinding], list[LocatedFinding]]:
        """The named findings at the edited place that are new, and the new ones besides."""
        new: dict[Key, LocatedFinding] = {}
        for finding in after:
            key = self._key(finding, mutant)
            if key not in self._known:
                new.setdefault(key, finding)
        rows = _rows_of(mutant.text, mutant.function)
        codes = mutant.mutation.codes
        named = [f for f in new.values() if f.code in codes and self._touches(f, mutant.path, rows)]
        return named, [f for f in new.values() if f.code not in codes | mutant.mutation.also]

    @functools.cached_property
    def _known(self) -> set[Key]:
        return {self._key(finding, None) for finding in self._found_before()}

    def _overlay(self, mutant: Mutant) -> Project:
        """The project with the mutated text in place of the right one; what is known of other files is kept."""
        base = self.project
        project = Project(base.root, base.roots, refuse, table.known, {mutant.path: mutant.text})
        for name in ("_bytes", "_indexes", "_sources", "_contents", "_refused"):
            setattr(project, name, {p: v for p, v in getattr(base, name).items() if p != mutant.path})
        project._found, project._listed = base._found, base._listed
        return project

    def _key(self, finding: LocatedFinding, mutant: Mutant | None) -> Key:
        """Findings are the same where rule, file and text of the line are: rows move with an edit."""
        path = Path(finding.place.path)
        text = mutant.text if mutant is not None and mutant.path == path else self._text(path)
        return finding.code, finding.place.path, _line(text, finding.place.row)

    def _touches(self, finding: LocatedFinding, path: Path, rows: tuple[int, int]) -> bool:
        places = [finding.place, *(related.place for related in finding.related)]
        return any(place.path == str(path) and rows[0] <= place.row <= rows[1] for place in places)


def _passes(entered: frozenset[tuple[Path, str]], mutant: Mutant) -> bool:
    """True when a run enters the edited function; code at the top of a file is part of each run of its."""
    if not mutant.function:
        return any(path == mutant.path for path, _ in entered)
    inner = f"{mutant.function}.<locals>."
    return any(p == mutant.path and (q == mutant.function or q.startswith(inner)) for p, q in entered)


def _line(text: str, row: int) -> str:
    lines = text.split("\n")
    return lines[row - 1].strip() if row <= len(lines) else ""


def _rows_of(text: str, function: str) -> tuple[int, int]:
    """The first and last row of a function; of the whole file for ""."""
    if not function:
        return 1, text.count("\n") + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body: list[ast.stmt] = ast.parse(text).body
    found: ast.AST | None = None
    for name in function.split("."):
        found = next((each for each in _definitions(body) if each.name == name), None)
        if found is None:
            return 1, text.count("\n") + 1
        body = found.body
    assert isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return found.lineno, found.end_lineno or found.lineno


def _definitions(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Functions and classes of a block, the last first: a later definition takes the place of an earlier one."""
    for statement in reversed(body):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement
        elif isinstance(statement, ast.If | ast.Try):
            inner = [*statement.body, *statement.orelse]
            if isinstance(statement, ast.Try):
                inner += [each for handler in statement.handlers for each in handler.body]
            yield from _definitions(inner)
