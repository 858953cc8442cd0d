"""The journey of a project through the tool: files, roots, runs, rules, findings."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_lint.findings import Applicability, Coverage, LocatedFinding, Report
from fsdp_lint.settings import Settings, declared_range, torch_range
from fsdp_lint.source.discover import NOTEBOOK, SETTINGS, discover, surroundings
from fsdp_lint.source.words import Words, spelled_out
from fsdp_lint.trace.models.launchers import belongs

# Rules, tables and parsers are imported where a file that speaks of FSDP is found: most files do not.
if TYPE_CHECKING:
    from fsdp_lint.cache import Cache
    from fsdp_lint.outcomes import Outcomes
    from fsdp_lint.project.resolve import Project
    from fsdp_lint.registry import RegisteredRule
    from fsdp_lint.source.suppress import Suppressions
    from fsdp_lint.trace.trace import Trace

RECURSION = 12_000
# Bytes. Settings are short; a longer YAML or JSON file is data.
SETTINGS_LIMIT = 64_000


@dataclass(frozen=True)
class FixResult:
    """What fixing came to: what is left, the files that change (text before and after), how many findings went.

    `applied` are the fixes that were made, each with a finding that it mended.
    """

    report: Report
    changed: Mapping[Path, tuple[str, str]]
    errors: tuple[str, ...]
    fixed: int
    applied: tuple[LocatedFinding, ...] = ()

    @property
    def together(self) -> list[frozenset[Path]]:
        """The files that one fix changes, for each fix that changes several: to be written all or none."""
        fixes = [finding.fix for finding in self.applied if finding.fix is not None]
        sets = [frozenset(Path(edit.place.path) for edit in fix.edits) for fix in fixes]
        return [paths for paths in sets if len(paths) > 1]


@dataclass(frozen=True)
class _Scope:
    """Which files are reported on, which are looked at, what stands in for their text, and which files of settings
    that speak of FSDP are among the reported. `launchers` are these and those around."""

    reported: frozenset[Path]
    universe: tuple[Path, ...]
    errors: tuple[str, ...]
    texts: Mapping[Path, str]
    documents: tuple[Path, ...] = ()
    launchers: tuple[Path, ...] = ()


def analyse(
    paths: Sequence[Path], settings: Settings, stdin: tuple[Path, str] | None = None, cache: Cache | None = None
) -> Report:
    """All findings in `paths`; the project around them is read as far as it matters. `stdin` is one file's path and
    text in place of what is on disk. What `cache` knows already is not looked for again."""
    if stdin is not None:
        path = stdin[0]
        if path.suffix in SETTINGS:
            return _analyse(_Scope(frozenset({path}), (), (), {path: stdin[1]}, (path,)), settings)
        near = surroundings([path.parent], settings.root) if path.parent.is_dir() else ()
        around = discover(near, settings.root, settings.exclude)
        files, launchers = tuple(sorted({path, *around.files})), _documents(around.settings)[0]
        return _analyse(_Scope(frozenset({path}), files, (), {path: stdin[1]}, launchers=launchers), settings)
    scope = _scope(paths, settings)
    return _analyse(scope, settings) if cache is None or scope.errors else _remembered(scope, settings, cache)


def _remembered(scope: _Scope, settings: Settings, cache: Cache) -> Report:
    """The report of an earlier run on the same files, where nothing has changed since; else that of a run which makes
    anew only what rests on something that has."""
    from fsdp_lint import basis

    ground = basis.ground(settings)
    key = basis.digest("report", ground, sorted(map(str, scope.reported)))
    # Before the files are read: what changes later is seen.
    launchers = basis.stamps(scope.launchers)
    program = basis.digest(basis.stamps([*scope.universe, *scope.documents]), launchers)
    known = cache.get(key)
    if known is not None and known[0] == program and basis.unchanged(known[1]):
        report: Report = known[2]
        return report
    seen: set[Path] = set()
    report = _analyse(scope, settings, _Memory(cache, basis.digest("outcomes", ground, launchers), seen))
    if not report.errors:
        cache.put(key, (program, basis.stamps(sorted(seen.difference(scope.universe))), report))
    return report


@dataclass(frozen=True)
class _Memory:
    """Where the outcomes of single runs are kept. `seen` gets the files that are read and the folders that are looked
    into."""

    cache: Cache
    key: str
    seen: set[Path]

    def load(self) -> Outcomes:
        """What is known."""
        from fsdp_lint.outcomes import Outcomes

        known = self.cache.get(self.key)
        return known if isinstance(known, Outcomes) else Outcomes()

    def save(self, outcomes: Outcomes, project: Project, universe: Iterable[Path]) -> None:
        """Keeps it for later runs."""
        self.seen.update(project.seen)
        outcomes.close(project, universe)
        self.cache.put(self.key, outcomes)


class _Rounds:
    """The outcomes of single runs, kept from one round of fixes to the next."""

    def __init__(self) -> None:
        self._outcomes: Outcomes | None = None

    def load(self) -> Outcomes:
        """What is known. Nothing, after a round that was not kept because a rule had crashed in it."""
        from fsdp_lint.outcomes import Outcomes

        known, self._outcomes = self._outcomes or Outcomes(), None
        return known

    def save(self, outcomes: Outcomes, project: Project, universe: Iterable[Path]) -> None:
        """Keeps it for the next round."""
        outcomes.close(project, universe)
        self._outcomes = outcomes


def _scope(paths: Sequence[Path], settings: Settings) -> _Scope:
    given = discover(paths, settings.root, settings.exclude)
    documents, errors = _documents(given.settings)
    universe, launchers = given.files, documents
    near = surroundings(paths, settings.root) if given.files else ()  # settings alone have no project around them
    if {*near} - {Path(os.path.abspath(path)) for path in paths}:
        around = discover(near, settings.root, settings.exclude)
        universe = tuple(sorted({*universe, *around.files}))
        launchers = tuple(sorted({*documents, *_documents(set(around.settings) - set(given.settings))[0]}))
    return _Scope(frozenset({*given.files, *documents}), universe, (*given.errors, *errors), {}, documents, launchers)


def _documents(paths: Iterable[Path]) -> tuple[tuple[Path, ...], list[str]]:
    """The files whose bytes are settings that speak of FSDP."""
    from fsdp_lint.trace.models.words import LAUNCH

    found, errors = [], []
    for path in paths:
        try:
            with path.open("rb") as file:
                data = file.read(SETTINGS_LIMIT + 1)
        except OSError as error:
            errors.append(f"{path}: cannot be read: {error.strerror or error}")
            continue
        if len(data) <= SETTINGS_LIMIT and all(word in data for word in LAUNCH):
            found.append(path)
    return tuple(found), errors


def _analyse(scope: _Scope, settings: Settings, memory: _Memory | _Rounds | None = None) -> Report:
    """The report of a new run."""
    seeds, errors = _seeds(scope, settings.shard_functions)
    errors = [*scope.errors, *errors]
    if not seeds and not scope.documents and not settings.names_rules:
        return Report((), tuple(errors), Coverage(len(scope.reported), 0, 0, 0))
    from fsdp_lint import registry

    chosen = registry.select(registry.rules(), settings)
    if not seeds and not scope.documents:
        return Report((), tuple(errors), Coverage(len(scope.reported), 0, 0, 0))
    from fsdp_lint.analysis import Analysis, project
    from fsdp_lint.trace.models.declared import read

    with _deep_and_undisturbed():
        judge = Judge(chosen)
        outcomes = memory.load() if memory is not None else None
        files = project(settings.root, settings.roots, dict(scope.texts), outcomes.indexes if outcomes else None)
        declared = read(settings.declarations(), settings.root)
        transformers = declared_range(settings.root, "transformers")
        analysis = Analysis(files, judge, outcomes, torch_range(settings), settings.gpu_memory, declared, transformers)
        analysis.read_launchers(scope.launchers)
        analysis.run(seeds, scope.universe, scope.reported)
        analysis.read_settings(scope.documents)
        findings = _visible(once(analysis.findings), scope, settings, files)
        coverage = analysis.coverage(
            scope.reported, len([s for s in (*seeds, *scope.documents) if s in scope.reported])
        )
        if memory is not None and outcomes is not None and not judge.crashed:
            memory.save(outcomes, files, scope.universe)
    errors += [f"{path}: {why}" for path, why in sorted(files.errors.items()) if path in scope.reported]
    report = Report(tuple(findings), (*errors, *judge.crashed.values()), coverage)
    if not any(path.suffix == NOTEBOOK for path in scope.universe):
        return report
    from fsdp_lint.locate import in_cells

    return in_cells(report, files.text)


@contextlib.contextmanager
def _deep_and_undisturbed() -> Iterator[None]:
    """Room for deep recursion, and no garbage collector: trees and values live to the end, and looking through them
    again and again took a quarter of the time."""
    limit, collects = sys.getrecursionlimit(), gc.isenabled()
    sys.setrecursionlimit(max(limit, RECURSION))
    gc.disable()
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
        if collects:
            gc.enable()


def _seeds(scope: _Scope, sharding: Sequence[str] = ()) -> tuple[list[Path], list[str]]:
    """The files whose bytes speak of FSDP, or of a function that the user declares to shard; those with which a file
    for accelerate's launcher lies, where they speak of what that launches."""
    from fsdp_lint.trace.models.words import BY_NAME, LAUNCHED, WORDS

    own = {text.partition("(")[0].strip().rpartition(".")[2] for text in sharding}
    words = Words(WORDS | BY_NAME | own)
    launched = Words(WORDS | BY_NAME | own | LAUNCHED) if scope.launchers else words
    seeds, errors = [], []
    for path in scope.universe:
        try:
            data = scope.texts[path].encode() if path in scope.texts else path.read_bytes()
        except OSError as error:
            if path in scope.reported:
                errors.append(f"{path}: cannot be read: {error.strerror or error}")
            continue
        near = any(belongs(launcher, path) for launcher in scope.launchers)
        if (launched if near else words).are_in(spelled_out(path, data)):
            seeds.append(path)
    return seeds, errors


