"""FSDP by settings: transformers' and TRL's arguments, accelerate's plugin, Lightning's strategy, and what a Trainer
does with them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from fsdp_lint.trace.events import (
    Collective,
    ConfigureFSDP,
    ReadCheckpoint,
    SetStateType,
    SetWrapPolicy,
    ShardBySettings,
    SwitchOnFSDP,
    TrainerSaves,
)
from fsdp_lint.trace.models import callbacks, lightning
from fsdp_lint.trace.models.api import Call, Handler, Machine, constant_name
from fsdp_lint.trace.models.words import ARGUMENTS
from fsdp_lint.trace.values import (
    Bound,
    Class,
    Const,
    External,
    Instance,
    Mapping,
    Module,
    Object,
    Optimizer,
    Sequence,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from fsdp_lint.source.document import Document
    from fsdp_lint.source.file import Site

PLUGIN = "FullyShardedDataParallelPlugin"
TRAINERS = ("transformers", "trl")
LIBRARIES = (*TRAINERS, "accelerate")
# The variable by which accelerate's launcher asks for FSDP, and its option.
VARIABLE = "USE_FSDP"
LAUNCHED = (VARIABLE, "use_fsdp")
# The wrap policy: the attribute of accelerate's plugin, and what its variable and its launcher's option have in common.
POLICY = "auto_wrap_policy"
# The type of state dicts: the attribute of the plugin, and what its variable ends with.
STATES = "state_dict_type"
# From this release on the Trainer makes a unit of each block if nothing else is said, and does not have these arguments
# (training_args.py of 4.57.3, 5.0.0, 5.9.0, 5.10.1 and 5.24.0; `evaluation_strategy` until 4.45).
UNITS_SINCE = (5, 10)
GONE = frozenset(
    {
        "adafactor",
        "evaluation_strategy",
        "fp16_backend",
        "fp16_opt_level",
        "fsdp_min_num_params",
        "fsdp_transformer_layer_cls_to_wrap",
        "group_by_length",
        "half_precision_backend",
        "jit_mode_eval",
        "no_cuda",
        "overwrite_output_dir",
        "per_gpu_eval_batch_size",
        "per_gpu_train_batch_size",
        "push_to_hub_model_id",
        "push_to_hub_organization",
        "push_to_hub_token",
        "ray_scope",
        "save_safetensors",
        "torchdynamo",
        "tpu_num_cores",
        "use_mps_device",
    }
)
# What makes such settings of dataclasses (transformers/hf_argparser.py, trl/scripts/utils.py).
PARSERS = ("HfArgumentParser", "TrlParser")
PARSES = ("parse_args_into_dataclasses", "parse_args_and_config", "parse_dict")
# Methods of accelerate's object by which all processes give each other tensors (accelerate/accelerator.py).
MEETINGS = frozenset({"gather", "gather_for_metrics", "reduce", "pad_across_processes"})
# Methods of the Trainer that run the model on all processes, and gather what each has found (transformers/trainer.py).
LOOPS = frozenset({"evaluate", "predict"})
# Methods of these libraries' objects that have a name of a module's or a tensor's.
FRAMEWORK_METHODS = frozenset({"backward", "train"})


def is_framework(value: Value) -> bool:
    """True for what runs a training: an Accelerator, a Fabric, a Trainer."""
    if not isinstance(value, Object) or value.cls.partition(".")[0] not in LIBRARIES + lightning.LIBRARIES:
        return False
    return value.cls.rpartition(".")[2].endswith(("Accelerator", "Fabric", "Trainer"))


def configure(run: Machine, dotted: str, call: Call, made: Value) -> None:
    """`TrainingArguments(fsdp=..., fsdp_config=...)`, `FullyShardedDataParallelPlugin(...)`: the event."""
    library, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
    if library in lightning.LIBRARIES:
        _lightning(run, last, call, made)
    if library not in LIBRARIES:
        return
    if last.endswith("Trainer") and _is_given(call.kwargs.get("optimizers")):
        _with_optimizers(run, call, made)
    if last == PLUGIN:
        more = _more(call)
        # What the file says of the launcher's option, in a row of text for people or for a shell, is how it is started.
        if f"fsdp_{POLICY}" in call.site.source.text.lower():
            run.emit(SetWrapPolicy, call.site)
        run.emit(ConfigureFSDP, call.site, by="plugin", options=dict(call.kwargs), arguments=more, made=made)
    elif last in ARGUMENTS and _is_on(call.kwargs.get("fsdp")):
        options = _options(run, call)
        if options is not None:
            given = {**call.kwargs, **_more(call)}
            run.emit(ConfigureFSDP, call.site, by="arguments", options=options, arguments=given, made=made)
    elif last in ARGUMENTS and _is_forgotten(call):
        options = _options(run, call) or {}
        run.emit(ConfigureFSDP, call.site, by="off", options=options, arguments=dict(call.kwargs), made=made)


def configure_derived(run: Machine, made: Instance, call: Call) -> None:
    """A dataclass of the project's own that is built on TrainingArguments is made: the event."""
    if _is_derived(run, made.cls):
        fields = {name: run.attribute(made, name) for name in run.field_names(made.cls)}
        _ask(run, {**call.kwargs, **fields}, made, call)


