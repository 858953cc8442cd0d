"""What the abstract run understands: each program in tests/trace says at its line ends which events happen there.

    fully_shard(model.head, mesh=mesh)  # event: Shard(module=model.head, mesh=mesh, ranks=zero)

- `# event: Kind` or `# event: Kind(field=..., ...)`, several with commas: such an event happens on this line. Marks
  that are too long stand in lines of their own, below.
- A kind that a program marks anywhere is marked everywhere: such an event on a line without a fitting mark fails.
- `# no-event: Kind`: none of this kind on this line; it also makes the program watch the kind.
- `# known-miss: Kind(...)`: it should be seen and is not, today.
- `# known-false: Kind(...)`: it is seen, today, and should not be.

A field is one of the event (`module=`, `op=`, `on=` ...), an argument by keyword of a sharding call (`mesh=`), or:

- `of=`: the modules whose parameters or state are meant;
- `ranks=`: who gets there by the tests around: `all`, `zero`, `others`, `local_zero`, `local_others`, another number's
  `rank_3`, `some`;
- `sharding=`: the sharding calls of the module are `earlier`, `later` or `both`; `none`: there are none in any order;
- `tests=`: how many of the tests around speak of the module;
- `guards=`, `loops=`, `calls=`: how many tests, loops and calls are around.

Values are compared by what the user calls them, literals as they are written.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsdp_lint.analysis import Analysis, project
from fsdp_lint.findings import LocatedFinding
from fsdp_lint.source.words import Words
from fsdp_lint.trace import events
from fsdp_lint.trace.events import Event, Shard
from fsdp_lint.trace.models.words import WORDS
from fsdp_lint.trace.trace import Trace, called, rank_guard
from fsdp_lint.trace.values import Choice, Const, Literal, Module, Optimizer, Params, Sequence, StateDict, Tensor, Value

TRACE = Path(__file__).parent / "trace"
PROGRAMS = {
    path.relative_to(TRACE).as_posix(): path
    for path in sorted(TRACE.iterdir())
    if not path.name.startswith(("_", ".")) and (path.is_dir() or path.suffix == ".py")
}
MARK = re.compile(r"#\s*(event|no-event|known-miss|known-false):\s*([^#]*)")
KINDS = {name for name, kind in vars(events).items() if isinstance(kind, type) and issubclass(kind, Event)}


# marks ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """One expectation at a line."""

    sort: str
    kind: str
    fields: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        inner = ", ".join(f"{name}={text}" for name, text in self.fields)
        return f"{self.kind}({inner})" if inner else self.kind


def marks(line: str) -> Iterator[Mark]:
    """The marks at the end of a line."""
    for found in MARK.finditer(line):
        parsed = ast.parse(f"[{found[2]}]", mode="eval").body
        assert isinstance(parsed, ast.List)
        for one in parsed.elts:
            name, keywords = (one.func, one.keywords) if isinstance(one, ast.Call) else (one, [])
            assert isinstance(name, ast.Name) and name.id in KINDS, f"no kind of event: {found[2]}"
            fields = tuple((str(keyword.arg), ast.unparse(keyword.value)) for keyword in keywords)
            yield Mark(found[1], name.id, fields)


def by_row(text: str) -> dict[int, tuple[Mark, ...]]:
    """The marks of each line; those on a line of their own belong to the code above."""
    found: dict[int, tuple[Mark, ...]] = {}
    code = 1
    for row, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("#"):
            code = row
        found[row] = ()
        found[code] = (*found.get(code, ()), *marks(line))
    return found


# what an event says ---------------------------------------------------------------------------------------------------


def said(event: Event, trace: Trace, field: str) -> str:
    """What the event says of a field, as a mark would spell it."""
    match field:
        case "ranks":
            return ranks(event)
        case "of":
            return joined([spelled(value) for value in models(event)])
        case "sharding":
            return sharding(event, trace)
        case "tests":
            return str(sum(speaks(literal, value) for literal in event.guards for value in models(event)[:1]))
        case "guards":
            return str(len(event.guards))
        case "loops":
            return str(len(event.loops))
        case "calls":
            return str(len(event.stack))
    if isinstance(event, Shard) and not hasattr(event, field):
        return spelled(event.kwargs[field]) if field in event.kwargs else "absent"
    return spelled(getattr(event, field))


def spelled(content: object) -> str:
    """A value by its name, a literal as it is written."""
    match content:
        case Const(value=literal):
            return repr(literal)
        case Choice(options=options):
            return joined([spelled(option) for option, _ in options])
        case Sequence(items=items, name=name) if not name:
            return joined([spelled(item) for item in items])
        case Value():
            return normal(path(content))
        case tuple():
            return joined([spelled(item) for item in content])
        case str():
            return normal(content)
    return repr(content)


def path(value: Value) -> str:
    """What the user calls a value; a part of a module by the way to it."""
    if isinstance(value, Module) and value.owner is not None and value.key:
        return f"{path(value.owner)}.{value.key}"
    return called(value)


def normal(name: str) -> str:
    """A name in the form that `ast.unparse` gives it."""
    name = re.sub(r"\.(\d+)", r"[\1]", name).replace(".[", "[").replace("[]", "[...]")
    try:
        return ast.unparse(ast.parse(name, mode="eval"))
    except SyntaxError:
        return repr(name)


def joined(names: list[str]) -> str:
    """One name, or several as a tuple."""
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def ranks(event: Event) -> str:
    """Which ranks the tests around an event let through."""
    literal = rank_guard(event)
    if literal is None:
        return "all"
    local = "local_" if literal.kind == "local-rank" else ""
    if literal.key[-1] == 0:
        return local + ("zero" if literal.holds else "others")
    return f"{local}rank_{literal.key[-1]}" if isinstance(literal.key[-1], int) and literal.holds else "some"


def models(event: Event) -> list[Value]:
    """The modules that an event speaks of."""
    found: list[Value] = []
    for content in vars(event).values():
        match content:
            case Params() | StateDict() | Optimizer() | Tensor():
                found += behind(content)
            case Module() if isinstance(event, Shard):
                found.append(content)
            case Value() if not found and not isinstance(content, Const):
                found.append(content)
    return found


def speaks(literal: Literal, value: Value) -> bool:
    """True when a test is one of this value."""
    return literal.subject is value or value.number in literal.about


def behind(value: Value | None) -> list[Value]:
    """The modules behind parameters, optimizers, states and tensors."""
    match value:
        case Params(of=of):
            return list(of)
        case Optimizer(holds=holds):
            return [module for params in holds for module in params.of]
        case StateDict(of=of):
            return behind(of) if isinstance(of, Optimizer) else [of]
        case Tensor(source=source):
            return behind(source)
    return []


def sharding(event: Event, trace: Trace) -> str:
    """When the modules that an event speaks of are sharded."""
    calls = [(module, call) for module in models(event) for call in trace.shards(module) if call is not event]
    earlier = any(trace.before(call, event, module) for module, call in calls)
    later = any(trace.before(event, call, module) for module, call in calls)
    return {(True, True): "both", (True, False): "earlier", (False, True): "later"}.get((earlier, later), "none")


# programs -------------------------------------------------------------------------------------------------------------


class _Kept(Analysis):
    """An analysis that keeps its traces."""

    def __init__(self, root: Path, folders: tuple[Path, ...]) -> None:
        super().__init__(project(root, folders), self.keep, None, None, 80.0)
        self.traces: list[Trace] = []

    def keep(self, trace: Trace) -> list[LocatedFinding]:
        """A judge that finds nothing."""
        self.traces.append(trace)
        return []


def analyse(root: Path, files: list[Path], folders: tuple[Path, ...] = ()) -> _Kept:
    """All runs of a program."""
    words = Words(WORDS)
    seeds = [path for path in files if words.are_in(path.read_bytes())]
    analysis = _Kept(root, folders)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 12_000))
    try:
        analysis.run(seeds, files, frozenset(files))
    finally:
        sys.setrecursionlimit(limit)
    return analysis


def differences(root: Path, files: list[Path]) -> Iterator[str]:
    """Where the events of a program are not those that it is marked with."""
    analysis = analyse(root, files)
    yield from (f"{path.name}: {why}" for path, why in analysis.project.errors.items())
    wanted = {(path, row): found for path in files for row, found in by_row(path.read_text(encoding="utf-8")).items()}
    watched = {mark.kind for found in wanted.values() for mark in found}
    seen: dict[tuple[Path, int], list[tuple[Event, Trace]]] = {at: [] for at in wanted}
    for trace in analysis.traces:
        for event in trace.events:
            row = event.site.source.span(event.site.node).row
            seen[event.site.source.path, row].append((event, trace))
    for (path, row), found in seen.items():
        yield from (f"{path.name}:{row}: {why}" for why in at_line(wanted[path, row], found, watched))


def at_line(wanted: tuple[Mark, ...], found: list[tuple[Event, Trace]], watched: set[str]) -> Iterator[str]:
    """Where the events of one line are not those of its marks."""
    for mark in wanted:
        there = [pair for pair in found if fits(mark, *pair)]
        if mark.sort in ("event", "known-false") and not there:
            alike = sorted({like(mark, *pair) for pair in found if type(pair[0]).__name__ == mark.kind})
            yield f"no {mark}" + (f", only {', '.join(alike)}" if alike else "")
        elif mark.sort == "no-event" and there:
            yield f"{mark} happens"
        elif mark.sort == "known-miss" and there:
            yield f"{mark} is seen now: mark it as an event"
    for event, trace in found:
        kind = type(event).__name__
        if kind in watched and not any(fits(mark, event, trace) for mark in wanted if mark.sort != "known-miss"):
            alike = [like(mark, event, trace) for mark in wanted if mark.kind == kind and mark.sort != "known-miss"]
            yield f"not marked: {', '.join(alike) or described(event, trace)}"


def fits(mark: Mark, event: Event, trace: Trace) -> bool:
    """True when the event is what the mark says."""
    return type(event).__name__ == mark.kind and all(said(event, trace, n) == text for n, text in mark.fields)


def like(mark: Mark, event: Event, trace: Trace) -> str:
    """The event in the words of the mark."""
    inner = ", ".join(f"{name}={said(event, trace, name)}" for name, _ in mark.fields)
    return f"{mark.kind}({inner})" if inner else mark.kind


def described(event: Event, trace: Trace) -> str:
    """The event in the words that most marks use."""
    names = [name for name in ("module", "op", "to", "how") if hasattr(event, name)]
    fields = tuple((name, "") for name in [*names, "of", "ranks", "sharding"])
    return like(Mark("event", type(event).__name__, fields), event, trace)


@pytest.mark.parametrize("name", PROGRAMS)
def test_events_of_program(name: str) -> None:
    path = PROGRAMS[name]
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    root = path if path.is_dir() else path.parent
    wrong = list(differences(root, files))
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_run_that_becomes_too_long_stops_and_says_so(tmp_path: Path) -> None:
    """What was seen until then stands, and the other roots are run."""
    path = tmp_path / "long.py"
    path.write_text(
        "from torch.distributed.fsdp import fully_shard\n"
        "def long(model):\n    fully_shard(model)\n" + "    pass\n" * 7_000 + "    fully_shard(model.head)\n"
        "def short(model):\n    fully_shard(model)\n"
    )
    analysis = analyse(tmp_path, [path])
    runs = {len(list(trace.every(Shard))): trace.finished for trace in analysis.traces if not trace.finished}
    assert runs == {1: False}
    seen = analysis.coverage(frozenset({path}), 1)
    assert (seen.sites, seen.followed) == (3, 2)
    assert [(each.place.row, each.why) for each in seen.unfollowed] == [(7_004, "the run became too long")]


def test_a_long_method_may_use_what_short_ones_left(tmp_path: Path) -> None:
    """What it sets at its end is there for the methods behind it."""
    path = tmp_path / "trainer.py"
    path.write_text(
        "from torch.distributed.fsdp import fully_shard\n"
        "class Trainer:\n    def __init__(self, model):\n        self.model = model\n"
        "    def setup(self):\n" + "        pass\n" * 2_000 + "        self.inner = fully_shard(self.model.inner)\n"
        "    def shard(self):\n        fully_shard(self.inner.head)\n"
    )
    (run,) = analyse(tmp_path, [path]).traces
    assert run.finished
    assert [called(shard.module) for shard in run.every(Shard)] == ["model.inner", "model.inner.head"]


def test_a_project_of_many_small_classes_is_not_too_large(tmp_path: Path) -> None:
    """A class counts with the statements of its life, not with those that it might have run."""
    path = tmp_path / "trainers.py"
    trainers = (
        f"class Trainer{n}:\n    def __init__(self, model):\n        self.model = model\n"
        "    def prepare(self):\n        fully_shard(self.model)\n"
        for n in range(120)
    )
    path.write_text("from torch.distributed.fsdp import fully_shard\n" + "".join(trainers))
    seen = analyse(tmp_path, [path]).coverage(frozenset({path}), 1)
    assert (seen.sites, seen.followed) == (120, 120)


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"def f{n}(m):\n    f{n + 1}(m)\n    f{n + 1}(m)\n" for n in range(30)) + "def f30(m):\n    shard(m)\n",
        "def f(m):\n    for child in m.children():\n        f(child)\n        f(child)\n    shard(m)\n",
        "def f(m):\n    g(m)\n    g(m)\ndef g(m):\n    shard(m)\n    f(m)\n    f(m)\n",
        "def f(m, a):\n" + "".join(f"    if a.x{n}:\n        m = shard(m.y{n})\n" for n in range(60)),
        "def f(m, a):\n"
        + "".join(f"    for x{n} in a:\n        for y{n} in m:\n            shard(y{n})\n" for n in range(60)),
    ],
    ids=["calls in calls", "recursion", "mutual recursion", "many branches", "many loops"],
)
def test_what_could_grow_without_end_ends(text: str, tmp_path: Path) -> None:
    path = tmp_path / "grows.py"
    path.write_text("from torch.distributed.fsdp import fully_shard\n" + text.replace("shard(", "fully_shard("))
    assert any(True for trace in analyse(tmp_path, [path]).traces for _ in trace.every(Shard))
