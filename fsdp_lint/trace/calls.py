"""Calls into the project: definitions found, arguments bound, bodies run in place."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

import libcst as cst

from fsdp_lint.project.resolve import Definition
from fsdp_lint.source.file import Site, Source
from fsdp_lint.source.structure import inner, program_below
from fsdp_lint.trace.generators import gathered
from fsdp_lint.trace.models import table
from fsdp_lint.trace.models.api import Call
from fsdp_lint.trace.state import DEPTH, RANK_NAMES, Frame, State
from fsdp_lint.trace.values import (
    Bound,
    Choice,
    Class,
    Const,
    External,
    Function,
    Instance,
    Literal,
    Mapping,
    Module,
    Optimizer,
    Params,
    ProjectModule,
    Rank,
    Sequence,
    StateDict,
    Tensor,
    Unknown,
    Value,
    choice,
    origins,
    parts,
)

RANK_ZERO = re.compile(
    r"rank_?zero|rank_?0|main_process|only_rank|(on|only)_(main|master|leader|chief)|(main|master|leader|chief)_only",
    re.IGNORECASE,
)
DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
SMALL = 12
RECURSIONS = 5
# A function that was entered this often without any event is not entered again.
QUIET = 4
OFTEN = 40


@functools.lru_cache(maxsize=4096)
def definitions(source: Source) -> dict[str, cst.FunctionDef | cst.ClassDef]:
    """The functions, classes and methods of a file by qualified name; of several the last that is not an overload."""
    found: dict[str, cst.FunctionDef | cst.ClassDef] = {}

    def walk(body: cst.BaseSuite | cst.Module, prefix: str) -> None:
        for statement in body.body:
            if isinstance(statement, cst.FunctionDef):
                if not any("overload" in table.words(d.decorator) for d in statement.decorators):
                    found[prefix + statement.name.value] = statement
            elif isinstance(statement, cst.ClassDef):
                found[prefix + statement.name.value] = statement
                walk(statement.body, f"{prefix}{statement.name.value}.")
            elif isinstance(statement, cst.If | cst.Try | cst.With | cst.Else):
                nested(statement, prefix)

    def nested(statement: cst.CSTNode, prefix: str) -> None:
        for child in inner(statement):
            if isinstance(child, cst.IndentedBlock):
                walk(child, prefix)
            elif isinstance(child, cst.If | cst.Else | cst.ExceptHandler | cst.Finally):
                nested(child, prefix)

    walk(source.abstract, "")
    return found


def is_tracked(value: Value) -> bool:
    """True for values that rules speak of."""
    return any(isinstance(p, Module | Params | Tensor | Optimizer | StateDict) for p in parts(value))


def _runs_code(value: Value) -> bool:
    """True for objects and functions of the project, and for a list or tuple with one."""
    held = value.items if isinstance(value, Sequence) else [value]
    return any(isinstance(one, Instance | Bound | Function) for one in held)


class Calls(State):
    """The part of the abstract machine that enters functions and classes of the project."""

    hot: frozenset[tuple[Path, str]] = frozenset()

    def evaluate(self, node: cst.BaseExpression) -> Value:
        """The value of an expression; the expression part of the machine gives it."""
        raise NotImplementedError

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name`; the expression part of the machine gives it."""
        raise NotImplementedError

    def run_body(self, body: cst.BaseSuite) -> None:
        """Runs the statements of a block; the statement part of the machine gives it."""
        raise NotImplementedError

    # names ------------------------------------------------------------------------------------------------------

    def file_frame(self, path: Path) -> Frame | None:
        """The frame of a file's top level; it holds names only when its body was run."""
        if path not in self.files:
            source = self.project.source(path)
            if source is None:
                return None
            self.files[path] = Frame(path=path, source=source, is_file=True)
        return self.files[path]

    def load(self, name: str) -> Value | None:
        """What a name means in the frame being run; None when nothing binds it."""
        frame: Frame | None = self.frame
        while frame is not None:
            if name in frame.names:
                return self.possible(frame.names[name])
            frame = frame.scope
        return self.load_global(self.frame.path, name)

    def load_global(self, path: Path, name: str) -> Value | None:
        """What a global name of a file means."""
        if path in self.files and name in self.files[path].names:
            return self.possible(self.files[path].names[name])
        at = ("global", path, name)
        if at in self.memo:
            return self.memo[at]
        if at in self.unbound:
            return None
        definition = self.project.lookup(path, name)
        value = self.define(definition) if definition is not None else None
        if value is None:
            self.unbound.add(at)
        else:
            self.memo[at] = value
        return value

    def define(self, definition: Definition) -> Value | None:
        """The value that a definition stands for."""
        kind, name, path = definition.kind, definition.name, definition.path
        at = ("definition", kind, name, path)
        if at in self.memo:
            return self.memo[at]
        value: Value | None
        if kind == "external":
            value = self.external(name)
        elif path is None:
            return None
        elif kind in ("function", "class") and (copied := self._copied(name, path)):
            value = self.external(copied)
        elif kind == "function":
            value = Function(name=name, path=path, qualname=name)
        elif kind == "class":
            value = Class(name=name, path=path, qualname=name)
        elif kind == "file":
            value = ProjectModule(name=name, path=path)
        else:
            value = self.variable(path, name)
        if value is not None:
            self.memo[at] = value
        return value

    def _copied(self, name: str, path: Path) -> str:
        """The dotted name of a function or class of a library's that the project has a copy of; empty for others."""
        index = self.project.index(path)
        return table.copied(name, {**index.functions, **index.classes}) if index is not None else ""

    def external(self, dotted: str) -> Value:
        """The library thing of this name."""
        at = ("external", dotted)
        if at not in self.memo:
            self.memo[at] = External(name=dotted.rpartition(".")[2], dotted=dotted)
        return self.memo[at]

    def variable(self, path: Path, name: str) -> Value | None:
        """A global variable of a file whose body is not being run: its last assignments, evaluated now."""
        at = ("variable", path, name)
        if at in self.memo:
            return self.memo[at]
        frame = self.file_frame(path)
        if frame is None:
            return None
        self.memo[at] = Unknown(name=name)
        options = []
        for statement in _assignments(frame.source.abstract, name):
            self.frames.append(frame)
            try:
                options.append(self.evaluate(statement))
            finally:
                self.frames.pop()
        value = choice([(option, ()) for option in options]) if options else Unknown(name=name)
        # An empty one at the top of a file is there to be filled by somebody.
        if isinstance(value, Sequence) and not value.items:
            value.exact = False
        elif isinstance(value, Mapping) and not value.items:
            value.open = True
        if not value.name:
            value.name = name
        self.memo[at] = value
        return value

    # classes ----------------------------------------------------------------------------------------------------

    def class_node(self, cls: Class) -> cst.ClassDef | None:
        """The class statement."""
        if cls.node is None:
            source = self.project.source(cls.path)
            node = definitions(source).get(cls.qualname) if source else None
            cls.node = node if isinstance(node, cst.ClassDef) else None
        return cls.node

    def bases(self, cls: Class) -> tuple[Value, ...]:
        """The classes that it names as its bases."""
        at = ("bases", cls.number)
        if at not in self.memo:
            named = self._named_bases(cls)
            found = named if named is not None else self._evaluated_bases(cls)
            self.memo[at] = Sequence(items=found)
            cls.bases = tuple(found)
        result = self.memo[at]
        assert isinstance(result, Sequence)
        return tuple(result.items)

    def _named_bases(self, cls: Class) -> list[Value] | None:
        """The bases, where all are names with dots, so that the file needs not be parsed for them; None elsewhere."""
        index = self.project.index(cls.path) if cls.node is None and cls.scope is None else None
        info = index.classes.get(cls.qualname) if index is not None else None
        if info is None or not all(DOTTED.fullmatch(base) for base in info.bases):
            return None
        return [self._at_the_top(cls.path, base) for base in info.bases]

    def _at_the_top(self, path: Path, dotted: str) -> Value:
        """What a name with dots means at the top of a file."""
        head, *rest = dotted.split(".")
        value = self.load_global(path, head) or self.unbound_name(path, head)
        for name in rest:
            value = self.attribute(value, name)
        return value

    def _evaluated_bases(self, cls: Class) -> list[Value]:
        node = self.class_node(cls)
        frame = cls.scope or self.file_frame(cls.path)
        if node is None or frame is None:
            return []
        self.frames.append(frame)
        try:
            return [self.evaluate(arg.value) for arg in node.bases if not arg.star]
        finally:
            self.frames.pop()

    def unbound_name(self, path: Path, name: str) -> Value:
        """What a name stands for that nothing in a file binds: a builtin, or something unknown."""
        if table.known(f"builtins.{name}"):
            return self.external(f"builtins.{name}")
        at = ("unbound", path, name)
        if at not in self.memo:
            scope = RANK_NAMES.get(name)
            self.memo[at] = Rank(name=name, scope=scope) if scope else Unknown(name=name)
        return self.memo[at]

    def lineage(self, cls: Class, hops: int = 12) -> list[Value]:
        """The class and its bases, nearest first."""
        found: list[Value] = [cls]
        for base in self.bases(cls):
            if isinstance(base, Class) and hops and base is not cls:
                found.extend(b for b in self.lineage(base, hops - 1) if b not in found)
            elif base not in found:
                found.append(base)
        return found

    def library_bases(self, cls: Class) -> list[str]:
        """Dotted names of library classes among its bases."""
        return [base.dotted for base in self.lineage(cls) if isinstance(base, External)]

    def is_module_class(self, cls: Class) -> bool:
        """True for subclasses of nn.Module, as far as the bases tell."""
        for dotted in self.library_bases(cls):
            last = dotted.rpartition(".")[2]
            if dotted.startswith("torch.nn.") or last.endswith(("Module", "PreTrainedModel", "ForCausalLM")):
                return True
        return False

    def container_base(self, cls: Class) -> str:
        """The container of torch.nn among the bases of a class; empty where there is none."""
        found = (d.rpartition(".")[2] for d in self.library_bases(cls) if d.startswith("torch.nn."))
        return next((name for name in found if name in table.CONTAINERS), "")

    def is_optimizer_class(self, cls: Class) -> bool:
        """True for subclasses of torch's optimizers."""
        return any(d.startswith("torch.optim.") for d in self.library_bases(cls))

    def class_attribute(self, cls: Class, name: str) -> tuple[Class, Value] | None:
        """A method or class variable, and the class that defines it."""
        for one in self.lineage(cls):
            if not isinstance(one, Class):
                continue
            at = ("class attribute", one.number, name)
            if at not in self.memo:
                found = self._own_attribute(one, name)
                self.memo[at] = found if found is not None else Const(name="<absent>")
            value = self.memo[at]
            if value.name != "<absent>":
                return one, value
        return None

    def _own_attribute(self, cls: Class, name: str) -> Value | None:
        node = self.class_node(cls)
        if node is None:
            return None
        for statement in node.body.body:
            if isinstance(statement, cst.FunctionDef) and statement.name.value == name:
                return Function(
                    name=name,
                    path=cls.path,
                    qualname=f"{cls.qualname}.{name}",
                    node=statement,
                    scope=cls.scope,
                    cls=cls,
                )
        for value in _assignments(node.body, name):
            frame = cls.scope or self.file_frame(cls.path)
            if frame is None:
                return None
            self.frames.append(frame)
            try:
                found = self.evaluate(value)
                if isinstance(found, Const) and not found.name:
                    found.name = name
                return found
            finally:
                self.frames.pop()
        return None

    def class_nodes(self, cls: Class) -> list[tuple[Class, cst.ClassDef]]:
        """A class of the project and its bases there, each with the statement that defines it."""
        own = [one for one in self.lineage(cls) if isinstance(one, Class)]
        return [(one, node) for one in own if (node := self.class_node(one)) is not None]

    def setters(self, cls: Class, name: str) -> list[str]:
        """The names of the methods of a class and its bases that say `self.name = ...`."""
        at = ("setters", cls.number, name)
        if at not in self.memo:
            methods = [each for _, node in self.class_nodes(cls) for each in node.body.body]
            found = [m.name.value for m in methods if isinstance(m, cst.FunctionDef) and _sets(m.body, name)]
            self.memo[at] = Const(value=found)
        known = self.memo[at]
        return known.value if isinstance(known, Const) else []

    def counts(self, cls: Class, name: str) -> bool:
        """True where a method of a class or of its bases says `self.name += ...`."""
        at = ("counts", cls.number, name)
        if at not in self.memo:
            self.memo[at] = Const(value=any(name in counted(node) for _, node in self.class_nodes(cls)))
        known = self.memo[at]
        return isinstance(known, Const) and bool(known.value)

    # entering ---------------------------------------------------------------------------------------------------

    def function_node(self, function: Function) -> cst.FunctionDef | cst.Lambda | None:
        """The statement that defines a function."""
        if function.node is None:
            source = self.project.source(function.path)
            node = definitions(source).get(function.qualname) if source else None
            function.node = node if isinstance(node, cst.FunctionDef) else None
        return function.node

    def worth_entering(self, function: Function, call: Call, self_value: Value | None = None) -> bool:
        """True when the function reaches FSDP, gets one of its values, may make a model, or is small."""
        if function.scope is not None or isinstance(function.node, cst.Lambda):
            return True
        if (function.path, function.qualname) in self.hot or function.cls is not None or "seed" in function.name:
            return True
        if any(is_tracked(v) or _runs_code(v) or self.is_given_model(v) for v in call.values()):
            return True
        if any(table.is_framework(v) for v in call.values()):
            return True
        index = self.project.index(function.path)
        info = index.functions.get(function.qualname) if index else None
        if info is None or info.lines <= SMALL or table.worth_a_look(info.mentions | info.attributes):
            return True
        return self.names_a_module(function) or any(isinstance(v, Unknown) and self.seen(v) for v in call.values())

    def names_a_module(self, function: Function) -> bool:
        """True when the function names an nn.Module of the project, as far as bases tell: it may make one."""
        at = ("names a module", function.path, function.qualname)
        if at not in self.memo:
            self.memo[at] = Const(value=self.project.names_a_module(function.path, function.qualname))
        found = self.memo[at]
        return isinstance(found, Const) and bool(found.value)

    def is_given_model(self, value: Value) -> bool:
        """True for what is, by its name, a model that came from outside the run, or a part of one."""
        if not isinstance(value, Unknown):
            return False
        *inner, outer = value.line()
        if outer.number not in self.trace.given or not table.is_model_name(outer.name):
            return False
        return all(one.key.startswith("[") or table.is_model_name(one.key) for one in inner)

    def seen(self, value: Value) -> bool:
        """True when an event spoke of the value or of something reached through it."""
        return value.number in self.touched

    def enter(self, function: Function, call: Call, self_value: Value | None = None) -> Value:
        """Runs a project function in place and returns its value."""
        recurses = self._recurses(call)
        if recurses or len(self.frames) >= DEPTH:
            if not (recurses and self._is_quiet_since(call)):
                self.note_arguments(call, function.name)
            return Unknown(inputs=tuple(call.values()))
        # Asked before its file is parsed.
        if not self.worth_entering(function, call, self_value):
            return Unknown(inputs=tuple(call.values()))
        node, source = self.function_node(function), self.project.source(function.path)
        if node is None or source is None:
            self.note_arguments(call, function.name)
            return Unknown(inputs=tuple(call.values()))
        key = _plain_call(function, call) if self_value is None else None
        if key is not None and key in self.memo:
            return self.memo[key]
        if key is not None and isinstance(node, cst.FunctionDef) and _keeps_results(node):
            self.memo[key] = self._enter(function, node, source, call, self_value)
            return self.memo[key]
        owner = self_value.number if self_value is not None and not function.qualname.endswith("__init__") else 0
        given = tuple(repr(v.value) if isinstance(v, Const) else v.number for v in call.values())
        quiet = ("quiet", function.path, function.qualname, owner, given)
        builds = isinstance(self_value, Module) and not owner
        if (
            self.quiet[quiet] >= QUIET
            and quiet in self.memo
            and not builds
            and not any(is_tracked(v) for v in call.values())
        ):
            return self.memo[quiet]
        often = ("often", function.path, function.qualname)
        self.quiet[often] += 1
        if self.quiet[often] > OFTEN:
            self.note_arguments(call, function.name)
            return Unknown(inputs=tuple(call.values()))
        before = len(self.trace.events)
        value = self._enter(function, node, source, call, self_value)
        # A module that is made anew is another one each time, though making it is no event.
        if len(self.trace.events) == before and not any(isinstance(one, Module) for one in parts(value)):
            if key is not None:
                self.memo[key] = value
            self.quiet[quiet] += 1
            self.memo[quiet] = value
        return value

    def _enter(
        self,
        function: Function,
        node: cst.FunctionDef | cst.Lambda,
        source: Source,
        call: Call,
        self_value: Value | None,
    ) -> Value:
        frame = Frame(
            path=function.path,
            source=source,
            scope=function.scope,
            cls=function.cls,
            self_value=self_value,
            base=len(self.guards),
            qualname=function.qualname,
            call=call,
        )
        self.entered.add((function.path, function.qualname))
        return self._run_frame(frame, node, function, call, self_value)

    def _recurses(self, call: Call) -> bool:
        return sum(site == call.site for site in self.stack) >= RECURSIONS

    def _is_quiet_since(self, call: Call) -> bool:
        """True when no event came of the calls of a function by itself, which has been run for the parts above."""
        outer = tuple(self.stack[: self.stack.index(call.site) + 1])
        return not self.trace.events or self.trace.events[-1].stack[: len(outer)] != outer

    def note_arguments(self, call: Call, name: str) -> None:
        """Where a call cannot be followed, its arguments go to code that is not known."""
        raise NotImplementedError

    def _run_frame(
        self,
        frame: Frame,
        node: cst.FunctionDef | cst.Lambda,
        function: Function,
        call: Call,
        self_value: Value | None,
    ) -> Value:
        saved_contexts, before = list(self.contexts), len(self.trace.events)
        self.stack.append(call.site)
        if isinstance(self_value, Module):
            self.methods.append((len(self.stack) - 1, self_value))
        self.bind(frame, node.params, call, self_value)
        self.frames.append(frame)
        try:
            if isinstance(node, cst.Lambda):
                frame.results.append((self.evaluate(node.body), ()))
            else:
                self.guard_decorators(node)
                self.run_body(node.body)
                self.close_contexts(frame)
        finally:
            self.frames.pop()
            self.stack.pop()
            if isinstance(self_value, Module):
                self.methods.pop()
            frame.yield_contexts = frame.yield_contexts or tuple(self.contexts[len(saved_contexts) :])
            self.contexts[:] = saved_contexts
            del self.guards[frame.base :]
        self.last_frame = frame
        if frame.yields:
            lazy = gathered(self.trace.events[before:])
            return Sequence(items=list(frame.yields), exact=False, chosen_by=frame.yields_of, lazy=lazy)
        results = list(frame.results)
        if not frame.dead and not isinstance(node, cst.Lambda):
            results.append((Const(value=None), ()))
        value = choice(results) if results else Unknown()
        if not isinstance(node, cst.FunctionDef) or not node.decorators:
            return value
        self.frames.append(frame)
        try:
            return self.as_decorated(node, value)
        finally:
            self.frames.pop()

    def close_contexts(self, frame: Frame) -> None:
        """Leaves what decorators have entered; the part of the machine that looks into them does it."""

    def as_decorated(self, node: cst.FunctionDef, value: Value) -> Value:
        """What a function with decorators gives; the part of the machine that looks into them says so."""
        return value

    def guard_decorators(self, node: cst.FunctionDef) -> None:
        """Takes for granted what the decorators of a function let through."""
        for decorator in node.decorators:
            self.guard_decorator(decorator)

    def guard_decorator(self, decorator: cst.Decorator) -> None:
        """Takes for granted what a decorator lets through, by its name."""
        words = table.words(decorator.decorator)
        if any(RANK_ZERO.search(word) for word in words) and not words & {"property", "contextmanager"}:
            key = ("rank", "world", 0)
            self.assume((Literal(key, True, "rank", depth=len(self.stack)),))

    def bind(self, frame: Frame, params: cst.Parameters, call: Call, self_value: Value | None) -> None:
        """Gives the parameters of a function their values."""
        positional = [*params.posonly_params, *params.params]
        args = list(call.args)
        if self_value is not None:
            args.insert(0, self_value)
        kwargs = dict(call.kwargs)
        for at, param in enumerate(positional):
            name = param.name.value
            if at < len(args):
                frame.names[name] = args[at]
            else:
                frame.names[name] = self.argument(frame, param, kwargs, call)
        extra = args[len(positional) :]
        star = params.star_arg
        if star.__class__ is cst.Param:
            frame.names[star.name.value] = Sequence(items=[*extra, *call.rest], exact=not call.open)
        for param in params.kwonly_params:
            frame.names[param.name.value] = self.argument(frame, param, kwargs, call)
        if params.star_kwarg is not None:
            frame.names[params.star_kwarg.name.value] = Mapping(items=kwargs, rest=list(call.rest), open=call.open)
        for name, value in frame.names.items():
            if value is not self_value and name != "cls":
                for one in (value, *(option for option, _ in value.options)) if isinstance(value, Choice) else (value,):
                    one.name = one.name or name

    def passed(self, value: Value, test: Callable[[Value], bool]) -> Site | None:
        """The outermost call around that got `value`, or what it was made from, as an argument that passes the test."""
        found, made_from = None, origins(value)
        for frame in reversed(self.frames):
            if frame.call is None or not any(one.number in made_from and test(one) for one in frame.call.values()):
                break
            found = frame.call.site
        return found

    def argument(self, frame: Frame, param: cst.Param, kwargs: dict[str, Value], call: Call) -> Value:
        """The value of one parameter: what was passed, its default, or something unknown."""
        name = param.name.value
        if name in kwargs:
            return kwargs.pop(name)
        if call.open:
            return Unknown(name=name, inputs=tuple(call.rest))
        if param.default is not None:
            outer = frame.scope or self.file_frame(frame.path)
            if outer is not None:
                self.frames.append(outer)
                try:
                    return self.evaluate(param.default)
                finally:
                    self.frames.pop()
        return Unknown(name=name)

    def construct(self, cls: Class, call: Call) -> Value:
        """An object of a project class, its `__init__` run."""
        if self.is_module_class(cls):
            module = self.new(Module(cls=cls, args=tuple(call.args), kwargs=dict(call.kwargs), built=True))
            if not any(isinstance(frame.self_value, Module) for frame in self.frames):
                self.note_built(module)
            made: Value = module
            if self.construct_container(module, cls, call):
                return made
        else:
            made = self.new(Instance(cls=cls, args=tuple(call.values())))
        found = self.class_attribute(cls, "__init__")
        if found is not None and isinstance(found[1], Function):
            self.enter(found[1], call, made)
            return made
        self._fill_fields(cls, made, call)
        after = self.class_attribute(cls, "__post_init__")
        if after is not None and isinstance(after[1], Function):
            self.enter(after[1], Call(site=call.site), made)
        if isinstance(made, Instance):
            self.note_settings(made, call)
        return made

    def construct_container(self, made: Module, cls: Class, call: Call) -> bool:
        """Marks an object of a class that is a container of modules, and fills it where the class has no `__init__`."""
        container = self.container_base(cls)
        if container in ("ModuleList", "ModuleDict"):
            made.library = f"torch.nn.{container}"
            made.forward = self.class_attribute(cls, "forward") is not None
        if not container or self.class_attribute(cls, "__init__") is not None:
            return False
        self.fill_container(made, container, call)
        return True

    def fill_container(self, made: Module, container: str, call: Call) -> None:
        """A container gets what its `__init__` is given; the expression part of the machine does it."""
        raise NotImplementedError

    def note_built(self, made: Module) -> None:
        """A model that is no part of another is made; the expression part of the machine gives it."""
        raise NotImplementedError

    def note_settings(self, made: Instance, call: Call) -> None:
        """An object of a dataclass is made, which may hold settings; the expression part of the machine gives it."""
        raise NotImplementedError

    def defaults(self, cls: Class) -> dict[str, Value]:
        """The fields of a dataclass where nothing else is said; none where a function of its own may set others."""
        makers = [self.class_attribute(cls, name) for name in ("__init__", "__post_init__")]
        if any(one is not None and isinstance(one[1], Function) for one in makers):
            return {}
        return {
            name: self._default(owner, default)
            for owner, node in reversed(self.class_nodes(cls))
            for name, default in _fields(node)
            if default is not None
        }

    def _fill_fields(self, cls: Class, made: Value, call: Call) -> None:
        args = list(call.args)
        kwargs = dict(call.kwargs)
        for owner, node in reversed(self.class_nodes(cls)):
            for name, default in _fields(node):
                if name in kwargs:
                    value = kwargs[name]
                elif args:
                    value = args.pop(0)
                elif call.open:
                    value = self.child(made, name)
                elif default is not None:
                    value = self._default(owner, default)
                else:
                    value = self.child(made, name)
                self.store(made, name, value)

    def field_names(self, cls: Class) -> list[str]:
        """The annotated names of a class and of its bases, in order."""
        return list(dict.fromkeys(name for _, node in reversed(self.class_nodes(cls)) for name, _ in _fields(node)))

    def _default(self, owner: Class, node: cst.BaseExpression) -> Value:
        frame = owner.scope or self.file_frame(owner.path)
        if frame is None:
            return Unknown()
        self.frames.append(frame)
        try:
            if isinstance(node, cst.Call) and table.words(node.func) & {"field", "Field"}:
                for arg in node.args:
                    keyword = arg.keyword.value if arg.keyword else ""
                    if keyword == "default":
                        return self.evaluate(arg.value)
                    if keyword == "default_factory":
                        return self.invoke_plain(self.evaluate(arg.value), Site(frame.source, node))
                return Unknown()
            return self.evaluate(node)
        finally:
            self.frames.pop()

    def invoke_plain(self, function: Value, site: Site) -> Value:
        """Calls a value without arguments; the expression part of the machine gives it."""
        raise NotImplementedError

    last_frame: Frame | None = None