def _ask(run: Machine, given: dict[str, Value], made: Value, call: Call) -> None:
    options = _options(run, Call(site=call.site, kwargs=given)) if _is_on(given.get("fsdp")) else None
    if options is not None:
        more = {**given, **_more(call)}
        run.emit(ConfigureFSDP, call.site, by="arguments", options=options, arguments=more, made=made)


def _parse(run: Machine, parser: Object, method: str, call: Call) -> Value | None:
    """`HfArgumentParser(classes).parse_dict(...)` makes the settings; `.parse_args_into_dataclasses()` asks for what
    the fields of the project's own say, where the command line says nothing else, and gives what is not known."""
    first = parser.get(0, "dataclass_types")
    classes = first.items if isinstance(first, Sequence) and first.exact else [first] if first is not None else []
    if method != "parse_dict":
        for cls in classes:
            if isinstance(cls, Class) and _is_derived(run, cls):
                _ask(run, run.defaults(cls), Unknown(), call)
        return None
    said = call.get(0, "args")
    if not isinstance(said, Mapping) or said.open or said.rest or not classes:
        return None
    if not all(isinstance(cls, Class | External) for cls in classes):
        return None
    made = [run.invoke(cls, Call(site=call.site, kwargs=_for(run, cls, said), name=call.name)) for cls in classes]
    return Sequence(items=made)


def _for(run: Machine, cls: Value, said: Mapping) -> dict[str, Value]:
    """What is said of the fields of one class."""
    items = {str(name): value for name, value in said.items.items()}
    if not isinstance(cls, Class) or _is_derived(run, cls):
        return items
    return {name: items[name] for name in run.field_names(cls) if name in items}


def _is_derived(run: Machine, cls: Class) -> bool:
    return any(base.rpartition(".")[2] in ARGUMENTS for base in run.library_bases(cls))


def _more(call: Call) -> dict[str, Value]:
    """What stands for arguments that are not known."""
    return {"**": Unknown()} if call.open else {}


def runs_before_units(arguments: Iterable[str]) -> bool:
    """True for arguments that only those releases of transformers have in which `fsdp` alone makes no units."""
    return not GONE.isdisjoint(arguments)


def switch_on(run: Machine, settings: Value, name: str, to: Value, site: Site) -> None:
    """`args.fsdp = ...`, `plugin.auto_wrap_policy = ...`, `plugin.state_dict_type = ...`: the event."""
    made = isinstance(settings, Object) and settings.cls.rpartition(".")[2] in ARGUMENTS
    if (name == POLICY and isinstance(settings, Object | Unknown)) or (name == "fsdp_config" and made):
        run.emit(SetWrapPolicy, site)
    if name == STATES and isinstance(settings, Object | Unknown):
        kind = to.dotted.rpartition(".")[2] if isinstance(to, External) else constant_name(to)
        run.emit(SetStateType, site, to=kind)
    if name == "fsdp" and (made or isinstance(settings, Unknown)) and _is_on(to):
        run.emit(SwitchOnFSDP, site, of=settings)


def replaced(run: Machine, call: Call) -> Value:
    """`dataclasses.replace(settings, name=value)`: others, with the rest of these."""
    settings = call.first()
    if not isinstance(settings, Object):
        return Unknown(name=call.name and f"{call.name}(...)", inputs=tuple(call.values()))
    if call.open or "fsdp" in call.kwargs:
        switch_on(run, settings, "fsdp", call.kwargs.get("fsdp", Unknown()), call.site)
    return Object(cls=settings.cls, args=settings.args, kwargs={**settings.kwargs, **call.kwargs}, site=call.site)


