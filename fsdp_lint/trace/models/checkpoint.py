"""State dicts and files: torch.save, safetensors, pickle and torch.distributed.checkpoint."""

from __future__ import annotations

from fsdp_lint.trace.events import Collective, LoadState, Save, TakeState
from fsdp_lint.trace.models.api import NOTHING, Call, Machine, flag
from fsdp_lint.trace.values import Const, Object, Sequence, StateDict, Unknown, Value, parts

STATE = "torch.distributed.checkpoint.state_dict"
DCP = "torch.distributed.checkpoint"


def save(run: Machine, call: Call) -> Value:
    """`torch.save(content, path)` and its like."""
    content = call.get(0, "obj") or call.kwargs.get("tensors") or Unknown()
    path = call.get(1, "f") or call.kwargs.get("filename") or Unknown()
    run.emit(Save, call.site, content=content, path=path, path_by_rank=run.mentions_rank(path))
    return NOTHING


def options_form(options: Value | None) -> str:
    """What kind of state dict StateDictOptions asks for."""
    if options is None or (isinstance(options, Const) and options.value is None):
        return "sharded"
    if not isinstance(options, Object):
        return "unknown"
    full = options.kwargs.get("full_state_dict") or (options.args[0] if options.args else None)
    offload = options.kwargs.get("cpu_offload") or (options.args[1] if len(options.args) > 1 else None)
    if full is None or flag(full) is False:
        return "sharded"
    if flag(full) is None or (offload is not None and flag(offload) is None):
        return "unknown"
    return "full-rank0" if flag(offload) else "full"


def _state(run: Machine, call: Call, of: Value, form: str) -> StateDict:
    state = run.new(StateDict(name=f"{call.name}(...)", of=of, form=form))
    run.emit(TakeState, call.site, state=state)
    return state


def get_model_state_dict(run: Machine, call: Call) -> Value:
    """`get_model_state_dict(model, options=)`: a collective when a full one is asked for."""
    model = call.first("model")
    form = options_form(call.kwargs.get("options"))
    run.emit(Collective, call.site, op="get_model_state_dict", on=(model,))
    return _state(run, call, model, form)


def get_optimizer_state_dict(run: Machine, call: Call) -> Value:
    """`get_optimizer_state_dict(model, optimizers, options=)`."""
    form = options_form(call.kwargs.get("options"))
    run.emit(Collective, call.site, op="get_optimizer_state_dict", on=(call.first("model"),))
    return _state(run, call, call.get(1, "optimizers") or Unknown(), form)


def get_state_dict(run: Machine, call: Call) -> Value:
    """`get_state_dict(model, optimizers, options=)`: both."""
    form = options_form(call.kwargs.get("options"))
    model = call.first("model")
    run.emit(Collective, call.site, op="get_state_dict", on=(model,))
    return Sequence(
        items=[
            _state(run, call, model, form),
            _state(run, call, call.get(1, "optimizers") or Unknown(), form),
        ]
    )


def set_state_dict(run: Machine, call: Call) -> Value:
    """`set_model_state_dict` and its like: all ranks must take part."""
    op = call.name.rpartition(".")[2]
    run.emit(Collective, call.site, op=op, on=tuple(call.args[:1]))
    if op != "set_optimizer_state_dict":
        options = call.kwargs.get("options")
        broadcast = isinstance(options, Object) and flag(options.kwargs.get("broadcast_from_rank0")) is not False
        state = call.get(1, "model_state_dict") or call.kwargs.get("state_dict")
        run.emit(LoadState, call.site, into=(call.first("model"),), state=state, how=op, broadcast=broadcast)
    return Unknown()


def dcp(run: Machine, call: Call) -> Value:
    """`dcp.save`, `dcp.load`, `dcp.async_save`."""
    op = call.name.rpartition(".")[2]
    state = call.first("state_dict")
    if flag(call.kwargs.get("no_dist")) is not True:
        run.emit(
            Collective,
            call.site,
            op=f"torch.distributed.checkpoint.{op}",
            on=tuple(call.args[:1]),
            group=call.kwargs.get("process_group"),
        )
    if op.startswith("load"):
        into = [part.of if isinstance(part, StateDict) else part for part in parts(state)]
        run.emit(LoadState, call.site, into=tuple(into), state=state, how=f"torch.distributed.checkpoint.{op}")
    return Unknown()


def load_model(run: Machine, call: Call) -> Value:
    """`safetensors.torch.load_model(model, path)`."""
    run.emit(LoadState, call.site, into=(call.first("model"),), state=None, how="load_model")
    return Unknown()


def options(run: Machine, call: Call) -> Value:
    """StateDictOptions."""
    return Object(cls="StateDictOptions", args=tuple(call.args), kwargs=dict(call.kwargs))


FUNCTIONS = {
    "safetensors.torch.load_model": load_model,
    "torch.save": save,
    "safetensors.torch.save_file": save,
    "pickle.dump": save,
    f"{STATE}.get_model_state_dict": get_model_state_dict,
    f"{STATE}.get_optimizer_state_dict": get_optimizer_state_dict,
    f"{STATE}.get_state_dict": get_state_dict,
    f"{STATE}.set_model_state_dict": set_state_dict,
    f"{STATE}.set_optimizer_state_dict": set_state_dict,
    f"{STATE}.set_state_dict": set_state_dict,
    f"{STATE}.StateDictOptions": options,
    **{
        f"{DCP}{middle}.{name}": dcp
        for middle in ("", ".state_dict_saver", ".state_dict_loader")
        for name in ("save", "load", "async_save", "save_state_dict", "load_state_dict")
    },
}
