"""FSDP by settings that name no wrap policy: all blocks of the model are one unit.

## What it finds

Settings of a framework that shards for the user, where they come to no wrap policy and nothing else makes units:

- accelerate: `FullyShardedDataParallelPlugin(...)` without `auto_wrap_policy`, with `"no_wrap"`, or with
  `"size_based_wrap"` without `min_num_params`, whose `Accelerator` prepares the model;
- the YAML or JSON file of `accelerate launch` that lies with the program (`distributed_type: FSDP`), without
  `fsdp_auto_wrap_policy`, with `NO_WRAP`, or with `SIZE_BASED_WRAP` and `fsdp_min_num_params: 0`, where the program
  prepares a model with a plain `Accelerator()`, or trains it with a Trainer;
- transformers and TRL: `TrainingArguments(fsdp=True, fsdp_config={...})` with the policy `NO_WRAP`, or
  `SIZE_BASED_WRAP` without `min_num_params`; `fsdp="full_shard"` without `auto_wrap` where the project cannot run with
  transformers 5.10 or newer, by the range that it declares or by an argument that those do not have
  (`evaluation_strategy`, `overwrite_output_dir` ...);
- Lightning: `FSDPStrategy(...)` without `auto_wrap_policy`, or `strategy="fsdp"`, where `trainer.fit` or
  `fabric.setup` gets a model of blocks that shards none of them in `configure_model`; it may be one of several
  strategies that a flag picks from.

## Why it is wrong

Nothing is said, numbers are right, and memory between steps is as small as it should be. But before each forward pass
all blocks are gathered at once, so that the peak saves nothing and no communication overlaps with computing
(measured: root-only-shard). What these settings come to was measured with accelerate 1.15.0, from the launcher's parser
to the sharded model, four blocks and a root on torch 2.13: 1 unit with no policy, with `no_wrap`, with
`size_based_wrap` and no size, and with `transformer_cls_names_to_wrap` or `fsdp_transformer_layer_cls_to_wrap` alone,
which nothing reads then; 5 units with `transformer_based_wrap`; the same for FSDP1 and FSDP2. With FSDP2 accelerate
gives embedding and head of a transformers model units of their own; the blocks all stay in the root's, which is not
freed after the forward pass. transformers 4 to 5.9 hand accelerate a policy only for the word `auto_wrap`; from 5.10 on
it is `TRANSFORMER_BASED_WRAP` if nothing else is said (4.57.3, 5.0.0, 5.9.0, 5.10.1 and 5.24.0, read; the last run).
Lightning wraps the module as it is (read in 2.6.6).

## How to mend it

Name the policy: `fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP` in the file,
`auto_wrap_policy="transformer_based_wrap"` in the plugin, `fsdp="full_shard auto_wrap"` in transformers before 5.10,
`auto_wrap_policy={Block}` in Lightning. With it transformers' models tell their blocks themselves
(`_no_split_modules`); other models need `transformer_cls_names_to_wrap=["Block"]`, in the file
`fsdp_transformer_layer_cls_to_wrap: Block`. With FSDP2 do not go by size: a list of blocks is large, too, and
`fully_shard` refuses to take it (measured: `ValueError`).

## When to leave it

Where the model is small, one unit is the fastest choice: the rule is silent below 1,000,000 parameters where it can
count them. Also where per-block units break the model, and you know it. It is silent where something is sharded by
hand; where a policy is set later or by the environment, or `set_auto_wrap_policy` is called; where the Trainer gets a
PEFT model, to which it gives a policy of its own; with `SHARD_GRAD_OP`, `NO_SHARD` or `reshard_after_forward=False`,
which keep parameters whole in any case; with one process; and where the model is not known. The command line is not
seen: `accelerate launch --fsdp_auto_wrap_policy` may overrule a file. A file for the launcher that lies with no program
is not judged.

Calls of `FSDP(...)` and `fully_shard` themselves are root-only-shard's; a policy that accelerate does not have, and
hybrid sharding without one in Lightning, which raise, are fsdp-config-conflict's; a block `fsdp_config` that nothing
reads is fsdp-setting-ignored's.

## References

- https://huggingface.co/docs/accelerate/usage_guides/fsdp (`fsdp_auto_wrap_policy`)
- https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/dataclasses.py (`NO_WRAP` by default; a
  size of zero: "we silently ignore it")
- https://github.com/huggingface/transformers/blob/v4.57.3/src/transformers/training_args.py (`FSDPOption.AUTO_WRAP`)
- https://github.com/huggingface/transformers/blob/main/src/transformers/distributed/fsdp.py (`update_fsdp_plugin_peft`)
- https://github.com/Lightning-AI/pytorch-lightning/issues/15976 ("FSDP showing no memory decrease", without wrapping)
- https://github.com/GoogleCloudPlatform/gcs-connector-for-pytorch/pull/175 (out of memory until a policy was given to
  Lightning's strategy)
- https://github.com/pytorch/pytorch/issues/73809 (why there is no policy by default)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.edits import ChangeCall, Fix
from fsdp_lint.fix.spelling import spelled_here
from fsdp_lint.rule import Applicability, Finding, Rule, Severity, Site
from fsdp_lint.trace.events import ConfigureFSDP, SetWrapPolicy, ShardBySettings, SwitchOnFSDP
from fsdp_lint.trace.granularity import block_classes, holds_blocks
from fsdp_lint.trace.models.configs import TRAINERS, UNITS_SINCE, names_backend, runs_before_units, setting
from fsdp_lint.trace.models.frameworks import has_blocks
from fsdp_lint.trace.models.sizes import parameter_count
from fsdp_lint.trace.policies import FREES, frees, may_have_units, says_none, uses_peft, words_of
from fsdp_lint.trace.trace import Trace, called
from fsdp_lint.trace.values import Const, Module, Value, options_of
from fsdp_lint.trace.versions import is_below

SMALL = 1_000_000
WHOLE = "lie in one FSDP unit, whole on each rank at once"


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each place that leaves the policy out, or says that there is none."""
    if any(True for _ in trace.every(SetWrapPolicy)):
        return
    yield from _of_arguments(trace)
    for event in trace.every(ShardBySettings):
        if trace.in_test(event) or not _is_large(event.model) or may_have_units(trace, event):
            continue
        library = event.by.cls.partition(".")[0]
        if library == "accelerate":
            yield from _of_accelerator(trace, event)
        elif event.by.cls.endswith("Trainer") and library in TRAINERS:
            yield from _of_launched_trainer(trace, event)
        else:
            yield from _of_strategy(trace, event)


