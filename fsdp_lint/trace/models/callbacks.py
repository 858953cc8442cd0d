"""transformers' Trainer: what it calls on the callbacks that it is given."""

from __future__ import annotations

from fsdp_lint.trace.models.api import Call, Machine
from fsdp_lint.trace.values import Bound, Class, Instance, Object, Sequence, Unknown, Value

# In the order of a run (transformers/trainer_callback.py, `TrainerCallback`).
HOOKS = (
    "on_init_end",
    "on_train_begin",
    "on_epoch_begin",
    "on_step_begin",
    "on_pre_optimizer_step",
    "on_optimizer_step",
    "on_substep_end",
    "on_step_end",
    "on_log",
    "on_evaluate",
    "on_predict",
    "on_save",
    "on_epoch_end",
    "on_train_end",
)
ADDED = "added callbacks"


def add(run: Machine, trainer: Object, call: Call) -> None:
    """`trainer.add_callback(callback)`."""
    known = run.stored(trainer, ADDED)
    before = known.items if isinstance(known, Sequence) else []
    run.store(trainer, ADDED, Sequence(items=[*before, call.args[0]]))


def train(run: Machine, trainer: Object, call: Call) -> None:
    """`trainer.train()`: the hooks of the project's own callbacks are run."""
    listed = [trainer.kwargs.get("callbacks"), run.stored(trainer, ADDED)]
    for callback in [one for each in listed if isinstance(each, Sequence) for one in each.items]:
        made = run.invoke(callback, Call(site=call.site)) if isinstance(callback, Class) else callback
        for hook in HOOKS if isinstance(made, Instance) else ():
            method = run.attribute(made, hook)
            if isinstance(method, Bound):
                names = ("args", "state", "control")
                given: list[Value] = [Unknown(name=name, key=name, owner=trainer) for name in names]
                run.invoke(method, Call(site=call.site, args=given, open=True, name=hook))
