"""The user's own functions, as the configuration declares them: which shards, builds an optimizer, saves ..."""

from __future__ import annotations

from collections.abc import Mapping as Table
from collections.abc import Sequence as Listing
from dataclasses import dataclass, field
from pathlib import Path

from fsdp_lint.trace.events import BuildOptimizer, Collective, Save, Shard
from fsdp_lint.trace.models import frameworks
from fsdp_lint.trace.models.api import NOTHING, Call, Machine
from fsdp_lint.trace.models.modules import parameters
from fsdp_lint.trace.values import (
    Bound,
    Const,
    External,
    Function,
    Module,
    Optimizer,
    Unknown,
    Value,
)

KINDS = ("shard-functions", "optimizer-factories", "rank-guards", "collectives", "saves")
# Which arguments are meant where a declaration names none.
DEFAULTS: Table[str, tuple[int | str, ...]] = {"saves": (0, 1)}


@dataclass(frozen=True)
class Declaration:
    """One declared function: what it is, its name, and its arguments by position or name."""

    kind: str
    name: str
    args: tuple[int | str, ...]


@dataclass(frozen=True)
class Declared:
    """All declared functions by the last part of their names."""

    by_name: Table[str, Listing[Declaration]] = field(default_factory=dict)
    root: Path = Path()

    @property
    def words(self) -> frozenset[str]:
        """The names by which a file speaks of FSDP because the user says so."""
        return frozenset(
            name for name, found in self.by_name.items() if any(each.kind == "shard-functions" for each in found)
        )

    def of(self, function: Value, call: Call) -> list[Declaration]:
        """The declarations that a call falls under, all of one kind: one function may be declared by position and by
        name; none for all others."""
        path, bare = self._path(function, call)
        found = [
            each
            for each in self.by_name.get(path.rpartition(".")[2], ())
            if path == each.name or (path.endswith(f".{each.name}") and (bare or "." in each.name))
        ]
        return [each for each in found if each.kind == found[0].kind]

    def _path(self, function: Value, call: Call) -> tuple[str, bool]:
        """A callee's dotted name, and whether its last part alone may name it."""
        match function:
            case External(dotted=dotted):
                return dotted, "." not in call.name
            case Bound(function=inner):
                return self._dotted(inner), True
            case Function():
                return self._dotted(function), True
            case Unknown():
                return call.name, True
        return "", False

    def _dotted(self, function: Function) -> str:
        path = function.path.with_suffix("")
        home = path.relative_to(self.root) if self.root in path.parents else Path(path.name)
        return ".".join((*home.parts, function.qualname))


def read(declarations: Table[str, Listing[str]], root: Path) -> Declared:
    """The declarations of a configuration: `name`, `package.module.name`, `name(argument)`, `name(0, path)`."""
    found: dict[str, list[Declaration]] = {}
    for kind, texts in declarations.items():
        for text in texts:
            name, _, rest = text.partition("(")
            words = [word.strip() for word in rest.rstrip(") ").split(",") if word.strip()]
            args = tuple(int(word) if word.isdecimal() else word for word in words) or DEFAULTS.get(kind, (0,))
            found.setdefault(name.strip().rpartition(".")[2], []).append(Declaration(kind, name.strip(), args))
    return Declared(found, root)


FRAMEWORKS = read({"shard-functions": frameworks.SHARDERS, "collectives": frameworks.GATHERERS}, Path())


def of_framework(run: Machine, dotted: str, call: Call) -> Value | None:
    """What a framework's function does that shards or gathers; None for others, and where its module is not given."""
    for each in FRAMEWORKS.by_name.get(dotted.rpartition(".")[2], ()):
        if each.name == dotted and _argument(call, each.args[0]) is not None:
            return act(run, each, call)
    return None


def act_all(run: Machine, found: Listing[Declaration], call: Call, signature: Listing[str] = ()) -> Value:
    """What a call does that falls under these: each counts whose first argument is given, and none twice."""
    fitting: dict[int, Declaration] = {}
    for each in found:
        value = _argument(call, each.args[0], signature or _as_many(each, call))
        if value is not None:
            fitting.setdefault(value.number, each)
    results = [act(run, each, call, signature) for each in fitting.values() or found[:1]]
    return results[0]


def act(run: Machine, declaration: Declaration, call: Call, signature: Listing[str] = ()) -> Value:
    """What a call of a declared function does; `signature` has the names of what it takes, where they can be seen."""
    names = signature or _as_many(declaration, call)
    values = [_argument(call, at, names) for at in declaration.args]
    first = values[0]
    match declaration.kind:
        case "rank-guards":
            return run.rank_test("world")
        case "collectives":
            run.emit(
                Collective, call.site, op=declaration.name, on=tuple(v for v in values if v is not None), plain=True
            )
            return Unknown(name=f"{call.name}(...)", inputs=tuple(call.values()))
        case "saves":
            path = (values[1] if len(values) > 1 else None) or Unknown()
            run.emit(Save, call.site, content=first or Unknown(), path=path, path_by_rank=run.mentions_rank(path))
            return NOTHING
        case "shard-functions":
            return _shard(run, call, first)
    return _optimizer(run, call, first)


def _as_many(declaration: Declaration, call: Call) -> list[str]:
    """The declared names as those of the arguments of a call that gives just as many, and none of them by name."""
    names = [at for at in declaration.args if isinstance(at, str) and at not in call.kwargs]
    return names if len(names) == len(declaration.args) == len(call.args) else []


def _argument(call: Call, at: int | str, names: Listing[str] = ()) -> Value | None:
    """The argument at a position or of a name; `names` are those of the positions."""
    name = at if isinstance(at, str) else names[at] if at < len(names) else ""
    position = at if isinstance(at, int) else names.index(at) if at in names else len(call.args)
    return call.get(position, name)


def _shard(run: Machine, call: Call, module: Value | None) -> Value:
    if module is None or isinstance(module, Const):
        return Unknown(name=f"{call.name}(...)", inputs=tuple(call.values()))
    for option in run.options(module):
        with run.under(option):
            run.emit(
                Shard,
                call.site,
                module=option.value,
                generation=2,
                kwargs_known=False,
                result=option.value,
                declared=True,
            )
    return module


def _optimizer(run: Machine, call: Call, params: Value | None) -> Value:
    if params is None:
        return Unknown(name=f"{call.name}(...)", inputs=tuple(call.values()))
    if isinstance(params, Module | Unknown):
        params = parameters(run, Call(site=call.site, self_value=params, name="parameters"))
    optimizer = run.new(Optimizer(holds=tuple(run.collect(params, call.site)), cls=call.name))
    run.emit(BuildOptimizer, call.site, optimizer=optimizer)
    return optimizer
