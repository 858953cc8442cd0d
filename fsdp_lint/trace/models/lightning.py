"""Lightning: in which order its Trainer calls the hooks of a module, and what Fabric does with a model."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Listing

from fsdp_lint.trace.events import Collective, ConfigureFSDP, ShardBySettings
from fsdp_lint.trace.models.api import Call, Machine, constant_name, flag
from fsdp_lint.trace.models.fsdp import WRAPPING
from fsdp_lint.trace.values import (
    Bound,
    Choice,
    Const,
    Function,
    Instance,
    Mesh,
    Module,
    Object,
    Optimizer,
    Sequence,
    Unknown,
    Value,
)

LIBRARIES = ("lightning", "pytorch_lightning", "lightning_fabric")
STRATEGY = "FSDPStrategy"
# Its constructor takes the function that shards; the other strategies shard by themselves, and look after optimizers.
MODEL_PARALLEL = "ModelParallelStrategy"

# What Trainer.fit calls on a LightningModule, in order (lightning/pytorch/trainer/trainer.py, `_run`, and
# lightning/pytorch/loops; the docs page "Hooks" has the same as pseudo-code). The optimizers are configured after
# `configure_model`, and nothing gives them other parameters.
HOOKS = (
    "prepare_data",
    "setup",
    "configure_sharded_model",
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
    "on_validation_end",
    "on_train_epoch_end",
    "on_save_checkpoint",
    "on_train_end",
    "on_fit_end",
    "teardown",
)
CONFIGURES = ("configure_sharded_model", "configure_model")
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
        run.emit(Collective, call.site, op=f"fabric.{method}", on=tuple(call.values()), plain=True, by=owner)
        return None
    if method == "backward":
        run.emit(Collective, call.site, op=method, on=tuple(call.values()), by=owner)
    shards = _shards(owner)
    if shards is None and method in ("setup", "setup_module"):
        model = call.get(0, "module")
        for fabric in each_way(run, owner) if isinstance(model, Module) else ():
            run.emit(ShardBySettings, call.site, model=model, by=fabric)
            _with_optimizers(run, fabric, call)
        return prepared(run, call)
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


def _with_optimizers(run: Machine, fabric: Object, call: Call) -> None:
    """`fabric.setup(model, optimizer)`: the event."""
    strategy = fabric.kwargs.get("strategy")
    if isinstance(strategy, Object) and any(isinstance(value, Optimizer) for value in call.args[1:]):
        run.emit(ConfigureFSDP, call.site, by="setup", options=dict(strategy.kwargs), arguments={}, made=fabric)


def each_way(run: Machine, trainer: Object) -> Iterator[Object]:
    """A Trainer or Fabric that shards by itself, as it is where its strategy is the one of several that does; nothing
    where none does. What is done with it is done under that condition."""
    strategy = trainer.kwargs.get("strategy")
    for option in run.options(strategy) if isinstance(strategy, Choice) else ():
        told = Object(
            cls=trainer.cls,
            args=trainer.args,
            kwargs={**trainer.kwargs, "strategy": option.value},
            site=trainer.site,
            name=trainer.name,
        )
        if shards_by_itself(told):
            with run.under(option):
                yield told
    if shards_by_itself(trainer):
        yield trainer


def shards_by_itself(trainer: Object) -> bool:
    """True where a Trainer or Fabric gets FSDPStrategy, or its name."""
    strategy = trainer.kwargs.get("strategy")
    made = isinstance(strategy, Object) and strategy.cls.rpartition(".")[2] == STRATEGY
    return made or constant_name(strategy) in ("fsdp", "fsdp_cpu_offload")


def runs_fsdp(trainer: Object) -> bool:
    """True where a Trainer or Fabric shards by itself, or by the function of its strategy."""
    strategy = trainer.kwargs.get("strategy")
    made = isinstance(strategy, Object) and strategy.cls.rpartition(".")[2] == MODEL_PARALLEL
    return made or shards_by_itself(trainer)


def fit(run: Machine, trainer: Object, model: Value | None, call: Call) -> None:
    """`trainer.fit(model)` with a strategy that shards by itself: the hooks of a module of the project are run, after
    those of its callbacks. What `training_step` gives has its backward; nothing, none."""
    if not isinstance(model, Module) or model.cls is None:
        return
    run.store(model, "trainer", trainer)
    listed = trainer.kwargs.get("callbacks")
    callbacks = [one for one in listed.items if isinstance(one, Instance)] if isinstance(listed, Sequence) else []
    for hook in HOOKS:
        for callback in callbacks:
            _run_hook(run, callback, hook, Call(site=call.site, args=[trainer, model], open=True, name=hook))
        method = run.attribute(model, hook)
        if isinstance(method, Bound):
            # The strategy says by what `wrap` wraps here (lightning/pytorch/strategies/fsdp.py, model_sharded_context).
            around = [WRAPPING] if hook in CONFIGURES else []
            run.contexts.extend(around)
            given = run.invoke(method, Call(site=call.site, open=True, name=hook))
            del run.contexts[len(run.contexts) - len(around) :]
            if hook == "training_step" and flag(run.stored(model, "automatic_optimization")) is not False:
                _go_back(run, trainer, given, call)


def _run_hook(run: Machine, callback: Instance, hook: str, call: Call) -> None:
    method = run.attribute(callback, hook)
    if isinstance(method, Bound):
        run.invoke(method, call)


def _go_back(run: Machine, trainer: Object, given: Value, call: Call) -> None:
    for option in run.options(given):
        if not (isinstance(option.value, Const) and option.value.value is None):
            with run.under(option):
                run.emit(Collective, call.site, op="backward", on=(option.value,), by=trainer)


def prepared(run: Machine, call: Call) -> Value | None:
    """What `accelerator.prepare(...)` and `fabric.setup(...)` give: for each model one that is called as a model is."""
    if call.open or call.kwargs or not any(isinstance(value, Module) for value in call.args):
        return None
    run.hand(call, call.name)
    made: list[Value] = [Unknown(name=value.name, inputs=(value,)) for value in call.args]
    run.touched.update(one.number for one, value in zip(made, call.args, strict=True) if isinstance(value, Module))
    return Sequence(items=made) if len(made) > 1 else made[0]


def _shards(fabric: Object) -> Value | None:
    """The function that shards, where Fabric got a strategy that leaves it to one."""
    strategy = fabric.kwargs.get("strategy")
    if not isinstance(strategy, Object) or strategy.cls.rpartition(".")[2] != MODEL_PARALLEL:
        return None
    given = strategy.get(0, "parallelize_fn")
    return given if isinstance(given, Function | Bound) else None


def trainer_saves(run: Machine, function: Value, call: Call) -> None:
    """`self.trainer.save_checkpoint(path)` in a LightningModule: all processes must call it."""
    trainer = function.owner
    inside = isinstance(trainer, Unknown) and trainer.key == "trainer" and isinstance(trainer.owner, Module)
    made = isinstance(trainer, Object) and trainer.cls.partition(".")[0] in LIBRARIES
    if inside or made:
        by = trainer if made else None
        run.emit(Collective, call.site, op="save_checkpoint", on=tuple(call.values()), plain=True, by=by)
