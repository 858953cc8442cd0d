"""A setting of FSDP that accelerate or transformers reads nowhere, so that the job runs with another one.

## What it finds

A filled `fsdp_config` in `TrainingArguments` (or TRL's configs) where `fsdp` is not given.

In the YAML or JSON file of `accelerate launch`:

- a filled block `fsdp_config` where `distributed_type` is `MULTI_GPU` or `NO`;
- with `fsdp_version: 2`, an `fsdp_sharding_strategy` other than `FULL_SHARD` that no `fsdp_reshard_after_forward` or
  `parallelism_config` repeats; `HYBRID_SHARD` where `num_machines` is more than 1;
- with `fsdp_version: 1`, an `fsdp_reshard_after_forward` that asks for anything but `FULL_SHARD`, without
  `fsdp_sharding_strategy`. The same in `FullyShardedDataParallelPlugin(fsdp_version=1, reshard_after_forward="...")`.

## Why it is wrong

None of these raises. transformers reads `fsdp_config` after it has asked for `fsdp` (`_process_fsdp_args`: "if not
self.fsdp: return", read in 5.24.0; 4.x warns of two of its names at most), so that the Trainer uses DDP: each GPU holds
the whole model. Measured with accelerate 1.15.0, from the launcher's parser to the plugin: with `MULTI_GPU` the
launcher does not switch FSDP on, and each GPU holds the whole model, as with DDP. FSDP2 gets
`reshard_after_forward=True` and a mesh of one dimension whatever `fsdp_sharding_strategy` says: with `HYBRID_SHARD` the
all-gathers cross the machines that they were to stay in, with `SHARD_GRAD_OP` each block is gathered twice a step. And
FSDP1 takes `FULL_SHARD`, because the launcher and the plugin both fill `sharding_strategy` with that before they would
look at `reshard_after_forward`.

## How to mend it

Switch FSDP on with `distributed_type: FSDP` or `fsdp=True`, and say the rest with the settings of the generation that
runs. In transformers 4 the latter is `fsdp="full_shard auto_wrap"`. With
`fsdp_version: 2` `SHARD_GRAD_OP` is `fsdp_reshard_after_forward: false`, and `HYBRID_SHARD` is a `parallelism_config`
with `parallelism_config_dp_replicate_size` and `parallelism_config_dp_shard_size`. With `fsdp_version: 1` it is
`fsdp_sharding_strategy`.

## When to leave it

Where `fsdp=""` says that FSDP is off, and where the attribute is set later, nothing is reported. `accelerate launch
--use_fsdp`, or another option on the command line, may overrule the file: the rule does not see the command line.
Settings of FSDP1 that FSDP2 does not read and does not need (`fsdp_use_orig_params`,
`fsdp_backward_prefetch`, `fsdp_sync_module_states`) are not reported, and neither is a file without `fsdp_version`:
which one that means is up to the release of accelerate. Classes of layers that are named and not read, as no wrap
policy asks for them, are `wrap-policy-missing`'s.

## References

- https://huggingface.co/docs/accelerate/concept_guides/fsdp1_vs_fsdp2 (which settings there are in which generation)
- https://gitcode.com/Ascend/MindSpeed-MM/blob/26.0.0/examples/diffusers/flux2/bf16_accelerate_config.yaml (version 2
  with `HYBRID_SHARD`; on one machine, where it makes no difference)
- https://github.com/foundation-model-stack/fms-hf-tuning/pull/98 (`MULTI_GPU` in place of `FSDP`: out of memory)
- https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import ConfigureFSDP, SwitchOnFSDP
from fsdp_lint.trace.models.configs import setting
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import Const, Object

# What a strategy means for parameters after the forward pass, under the names and the numbers that it may have.
RESHARDS = {"FULL_SHARD": True, "1": True, "SHARD_GRAD_OP": False, "2": False, "NO_SHARD": False, "3": False}
HYBRID = {"HYBRID_SHARD", "4", "HYBRID_SHARD_ZERO2", "5"}


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each setting that is not read."""
    for config in trace.every(ConfigureFSDP):
        if config.by == "off":
            yield from _not_asked_for(trace, config)
        elif config.by == "launch" and setting(config.arguments["distributed_type"]) != "FSDP":
            yield from _switched_off(config)
        elif config.by in ("launch", "plugin"):
            version = str(setting(config.options.get("version" if config.by == "launch" else "fsdp_version")))
            if version == "2" and config.by == "launch":
                yield from _of_the_first(config)
            elif version == "1":
                yield from _of_the_second(config)


def _not_asked_for(trace: Trace, config: ConfigureFSDP) -> Iterator[Finding]:
    asked = (event.of for event in trace.every(SwitchOnFSDP))
    if not any(of is config.made or not isinstance(of, Object) for of in asked):
        yield Finding(
            at=config,
            message="`fsdp_config` is not read where `fsdp` is not given, unless `accelerate launch` switches FSDP on: "
            "every GPU holds the whole model",
        )


def _switched_off(config: ConfigureFSDP) -> Iterator[Finding]:
    kind = setting(config.arguments["distributed_type"])
    if kind in ("MULTI_GPU", "NO"):
        yield Finding(
            at=config.places.get("fsdp_config", config),
            message=f"`fsdp_config` is not read where `distributed_type` is `{kind}`, unless `--use_fsdp` says so: "
            "every GPU holds the whole model",
            because=[(config, "FSDP is not switched on here")],
        )


def _of_the_first(config: ConfigureFSDP) -> Iterator[Finding]:
    """A strategy of FSDP1 with FSDP2."""
    strategy = str(setting(config.options.get("sharding_strategy"))).upper()
    after = config.options.get("reshard_after_forward")
    said = setting(after) if after is not None else True
    replicas = config.arguments.get("parallelism_config_dp_replicate_size")
    machines = config.arguments.get("num_machines")
    if strategy in HYBRID:
        # On one machine it is the same as full sharding.
        several = isinstance(machines, Const) and isinstance(machines.value, int) and machines.value > 1
        if not several or (isinstance(replicas, Const) and replicas.value != 1):
            return
        effect = "the model is sharded over all machines"
    elif strategy in RESHARDS and isinstance(said, bool) and said != RESHARDS[strategy]:
        effect = "parameters are freed after the forward pass" if said else "parameters stay after the forward pass"
    else:
        return
    yield Finding(
        at=config.places.get("sharding_strategy", config),
        message=f"`fsdp_sharding_strategy` is not read with `fsdp_version: 2`: {effect}",
    )


def _of_the_second(config: ConfigureFSDP) -> Iterator[Finding]:
    """What parameters do after the forward pass, with FSDP1."""
    after = setting(config.options.get("reshard_after_forward"))
    given = config.options.get("sharding_strategy")
    if given is not None and not (isinstance(given, Const) and given.value is None):
        return
    # The plugin raises at a bool.
    off = after is False and config.by == "launch"
    if off or (isinstance(after, str) and after.upper() in {*RESHARDS, *HYBRID} - {"FULL_SHARD", "1"}):
        name = "fsdp_reshard_after_forward" if config.by == "launch" else "reshard_after_forward"
        yield Finding(
            at=config.places.get("reshard_after_forward", config),
            message=f"`{name}` is not read with FSDP1: the strategy is `FULL_SHARD`",
        )


RULE = Rule(check, code="FSDP621", severity=Severity.WARNING, since="0.1.0")
