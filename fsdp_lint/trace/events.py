"""The events of an abstract run: what happens to values, in FSDP's own words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsdp_lint.trace.values import (
    Guards,
    Mesh,
    Module,
    Object,
    Optimizer,
    Params,
    StateDict,
    Tensor,
    Value,
)

if TYPE_CHECKING:
    from fsdp_lint.source.file import Site


@dataclass(eq=False, kw_only=True)
class Event:
    """Something that happens at a site.

    `stack` are the calls around it, outermost first; `guards` what the branches around it take for granted; `loops` the
    loops around it; `contexts` the names of the with-blocks around it ("perhaps ..." where it is one of several),
    "assert" in an assertion and "AttributeError" where that is caught; `methods` the values whose own methods are
    being run; `entry` numbers the call from outside (a script has one; the methods of a class that nobody calls have
    one each, and no order among them). `order` counts events.
    """

    site: Site
    stack: tuple[Site, ...] = ()
    guards: Guards = ()
    loops: tuple[int, ...] = ()
    contexts: tuple[str, ...] = ()
    methods: tuple[tuple[int, Value], ...] = ()
    entry: int = 0
    order: int = 0


@dataclass(eq=False, kw_only=True)
class Shard(Event):
    """`fully_shard(module)` (generation 2) or `FullyShardedDataParallel(module)` (generation 1).

    `whole` is the module of which all modules are sharded one by one (`model.apply(fully_shard)`, a loop over
    `modules()`). `policy` is FSDP1's wrap policy. `kwargs_known` is False when `**` of something unknown was passed.
    `declared`: the user says so of a function whose body nobody looks into. `like` is a module of the class that a
    signature around names for `module`, made apart from the run: what it holds, where the run does not know.
    """

    module: Value
    generation: int
    kwargs: dict[str, Value] = field(default_factory=dict)
    kwargs_known: bool = True
    result: Value | None = None
    group: tuple[Value, ...] = ()
    declared: bool = False
    like: Module | None = None


@dataclass(eq=False, kw_only=True)
class CallPolicy(Event):
    """A function that decides which modules FSDP1 wraps is called without the module to decide about."""

    policy: str


@dataclass(eq=False, kw_only=True)
class Swallow(Event):
    """A handler of every exception that goes on: `key` is that of the test which fails inside its `try`.

    So does a with-block of `contextlib.suppress`."""

    key: tuple[object, ...]


@dataclass(eq=False, kw_only=True)
class ShardEach(Event):
    """`model.apply(fully_shard)`: each module of `module` becomes a unit."""

    module: Value


@dataclass(eq=False, kw_only=True)
class Attach(Event):
    """Something new becomes part of `module`: a module or an nn.Parameter under `key`, or, where `content` is None,
    what a library adds to it or replaces in it; `how` names the call then."""

    module: Value
    key: str = ""
    content: Value | None = None
    how: str = ""


@dataclass(eq=False, kw_only=True)
class Tie(Event):
    """The parameter `key` of `module` becomes that of the module `to`, by assignment; None: one of its own."""

    module: Value
    key: str
    to: Value | None


@dataclass(eq=False, kw_only=True)
class Copy(Event):
    """A module is copied with all that it holds, by `how`."""

    module: Value
    how: str


@dataclass(eq=False, kw_only=True)
class Compile(Event):
    """`torch.compile(module)`, which gives a wrapper around the module; not `module.compile()`, which makes none."""

    module: Value


@dataclass(eq=False, kw_only=True)
class Rework(Event):
    """A module is made ready by itself: its activations are to be computed anew, or its weights are split over ranks.

    `how` is the last name of the function that does it.
    """

    module: Value
    how: str


@dataclass(eq=False, kw_only=True)
class Replicate(Event):
    """DDP (`wrapper`) or `replicate()` around a module."""

    module: Value
    wrapper: bool = False


@dataclass(eq=False, kw_only=True)
class TakeParameters(Event):
    """The parameters of a module are walked: what is held from here on are these very objects."""

    params: Params


@dataclass(eq=False, kw_only=True)
class UseParameters(Event):
    """Parameters are read or changed by value: `how` says by what (clip, update, requires_grad, hook ...), `to` is what
    an attribute of them is set to."""

    params: Params
    how: str
    to: Value | None = None


@dataclass(eq=False, kw_only=True)
class BuildOptimizer(Event):
    """An optimizer is constructed."""

    optimizer: Optimizer


@dataclass(eq=False, kw_only=True)
class RepointOptimizer(Event):
    """The parameters in an optimizer's groups are replaced or added to."""

    optimizer: Optimizer