def _keeps_results(node: cst.FunctionDef) -> bool:
    """True for a function that gives the same thing each time: functools.cache and lru_cache."""
    return any(table.words(each.decorator) & {"cache", "lru_cache"} for each in node.decorators)


def _plain_call(function: Function, call: Call) -> tuple[object, ...] | None:
    """What tells a call from others when all its arguments are literals; None when they are not."""
    if function.scope is not None or function.cls is not None or call.open or isinstance(function.node, cst.Lambda):
        return None
    if not all(isinstance(value, Const) for value in call.values()):
        return None
    args = tuple(repr(value.value) for value in call.args if isinstance(value, Const))
    kwargs = tuple((name, repr(v.value)) for name, v in sorted(call.kwargs.items()) if isinstance(v, Const))
    return ("plain call", function.path, function.qualname, args, kwargs)


def _assignments(body: cst.Module | cst.BaseSuite, name: str) -> list[cst.BaseExpression]:
    """The expressions that a block assigns to a name, through if and try."""
    found: list[cst.BaseExpression] = []
    for statement in body.body:
        if isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                if isinstance(small, cst.Assign):
                    if any(isinstance(t.target, cst.Name) and t.target.value == name for t in small.targets):
                        found.append(small.value)
                elif isinstance(small, cst.AnnAssign) and small.value is not None:
                    if isinstance(small.target, cst.Name) and small.target.value == name:
                        found.append(small.value)
        elif isinstance(statement, cst.If | cst.Try):
            found.extend(_nested_assignments(statement, name))
    return found


