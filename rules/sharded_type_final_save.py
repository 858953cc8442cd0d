"""`trainer.save_model()` with a sharded type of state dict writes no weights.

## What it finds

`save_model()` of a transformers or TRL Trainer whose arguments say `fsdp_config={"state_dict_type":
"SHARDED_STATE_DICT"}`, or `"LOCAL_STATE_DICT"`, where nothing changes the type before; or whose arguments say nothing
of FSDP, where the YAML or JSON file of `accelerate launch` that lies with the program says `fsdp_state_dict_type:
SHARDED_STATE_DICT`.

## Why it is wrong

Under FSDP `Trainer.save_model` saves where the type is `FULL_STATE_DICT` and **does nothing otherwise, without a word**
(read in transformers 4.40 to 5: `if "FULL_STATE_DICT" in str(...state_dict_type)`). The folder holds a tokenizer and a
config at most; the training is only in the last checkpoint, as shards. Not measured: what decides is transformers' own
test, whichever torch there is; 5.24.0 has it in `Trainer.save_model` still.

## How to mend it

Call `trainer.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")` before `save_model()`; the
checkpoints on the way may stay sharded.

## When to leave it

Where the sharded checkpoint is what you want: then leave `save_model()` out, or merge it with
`accelerate merge-weights`. With a file for the launcher the finding holds where the program is launched with it: it is
silent where `save_model()` stands under a test of FSDP or of the launcher. The rule reads literals in Python and such
files; the command line is not seen.
A checkpoint on the way that is read as if it were whole is sharded-checkpoint-read-whole's.

## References

- https://github.com/huggingface/transformers/issues/30491
- https://huggingface.co/docs/accelerate/usage_guides/fsdp (saving and loading)
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.fix.arguments import receiver_of, text_of
from fsdp_lint.fix.edits import Fix, InsertBefore
from fsdp_lint.rule import Applicability, Finding, Rule, Severity
from fsdp_lint.trace.events import ConfigureFSDP, SetStateType, TrainerSaves
from fsdp_lint.trace.models.configs import TRAINERS, setting
from fsdp_lint.trace.together import left_to_launcher
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import Object, Value, options_of


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each save that saves nothing."""
    for save in trace.every(TrainerSaves):
        args = {value.number for value, _ in options_of(save.args)}
        config = next((c for c in trace.every(ConfigureFSDP) if c.made.number in args), None)
        if len(args) != 1 or any(True for _ in trace.every(SetStateType)):
            continue
        if config is None:
            yield from _of_launch(trace, save)
        elif config.by != "off" and _writes_nothing(config):
            yield Finding(
                at=save,
                message=f"`save_model()` writes no weights where the state dict type is `{_kind(config)}`",
                because=[(config, "the type is set here")],
                fix=_fix(save),
            )


def _of_launch(trace: Trace, save: TrainerSaves) -> Iterator[Finding]:
    # No fix: the plugin is there with this launcher only.
    asked = left_to_launcher(trace, save.args, save)
    if asked is not None and _writes_nothing(asked) and _is_of_library(save.trainer):
        yield Finding(
            at=save,
            message="`save_model()` writes no weights where `accelerate launch` is told "
            f"`fsdp_state_dict_type: {_kind(asked)}`",
            because=[(asked.places.get("state_dict_type", asked), "the type is set here")],
        )


def _kind(config: ConfigureFSDP) -> str:
    return str(setting(config.options.get("state_dict_type")))


def _writes_nothing(config: ConfigureFSDP) -> bool:
    return _kind(config).upper() in ("SHARDED_STATE_DICT", "LOCAL_STATE_DICT")


def _is_of_library(trainer: Value) -> bool:
    return not isinstance(trainer, Object) or trainer.cls.partition(".")[0] in TRAINERS


def _fix(save: TrainerSaves) -> Fix | None:
    trainer = receiver_of(save.site)
    if trainer is None:
        return None
    text = f'{text_of(trainer)}.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")'
    return Fix("Gather the weights for this save", (InsertBefore(save.site, text),), Applicability.UNSAFE)


RULE = Rule(
    check,
    code="FSDP320",
    severity=Severity.ERROR,
    fixes=frozenset({Applicability.UNSAFE}),
    since="0.1.0",
)