class Judge:
    """All rules over one trace after the other; a rule that crashes is named in `crashed`, and the others go on."""

    def __init__(self, chosen: Sequence[RegisteredRule]) -> None:
        self.chosen = chosen
        self.crashed: dict[str, str] = {}

    def __call__(self, trace: Trace) -> list[LocatedFinding]:
        """The findings of one trace."""
        from fsdp_lint.locate import located

        found: list[LocatedFinding] = []
        for rule in self.chosen:
            if rule.name in self.crashed:
                continue
            try:
                found.extend(located(finding, rule) for finding in rule.rule.check(trace))
            except Exception as error:
                self.crashed[rule.name] = (
                    f"rule {rule.name} crashed ({type(error).__name__}: {error}); its findings are missing; "
                    "please report it"
                )
        return found


def once(findings: Iterable[LocatedFinding]) -> list[LocatedFinding]:
    """One finding a rule and place, whichever run led there; one with a fix where there is one."""
    found: dict[tuple[str, str, int, int], LocatedFinding] = {}
    for one in findings:
        key = (one.code, one.place.path, one.place.row, one.place.column)
        if key not in found or (found[key].fix is None and one.fix is not None):
            found[key] = one
    return sorted(found.values(), key=lambda f: f.sort_key)


def _visible(
    found: Iterable[LocatedFinding], scope: _Scope, settings: Settings, project: Project
) -> list[LocatedFinding]:
    """The findings that touch a reported file and that nobody has suppressed."""
    from fsdp_lint.source.suppress import Suppressions

    suppressions: dict[str, Suppressions] = {}
    kept = []
    reported = {str(path) for path in scope.reported}
    for finding in found:
        places = [finding.place, *(related.place for related in finding.related)]
        if not any(place.path in reported for place in places):
            continue
        path = finding.place.path
        if settings.ignores_in(Path(path), finding.code, finding.name):
            continue
        if path not in suppressions:
            suppressions[path] = Suppressions(project.text(Path(path)), path.endswith(SETTINGS))
        if not suppressions[path].hides(finding.code, finding.name, *_statement_rows(finding)):
            kept.append(_within(finding, reported))
    return kept