@dataclass(eq=False, kw_only=True)
class Step(Event):
    """`optimizer.step()`."""

    optimizer: Optimizer


@dataclass(eq=False, kw_only=True)
class Forward(Event):
    """A module is called, and gives `result`. `bypass` is the method's name when it was not the module itself that was
    called."""

    module: Value
    bypass: str = ""
    result: Value | None = None


@dataclass(eq=False, kw_only=True)
class Backward(Event):
    """`loss.backward()`."""

    loss: Value


@dataclass(eq=False, kw_only=True)
class SetSync(Event):
    """`module.set_requires_gradient_sync(flag)`; `partly` for `set_requires_all_reduce`, which speaks of replicas."""

    value: Value
    flag: Value | None
    partly: bool = False


@dataclass(eq=False, kw_only=True)
class UseFSDP1(Event):
    """Something that only FSDP1 has is asked of a module: `api` is what the user calls (`no_sync()`,
    `FSDP.summon_full_params` ...)."""

    value: Value
    api: str


@dataclass(eq=False, kw_only=True)
class CheckClass(Event):
    """A module is tested for its class, or for a method that only one class has.

    `by` is isinstance, hasattr or type; `names` are the classes' dotted names, or the method's. `then` are the words of
    what is done where the test is true, `otherwise` says whether something else is done where it is not.
    """

    value: Value
    by: str
    names: tuple[str, ...]
    then: frozenset[str] = frozenset()
    otherwise: bool = False


@dataclass(eq=False, kw_only=True)
class CompareDimensions(Event):
    """The number of dimensions of a tensor is compared with something. Where that filters a list, what is in the list
    has passed `filter`."""

    tensor: Tensor
    filter: Guards = ()


@dataclass(eq=False, kw_only=True)
class ConfigureFSDP(Event):
    """FSDP is asked for by settings. `by`: "arguments" (transformers, TRL; "off" where nothing says `fsdp=`, which
    switches it on), "plugin" (accelerate), "launch" (a file for accelerate's launcher), "strategy" or "trainer"
    (Lightning); "prepare" (accelerate) is a model or an optimizer alone, or the several models that are its arguments,
    "setup" (Fabric) a model and its optimizer in one call, "optimizers" (transformers) a Trainer that is given some.

    `options` are FSDP's own settings without the prefix `fsdp_`, `arguments` those around them, `made` is the object;
    `places` says where a setting stands, by its name in either, where that is known.
    """

    by: str
    options: dict[str, Value]
    arguments: dict[str, Value]
    made: Value
    places: dict[str, Site] = field(default_factory=dict)


@dataclass(eq=False, kw_only=True)
class SwitchOnFSDP(Event):
    """FSDP is asked for outside of the call that makes the settings: their attribute `fsdp` is set, or a variable of
    the environment by which accelerate's launcher asks for it, where `of` is None."""

    of: Value | None


@dataclass(eq=False, kw_only=True)
class ShardBySettings(Event):
    """A framework shards a model as its settings say: `accelerator.prepare(model)`, `fabric.setup(model)`,
    `trainer.fit(model)` (Lightning), `trainer.train()` (transformers). `by` is the object that does. `replaces`: the
    model comes back with other parameters, and no optimizer is told."""

    model: Value
    by: Object
    replaces: bool = False


@dataclass(eq=False, kw_only=True)
class SetWrapPolicy(Event):
    """A wrap policy is named outside of the call that makes the settings, or may be: an attribute `auto_wrap_policy` or
    `fsdp_config` is set, or a variable of the environment from which accelerate takes it; unknown code may do so."""


@dataclass(eq=False, kw_only=True)
class SetStateType(Event):
    """The type of state dicts is changed on accelerate's plugin, or its variable is set; `to` is a literal one."""

    to: str


@dataclass(eq=False, kw_only=True)
class TrainerSaves(Event):
    """`trainer.save_model()` of a transformers Trainer; `args` are its arguments."""

    trainer: Value
    args: Value


