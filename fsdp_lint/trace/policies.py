"""What the settings of a framework that shards for the user come to: which wrap policy, and which units."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from fsdp_lint.trace.events import ConfigureFSDP, Handed, Shard, ShardBySettings, ShardEach
from fsdp_lint.trace.granularity import asked_to_shard, handed_to_shard
from fsdp_lint.trace.models.configs import LIBRARIES, POLICY, setting
from fsdp_lint.trace.models.lightning import LIBRARIES as LIGHTNING
from fsdp_lint.trace.trace import Trace, touches
from fsdp_lint.trace.values import MISSING, Choice, Const, External, Guards, Sequence, Value, exclusive

# The strategies with which parameters are freed after the forward pass, under all names.
FREES = frozenset({"full_shard", "1", "true"})


def ways(config: ConfigureFSDP) -> Iterator[ConfigureFSDP]:
    """The settings as they are in any case, and as they are where a branch of the program has filled one of them; what
    is not known then stays one of several."""
    yield _where(config, config.guards)
    for value in (*config.options.values(), *config.arguments.values()):
        for option, guards in value.options if isinstance(value, Choice) else ():
            assumed = (*config.guards, *guards)
            if guards and not _is_missing(option) and not exclusive(assumed, assumed):
                yield _where(config, assumed)


def _where(config: ConfigureFSDP, assumed: Guards) -> ConfigureFSDP:
    options, arguments = (
        {name: known for name, value in given.items() if not _is_missing(known := _settled(value, assumed))}
        for given in (config.options, config.arguments)
    )
    return dataclasses.replace(config, options=options, arguments=arguments)


def _settled(value: Value, assumed: Guards) -> Value:
    """The one of several values that a setting has where `assumed` holds; all of them where that is not known."""
    for option, guards in value.options if isinstance(value, Choice) else ():
        if all(literal in assumed for literal in guards):
            return option
        if not exclusive(guards, assumed):
            break
    return value


def _is_missing(value: Value) -> bool:
    return isinstance(value, External) and value.dotted == MISSING


def says_none(options: Mapping[str, Value], least: str, left_out: bool = True) -> str:
    """How settings come to no policy; empty where they name one, or may.

    `least` is the setting without which a policy by size is none; where it is not `left_out`, the launcher fills it.
    """
    policy = options.get(POLICY)
    if policy is None or (isinstance(policy, Const) and policy.value is None):
        return "is left out"
    kind = str(setting(policy)).upper() if isinstance(policy, Const) else ""
    if kind == "NO_WRAP":
        return f"is `{setting(policy)}`"
    size = options.get(least)
    nothing = left_out if size is None else isinstance(size, Const) and size.value in (0, "0", None)
    return f"by size has no `{least}`, so that it is none" if kind == "SIZE_BASED_WRAP" and least and nothing else ""


def frees(
    options: Mapping[str, Value], names: tuple[str, ...] = ("sharding_strategy", "reshard_after_forward")
) -> bool:
    """True where parameters are freed after the forward pass: with others they are whole at once in any case."""
    given = [options[name] for name in names if name in options]
    return all(_name(value) in FREES for value in given if not (isinstance(value, Const) and value.value is None))


def _name(value: Value) -> str:
    return value.dotted.rpartition(".")[2].lower() if isinstance(value, External) else str(setting(value)).lower()


def words_of(fsdp: Value | None) -> set[str]:
    """What `fsdp=` asks for, in small letters; nothing where it is not known."""
    values = fsdp.items if isinstance(fsdp, Sequence) else [fsdp] if fsdp is not None else []
    if not all(isinstance(value, Const | External) for value in values):
        return set()
    return {word for value in values for word in _name(value).split()}


def uses_peft(trace: Trace) -> bool:
    """True where something of PEFT is used: the Trainer gives its models a policy of their own."""
    return any("peft" in event.to for event in trace.every(Handed))


def may_have_units(trace: Trace, event: ShardBySettings) -> bool:
    """True where somebody may have sharded parts of the model before."""
    if any(True for kind in (Shard, ShardEach) for _ in trace.every(kind)):
        return True
    if any(touches(asked.of, event.model) for asked in asked_to_shard(trace)):
        return True
    return any(
        handed.to.partition(".")[0] not in LIBRARIES + LIGHTNING
        for handed in handed_to_shard(trace, event.model, event)
    )
