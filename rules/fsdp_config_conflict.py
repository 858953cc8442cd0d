"""FSDP settings of transformers, accelerate or Lightning contradict each other.

## What it finds

In `TrainingArguments(fsdp=..., fsdp_config={...})`, TRL's configs, dataclasses of the project's own that are built on
them (also where only `HfArgumentParser` makes these, of the fields' defaults), `FullyShardedDataParallelPlugin(...)`,
`FSDPStrategy(...)` and the YAML or JSON file of `accelerate launch` (one with `distributed_type: FSDP` and a block
`fsdp_config`), literal settings that cannot be had together:

- `gradient_checkpointing=True` (transformers 5: also by its new name, `activation_checkpointing=True`) and
  `activation_checkpointing` in `fsdp_config`;
- `save_only_model=True` with `SHARDED_STATE_DICT`, or with `load_best_model_at_end=True`; `LOCAL_STATE_DICT` in
  `fsdp_config`;
- `fsdp` and `deepspeed`;
- `cpu_ram_efficient_loading` with `sync_module_states=False` and FSDP1: in `fsdp_config` where it says `"version": 1`,
  in the plugin where `fsdp_version` is 1 or left out;
- in the plugin: `forward_prefetch`, a `reshard_after_forward` that is no bool, or `sharding_strategy` without
  `reshard_after_forward`, with `fsdp_version=2`; a bool `reshard_after_forward` with `fsdp_version=1`;
  `activation_checkpointing_offload` without `activation_checkpointing` or with `fsdp_version=1`;
- in accelerate's file: `fsdp_cpu_ram_efficient_loading: true` with `fsdp_sync_module_states: false`, whichever version;
  `fsdp_reshard_after_forward: FULL_SHARD` (or another strategy) with `fsdp_version: 2`;
  `fsdp_activation_checkpointing_offload` without `fsdp_activation_checkpointing` or with `fsdp_version: 1`;
- in plugin and file: a wrap policy that accelerate does not have, `LOCAL_STATE_DICT` with FSDP2;
- `Trainer(args=..., optimizers=(optimizer, scheduler))`, either of them, where the arguments switch FSDP on;
  `accelerator.prepare` of a model without its optimizer, of an optimizer without its model, or of several models in one
  call, with `fsdp_version=2`;
- in Lightning's strategy: `activation_checkpointing` and `activation_checkpointing_policy`, `process_group` and
  `device_mesh`, `HYBRID_SHARD` with neither of these nor a wrap policy; `gradient_clip_val` in the Trainer that gets
  the strategy or its name (`strategy="fsdp"`), with clipping by norm; and `fabric.setup(model, optimizer)` in one call
  where the strategy has `use_orig_params=False`.

A dict that the program fills in branches is followed: the finding holds where such a branch is taken.

## Why it is wrong

Each but `LOCAL_STATE_DICT` and `cpu_ram_efficient_loading` raises when the Trainer, the plugin or the strategy is made,
clipping by norm at the first step, on all ranks, after the job has waited for its GPUs (read in transformers 5.24.0
and lightning 2.6.6; those of the plugin and of the file seen with accelerate 1.15.0, from the launcher's own parser to
the plugin; links below).

With `LOCAL_STATE_DICT` and FSDP1 training goes on, and what it writes is of no use: the Trainer looks for a folder or
one whole file, there is a file a rank, and it says "Can't find a valid checkpoint" (reported for 4.40, read in 5.24.0,
where FSDP2, the default there, refuses the type at once).

`cpu_ram_efficient_loading` raised in transformers 4 from 4.40 on; without `sync_module_states` the other ranks keep
"random weights", as the error said. Newer accelerate warns and switches it on. An `fsdp_config` without `version` is
FSDP1 in transformers 4 and FSDP2 in 5 (read in 5.24.0: `fsdp_config.get("version", 2)`), so nothing is said there that
holds for one of them only.

## How to mend it

Keep one of the two: FSDP's own activation checkpointing rather than `gradient_checkpointing`, `FULL_STATE_DICT` where
only the model is saved, `sync_module_states` with `cpu_ram_efficient_loading`. In Lightning clip by value, or call
`clip_grad_norm_` of the wrapped model in `configure_gradient_clipping`.

## When to leave it

Never for those that raise. Clipping is reported where the Trainer is made, if a model that it trains does not define
`configure_gradient_clipping`. The rule reads literals in Python, accelerate's files, and the JSON file that
`fsdp_config="name.json"` names, if there is one of that name between the script and the project's root. The command
line, which can overrule accelerate's file and the defaults of fields, and environment variables are not seen, nor are
dicts whose contents are not known. Of a dataclass with a `__post_init__` of its own the defaults are not judged where a
parser makes it. Settings that are merely not read are `fsdp-setting-ignored`'s, and a wrap policy that is left out,
which nothing refuses, is `wrap-policy-missing`'s.

## References

- https://github.com/huggingface/transformers/issues/30404 (checkpointing set twice)
- https://github.com/huggingface/transformers/pull/36627 (`save_only_model` and `SHARDED_STATE_DICT`)
- https://github.com/huggingface/transformers/issues/30811 (checkpoints of `LOCAL_STATE_DICT`)
- https://github.com/huggingface/accelerate/pull/3394 (model and optimizer in one call with FSDP2, and one model)
- https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py ("Passing `optimizers` is not
  allowed")
- https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py ("Using --fsdp xxx together with
  --deepspeed is not possible")
- https://github.com/huggingface/transformers/issues/25100 (`sync_module_states` must be True)
- https://github.com/huggingface/accelerate/pull/2037 (the same for accelerate's launcher)
- https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/dataclasses.py
- https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/launch.py
- https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/fabric/strategies/fsdp.py
- https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/plugins/precision/fsdp.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import ConfigureFSDP
from fsdp_lint.trace.models.configs import setting
from fsdp_lint.trace.policies import ways
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import Const, External, Object, Sequence, Value
from fsdp_lint.trace.values import Mapping as Dict

SHARDED = "SHARDED_STATE_DICT"
POLICIES = ("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP", "NO_WRAP")
STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
Options = dict[str, bool | str | None]
# What is wrong, and the setting with which it is.
Conflict = tuple[str, str]


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each object or file with settings that exclude each other; it names the first pair."""
    for config in (one for one in trace.every(ConfigureFSDP) if one.by in PAIRS):
        message, name = next((found for way in ways(config) for found in PAIRS[config.by](way)), ("", ""))
        if not message:
            continue
        if config.by == "trainer" and isinstance(config.made, Object) and config.made.site is not None:
            trained = (config, "the model that is trained here leaves clipping to it")
            yield Finding(at=config.made.site, message=message, because=[trained])
        else:
            yield Finding(at=config.places.get(name, config), message=message)


