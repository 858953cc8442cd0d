"""FSDP by settings: transformers' and TRL's arguments, accelerate's plugin, and what a Trainer does with them."""

from __future__ import annotations

from fsdp_lint.trace.events import ConfigureFSDP, SetStateType, TrainerSaves
from fsdp_lint.trace.models.api import Call, Machine, constant_name
from fsdp_lint.trace.models.words import ARGUMENTS
from fsdp_lint.trace.values import Const, Mapping, Object, Unknown, Value

PLUGIN = "FullyShardedDataParallelPlugin"
LIBRARIES = ("transformers", "trl", "accelerate")


def configure(run: Machine, dotted: str, call: Call, made: Value) -> None:
    """`TrainingArguments(fsdp=..., fsdp_config=...)`, `FullyShardedDataParallelPlugin(...)`: the event."""
    library, last = dotted.partition(".")[0], dotted.rpartition(".")[2]
    if library not in LIBRARIES:
        return
    if last == PLUGIN:
        run.emit(ConfigureFSDP, call.site, by="plugin", options=dict(call.kwargs), arguments={}, made=made)
    elif last in ARGUMENTS and _is_on(call.kwargs.get("fsdp")):
        options = _options(call.kwargs.get("fsdp_config"))
        if options is not None:
            run.emit(ConfigureFSDP, call.site, by="arguments", options=options, arguments=dict(call.kwargs), made=made)


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
    """`trainer.save_model()` and `...fsdp_plugin.set_state_dict_type(...)`: the events."""
    method = call.name.rpartition(".")[2]
    if method == "set_state_dict_type":
        run.emit(SetStateType, call.site, to=constant_name(call.get(0, "state_dict_type")))
    elif method == "save_model":
        owner = function.owner
        if isinstance(owner, Object) and owner.cls.rpartition(".")[2].endswith("Trainer"):
            args = owner.kwargs.get("args") or (owner.args[1] if len(owner.args) > 1 else Unknown())
            run.emit(TrainerSaves, call.site, trainer=owner, args=args)
