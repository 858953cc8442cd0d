"""Library calls that put something into a model, or copy all of it: adapters, embeddings, moving averages."""

from __future__ import annotations

from fsdp_lint.trace.events import Attach
from fsdp_lint.trace.models.api import Call, Machine
from fsdp_lint.trace.models.python import copy_modules
from fsdp_lint.trace.values import Module, Unknown, Value


def adapt(run: Machine, call: Call) -> Value:
    """`get_peft_model(model, config)`: layers of the model are replaced by larger ones, and it is wrapped."""
    model = call.first("model")
    run.emit(Attach, call.site, module=model, how="get_peft_model")
    run.hand(call, "peft.get_peft_model")
    return run.new(Module(name=model.name, library="peft.PeftModel", wraps=model, owner=model.owner, built=True))


def inject(run: Machine, call: Call) -> Value:
    """`inject_adapter_in_model(config, model)`: the same without a wrapper."""
    model = call.get(1, "model") or Unknown()
    run.emit(Attach, call.site, module=model, how="inject_adapter_in_model")
    run.hand(call, "peft.inject_adapter_in_model")
    return model


def resize(run: Machine, call: Call) -> Value:
    """`model.resize_token_embeddings(n)`: embedding and head become new modules."""
    run.emit(Attach, call.site, module=call.self_value, how="resize_token_embeddings")
    return Unknown(name="embedding")


def add_adapter(run: Machine, call: Call) -> Value:
    """`model.add_adapter(config)`."""
    run.emit(Attach, call.site, module=call.self_value, how="add_adapter")
    return Unknown()


def copying(run: Machine, call: Call) -> Value:
    """`AveragedModel(model)`, `ModelEmaV2(model)`: holds a deep copy of the model."""
    copy_modules(run, call, call.name)
    return Unknown(name=call.name and f"{call.name}(...)", inputs=tuple(call.values()))


FUNCTIONS = {
    "peft.get_peft_model": adapt,
    "peft.inject_adapter_in_model": inject,
    **dict.fromkeys(
        (
            "torch.optim.swa_utils.AveragedModel",
            "timm.utils.ModelEma",
            "timm.utils.ModelEmaV2",
            "timm.utils.ModelEmaV3",
        ),
        copying,
    ),
}
METHODS = {"resize_token_embeddings": resize, "add_adapter": add_adapter}
