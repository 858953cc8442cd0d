"""FSDP by settings: transformers' and TRL's arguments, accelerate's plugin, Lightning's strategy, and what a Trainer
does with them."""

from __future__ import annotations

from fsdp_lint.trace.events import ConfigureFSDP, SetStateType, TrainerSaves
from fsdp_lint.trace.models.api import Call, Machine, constant_name
from fsdp_lint.trace.models.words import ARGUMENTS
from fsdp_lint.trace.values import Bound, Const, Mapping, Module, Object, Unknown, Value

PLUGIN = "FullyShardedDataParallelPlugin"
STRATEGY = "FSDPStrategy"
LIBRARIES = ("transformers", "trl", "accelerate")
LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric")


def configure(run: Machine, dotted: str, call: Call, made: Value) -> None:
    """`TrainingArguments(fsdp=..., fsdp_config=...)`, `FullyShardedDataParallelPlugin(...)`: the event."""
    library, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
    if library in LIGHTNING:
        _lightning(run, last, call, made)
    if library not in LIBRARIES:
        return
    if last == PLUGIN:
        run.emit(ConfigureFSDP, call.site, by="plugin", options=dict(call.kwargs), arguments={}, made=made)
    elif last in ARGUMENTS and _is_on(call.kwargs.get("fsdp")):
        options = _options(call.kwargs.get("fsdp_config"))
        if options is not None:
            run.emit(ConfigureFSDP, call.site, by="arguments", options=options, arguments=dict(call.kwargs), made=made)


def _lightning(run: Machine, last: str, call: Call, made: Value) -> None:
    """`FSDPStrategy(...)`."""
    if last == STRATEGY:
        arguments: dict[str, Value] = {} if not call.open else {"**": Unknown()}
        run.emit(ConfigureFSDP, call.site, by="strategy", options=dict(call.kwargs), arguments=arguments, made=made)


def _fit(run: Machine, trainer: Object, call: Call) -> None:
    """`trainer.fit(model)` of Lightning with FSDPStrategy, where the model leaves clipping to the Trainer."""
    strategy, model = trainer.kwargs.get("strategy"), call.get(0, "model")
    if not isinstance(strategy, Object) or strategy.cls.rpartition(".")[2] != STRATEGY:
        return
    if isinstance(model, Module) and model.cls is not None:
        if not isinstance(run.attribute(model, "configure_gradient_clipping"), Bound):
            run.emit(ConfigureFSDP, call.site, by="trainer", options={}, arguments=dict(trainer.kwargs), made=trainer)


def _is_on(fsdp: Value | None) -> bool:
    return fsdp is not None and not (isinstance(fsdp, Const) and not fsdp.value)


def _options(config: Value | None) -> dict[str, Value] | None:
    """The settings in a literal `fsdp_config`; the prefix `fsdp_` may stand before each (transformers drops it)."""
    if config is None or (isinstance(config, Const) and config.value is None):
        return {}
    if not isinstance(config, Mapping):
        return None
    return {str(key).removeprefix("fsdp_"): value for key, value in config.items.items()}


def setting(value: Value | None) -> bool | str | None:
    """A literal setting: True or False also where it is written as text; None where it is left out or not known."""
    if not isinstance(value, Const):
        return None
    if isinstance(value.value, bool):
        return value.value
    if isinstance(value.value, str):
        return {"true": True, "false": False}.get(value.value.lower(), value.value)
    return str(value.value) if isinstance(value.value, int) else None


def trainer_call(run: Machine, function: Value, call: Call) -> None:
    """`trainer.save_model()`, `trainer.fit()` and `...fsdp_plugin.set_state_dict_type(...)`: the events."""
    method = call.name.rpartition(".")[2]
    if method == "set_state_dict_type":
        run.emit(SetStateType, call.site, to=constant_name(call.get(0, "state_dict_type")))
        return
    owner = function.owner
    if not isinstance(owner, Object) or not owner.cls.rpartition(".")[2].endswith("Trainer"):
        return
    if method == "save_model":
        args = owner.kwargs.get("args") or (owner.args[1] if len(owner.args) > 1 else Unknown())
        run.emit(TrainerSaves, call.site, trainer=owner, args=args)
    elif method == "fit" and owner.cls.partition(".")[0] in LIGHTNING:
        _fit(run, owner, call)