@dataclass(eq=False, kw_only=True)
class SetFlag(Event):
    """An attribute is set on a module that only another wrapper reads: DDP's `require_backward_grad_sync`."""

    value: Value
    name: str


@dataclass(eq=False, kw_only=True)
class BuildScaler(Event):
    """A gradient scaler is made; `sharded` is FSDP1's. `enabled` is its argument, None where it is left out."""

    scaler: Value
    sharded: bool
    enabled: Value | None


@dataclass(eq=False, kw_only=True)
class Cast(Event):
    """A module is brought to a type of number, by torch's name (`bfloat16`); `how` is what the user writes."""

    value: Value
    dtype: str
    how: str


@dataclass(eq=False, kw_only=True)
class RegisterForward(Event):
    """`register_fsdp_forward_method(module, name)`."""

    module: Value
    method: str


@dataclass(eq=False, kw_only=True)
class Unshard(Event):
    """`module.unshard()` or summon_full_params."""

    module: Value


@dataclass(eq=False, kw_only=True)
class Reshard(Event):
    """`module.reshard()`: the whole parameters of this unit are given up, its own ones are sharded again."""

    module: Value


@dataclass(eq=False, kw_only=True)
class Freeze(Event):
    """`requires_grad_(False)` on a module or its parameters."""

    module: Value


@dataclass(eq=False, kw_only=True)
class Thaw(Event):
    """`requires_grad_()` on a module, with anything but a literal False."""

    module: Value


@dataclass(eq=False, kw_only=True)
class TakeState(Event):
    """A state dict is taken; `options` are the StateDictOptions, where it has them."""

    state: StateDict
    options: Value | None = None


@dataclass(eq=False, kw_only=True)
class ChooseStateForm(Event):
    """FSDP1 is told what `form` of state dict to give: FULL_STATE_DICT, SHARDED_STATE_DICT, LOCAL_STATE_DICT, or empty
    where that is not known. `scoped` for the length of a with-block."""

    module: Value
    form: str
    config: Value | None
    scoped: bool


@dataclass(eq=False, kw_only=True)
class Save(Event):
    """Something is written to a file by plain serialisation (torch.save, safetensors, pickle)."""

    content: Value
    path: Value
    path_by_rank: bool


@dataclass(eq=False, kw_only=True)
class LoopOverPart(Event):
    """A `for` goes over the part of some data that this rank has picked, which may be longer than another's.

    `number` is the loop's in the events inside; `may_stop` when its body has a `break` or `return`.
    """

    over: Value
    number: int
    may_stop: bool


@dataclass(eq=False, kw_only=True)
class ReadWhole(Event):
    """A whole checkpoint is read into this process's memory: `value` is what the file held, or the model made of it."""

    value: Value


@dataclass(eq=False, kw_only=True)
class ReadCheckpoint(Event):
    """A path is read as one whole model: `how` is the call's dotted name, or its method's."""

    path: Value
    how: str


@dataclass(eq=False, kw_only=True)
class DivideByWorld(Event):
    """`value` is what `of` gives when it is divided by `by`, the number of processes; in place both are one."""

    value: Value
    of: Value
    by: Value


@dataclass(eq=False, kw_only=True)
class ShareOut(Event):
    """A number is divided by that of the processes: `n // world_size`, `n % world_size`; `of` is the number."""

    of: Value


@dataclass(eq=False, kw_only=True)
class SetDivisor(Event):
    """The number by which FSDP divides the gradients of a module is set."""

    module: Value


@dataclass(eq=False, kw_only=True)
class SetEntry(Event):
    """An entry of a state dict or of what a file held is replaced or added, or a tensor becomes an entry of another."""

    container: Value
    content: Value


@dataclass(eq=False, kw_only=True)
class Collective(Event):
    """Something that all ranks must do together. `op` is its name, `on` what it works on, `group` its process group,
    `by` the object of a framework whose method it is."""

    op: str
    on: tuple[Value, ...] = ()
    group: Value | None = None
    plain: bool = False
    by: Value | None = None


@dataclass(eq=False, kw_only=True)
class Receive(Event):
    """What one rank takes from another stands in these values from now on."""

    into: tuple[Value, ...]


