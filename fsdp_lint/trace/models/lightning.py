"""Lightning: in which order its Trainer calls the hooks of a module, and what Fabric does with a model."""

from __future__ import annotations

from collections.abc import Sequence as Listing

from fsdp_lint.trace.events import Collective
from fsdp_lint.trace.models.api import Call, Machine
from fsdp_lint.trace.values import (
    Bound,
    Function,
    Mesh,
    Module,
    Object,
    Optimizer,
    Sequence,
    Unknown,
    Value,
)

LIBRARIES = ("lightning", "pytorch_lightning", "lightning_fabric")
# Its constructor takes the function that shards; the other strategies shard by themselves, and look after optimizers.
MODEL_PARALLEL = "ModelParallelStrategy"

# What Trainer.fit calls on a LightningModule, in order (lightning/pytorch/trainer/trainer.py, `_run`, and
# lightning/pytorch/loops; the docs page "Hooks" has the same as pseudo-code). The optimizers are configured after
# `configure_model`, and nothing gives them other parameters.
HOOKS = (
    "prepare_data",
    "setup",
    "configure_model",
    "configure_optimizers",
    "on_fit_start",
    "on_train_start",
    "on_train_epoch_start",
    "on_train_batch_start",
    "training_step",
    "on_before_zero_grad",
    "on_after_backward",
    "on_before_optimizer_step",
    "configure_gradient_clipping",
    "optimizer_step",
    "on_train_batch_end",
    "validation_step",
    "on_validation_epoch_end",
    "on_train_epoch_end",
    "on_save_checkpoint",
    "on_train_end",
    "on_fit_end",
    "teardown",
)
# Methods of Fabric that all processes must call (lightning/fabric/fabric.py says so of each).
TOGETHER = ("save", "load", "save_raw", "load_raw", "barrier", "all_gather", "all_reduce", "broadcast")


def is_lightning(bases: Listing[str]) -> bool:
    """True for a class with Lightning's module among its library bases."""
    return any(
        base.partition(".")[0] in LIBRARIES and base.rpartition(".")[2] in ("LightningModule", "LightningDataModule")
        for base in bases
    )


def in_order(methods: Listing[str]) -> list[str]:
    """Methods as the Trainer comes to them; those that are no hooks last."""
    return sorted(methods, key=lambda name: HOOKS.index(name) if name in HOOKS else len(HOOKS))


def fabric_call(run: Machine, owner: Object, method: str, call: Call) -> Value | None:
    """`fabric.setup(model, *optimizers)` and its like; None where what they do is not known."""
    library, last = owner.cls.partition(".")[0], owner.cls.rpartition(".")[2]
    if library not in LIBRARIES or last != "Fabric":
        return None
    if method in TOGETHER:
        run.emit(Collective, call.site, op=f"fabric.{method}", on=tuple(call.values()), plain=True)
        return None
    shards = _shards(owner)
    if shards is None or call.open:
        return None
    if method in ("setup", "setup_module"):
        model = call.get(0, "module")
        if not isinstance(model, Module):
            return None
        made = run.invoke(shards, Call(site=call.site, args=[model, Mesh(name="device_mesh")], name="parallelize_fn"))
        model = made if isinstance(made, Module) else model
        # The optimizers come back with the parameters that they had.
        return Sequence(items=[model, *call.args[1:]]) if call.args[1:] else model
    if method == "setup_optimizers" and len(call.args) == 1 and isinstance(call.args[0], Optimizer):
        return call.args[0]
    return None


def _shards(fabric: Object) -> Value | None:
    """The function that shards, where Fabric got a strategy that leaves it to one."""
    strategy = fabric.kwargs.get("strategy")
    if not isinstance(strategy, Object) or strategy.cls.rpartition(".")[2] != MODEL_PARALLEL:
        return None
    given = strategy.kwargs.get("parallelize_fn") or (strategy.args[0] if strategy.args else None)
    return given if isinstance(given, Function | Bound) else None


def trainer_saves(run: Machine, function: Value, call: Call) -> None:
    """`self.trainer.save_checkpoint(path)` in a LightningModule: all processes must call it."""
    trainer = function.owner
    inside = isinstance(trainer, Unknown) and trainer.key == "trainer" and isinstance(trainer.owner, Module)
    made = isinstance(trainer, Object) and trainer.cls.partition(".")[0] in LIBRARIES
    if inside or made:
        run.emit(Collective, call.site, op="save_checkpoint", on=tuple(call.values()), plain=True)