def _of_arguments(config: ConfigureFSDP) -> Iterator[Conflict]:
    options = _settings(config.options)
    given = _settings(config.arguments)
    for name in ("gradient_checkpointing", "activation_checkpointing"):
        if given.get(name) is True and options.get("activation_checkpointing") is True:
            yield f"`{name}` and FSDP's `activation_checkpointing` are both set: the Trainer raises", ""
    if given.get("save_only_model") is True and options.get("state_dict_type") == SHARDED:
        yield "`save_only_model` cannot be had with `SHARDED_STATE_DICT`: the Trainer raises", ""
    if given.get("save_only_model") is True and given.get("load_best_model_at_end") is True:
        yield "`save_only_model` and `load_best_model_at_end` cannot be had together with FSDP: the Trainer raises", ""
    if str(options.get("state_dict_type")).upper() == "LOCAL_STATE_DICT" and given.get("save_strategy") != "no":
        yield "the Trainer does not find the checkpoints again that `LOCAL_STATE_DICT` writes: resuming raises", ""
    if _is_filled(config.arguments.get("fsdp")) and _is_filled(config.arguments.get("deepspeed")):
        yield "`fsdp` and `deepspeed` are both set: the Trainer raises", ""
    # Without a version it is FSDP1 in transformers 4 and FSDP2 in transformers 5.
    if str(options.get("version")) == "1":
        yield from _loading(options)


def _of_plugin(config: ConfigureFSDP) -> Iterator[Conflict]:
    options = _settings(config.options)
    version = str(options.get("fsdp_version", ""))
    reshard = options.get("reshard_after_forward")
    if version == "2" and options.get("forward_prefetch") is not None:
        yield "`forward_prefetch` is not there with `fsdp_version=2`: the plugin raises", ""
    if version == "2" and isinstance(reshard, str):
        yield "`reshard_after_forward` must be a bool with `fsdp_version=2`: the plugin raises", ""
    if version == "2" and options.get("sharding_strategy") is not None and "reshard_after_forward" not in options:
        yield "`sharding_strategy` without `reshard_after_forward` with `fsdp_version=2`: the plugin raises", ""
    if version == "1" and isinstance(reshard, bool):
        yield "`reshard_after_forward` must be no bool with `fsdp_version=1`: the plugin raises", ""
    if options.get("activation_checkpointing_offload") is True:
        if options.get("activation_checkpointing") is False:
            yield "`activation_checkpointing_offload` needs `activation_checkpointing`: the plugin raises", ""
        elif version == "1":
            yield "`activation_checkpointing_offload` needs `fsdp_version=2`: the plugin raises", ""
    yield from _states(options, version, "")
    if _is_first(config.options.get("fsdp_version")):
        yield from _loading(options)


