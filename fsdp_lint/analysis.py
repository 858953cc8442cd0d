"""One analysis of a project: its roots are run, and their traces kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_lint.findings import Coverage, Place, Unfollowed
from fsdp_lint.project.index import FileIndex
from fsdp_lint.project.resolve import Project
from fsdp_lint.project.roots import Plan, Root, leftovers, plan
from fsdp_lint.source.file import Site
from fsdp_lint.trace.events import ImportNames, Shard, ShardEach
from fsdp_lint.trace.interpret import Interpreter
from fsdp_lint.trace.models import fsdp, moved, table
from fsdp_lint.trace.models.words import WORDS
from fsdp_lint.trace.trace import Trace

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

REACHING = frozenset(word for word in WORDS if "." not in word)
# One analysis runs so many statements; a line that has to be parsed counts as a part of one (both measured).
STATEMENTS_IN_ALL = 250_000
KEPT_FOR_THE_REST = 0.3
STATEMENTS_PER_LINE = 0.4
SHARDING = {*fsdp.GENERATION_1, *fsdp.GENERATION_2}


class Analysis:
    """Runs the roots of a project and keeps their traces."""

    def __init__(
        self,
        root: Path,
        roots: Iterable[Path],
        refuse: Callable[[bytes], str | None],
        texts: dict[Path, str],
    ) -> None:
        self.project = Project(root, roots, refuse, table.known, texts)
        self.traces: list[Trace] = []
        self._entered: set[tuple[Path, str]] = set()
        self._plan = Plan()
        self._unfinished: list[Root] = []
        self._left = STATEMENTS_IN_ALL
        self._skipped = False

    @property
    def errors(self) -> dict[Path, str]:
        """Files that should have been read and could not be, with the reason."""
        return self.project.errors

    def text(self, path: Path) -> str:
        """The text of a file that was analysed."""
        source = self.project.source(path)
        return source.text if source is not None else ""

    def run(
        self,
        seeds: Sequence[Path],
        universe: Sequence[Path],
        reported: frozenset[Path],
        torch: SpecifierSet | None,
        gpu_memory: float,
    ) -> None:
        """Runs the roots that can pass through a reported file; then what speaks of FSDP and no run has entered."""
        self._plan = plan(self.project, seeds, universe, REACHING, reported)
        for path in self._plan.files:
            self._imports(path, torch, gpu_memory)
        own = self._plan.own
        for root in sorted(self._plan.roots, key=lambda root: root.path not in own):
            if self._left > STATEMENTS_IN_ALL * KEPT_FOR_THE_REST:
                self._run(root, torch, gpu_memory)
            else:
                self._skipped = True
        for root in leftovers(self._plan, self._indexes(), self._entered):
            if root.kind == "class" or (root.path, root.name) not in self._entered:
                self._run(root, torch, gpu_memory)

    def _indexes(self) -> dict[Path, FileIndex]:
        found = {path: self.project.index(path) for path in self._plan.files}
        return {path: index for path, index in found.items() if index is not None}

    def _run(self, root: Root, torch: SpecifierSet | None, gpu_memory: float) -> None:
        if self._left <= 0:
            self._skipped = True
            return
        trace = Trace(torch=torch, gpu_memory=gpu_memory, root=self.project.root)
        run = Interpreter(self.project, trace)
        parsed = self.project.lines_parsed
        before = run.budget
        run.hot = frozenset(self._plan.hot)
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
        self._left -= before - run.budget + int((self.project.lines_parsed - parsed) * STATEMENTS_PER_LINE)
        self._entered |= run.entered
        if not trace.finished:
            self._unfinished.append(root)
        if trace.events:
            self.traces.append(trace)

    def _imports(self, path: Path, torch: SpecifierSet | None, gpu_memory: float) -> None:
        """A trace of the imports of one file, where they are of a kind that rules ask for."""
        index = self.project.index(path)
        if index is None or not any(moved.concerns(line.module, line.names) for line in index.import_lines):
            return
        source = self.project.source(path)
        nodes = source.imports() if source is not None else []
        lines = sorted(index.import_lines, key=lambda line: line.row)
        if source is None or len(nodes) != len(lines):  # two parsers that do not see the same
            return
        trace = Trace(torch=torch, gpu_memory=gpu_memory)
        for line, node in zip(lines, nodes, strict=True):
            if moved.concerns(line.module, line.names):
                trace.events.append(
                    ImportNames(site=Site(source, node), module=line.module, names=line.names, guarded=line.guarded)
                )
        self.traces.append(trace)

    def coverage(self, reported: frozenset[Path], read: int) -> Coverage:
        """What was seen: sharding calls, and those that some run reached."""
        reached = set()
        for trace in self.traces:
            for event in trace.events:
                if isinstance(event, Shard | ShardEach):
                    reached.add((event.site.source.path, event.site.source.span(event.site.node).row))
        sites, missed = 0, []
        for path, index in self._indexes().items():
            if path not in reported:
                continue
            for call in index.calls:
                if not self._shards(index, call.name):
                    continue
                sites += 1
                if (path, call.row) not in reached:
                    place = Place(str(path), call.row, call.column, call.row, call.column)
                    missed.append(Unfollowed(place, self._why(path, call.function)))
        return Coverage(len(reported), read, sites, sites - len(missed), tuple(missed))

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
