"""The state of an abstract run: names, attributes, branches, and what has happened so far."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fsdp_lint.project.resolve import Project
from fsdp_lint.source.document import Document
from fsdp_lint.source.file import Site, Source
from fsdp_lint.trace.events import CallMethod, CheckClass, CompareDimensions, Event, Initialise, RegisterBuffer
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import (
    MISSING,
    Choice,
    Class,
    External,
    Guards,
    Instance,
    Literal,
    Mapping,
    Module,
    Params,
    Rank,
    Unknown,
    Value,
    choice,
    exclusive,
    options_of,
    same,
)

if TYPE_CHECKING:
    import libcst as cst

E = TypeVar("E", bound=Event)
V = TypeVar("V", bound=Value)

STATEMENTS = 6_000
DEPTH = 16
# So many events of one kind are generated code or a runaway; rules compare them pair by pair.
MANY = 150
# Nothing compares these pair by pair.
CHEAP = (Initialise, CallMethod, CheckClass, CompareDimensions, RegisterBuffer)
CHEAP_MANY = 3_000

RANK_NAMES = {
    "rank": "world",
    "global_rank": "world",
    "world_rank": "world",
    "process_index": "world",
    "local_rank": "local",
    "local_process_index": "local",
    "dp_rank": "group",
    "tp_rank": "group",
    "pp_rank": "group",
}


# Whose attribute `rank` is the process's number: not a matrix's, not an adapter's.
RANK_OWNERS = re.compile(
    r"(^|[._])(self|args?|cfg|conf|config|opts?|dist|distributed|env|ctx|context|trainer|fabric|accelerator|strategy|state"
    r"|world|comm|communicator|parallel|parallelism|mesh|pg|group|runtime|cluster|info|process|launcher|engine|worker"
    r"|settings|hparams|flags|rt|topology)(\(\.*\))?$",
    re.IGNORECASE,
)


class OutOfBudget(Exception):
    """The run has become too long; what was seen until here stands."""


@dataclass(eq=False)
class Frame:
    """The names of one function's, class's or file's body while it is run. `dead`: what follows here is not reached,
    and `raised`: because of an error. `over` is what its loops go over, None for a `while`, and their bodies;
    `yields_of` is what gives what it yields; `pauses` say of each `yield` how many events came before, what held there,
    and what it gave; `opened` are the contexts that its decorators have entered.
    """

    path: Path
    source: Source
    names: dict[str, Value] = field(default_factory=dict)
    scope: Frame | None = None
    cls: Class | None = None
    self_value: Value | None = None
    results: list[tuple[Value, Guards]] = field(default_factory=list)
    yields: list[Value] = field(default_factory=list)
    over: list[tuple[Value | None, cst.BaseSuite]] = field(default_factory=list)
    yields_of: tuple[Value, ...] = ()
    yield_contexts: tuple[str, ...] = ()
    pauses: list[tuple[int, Guards, Value]] = field(default_factory=list)
    base: int = 0
    dead: bool = False
    raised: bool = False
    is_file: bool = False
    shared: set[str] = field(default_factory=set)
    qualname: str = ""
    call: Call | None = None
    opened: list[Callable[[], object]] = field(default_factory=list)


class State:
    """Everything that changes while a program is run."""

    def __init__(self, project: Project, trace: Trace) -> None:
        self.project = project
        self.trace = trace
        self.frames: list[Frame] = []
        self.files: dict[Path, Frame] = {}
        self.guards: list[Literal] = []
        self.loops: list[int] = []
        self.stack: list[Site] = []
        self.contexts: list[str] = []
        self.methods: list[tuple[int, Value]] = []
        self.entry = 0
        self.budget = STATEMENTS
        self._given = STATEMENTS
        self.heap: dict[tuple[int, str], Value] = {}
        self.journals: list[dict[tuple[int, str], Value | None]] = []
        self.stored_in: dict[tuple[int, str], int] = {}
        self.memo: dict[tuple[Any, ...], Value] = {}
        self.unbound: set[tuple[Any, ...]] = set()
        self.entered: set[tuple[Path, str]] = set()
        self.files_entered: set[Path] = set()
        self.loop_count = 0
        self.loop_began: dict[int, int] = {}
        self.kinds: Counter[type[Event]] = Counter()
        self.touched: set[int] = set()
        self.quiet: Counter[tuple[object, ...]] = Counter()
        # What is done when an ExitStack is left.
        self.stacks: dict[int, list[Callable[[], object]]] = {}
        self.certain: set[tuple[tuple[Any, ...], bool]] = set()

    @property
    def frame(self) -> Frame:
        """The innermost frame."""
        return self.frames[-1]

    def site(self, node: cst.CSTNode) -> Site:
        """Where `node` of the file being run stands."""
        return Site(self.frame.source, node)

    def settings(self, name: str, site: Site) -> Any:
        """What the file of settings of this name says; None where it is not known which file that is."""
        path = self.project.named(site.source.path, name)
        return Document(path, self.project.text(path)).value if path is not None else None

    def spend(self) -> None:
        """Counts one statement. Raises OutOfBudget."""
        self.budget -= 1
        if self.budget <= 0:
            raise OutOfBudget

    def renew(self, statements: int) -> None:
        """From here on so many statements may be run, however many were before."""
        self._given += statements - self.budget
        self.budget = statements

    @property
    def spent(self) -> int:
        """How many statements were run."""
        return self._given - self.budget

    def emit(self, kind: type[E], site: Site, **fields: Any) -> E:
        """Records an event here and now."""
        event = kind(
            site=site,
            stack=tuple(self.stack),
            guards=tuple(self.guards),
            loops=tuple(self.loops),
            contexts=tuple(self.contexts),
            methods=tuple(self.methods),
            entry=self.entry,
            order=len(self.trace.events),
            **fields,
        )
        self.trace.events.append(event)
        self.kinds[kind] += 1
        if self.kinds[kind] > (CHEAP_MANY if issubclass(kind, CHEAP) else MANY):
            raise OutOfBudget
        module = fields.get("module")
        if isinstance(module, Value):
            self.touched.update(one.number for one in module.line())
        return event

    def new(self, value: V) -> V:
        """Marks a value as born in the loops around."""
        value.loops = tuple(self.loops)
        if isinstance(value, Module):
            value.born, value.within = len(self.trace.events), tuple(self.contexts)
        return value

    # attributes ------------------------------------------------------------------------------------------------

    def stored(self, value: Value, key: str) -> Value | None:
        """What was stored in an attribute during this run."""
        found = self.heap.get((value.number, key))
        return self.possible(found) if found is not None else None

    def store(self, value: Value, key: str, content: Value) -> None:
        """Stores an attribute."""
        at = (value.number, key)
        if self.journals and at not in self.journals[-1]:
            self.journals[-1][at] = self.heap.get(at)
        self.heap[at] = content
        self.stored_in[at] = self.entry

    def child(self, value: Value, key: str) -> Value:
        """What an unknown value has under `key`: the same thing each time."""
        at = ("child", value.number, key)
        if at not in self.memo:
            scope = RANK_NAMES.get(key)
            made: Value
            if scope is not None and (isinstance(value, Instance) or RANK_OWNERS.search(value.name)):
                made = Rank(name=key, owner=value, key=key, scope=scope)
            else:
                made = Unknown(name=self.path_name(value, key), owner=value, key=key)
            self.memo[at] = made
        return self.memo[at]

    def element(self, module: Value, each: str, backwards: bool = False) -> Module:
        """One unknown module out of those that `module` yields: "modules", "children" or "items"."""
        at = ("element", module.number, each, backwards)
        if at not in self.memo:
            made = Module(name=f"{module.name}[...]", owner=module, key="[]", count=None, each=each)
            made.backwards = backwards
            self.memo[at] = made
        found = self.memo[at]
        assert isinstance(found, Module)
        return found

    @staticmethod
    def path_name(value: Value, key: str) -> str:
        """How the user would write it."""
        if not value.name:
            return key
        return f"{value.name}{key}" if key.startswith(("[", "(")) else f"{value.name}.{key}"

    # branches --------------------------------------------------------------------------------------------------

    def possible(self, value: Value) -> Value:
        """The value without the options that cannot be here."""
        if value.__class__ is not Choice or not self.guards:
            return value
        here = tuple(self.guards)
        left = [(v, g) for v, g in value.options if not exclusive(g, here)]
        if len(left) == len(value.options):
            return value
        if len(left) == 1:
            return left[0][0]
        return choice(left) if left else value

    def assume(self, literals: Guards) -> None:
        """Takes literals for granted from here on."""
        here = len(self.stack)
        known = [literal.key for literal in self.guards] if literals else []
        for literal in literals:
            if literal.key not in known or literal not in self.guards:
                self.guards.append(literal if literal.depth <= here else literal.but(depth=here))
                known.append(literal.key)

    def branch(self, arms: Sequence[tuple[Guards, Callable[[], object]]]) -> None:
        """Runs exclusive arms from one state and joins what they leave."""
        frame = self.frame
        start = dict(frame.names)
        depth = len(self.guards)
        ended: list[tuple[Guards, dict[str, Value], dict[tuple[int, str], Value], bool]] = []
        raised = True
        for literals, body in arms:
            if exclusive(literals, tuple(self.guards)):
                continue
            frame.names = dict(start)
            frame.dead = False
            self.journals.append({})
            self.assume(literals)
            body()
            left = tuple(self.guards[depth:])
            del self.guards[depth:]
            ended.append((left, frame.names, self._rewind(), frame.dead))
            raised = raised and (frame.raised or not frame.dead)
        alive = [(g, names, changes) for g, names, changes, dead in ended if not dead]
        frame.dead, frame.raised = not alive, raised
        # What an arm that returned has put into new objects is still there in what it returned.
        for _, _, changes, dead in ended:
            for at, content in changes.items() if dead else ():
                if at not in self.heap:
                    self._write(*at, content)
        if not alive:
            frame.names = ended[-1][1] if ended else start
            return
        if len(alive) == 1:
            guards, frame.names, changes = alive[0]
            for (number, key), content in changes.items():
                self._write(number, key, content)
            if len(ended) > 1 or len(arms) > 1:
                self.assume(guards)
                self._make_certain(guards, raised)
            return
        frame.names = self._join_names(start, [(g, names) for g, names, _ in alive])
        self._join_heap([(g, changes) for g, _, changes in alive])

    def _make_certain(self, guards: Guards, raised: bool) -> None:
        """Where all that do not pass the guards have raised, and nothing around catches it, they hold for whatever the
        program does from here on, in other functions, too."""
        if raised and not any(literal.kind == "handler" for literal in self.guards):
            self.certain.update((literal.key, literal.holds) for literal in guards)

    def _write(self, number: int, key: str, content: Value) -> None:
        at = (number, key)
        if self.journals and at not in self.journals[-1]:
            self.journals[-1][at] = self.heap.get(at)
        self.heap[at] = content

    def _rewind(self) -> dict[tuple[int, str], Value]:
        journal = self.journals.pop()
        changes: dict[tuple[int, str], Value] = {}
        for at, old in journal.items():
            changes[at] = self.heap[at]
            if old is None:
                del self.heap[at]
            else:
                self.heap[at] = old
        return changes

    @staticmethod
    def _join_names(start: dict[str, Value], alive: list[tuple[Guards, dict[str, Value]]]) -> dict[str, Value]:
        joined: dict[str, Value] = {}
        for name in {key: None for _, names in alive for key in names}:
            found = [names.get(name) for _, names in alive]
            if found[0] is not None and found.count(found[0]) == len(found):
                joined[name] = found[0]
            else:
                joined[name] = choice([(v, g) for v, (g, _) in zip(found, alive, strict=True) if v is not None])
        return joined

    def _join_heap(self, alive: list[tuple[Guards, dict[tuple[int, str], Value]]]) -> None:
        for at in {key: None for _, changes in alive for key in changes}:
            old = self.heap.get(at)
            options: list[tuple[Value, Guards]] = []
            for guards, changes in alive:
                content = changes.get(at, old)
                if content is not None:
                    options.append((content, guards))
            if all(same(v, options[0][0]) for v, _ in options):
                self._write(*at, options[0][0])
            else:
                self._write(*at, choice(options))

    def merge(self, into: Mapping, value: Value) -> None:
        """`into.update(value)`."""
        value = self.possible(value)
        if isinstance(value, Mapping):
            for key, content in value.items.items():
                self.put(into, key, content)
            into.rest.extend(value.rest)
            into.open = into.open or value.open
        elif isinstance(value, Params):
            into.rest.append(value)
        elif isinstance(value, Choice) and all(isinstance(option, Mapping) for option, _ in value.options):
            self._merge_one_of(into, [(option, guards) for option, guards in value.options])
        else:
            into.open = True
            into.rest.append(value)

    def _merge_one_of(self, into: Mapping, options: list[tuple[Value, Guards]]) -> None:
        """What one of several dicts holds: under its guards, unless all of them have the key."""
        dicts = [(option, guards) for option, guards in options if isinstance(option, Mapping)]
        shared = [key for key in dicts[0][0].items if all(key in option.items for option, _ in dicts)]
        for key in shared:
            self.put(into, key, choice([(option.items[key], guards) for option, guards in dicts]))
        for option, guards in dicts:
            depth = len(self.guards)
            self.assume(guards)
            rest = {key: content for key, content in option.items.items() if key not in shared}
            self.merge(into, Mapping(items=rest, rest=option.rest, open=option.open))
            del self.guards[depth:]

    def put(self, into: Mapping, key: Any, content: Value) -> None:
        """`into[key] = content`, under the guards of here."""
        guards = tuple(g for g in self.guards if g not in into.born and (g.key, g.holds) not in self.certain)
        old = into.items.get(key)
        if not guards:
            into.items[key] = content
            return
        missing = old if old is not None else External(name="missing", dotted=MISSING)
        into.items[key] = Choice(options=((content, guards), (missing, ())))

    def each_option(self, value: Value, run: Callable[[Value], Value]) -> Value:
        """Does the same with every value that `value` can be, under its guards, and joins the results."""
        if not isinstance(value, Choice):
            return run(value)
        results: list[tuple[Value, Guards]] = []
        for option, guards in options_of(self.possible(value)):
            depth = len(self.guards)
            if exclusive(guards, tuple(self.guards)):
                continue
            self.assume(guards)
            results.append((run(option), guards))
            del self.guards[depth:]
        return choice(results) if results else Unknown()

    def new_loop(self, began: int) -> int:
        """A number for a loop that begins; `began` is that of a value made just before what it goes over."""
        self.loop_count += 1
        self.loop_began[self.loop_count] = began
        return self.loop_count

    def is_older(self, value: Value) -> bool:
        """True for what is the same in each round of the loops around: it was there before them, or is an attribute of
        what was."""
        began = self.loop_began[abs(self.loops[0])] if self.loops else value.number + 1
        for one in value.line():
            if one.number < began and one.key != "[]":
                return True
            if not one.key.isidentifier():
                break
        return False