def _of_arguments(trace: Trace) -> Iterator[Finding]:
    """transformers: a policy that is none, and with old releases none at all."""
    if uses_peft(trace) or any(True for _ in trace.every(SwitchOnFSDP)):
        return
    for config in trace.every(ConfigureFSDP):
        if config.by != "arguments" or "**" in config.arguments or trace.in_test(config):
            continue
        words = words_of(config.arguments.get("fsdp"))
        if not words or not words <= {*FREES, "offload"} or setting(config.options.get("xla")) is True:
            continue
        said = says_none(config.options, "min_num_params") if frees(config.options) else ""
        if said and "auto_wrap_policy" in config.options:
            yield Finding(at=config, message=f"`auto_wrap_policy` {said}: all blocks of the model {WHOLE}")
        elif said and _is_old(trace, config) and not _is_launched_with_policy(trace):
            how = f"`fsdp` without `auto_wrap`, before transformers {'.'.join(map(str, UNITS_SINCE))}"
            yield Finding(at=config, message=f"{how}: all blocks of the model {WHOLE}")


def _of_accelerator(trace: Trace, event: ShardBySettings) -> Iterator[Finding]:
    given = event.by.kwargs.get("fsdp_plugin")
    if given is None and not {"deepspeed_plugin", "megatron_lm_plugin", "cpu"} & set(event.by.kwargs):
        yield from _of_launch(trace, event)
    for plugin, _ in options_of(given) if given is not None else ():
        config = trace.settings_of(plugin)
        if config is None or config.arguments or not frees(config.options):
            continue
        said = says_none(config.options, "min_num_params")
        if not said or ("auto_wrap_policy" not in config.options and _is_launched_with_policy(trace)):
            continue
        unless = "" if "auto_wrap_policy" in config.options else ", unless `accelerate launch` is given a policy"
        message = f"`auto_wrap_policy` {said}: all blocks of `{called(event.model)}` {WHOLE}{unless}"
        yield Finding(at=config, message=message, because=_because(event), fix=_fix_plugin(config.site, event.model))


