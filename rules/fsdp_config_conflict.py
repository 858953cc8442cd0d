"""FSDP settings of transformers, accelerate or Lightning contradict each other.

## What it finds

In `TrainingArguments(fsdp=..., fsdp_config={...})`, TRL's configs, `FullyShardedDataParallelPlugin(...)` and
`FSDPStrategy(...)`, literal settings that cannot be had together:

- `gradient_checkpointing=True` and `activation_checkpointing` in `fsdp_config`;
- `save_only_model=True` with `SHARDED_STATE_DICT`, or with `load_best_model_at_end=True`;
- `cpu_ram_efficient_loading` without `sync_module_states`, with FSDP1;
- in the plugin: `forward_prefetch` or a `reshard_after_forward` that is no bool with `fsdp_version=2`, a bool
  `reshard_after_forward` with `fsdp_version=1`, `activation_checkpointing_offload` without `activation_checkpointing`
  or with `fsdp_version=1`;
- in Lightning's strategy: `activation_checkpointing` and `activation_checkpointing_policy`, `process_group` and
  `device_mesh`, `HYBRID_SHARD` with neither of these nor a wrap policy; and `gradient_clip_val` in the Trainer that
  gets the strategy, with clipping by norm.

## Why it is wrong

Each but the third raises when the Trainer, the plugin or the strategy is made, clipping by norm at the first step, on
all ranks, after the job has waited for its GPUs (read in transformers 5, accelerate 1 and lightning 2; links below).
The third raised in transformers 4 from 4.40 on; without `sync_module_states` the other ranks keep "random weights",
as the error said. Newer accelerate warns and switches it on.

## How to mend it

Keep one of the two: FSDP's own activation checkpointing rather than `gradient_checkpointing`, `FULL_STATE_DICT` where
only the model is saved, `sync_module_states` with `cpu_ram_efficient_loading`. In Lightning clip by value, or call
`clip_grad_norm_` of the wrapped model in `configure_gradient_clipping`.

## When to leave it

Never for those that raise. Clipping is reported at `trainer.fit(model)`, where the model does not define
`configure_gradient_clipping`. The rule reads literals in Python; settings in YAML or JSON files, on the command line
and in environment variables are not seen, nor are dicts that are built elsewhere.

## References

- https://github.com/huggingface/transformers/issues/30404 (checkpointing set twice)
- https://github.com/huggingface/transformers/pull/36627 (`save_only_model` and `SHARDED_STATE_DICT`)
- https://github.com/huggingface/transformers/issues/25100 (`sync_module_states` must be True)
- https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/dataclasses.py
- https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/fabric/strategies/fsdp.py
- https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/plugins/precision/fsdp.py
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import ConfigureFSDP
from fsdp_lint.trace.models.configs import setting
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import Const, External

SHARDED = "SHARDED_STATE_DICT"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each object with settings that exclude each other; it names the first pair."""
    for config in trace.every(ConfigureFSDP):
        conflict = next(PAIRS[config.by](config), None)
        if conflict is not None:
            yield Finding(at=config, message=conflict)


def _of_arguments(config: ConfigureFSDP) -> Iterator[str]:
    options = {name: setting(value) for name, value in config.options.items()}
    given = {name: setting(value) for name, value in config.arguments.items()}
    if given.get("gradient_checkpointing") is True and options.get("activation_checkpointing") is True:
        yield "`gradient_checkpointing` and FSDP's `activation_checkpointing` are both set: the Trainer raises"
    if given.get("save_only_model") is True and options.get("state_dict_type") == SHARDED:
        yield "`save_only_model` cannot be had with `SHARDED_STATE_DICT`: the Trainer raises"
    if given.get("save_only_model") is True and given.get("load_best_model_at_end") is True:
        yield "`save_only_model` and `load_best_model_at_end` cannot be had together with FSDP: the Trainer raises"
    yield from _loading(options, str(options.get("version", "")))


def _of_plugin(config: ConfigureFSDP) -> Iterator[str]:
    options = {name: setting(value) for name, value in config.options.items()}
    version = str(options.get("fsdp_version", ""))
    reshard = options.get("reshard_after_forward")
    if version == "2" and options.get("forward_prefetch") is not None:
        yield "`forward_prefetch` is not there with `fsdp_version=2`: the plugin raises"
    if version == "2" and isinstance(reshard, str):
        yield "`reshard_after_forward` must be a bool with `fsdp_version=2`: the plugin raises"
    if version == "1" and isinstance(reshard, bool):
        yield "`reshard_after_forward` must be no bool with `fsdp_version=1`: the plugin raises"
    if options.get("activation_checkpointing_offload") is True:
        if options.get("activation_checkpointing") is False:
            yield "`activation_checkpointing_offload` needs `activation_checkpointing`: the plugin raises"
        elif version == "1":
            yield "`activation_checkpointing_offload` needs `fsdp_version=2`: the plugin raises"
    yield from _loading(options, version)


def _loading(options: dict[str, bool | str | None], version: str) -> Iterator[str]:
    efficient = options.get("cpu_ram_efficient_loading") is True
    if version != "2" and efficient and options.get("sync_module_states") is False:
        yield "`cpu_ram_efficient_loading` loads on rank 0; without `sync_module_states` the rest starts at random"


def _of_strategy(config: ConfigureFSDP) -> Iterator[str]:
    given = {name for name, value in config.options.items() if not (isinstance(value, Const) and value.value is None)}
    if {"activation_checkpointing", "activation_checkpointing_policy"} <= given:
        yield "`activation_checkpointing` and `activation_checkpointing_policy` are both set: the strategy raises"
    if {"process_group", "device_mesh"} <= given:
        yield "`process_group` and `device_mesh` are both set: the strategy raises"
    kind = config.options.get("sharding_strategy")
    name = kind.dotted if isinstance(kind, External) else str(setting(kind))
    if "HYBRID" in name.upper() and not config.arguments:
        if not given & {"auto_wrap_policy", "process_group", "device_mesh"}:
            yield "hybrid sharding needs a wrap policy, a process group or a mesh: the strategy raises"


def _of_trainer(config: ConfigureFSDP) -> Iterator[str]:
    value = config.arguments.get("gradient_clip_val")
    how = setting(config.arguments.get("gradient_clip_algorithm")) or "norm"
    if isinstance(value, Const) and value.value and how == "norm":
        yield "`gradient_clip_val` clips by norm, which Lightning refuses with FSDPStrategy: the first step raises"


PAIRS = {
    "arguments": _of_arguments,
    "plugin": _of_plugin,
    "strategy": _of_strategy,
    "trainer": _of_trainer,
}
RULE = Rule(check, code="FSDP620", severity=Severity.ERROR, since="0.1.0")
