"""One analysis of a project: its roots are run, and what they came to is gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_lint.findings import Coverage, LocatedFinding, Place, Unfollowed
from fsdp_lint.outcomes import Outcome, Outcomes
from fsdp_lint.project.index import CallLine, FileIndex
from fsdp_lint.project.resolve import Notes, Project
from fsdp_lint.project.roots import Plan, Root, leftovers, plan, unmade
from fsdp_lint.source.document import Document
from fsdp_lint.source.file import Site
from fsdp_lint.source.limits import refuse
from fsdp_lint.source.words import Words
from fsdp_lint.trace.events import ConfigureFSDP, ImportNames, Shard, ShardEach
from fsdp_lint.trace.interpret import Interpreter
from fsdp_lint.trace.models import configs, fsdp, moved, table
from fsdp_lint.trace.models.declared import FRAMEWORKS, Declared
from fsdp_lint.trace.models.launchers import belongs
from fsdp_lint.trace.models.words import ARGUMENTS, BY_NAME, LAUNCHED, NAMED_TO, WORDS
from fsdp_lint.trace.registries import Filler, fillers
from fsdp_lint.trace.trace import Trace

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

REACHING = ARGUMENTS | FRAMEWORKS.words | set(fsdp.FUNCTION_POLICIES) | {word for word in WORDS if "." not in word}
# One analysis runs so many statements; a line that has to be parsed counts as a part of one (both measured).
STATEMENTS_IN_ALL = 160_000
KEPT_FOR_THE_REST = 0.3
STATEMENTS_PER_LINE = 0.4
SHARDING = {*fsdp.GENERATION_1, *fsdp.GENERATION_2}


def project(
    root: Path,
    roots: Iterable[str | Path],
    texts: dict[Path, str] | None = None,
    indexes: Mapping[Path, tuple[str, FileIndex]] | None = None,
) -> Project:
    """The files below `root`, with the further `roots` where imports are looked for, as an analysis needs them."""
    return Project(root, [root / folder for folder in roots], refuse, table.known, texts, indexes)


class Analysis:
    """Runs the roots of a project, has their traces judged, and gathers what comes of it.

    `judge` gives the findings of a trace. What `outcomes` knows is not run again; None: nothing is kept.
    """

    def __init__(
        self,
        project: Project,
        judge: Callable[[Trace], Iterable[LocatedFinding]],
        outcomes: Outcomes | None,
        torch: SpecifierSet | None,
        gpu_memory: float,
        declared: Declared | None = None,
        transformers: SpecifierSet | None = None,
    ) -> None:
        self.project = project
        self.findings: list[LocatedFinding] = []
        self._judge = judge
        self._outcomes = outcomes
        self._torch = torch
        self._transformers = transformers
        self._gpu_memory = gpu_memory
        self._reached: set[tuple[Path, int]] = set()
        self._declared = declared or Declared()
        self._entered: set[tuple[Path, str]] = set()
        self._parsed: set[Path] = set()
        self._plan = Plan()
        self._hot: frozenset[tuple[Path, str]] = frozenset()
        self._fillers: tuple[Filler, ...] = ()
        # For files, what a run takes from elsewhere as it enters them: what reaches FSDP, and who fills their tables.
        self._beside: frozenset[tuple[Path, str]] = frozenset()
        self._unfinished: list[Root] = []
        self._left = STATEMENTS_IN_ALL
        self._skipped = False
        self._launches: list[tuple[Path, ConfigureFSDP]] = []

    def read_launchers(self, paths: Iterable[Path]) -> None:
        """Takes note of the files for accelerate's launcher that ask for FSDP, for the programs that lie with them."""
        for path in paths:
            asked = configs.launch(Document(path, self.project.text(path)))
            if asked is not None and configs.setting(asked.arguments.get("distributed_type")) == "FSDP":
                self._launches.append((path, asked))

    def run(self, seeds: Sequence[Path], universe: Sequence[Path], reported: frozenset[Path]) -> None:
        """Runs the roots that can pass through a reported file; then what speaks of FSDP and no run has entered."""
        words = REACHING | self._declared.words | (LAUNCHED if self._launches else frozenset())
        by_name = Words(BY_NAME)  # may be all that a file says of FSDP
        words |= NAMED_TO if any(by_name.are_in(self.project.read(path) or b"") for path in seeds) else frozenset()
        self._plan = plan(self.project, seeds, universe, words, reported)
        self._hot = frozenset(self._plan.hot)
        self._fillers = fillers(self.project, self._indexes())
        self._beside = self._hot | {at for each in self._fillers if (at := self._filled(each)) is not None}
        for path in self._plan.files:
            self._take(Root("imports", path))
        own = self._plan.own
        for root in sorted(self._plan.roots, key=lambda root: root.path not in own):
            if self._left > STATEMENTS_IN_ALL * KEPT_FOR_THE_REST:
                self._take(root)
            else:
                self._skipped = True
        for root in leftovers(self._plan, self._indexes(), self._entered):
            if root.kind == "class" or (root.path, root.name) not in self._entered:
                self._take(root)
        for root in unmade(self._plan, self._indexes(), self._entered):
            self._take(root)
        for root in self._unreached(reported):
            self._take(root)

    def _filled(self, filler: Filler) -> tuple[Path, str] | None:
        """The file whose tables a filler may fill, and who that is; None where it only calls one of its functions."""
        index = self.project.index(filler.path)
        if filler.to.path is None or index is None or filler.head not in index.contents:
            return None
        return filler.to.path, f"{filler.head} {filler.path}"

    def _unreached(self, reported: frozenset[Path]) -> list[Root]:
        """Where no run came to any sharding call, roots for the functions that have one and were run: whoever calls
        them in this project does not switch it on, and it is there for others."""
        if self._reached:
            return []
        roots: dict[Root, None] = {}
        for path, index, call in self._sharding_calls(reported):
            info = index.functions.get(call.function.partition(".<locals>.")[0])
            if (path, call.row) in self._reached or info is None or (path, info.qualname) not in self._entered:
                continue
            if info.cls is None:
                roots[Root("function", path, info.qualname)] = None
            else:
                roots[Root("class", path, info.cls, (info.name,))] = None
        return list(roots)

    def read_settings(self, paths: Iterable[Path]) -> None:
        """Judges FSDP by settings in YAML and JSON files, which no run enters."""
        for path in paths:
            asked = configs.launch(Document(path, self.project.text(path)))
            if asked is not None:
                self.findings.extend(self._judge(Trace(events=[asked], torch=self._torch, root=self.project.root)))

    def _indexes(self) -> dict[Path, FileIndex]:
        found = {path: self.project.index(path) for path in self._plan.files}
        return {path: index for path, index in found.items() if index is not None}

    def _take(self, root: Root) -> None:
        """Adds what the run from a root comes to: as it is known, or as it is found now."""
        if self._left <= 0:
            self._skipped = True
            return
        outcome = self._outcomes.recall(root, self.project, self._beside) if self._outcomes is not None else None
        if outcome is None:
            self.project.notes = Notes()
            outcome = self._imports(root.path) if root.kind == "imports" else self._run(root)
            if self._outcomes is not None:
                self._outcomes.keep(root, outcome, self.project, self._beside)
            self.project.notes = Notes()
        new_lines = sum(lines for path, lines in outcome.lines.items() if path not in self._parsed)
        self._parsed |= outcome.lines.keys()
        if root.kind != "imports":
            self._left -= outcome.statements + int(new_lines * STATEMENTS_PER_LINE)
        self._entered |= outcome.entered
        self._reached |= outcome.reached
        self.findings.extend(outcome.findings)
        if not outcome.finished:
            self._unfinished.append(root)

    def _run(self, root: Root) -> Outcome:
        """Runs the program from a root."""
        launch = next((asked for path, asked in self._launches if belongs(path, root.path)), None)
        trace = Trace(
            torch=self._torch,
            transformers=self._transformers,
            gpu_memory=self._gpu_memory,
            root=self.project.root,
            launch=launch,
        )
        run = Interpreter(self.project, trace)
        run.hot = self._hot
        run.fillers = self._fillers
        run.declarations = self._declared
        try:
            if root.kind == "script":
                run.run_file(root.path)
            elif root.kind == "function":
                run.run_function(root.path, root.name)
            else:
                run.run_class(root.path, root.name, list(root.methods))
        except Exception as error:  # One file that the machine stumbles over must not end the whole run.
            trace.finished = False
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            self.project.errors[root.path] = f"was not followed to its end, please report it: {what}"
        return self._judged(trace, frozenset(run.entered), run.spent)

    def _judged(self, trace: Trace, entered: frozenset[tuple[Path, str]], statements: int) -> Outcome:
        shards = [event.site for event in trace.events if isinstance(event, Shard | ShardEach)]
        return Outcome(
            tuple(self._judge(trace)) if trace.events else (),
            frozenset((site.source.path, site.row) for site in shards),
            entered,
            statements,
            dict(self.project.notes.parsed),
            trace.finished,
        )

    def _imports(self, path: Path) -> Outcome:
        """What comes of the imports of one file, where they are of a kind that rules ask for."""
        index = self.project.index(path)
        if index is None or not any(moved.concerns(line.module, line.names) for line in index.import_lines):
            return Outcome()
        source = self.project.source(path)
        nodes = source.imports() if source is not None else []
        lines = sorted(index.import_lines, key=lambda line: line.row)
        if source is None or len(nodes) != len(lines):  # two parsers that do not see the same
            return Outcome()
        trace = Trace(torch=self._torch, gpu_memory=self._gpu_memory)
        for line, node in zip(lines, nodes, strict=True):
            if moved.concerns(line.module, line.names):
                trace.events.append(
                    ImportNames(site=Site(source, node), module=line.module, names=line.names, guarded=line.guarded)
                )
        return self._judged(trace, frozenset(), 0)

    def coverage(self, reported: frozenset[Path], read: int) -> Coverage:
        """What was seen: sharding calls, and those that some run reached."""
        sites, missed = 0, []
        for path, _, call in self._sharding_calls(reported):
            sites += 1
            if (path, call.row) not in self._reached:
                place = Place(str(path), call.row, call.column, call.row, call.column)
                missed.append(Unfollowed(place, self._why(path, call.function)))
        return Coverage(len(reported), read, sites, sites - len(missed), tuple(missed))

    def _sharding_calls(self, reported: frozenset[Path]) -> Iterator[tuple[Path, FileIndex, CallLine]]:
        """The sharding calls in the reported files, by their names."""
        for path, index in self._indexes().items():
            for call in index.calls if path in reported else ():
                if self._shards(index, call.name):
                    yield path, index, call

    def _shards(self, index: FileIndex, name: str) -> bool:
        head, _, rest = name.partition(".")
        targets = index.imports.get(head, []) + index.inner_imports.get(head, [])
        for target in targets:
            definition = self.project.target(index.path, target)
            if definition is not None and definition.kind == "external":
                if (f"{definition.name}.{rest}" if rest else definition.name) in SHARDING:
                    return True
        return False

    def _why(self, path: Path, function: str) -> str:
        if self._skipped and (path, function) not in self._entered:
            return "the project is too large to run all of it"
        if any(root.path == path for root in self._unfinished):
            return "the run became too long"
        if (path, function) in self._entered:
            return "on a path that no run took"
        return "no run entered it"