def _within(finding: LocatedFinding, reported: Set[str]) -> LocatedFinding:
    """The finding; its fix is only shown where it would change a file that is not asked about."""
    fix = finding.fix
    if fix is None or all(edit.place.path in reported for edit in fix.edits):
        return finding
    return dataclasses.replace(finding, fix=dataclasses.replace(fix, applicability=Applicability.DISPLAY))


def _statement_rows(finding: LocatedFinding) -> tuple[int, int]:
    return finding.statement_rows or (finding.place.row, finding.place.end_row)


def fix_files(paths: Sequence[Path], settings: Settings, unsafe: bool = False) -> FixResult:
    """Applies fixes until nothing changes; nothing is written."""
    from fsdp_lint.fix.apply import settle
    from fsdp_lint.source.text import decode

    scope, rounds = _scope(paths, settings), _Rounds()
    first = _analyse(scope, settings, rounds)
    before: dict[Path, str] = {}

    def read(path: Path) -> str:
        before[path] = decode(path.read_bytes())
        return before[path]

    def again(texts: Mapping[Path, str]) -> Report:
        return _analyse(dataclasses.replace(scope, texts=texts), settings, rounds)

    settled = settle({}, again, unsafe, report=first, read=read)
    changed = {path: (before[path], text) for path, text in settled.texts.items() if before[path] != text}
    return FixResult(settled.report, changed, settled.errors, settled.fixed, settled.applied)