def _of_launched_trainer(trace: Trace, event: ShardBySettings) -> Iterator[Finding]:
    """A Trainer of transformers of which only the launcher is told that it shards."""
    if not names_backend(event.by.get(1, "args")) and not uses_peft(trace) and "peft_config" not in event.by.kwargs:
        yield from _of_launch(trace, event)


def _of_launch(trace: Trace, event: ShardBySettings) -> Iterator[Finding]:
    config = trace.launch
    if config is None or setting(config.arguments.get("num_processes")) == "1":
        return
    second = setting(config.options.get("version")) == "2"
    said = says_none(config.options, "min_num_params", left_out=False)
    if not said or not frees(config.options, ("reshard_after_forward",) if second else ("sharding_strategy",)):
        return
    whose = f"`{called(event.model)}`" if isinstance(event.model, Module) else "the model"
    yield Finding(
        at=config.places.get("auto_wrap_policy", config.places.get("fsdp_config", config)),
        message=f"`fsdp_auto_wrap_policy` {said}: all blocks of {whose} {WHOLE}",
        because=_because(event),
    )


def _of_strategy(trace: Trace, event: ShardBySettings) -> Iterator[Finding]:
    """Lightning's strategy, or its name; the model shards nothing in its hooks, which have been run."""
    strategy = event.by.kwargs.get("strategy")
    alone = setting(event.by.kwargs.get("devices")) == "1" and event.by.kwargs.get("num_nodes") is None
    if alone or strategy is None:
        return
    message = f"`auto_wrap_policy` is left out: all blocks of `{called(event.model)}` {WHOLE}"
    if isinstance(strategy, Const) and event.by.site is not None:
        yield Finding(at=event.by.site, message=message, because=_because(event))
    config = trace.settings_of(strategy)
    if config is None or config.arguments or not frees(config.options):
        return
    if says_none(config.options, ""):
        yield Finding(at=config, message=message, because=_because(event), fix=_fix_strategy(config.site, event.model))


def _is_old(trace: Trace, config: ConfigureFSDP) -> bool:
    """True where the project cannot run with a release of transformers that makes units by itself."""
    return is_below(trace.transformers, *UNITS_SINCE) or runs_before_units(config.arguments)


def _is_launched_with_policy(trace: Trace) -> bool:
    return trace.launch is not None and not says_none(trace.launch.options, "")


def _is_large(model: Value) -> bool:
    """True for a model that has blocks, and for one that a Trainer loads by its name."""
    if isinstance(model, Const):
        return isinstance(model.value, str)
    count = parameter_count(model)
    return holds_blocks(model) and (count is None or count >= SMALL)


def _because(event: ShardBySettings) -> list[tuple[ShardBySettings | Site, str]]:
    return [(event, "it is sharded here")]


def _fix_plugin(site: Site, model: Value) -> Fix | None:
    """accelerate's policy for transformers, which knows the blocks of its models; other models must name them."""
    put = {"auto_wrap_policy": '"transformer_based_wrap"'}
    if not (isinstance(model, Module) and model.library is not None and has_blocks(model.library)):
        names = [name for _, name in block_classes(model)]
        if not names:
            return None
        put["transformer_cls_names_to_wrap"] = "[" + ", ".join(f'"{name}"' for name in names) + "]"
    return Fix("Make each block a unit of its own", (ChangeCall(site, put=put),), Applicability.UNSAFE)


def _fix_strategy(site: Site, model: Value) -> Fix | None:
    names = [spelled_here(site, path, name) for path, name in block_classes(model)]
    if not names or None in names:
        return None
    put = {"auto_wrap_policy": "{" + ", ".join(name for name in names if name) + "}"}
    return Fix("Make each block a unit of its own", (ChangeCall(site, put=put),), Applicability.UNSAFE)


RULE = Rule(
    check,
    code="FSDP212",
    severity=Severity.WARNING,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
