"""Optimizers: torch's, other libraries', and those made by a name."""

from __future__ import annotations

import functools
import re

from fsdp_lint.trace.events import BuildOptimizer, LoadState, RepointOptimizer, Step, TakeState
from fsdp_lint.trace.models.api import NOTHING, Call, Machine
from fsdp_lint.trace.values import Mapping, Optimizer, StateDict, Unknown, Value, parts

NAME = re.compile(
    r"(optimi[sz]er|optim$|optim_|adam|sgd|muon|lion|adafactor|adagrad|lamb\b|lars\b|shampoo|sophia|rmsprop|rprop|lbfgs|soap)",
    re.IGNORECASE,
)
NOT_OPTIMIZERS = re.compile(
    r"(scheduler|zero_grad|state|clip|wrap|prepare|param_groups?|group|count|log|norm)", re.IGNORECASE
)


# torch.optim's own, by the names of their classes.
TORCH = frozenset(
    [
        "ASGD",
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "LBFGS",
        "Muon",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
        "SparseAdam",
    ]
)


def is_torch_optimizer(cls: str) -> bool:
    """True for the classes of torch.optim, which keep no master weights and round as the parameters' type does."""
    return cls.rpartition(".")[2] in TORCH


def build(run: Machine, name: str, call: Call) -> Value | None:
    """An optimizer from a call that gets parameters first; None when it gets none."""
    first = call.get(0, "params")
    if first is None:
        first = call.kwargs.get("parameters") or call.kwargs.get("model_params")
    if first is None:
        return None
    holds = run.collect(first, call.site)
    kwargs = dict(call.kwargs)
    if name == "SGD" and len(call.args) > 2:
        kwargs.setdefault("momentum", call.args[2])
    groups = sum(isinstance(part, Mapping) for part in parts(first))
    optimizer = run.new(Optimizer(holds=tuple(holds), groups=groups, cls=name, kwargs=kwargs))
    run.emit(BuildOptimizer, call.site, optimizer=optimizer)
    return optimizer


@functools.lru_cache(maxsize=1 << 12)
def is_optimizer_name(name: str) -> bool:
    """True for names of things that build optimizers."""
    last = name.rpartition(".")[2]
    return bool(NAME.search(last)) and not NOT_OPTIMIZERS.search(last)


def step(run: Machine, call: Call) -> Value:
    """`optimizer.step()`."""
    if isinstance(call.self_value, Optimizer):
        run.emit(Step, call.site, optimizer=call.self_value)
    return NOTHING


def state_dict(run: Machine, call: Call) -> Value:
    """`optimizer.state_dict()`."""
    state = run.new(StateDict(name=f"{call.self_value.name}.state_dict()", of=call.self_value, form="raw"))
    run.emit(TakeState, call.site, state=state)
    return state


def load_state_dict(run: Machine, call: Call) -> Value:
    """`optimizer.load_state_dict(state)`."""
    run.emit(LoadState, call.site, into=(call.self_value,), state=call.get(0, "state_dict"), how="load_state_dict")
    return NOTHING


def repoint(run: Machine, call: Call) -> Value:
    """`optimizer.add_param_group(group)`."""
    if isinstance(call.self_value, Optimizer):
        run.emit(RepointOptimizer, call.site, optimizer=call.self_value)
    return NOTHING


def nothing(run: Machine, call: Call) -> Value:
    """Methods that change nothing that rules speak of."""
    return Unknown()


def hook(run: Machine, call: Call) -> Value:
    """`optimizer.register_step_post_hook(fn)`: fn gets the optimizer and the step's arguments."""
    run.invoke(call.first("hook"), Call(site=call.site, args=[call.self_value, Unknown(), Unknown()], name="hook"))
    return Unknown()


METHODS = {
    "step": step,
    "state_dict": state_dict,
    "add_param_group": repoint,
    "zero_grad": nothing,
    "load_state_dict": load_state_dict,
    "register_step_post_hook": hook,
    "register_step_pre_hook": hook,
}