def note_setup(run: Machine, dotted: str, call: Call) -> None:
    """A function of a library that is not known may set accelerate's variables: by its name it is about FSDP."""
    library, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
    if "fsdp" in last and library not in ("torch", *LIBRARIES, *lightning.LIBRARIES):
        run.emit(SetWrapPolicy, call.site)


def set_variable(run: Machine, name: str, site: Site) -> None:
    """A variable of the environment is set: the event."""
    if VARIABLE in name:
        run.emit(SwitchOnFSDP, site, of=None)
    if POLICY in name.lower():
        run.emit(SetWrapPolicy, site)
    if STATES in name.lower():
        run.emit(SetStateType, site, to="")


def _is_given(optimizers: Value | None) -> bool:
    """True for `(optimizer, scheduler)` with one that is made here, of whatever parameters."""
    items = optimizers.items if isinstance(optimizers, Sequence) else ()
    return any(isinstance(item, Optimizer | Object | Instance) for item in items)


def _with_optimizers(run: Machine, call: Call, made: Value) -> None:
    """`Trainer(args=TrainingArguments(fsdp=...), optimizers=(optimizer, None))`: the event."""
    args = call.get(1, "args")
    fsdp = args.kwargs.get("fsdp") if isinstance(args, Object) and args.cls.rpartition(".")[2] in ARGUMENTS else None
    if isinstance(fsdp, Const) and fsdp.value:
        run.emit(ConfigureFSDP, call.site, by="optimizers", options={}, arguments=dict(call.kwargs), made=made)


def launch(document: Document) -> ConfigureFSDP | None:
    """What a file for `accelerate launch` asks for; None where it is none, or is not for this machine."""
    said = document.value
    block = said.get("fsdp_config") if isinstance(said, dict) else None
    if not isinstance(block, dict) or not block or not isinstance(said.get("distributed_type"), str):
        return None
    if said.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return None
    places = {short: document.site(*keys) for short, keys in _places(said, block)}
    # As the launcher does: what stands in another block goes by its own name.
    others = [content for name, content in said.items() if isinstance(content, dict) and name != "fsdp_config"]
    arguments: dict[str, Value] = {
        str(name): Const(value=value) for each in (*others, said) for name, value in each.items()
    }
    at = places["distributed_type"]
    if at is None:
        return None
    return ConfigureFSDP(
        site=at,
        by="launch",
        options={str(name).removeprefix("fsdp_"): Const(value=value) for name, value in block.items()},
        arguments=arguments,
        made=Object(cls="accelerate.launch"),
        places={name: site for name, site in places.items() if site is not None},
    )