@functools.lru_cache(maxsize=4096)
def counted(node: cst.ClassDef) -> frozenset[str]:
    """The attributes of `self` that the methods of a class count up or down."""
    steps = (each.target for each in program_below(node) if isinstance(each, cst.AugAssign))
    return frozenset(
        target.attr.value
        for target in steps
        if isinstance(target, cst.Attribute) and isinstance(target.value, cst.Name) and target.value.value == "self"
    )


def _sets(node: cst.CSTNode, name: str) -> bool:
    """True where something inside assigns to `self.name`."""
    if isinstance(node, cst.AssignTarget | cst.AnnAssign):
        match node.target:
            case cst.Attribute(value=cst.Name(value="self"), attr=cst.Name(value=found)):
                return found == name
    return any(_sets(child, name) for child in inner(node))


def _nested_assignments(node: cst.CSTNode, name: str) -> list[cst.BaseExpression]:
    found: list[cst.BaseExpression] = []
    for child in inner(node):
        if isinstance(child, cst.IndentedBlock):
            found.extend(_assignments(child, name))
        elif isinstance(child, cst.If | cst.Else | cst.ExceptHandler):
            found.extend(_nested_assignments(child, name))
    return found


def _fields(node: cst.ClassDef) -> list[tuple[str, cst.BaseExpression | None]]:
    found: list[tuple[str, cst.BaseExpression | None]] = []
    for statement in node.body.body:
        if isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                    found.append((small.target.value, small.value))
    return found