@dataclass(eq=False, kw_only=True)
class ReadScalar(Event):
    """A tensor becomes a Python number or truth value: `how` is item, float, int, bool."""

    tensor: Tensor
    how: str


@dataclass(eq=False, kw_only=True)
class ReduceLocal(Event):
    """A reduction, norm or comparison of a local shard; `tensor` is the result."""

    tensor: Tensor
    how: str


@dataclass(eq=False, kw_only=True)
class InitProcessGroup(Event):
    """`init_process_group`."""

    backend: Value | None
    device_id: Value | None
    kwargs_known: bool = True


@dataclass(eq=False, kw_only=True)
class SetDevice(Event):
    """The device of this process is chosen: `set_device`, a mesh, `device_id=`, a framework."""

    how: str


@dataclass(eq=False, kw_only=True)
class UseCuda(Event):
    """Something is moved to, or made on, CUDA without an index: `how` says in the user's words."""

    value: Value
    how: str


@dataclass(eq=False, kw_only=True)
class MakeMesh(Event):
    """`init_device_mesh`."""

    mesh: Mesh


@dataclass(eq=False, kw_only=True)
class Materialise(Event):
    """`module.to_empty(device=)`: real memory with whatever lay there."""

    of: Value
    device: Value | None


@dataclass(eq=False, kw_only=True)
class MoveModule(Event):
    """A module is moved to a device: `.to(device)`, `.cuda()`, `.cpu()`; `how` in the user's words."""

    of: Value
    device: Value
    how: str


@dataclass(eq=False, kw_only=True)
class Initialise(Event):
    """Values are written into parameters or buffers of `of`: nn.init, reset_parameters, an operation in place.

    `tensor` is what was written to, where that is known; `shaped` when the values depend on its shape or on the place
    in it (Xavier, Kaiming, orthogonal, the identity), `random` when they are drawn, `generator` from where.
    """

    of: tuple[Value, ...]
    how: str
    tensor: Value | None = None
    random: bool = False
    shaped: bool = False
    generator: Value | None = None


@dataclass(eq=False, kw_only=True)
class LoadState(Event):
    """A state dict is put into a model or an optimizer: `how` names the call. `broadcast` when rank 0 sends it to the
    others. `form` is the kind of state dict that the call takes: "own" (entries like the model's parameters), "full",
    "filled" (its tensors are filled in place) or "unknown".
    """

    into: tuple[Value, ...]
    state: Value | None
    how: str
    broadcast: bool = False
    form: str = "own"


@dataclass(eq=False, kw_only=True)
class CallMethod(Event):
    """A method of a module that is not known is called, or it is asked for an attribute that tells what it is."""

    of: Value
    method: str


@dataclass(eq=False, kw_only=True)
class RegisterBuffer(Event):
    """`module.register_buffer(name, tensor)`. `writers` are the methods of its class that write it; None: unknown.

    `plain`: it is none, but a tensor that is made on the meta device and kept as an attribute.
    """

    of: Value
    buffer: str
    persistent: bool | None
    writers: frozenset[str] | None = None
    plain: bool = False


@dataclass(eq=False, kw_only=True)
class Seed(Event):
    """The random numbers of torch start anew. `differs` by "rank" or "process", "" when it does not; None: unknown.

    `passed` is the outermost call that already got the number as it differs; None where it is made in the same body.
    """

    differs: str | None
    passed: Site | None = None


@dataclass(eq=False, kw_only=True)
class BuildLoader(Event):
    """A DataLoader is constructed."""

    loader: Value
    dataset: Value
    kwargs: dict[str, Value] = field(default_factory=dict)
    kwargs_known: bool = True


@dataclass(eq=False, kw_only=True)
class OnMeta(Event):
    """A block begins in which parameters get no memory: `with torch.device("meta"):` and its like."""


@dataclass(eq=False, kw_only=True)
class Handed(Event):
    """Values are handed to code that is not known: `to` names it."""

    values: tuple[Value, ...]
    to: str


@dataclass(eq=False, kw_only=True)
class ImportNames(Event):
    """`from module import names`, or `import module` without names.

    `guarded` when a try, a version test or another branch is around it.
    """

    module: str
    names: tuple[str, ...]
    guarded: bool