def _places(said: dict[object, object], block: dict[object, object]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The names of all settings, each with the keys that lead to it."""
    yield from ((str(name), (str(name),)) for name in said)
    yield from ((str(name).removeprefix("fsdp_"), ("fsdp_config", str(name))) for name in block)


def _lightning(run: Machine, last: str, call: Call, made: Value) -> None:
    """`FSDPStrategy(...)`."""
    if last == lightning.STRATEGY:
        more = _more(call)
        run.emit(ConfigureFSDP, call.site, by="strategy", options=dict(call.kwargs), arguments=more, made=made)


def _fit(run: Machine, trainer: Object, call: Call) -> None:
    """`trainer.fit(model)` with FSDPStrategy or its name, where the model leaves clipping to the Trainer."""
    model = call.get(0, "model")
    for told in lightning.each_way(run, trainer):
        lightning.fit(run, told, model, call)
        if isinstance(model, Module) and model.cls is not None:
            run.emit(ShardBySettings, call.site, model=model, by=told)
            if not isinstance(run.attribute(model, "configure_gradient_clipping"), Bound):
                run.emit(ConfigureFSDP, call.site, by="trainer", options={}, arguments=dict(told.kwargs), made=told)


def _is_on(fsdp: Value | None) -> bool:
    return fsdp is not None and not (isinstance(fsdp, Const) and not fsdp.value)


def _is_forgotten(call: Call) -> bool:
    """True for arguments with a filled `fsdp_config` that neither switch FSDP on nor say that it is off."""
    config = call.kwargs.get("fsdp_config")
    filled = bool(config.items) if isinstance(config, Mapping) else constant_name(config).endswith(".json")
    # What the file says of the launcher's option, in a row of text for people or for a shell, is how it is started.
    launched = any(word in call.site.source.text for word in LAUNCHED)
    return filled and not launched and not call.open and not {"fsdp", "deepspeed"} & set(call.kwargs)


def _options(run: Machine, call: Call) -> dict[str, Value] | None:
    """The settings in a literal `fsdp_config`, or in the JSON file that it names; None where they are not known. The
    prefix `fsdp_` may stand before each (transformers drops it)."""
    config = call.kwargs.get("fsdp_config")
    if config is None or (isinstance(config, Const) and config.value is None):
        return {}
    items: dict[Any, Value] | None = config.items if isinstance(config, Mapping) else None
    if constant_name(config).endswith(".json"):
        said = run.settings(constant_name(config), call.site)
        items = {name: Const(value=value) for name, value in said.items()} if isinstance(said, dict) else None
    return {str(name).removeprefix("fsdp_"): value for name, value in items.items()} if items is not None else None


def setting(value: Value | None) -> bool | str | None:
    """A literal setting: True or False also where it is written as text; None where it is left out or not known."""
    if not isinstance(value, Const):
        return None
    if isinstance(value.value, bool):
        return value.value
    if isinstance(value.value, str):
        return {"true": True, "false": False}.get(value.value.lower(), value.value)
    return str(value.value) if isinstance(value.value, int) else None


def object_call(run: Machine, function: Value, call: Call) -> Value | None:
    """A method of what a framework gave: the events, and what is known of the result."""
    method, owner = call.name.rpartition(".")[2], function.owner
    if isinstance(owner, Object):
        if owner.cls.rpartition(".")[2] == "Accelerator" and owner.cls.startswith("accelerate."):
            if method == "prepare":
                replaces = _replaces_parameters(owner, call)
                for model in [value for value in call.args if isinstance(value, Module)]:
                    run.emit(ShardBySettings, call.site, model=model, by=owner, replaces=replaces)
                _prepare(run, owner, call)
                return lightning.prepared(run, call)
            if method in ("backward", "save_model"):
                run.emit(Collective, call.site, op=method, on=tuple(call.values()), by=owner)
            elif method in MEETINGS:
                run.emit(Collective, call.site, op=method, by=owner)
        if _last(owner) in PARSERS and method in PARSES:
            return _parse(run, owner, method, call)
        found = lightning.fabric_call(run, owner, method, call)
        if found is not None:
            return found
    if method == "save_checkpoint":
        lightning.trainer_saves(run, function, call)
    path = call.get(0, "checkpoint_path")
    if method == "load_from_checkpoint" and isinstance(owner, Class) and path is not None:
        run.emit(ReadCheckpoint, call.site, path=path, how=method)
    _trainer_call(run, function, call)
    return None


def _prepare(run: Machine, accelerator: Object, call: Call) -> None:
    """`accelerator.prepare(...)` with FSDP2, of a model without an optimizer or the other way round, or of several
    models: these are its arguments."""
    plugin = accelerator.kwargs.get("fsdp_plugin")
    if not isinstance(plugin, Object) or setting(plugin.kwargs.get("fsdp_version")) != "2" or call.open:
        return
    models: dict[str, Value] = {str(at): one for at, one in enumerate(call.args) if isinstance(one, Module)}
    if len(models) > 1:
        options = dict(plugin.kwargs)
        run.emit(ConfigureFSDP, call.site, by="prepare", options=options, arguments=models, made=accelerator)
        return
    kinds = [isinstance(value, Module) - isinstance(value, Optimizer) for value in call.args]
    loaders = [isinstance(value, Object) for value in call.args]
    if all(kind or loader for kind, loader in zip(kinds, loaders, strict=True)) and (1 in kinds) != (-1 in kinds):
        run.emit(ConfigureFSDP, call.site, by="prepare", options=dict(plugin.kwargs), arguments={}, made=accelerator)


def _replaces_parameters(accelerator: Object, call: Call) -> bool:
    """True for `accelerator.prepare(model)`, without an optimizer, where FSDP1 does not keep the parameters."""
    plugin = accelerator.kwargs.get("fsdp_plugin")
    options = plugin.kwargs if isinstance(plugin, Object) and plugin.cls.rpartition(".")[2] == PLUGIN else {}
    if setting(options.get("use_orig_params")) is not False or "ignored_modules" in options:
        return False
    first = "fsdp_version" not in options or setting(options["fsdp_version"]) == "1"
    return first and not call.open and all(isinstance(value, Module | Object) for value in call.args)


def _trainer_call(run: Machine, function: Value, call: Call) -> None:
    """`trainer.save_model()`, `trainer.fit()`, `...fsdp_plugin.set_state_dict_type(...)` and the like: the events."""
    method = call.name.rpartition(".")[2]
    if POLICY in method:
        run.emit(SetWrapPolicy, call.site)
        return
    if method == "set_state_dict_type":
        run.emit(SetStateType, call.site, to=constant_name(call.get(0, "state_dict_type")))
        return
    owner = function.owner
    if isinstance(owner, Instance):
        _derived_call(run, owner, method, call)
    if not isinstance(owner, Object) or not owner.cls.rpartition(".")[2].endswith("Trainer"):
        return
    if method == "save_model":
        run.emit(TrainerSaves, call.site, trainer=owner, args=owner.get(1, "args") or Unknown())
        run.emit(Collective, call.site, op=method, by=owner)
    elif method in LOOPS and owner.cls.partition(".")[0] in LIBRARIES:
        run.emit(Collective, call.site, op=method, by=owner)
    elif method == "train" and owner.cls.partition(".")[0] in LIBRARIES:
        callbacks.train(run, owner, call)
        model = owner.get(0, "model")
        if isinstance(model, Module | Const):
            run.emit(ShardBySettings, call.site, model=model, by=owner)
    elif method == "add_callback" and call.args:
        callbacks.add(run, owner, call)
    elif method == "fit" and owner.cls.partition(".")[0] in lightning.LIBRARIES:
        _fit(run, owner, call)


def _derived_call(run: Machine, trainer: Instance, method: str, call: Call) -> None:
    """A method that a Trainer of the project's own has from the library: the events. Its arguments are known by what
    they are."""
    told = _as_library(run, trainer)
    # What such a class does when the library calls it is not run: by these words it changes what it was told.
    changed = any(word in call.site.source.text for word in (POLICY, "set_state_dict_type"))
    if told is None or changed or "args" not in told.kwargs:
        return
    if method == "save_model":
        run.emit(TrainerSaves, call.site, trainer=trainer, args=told.kwargs["args"])
        run.emit(Collective, call.site, op=method, by=told)
    elif method in LOOPS and not isinstance(run.attribute(trainer, "evaluation_loop"), Bound):
        run.emit(Collective, call.site, op=method, by=told)
    elif method == "train" and "model" in told.kwargs:
        run.emit(ShardBySettings, call.site, model=told.kwargs["model"], by=told)


def _as_library(run: Machine, trainer: Instance) -> Object | None:
    """A Trainer of the project's own as the library's with the model and the arguments that it is given; None for what
    is none."""
    base = next((one for one in run.library_bases(trainer.cls) if one.endswith("Trainer")), "")
    if base.partition(".")[0] not in TRAINERS:
        return None
    args = next((one for one in trainer.args if isinstance(one, Object) and _last(one) in ARGUMENTS), None)
    model = next((one for one in trainer.args if isinstance(one, Module)), None)
    known: dict[str, Value] = {name: value for name, value in (("model", model), ("args", args)) if value is not None}
    return Object(name=trainer.name, cls=base, kwargs=known)


def names_backend(args: Value | None) -> bool:
    """True for arguments of a Trainer that say themselves, or may, what shards: the launcher is not asked then."""
    return isinstance(args, Object) and not {"fsdp", "**", "deepspeed"}.isdisjoint(args.kwargs)


def gathers(run: Machine, value: Value) -> Value:
    """What gathers when a method of `value` does: for `trainer.accelerator` what its Trainer is told counts."""
    trainer = value.owner if value.key == "accelerator" else None
    told = _as_library(run, trainer) if isinstance(trainer, Instance) else trainer
    if not isinstance(told, Object) or not _last(told).endswith("Trainer"):
        return value
    return Object(name=value.name, cls=told.cls, args=told.args, kwargs=told.kwargs)


def writes(run: Machine, settings: Value) -> str:
    """The scope of the process for which `args.should_save` of transformers is true; empty for what are not a Trainer's
    arguments (transformers/training_args.py)."""
    if isinstance(settings, Object) and _last(settings) in ARGUMENTS:
        return "local" if "save_on_each_node" in settings.kwargs else "world"
    trainer = settings.owner if settings.key == "args" else None
    told = _as_library(run, trainer) if isinstance(trainer, Instance) else trainer
    return "world" if isinstance(told, Object) and _last(told).endswith("Trainer") else ""


def _last(made: Object) -> str:
    return made.cls.rpartition(".")[2]


FUNCTIONS: dict[str, Handler] = {"dataclasses.replace": replaced}