def _of_launch(config: ConfigureFSDP) -> Iterator[Conflict]:
    options = _settings(config.options)
    sync, version = config.options.get("sync_module_states"), str(options.get("version", "1"))
    if setting(config.arguments["distributed_type"]) != "FSDP":
        return
    # The launcher takes a text, even "false", for true.
    if options.get("cpu_ram_efficient_loading") is True and isinstance(sync, Const) and sync.value is False:
        said = "`fsdp_cpu_ram_efficient_loading` needs `fsdp_sync_module_states`: `accelerate launch` raises"
        yield said, "sync_module_states"
    if version == "2" and str(options.get("reshard_after_forward")).upper() in STRATEGIES:
        said = "`fsdp_reshard_after_forward` must be true or false with `fsdp_version: 2`: each rank raises"
        yield said, "reshard_after_forward"
    if options.get("activation_checkpointing_offload") is True:
        if options.get("activation_checkpointing", False) is False:
            said = "`fsdp_activation_checkpointing_offload` needs `fsdp_activation_checkpointing`: each rank raises"
            yield said, "activation_checkpointing_offload"
        elif version == "1" and "version" in options:
            said = "`fsdp_activation_checkpointing_offload` needs `fsdp_version: 2`: each rank raises"
            yield said, "activation_checkpointing_offload"
    yield from _states(options, version, "fsdp_")


def _is_filled(value: Value | None) -> bool:
    if isinstance(value, Dict | Sequence):
        return bool(value.items)
    return isinstance(value, Const) and bool(value.value)


def _settings(given: Mapping[str, Value]) -> Options:
    return {name: setting(value) for name, value in given.items()}


def _states(options: Options, version: str, prefix: str) -> Iterator[Conflict]:
    policy, kind = options.get("auto_wrap_policy"), options.get("state_dict_type")
    if isinstance(policy, str) and policy.upper() not in POLICIES:
        yield f"`{policy}` is no wrap policy of accelerate's: each rank raises", "auto_wrap_policy"
    if version == "2" and isinstance(kind, str) and kind.upper() == "LOCAL_STATE_DICT":
        yield f"`{prefix}state_dict_type` cannot be `{kind}` with FSDP2: each rank raises", "state_dict_type"


def _is_first(version: Value | None) -> bool:
    """True where accelerate's plugin is FSDP1's: by the number, or, for all that is said here, by default."""
    return version is None or str(setting(version)) == "1"


def _loading(options: Options) -> Iterator[Conflict]:
    if options.get("cpu_ram_efficient_loading") is True and options.get("sync_module_states") is False:
        yield "`cpu_ram_efficient_loading` loads on rank 0; without `sync_module_states` the rest starts at random", ""


def _of_strategy(config: ConfigureFSDP) -> Iterator[Conflict]:
    given = {name for name, value in config.options.items() if not (isinstance(value, Const) and value.value is None)}
    if {"activation_checkpointing", "activation_checkpointing_policy"} <= given:
        yield "`activation_checkpointing` and `activation_checkpointing_policy` are both set: the strategy raises", ""
    if {"process_group", "device_mesh"} <= given:
        yield "`process_group` and `device_mesh` are both set: the strategy raises", ""
    kind = config.options.get("sharding_strategy")
    name = kind.dotted if isinstance(kind, External) else str(setting(kind))
    if "HYBRID" in name.upper() and not config.arguments:
        if not given & {"auto_wrap_policy", "process_group", "device_mesh"}:
            yield "hybrid sharding needs a wrap policy, a process group or a mesh: the strategy raises", ""


def _of_trainer(config: ConfigureFSDP) -> Iterator[Conflict]:
    value = config.arguments.get("gradient_clip_val")
    how = setting(config.arguments.get("gradient_clip_algorithm")) or "norm"
    if isinstance(value, Const) and value.value and how == "norm":
        yield "`gradient_clip_val` clips by norm, which Lightning refuses with FSDPStrategy: the first step raises", ""


def _of_prepare(config: ConfigureFSDP) -> Iterator[Conflict]:
    if config.arguments:
        yield "with FSDP2 `prepare` takes one model in a call: it raises", ""
        return
    yield "with FSDP2 `prepare` must get the model and the optimizer in one call: it raises", ""


def _of_setup(config: ConfigureFSDP) -> Iterator[Conflict]:
    if setting(config.options.get("use_orig_params")) is False:
        yield "`use_orig_params=False` needs `setup_module()` before the optimizer is made: this `setup()` raises", ""


def _of_optimizers(_: ConfigureFSDP) -> Iterator[Conflict]:
    yield "`optimizers` cannot be given with `fsdp`: the Trainer raises", ""


PAIRS = {
    "prepare": _of_prepare,
    "setup": _of_setup,
    "optimizers": _of_optimizers,
    "arguments": _of_arguments,
    "plugin": _of_plugin,
    "launch": _of_launch,
    "strategy": _of_strategy,
    "trainer": _of_trainer,
}
RULE = Rule(check, code="FSDP620", severity=Severity.ERROR, since="0.1.0")
