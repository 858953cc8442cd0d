"""A checkpoint that a framework has written as shards is read as one whole model.

## What it finds

A program that trains with sharded checkpoints and then reads one of them as if it were whole:

- transformers and TRL: `from_pretrained` of `trainer.state.best_model_checkpoint`, or of `get_last_checkpoint(...)` of
  the Trainer's folder, where `fsdp_config`, or the file for accelerate's launcher that lies with the program, says
  `SHARDED_STATE_DICT`;
- Lightning: `load_from_checkpoint` or `torch.load` of a `best_model_path` or `last_model_path`, where the Trainer's
  `FSDPStrategy` has `state_dict_type="sharded"`.

## Why it is wrong

It raises, behind the training. With this type transformers' Trainer saves a folder `pytorch_model_fsdp_0` in the
checkpoint, and neither weights nor config (read in 5.24: `save_model` does nothing then, and what follows is
accelerate's `save_fsdp_model`). `from_pretrained` says "Unrecognized model", and with a config "no file named
model.safetensors, or pytorch_model.bin" (measured with transformers 5.24 and accelerate 1.15.0). Lightning makes a
folder of the path itself, which `load_from_checkpoint` and `torch.load` open as a file: `IsADirectoryError` (read in
2.6.6; torch.load of such a folder measured with torch 2.13). The weights are all there: only this call cannot read
them.

## How to mend it

Merge the shards first, with `accelerate merge-weights` (transformers) or
`python -m lightning.pytorch.utilities.consolidate_checkpoint` (Lightning), or train with full state dicts. To go on
with the same Trainer needs neither: `trainer.train(resume_from_checkpoint=...)` and `ckpt_path="best"` read shards.

## When to leave it

Never where it is reported. The rule is silent where the type is changed (`set_state_dict_type`), where shards are
merged in the program, and where the Trainer of transformers has callbacks, which may save more. It knows the paths
above, not those that are written out (`"out/checkpoint-500"`), and literal settings. `save_model()` itself is
sharded-type-final-save's.

## References

- https://github.com/huggingface/accelerate/issues/2603 ("How to load a FSDP checkpoint model")
- https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py (`_save_checkpoint`)
- https://huggingface.co/docs/accelerate/package_reference/fsdp (`merge_fsdp_weights`)
- https://github.com/Lightning-AI/pytorch-lightning/pull/19213 (the command that makes one file of a folder)
- https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/strategies/fsdp.py
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdp_lint.rule import Finding, Rule, Severity
from fsdp_lint.trace.events import ConfigureFSDP, Handed, ReadCheckpoint, SetStateType, ShardBySettings
from fsdp_lint.trace.models.configs import TRAINERS, setting
from fsdp_lint.trace.together import told_by
from fsdp_lint.trace.trace import Trace
from fsdp_lint.trace.values import Const, Object, Sequence, Unknown, Value, exclusive

BEST = "best_model_checkpoint"
KEPT = ("best_model_path", "last_model_path")
SHARDED = ("SHARDED_STATE_DICT", "SHARDED")
NONE = Const(value=None)


def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each such read."""
    if any(True for _ in trace.every(SetStateType)) or _may_make_whole(trace):
        return
    for read in trace.every(ReadCheckpoint):
        for trained in trace.every(ShardBySettings):
            if trained.order > read.order or trained.entry != read.entry or exclusive(trained.guards, read.guards):
                continue
            config = _config(trace, trained.by)
            kind = setting(config.options.get("state_dict_type")) if config is not None else None
            if config is None or str(kind).upper() not in SHARDED or not _is_its_own(read, trained.by):
                continue
            yield Finding(
                at=read,
                message=f"the checkpoint is a folder of shards, which `{_called(read)}` cannot read",
                because=[(config, "the type is set here"), (trained, "the checkpoints are written here")],
            )
            break


def _called(read: ReadCheckpoint) -> str:
    return read.how if read.how == "torch.load" else read.how.rpartition(".")[2]


def _may_make_whole(trace: Trace) -> bool:
    """True where something may write the whole model beside its shards."""
    said = ("merge", "consolidate", "add_callback")
    return any(word in event.to for event in trace.every(Handed) for word in said)


def _config(trace: Trace, trainer: Object) -> ConfigureFSDP | None:
    """What a Trainer's FSDP is told; None where it is not known, and where callbacks may save what they like."""
    if trainer.cls.partition(".")[0] in TRAINERS:
        args = _arguments(trainer)
        on = args.kwargs.get("fsdp", NONE) if args is not None else None
        if args is None or "callbacks" in trainer.kwargs or not isinstance(on, Const | Sequence):
            return None
        asked = trace.launch if "fsdp" not in args.kwargs else None
        return told_by(trace, args) or asked
    return trace.settings_of(trainer.kwargs.get("strategy"))


def _arguments(trainer: Object) -> Object | None:
    args = trainer.get(1, "args")
    return args if isinstance(args, Object) else None


def _is_its_own(read: ReadCheckpoint, trainer: Object) -> bool:
    """True for a path that is one of the Trainer's checkpoints."""
    if trainer.cls.partition(".")[0] in TRAINERS:
        if "from_pretrained" not in read.how:
            return False
        asked = read.path.key == BEST and any(one is trainer for one in read.path.line())
        last = "get_last_checkpoint" in read.path.name
        return asked or (isinstance(read.path, Unknown) and last and _is_in(read.path.inputs, trainer))
    if read.path.key not in KEPT or "from_pretrained" in read.how:
        return False
    callbacks = trainer.kwargs.get("callbacks")
    listed = callbacks.items if isinstance(callbacks, Sequence) else [callbacks]
    return any(isinstance(one, Object) and (one is trainer or one in listed) for one in read.path.line())


def _is_in(inputs: tuple[Value, ...], trainer: Object) -> bool:
    """True for the folder that a Trainer writes to, by the same value or the same text."""
    args = _arguments(trainer)
    folder = args and args.get(0, "output_dir")
    for one in inputs:
        if one is folder or (one.key == "output_dir" and any(owner is args for owner in one.line())):
            return True
        if isinstance(one, Const) and isinstance(folder, Const) and one.value == folder.value:
            return True
    return False


RULE = Rule(check, code="FSDP321", severity=Severity.ERROR, since="0.1.0")
