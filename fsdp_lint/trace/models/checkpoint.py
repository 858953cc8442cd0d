"""State dicts and files: torch.save, safetensors, pickle and torch.distributed.checkpoint."""

from __future__ import annotations

from collections.abc import Container

from fsdp_lint.trace.events import Collective, LoadState, ReadCheckpoint, ReadWhole, Save, TakeState
from fsdp_lint.trace.models import frameworks
from fsdp_lint.trace.models.api import NOTHING, Call, Machine, Option, constant_name, flag
from fsdp_lint.trace.values import (
    Bound,
    Const,
    Guards,
    Instance,
    Loaded,
    Mapping,
    Module,
    Object,
    Sequence,
    StateDict,
    Unknown,
    Value,
    parts,
)

STATE = "torch.distributed.checkpoint.state_dict"
# Where all of these are defined in one file, it is a copy of torch's own.
COPIED = frozenset(
    {"StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "set_model_state_dict", "set_state_dict"}
)
DCP = "torch.distributed.checkpoint"
# Arguments of from_pretrained by which not every process reads, or keeps, the whole checkpoint.
PLACING = frozenset({"device_map", "tp_plan", "tp_size", "low_cpu_mem_usage", "device_mesh", "state_dict", "gguf_file"})


def save(run: Machine, call: Call) -> Value:
    """`torch.save(content, path)` and its like."""
    content = call.get(0, "obj") or call.kwargs.get("tensors") or Unknown()
    path = call.get(1, "f") or call.kwargs.get("filename") or Unknown()
    run.emit(Save, call.site, content=content, path=path, path_by_rank=run.mentions_rank(path))
    return NOTHING


def copied(name: str, defined: Container[str]) -> str:
    """The dotted name of what a project's copy of torch's file defines under a name; empty elsewhere."""
    dotted = f"{STATE}.{name}"
    return dotted if dotted in FUNCTIONS and all(each in defined for each in COPIED) else ""


def options_form(options: Value | None) -> str:
    """What kind of state dict StateDictOptions asks for."""
    if options is None or (isinstance(options, Const) and options.value is None):
        return "sharded"
    if not isinstance(options, Object):
        return "unknown"
    full, offload = options.get(0, "full_state_dict"), options.get(1, "cpu_offload")
    if full is None or flag(full) is False:
        return "sharded"
    if flag(full) is None or (offload is not None and flag(offload) is None):
        return "unknown"
    return "full-rank0" if flag(offload) else "full"


def _state(run: Machine, call: Call, of: Value, form: str) -> StateDict:
    state = run.new(StateDict(name=f"{call.name}(...)", of=of, form=form))
    run.emit(TakeState, call.site, state=state, options=call.kwargs.get("options"))
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


def load(run: Machine, call: Call) -> Value:
    """`torch.load(path)` and its like."""
    path = call.get(0, "f") or Unknown()
    made = run.new(Loaded(inputs=(path,), path_by_rank=run.mentions_rank(path)))
    run.emit(ReadCheckpoint, call.site, path=path, how="torch.load")
    mapped = "mmap" in call.kwargs and flag(call.kwargs["mmap"]) is not False
    if not mapped and not call.open and constant_name(call.get(1, "map_location")) != "meta":
        run.emit(ReadWhole, call.site, value=made)
    return made


def note_pretrained(run: Machine, dotted: str, call: Call, made: Module) -> None:
    """`from_pretrained(...)`: each process reads the whole checkpoint, where no argument says otherwise."""
    path = call.get(0, "pretrained_model_name_or_path")
    if path is not None and frameworks.has_blocks(dotted):
        run.emit(ReadCheckpoint, call.site, path=path, how=dotted)
    # Around a model, an adapter alone is read.
    if dotted.startswith("peft.Peft") or any(isinstance(one, Module) for one in call.args[:1]) or call.open:
        return
    guards: Guards = ()
    for name in PLACING & call.kwargs.keys():
        options = run.options(call.kwargs[name])
        off = [
            one
            for one in options
            if isinstance(one.value, Const) and (one.value.value is None or flag(one.value) is False)
        ]
        if len(off) != 1:
            return
        guards += off[0].guards
    with run.under(Option(made, guards)):
        run.emit(ReadWhole, call.site, value=made)


def load_mapped(run: Machine, call: Call) -> Value:
    """safetensors' `load_file` and `safe_open`, which read what is asked for."""
    path = call.get(0, "filename") or Unknown()
    return run.new(Loaded(inputs=(path,), path_by_rank=run.mentions_rank(path)))


def set_model_state_dict(run: Machine, call: Call) -> Value:
    """`set_model_state_dict(model, state, options=)`: all ranks must take part."""
    model = call.first("model")
    run.emit(Collective, call.site, op="set_model_state_dict", on=(model,))
    _put(run, call, model, call.get(1, "model_state_dict") or call.kwargs.get("state_dict"))
    return Unknown()


def set_optimizer_state_dict(run: Machine, call: Call) -> Value:
    """`set_optimizer_state_dict(model, optimizers, state, options=)`."""
    run.emit(Collective, call.site, op="set_optimizer_state_dict", on=(call.first("model"),))
    _put(run, call, call.get(1, "optimizers"), call.get(2, "optim_state_dict"))
    return Unknown()


def set_state_dict(run: Machine, call: Call) -> Value:
    """`set_state_dict(model, optimizers, model_state_dict=, optim_state_dict=, options=)`: both."""
    run.emit(Collective, call.site, op="set_state_dict", on=(call.first("model"),))
    _put(run, call, call.first("model"), call.kwargs.get("model_state_dict"))
    _put(run, call, call.get(1, "optimizers"), call.kwargs.get("optim_state_dict"))
    return Unknown()


def _put(run: Machine, call: Call, into: Value | None, state: Value | None) -> None:
    if into is None:
        return
    options = call.kwargs.get("options")
    form = options_form(options).partition("-")[0].replace("sharded", "own")
    run.emit(
        LoadState,
        call.site,
        into=(into,),
        state=state,
        how=call.name.rpartition(".")[2],
        broadcast=isinstance(options, Object) and flag(options.kwargs.get("broadcast_from_rank0")) is not False,
        form="unknown" if call.open else form,
    )


def dcp(run: Machine, call: Call) -> Value:
    """`dcp.save`, `dcp.load`, `dcp.async_save`."""
    op = call.name.rpartition(".")[2]
    if flag(call.kwargs.get("no_dist")) is not True:
        run.emit(
            Collective,
            call.site,
            op=f"torch.distributed.checkpoint.{op}",
            on=tuple(call.args[:1]),
            group=call.kwargs.get("process_group"),
        )
    return Unknown()


def dcp_load(run: Machine, call: Call) -> Value:
    """`dcp.load(state)`: asks objects in it for their state, fills that, and gives it back to them."""
    dcp(run, call)
    state = run.possible(call.first("state_dict"))
    found = state
    owners: list[tuple[Value, Value]] = []
    if isinstance(state, Mapping):
        found = Mapping(items=dict(state.items), rest=list(state.rest), open=state.open)
        for key, value in state.items.items():
            if isinstance(value, Instance) and isinstance(run.attribute(value, "state_dict"), Bound):
                found.items[key] = run.invoke(run.attribute(value, "state_dict"), Call(site=call.site))
                owners.append((value, found.items[key]))
    into = tuple(part.of if isinstance(part, StateDict) else part for part in parts(found))
    how = f"torch.distributed.checkpoint.{call.name.rpartition('.')[2]}"
    run.emit(LoadState, call.site, into=into, state=found, how=how, form="filled")
    for owner, content in owners:
        method = run.attribute(owner, "load_state_dict")
        if isinstance(method, Bound):
            run.invoke(method, Call(site=call.site, args=[content]))
    return Unknown()


def load_model(run: Machine, call: Call) -> Value:
    """`safetensors.torch.load_model(model, path)`."""
    run.emit(LoadState, call.site, into=(call.first("model"),), state=None, how="load_model", form="unknown")
    return Unknown()


def options(run: Machine, call: Call) -> Value:
    """StateDictOptions."""
    return Object(cls="StateDictOptions", args=tuple(call.args), kwargs=dict(call.kwargs), site=call.site)


FUNCTIONS = {
    "safetensors.torch.load_model": load_model,
    "torch.save": save,
    "safetensors.torch.save_file": save,
    "pickle.dump": save,
    **dict.fromkeys(
        (
            "torch.load",
            "torch.hub.load_state_dict_from_url",
            "pickle.load",
        ),
        load,
    ),
    **dict.fromkeys(("safetensors.torch.load_file", "safetensors.safe_open"), load_mapped),
    f"{STATE}.get_model_state_dict": get_model_state_dict,
    f"{STATE}.get_optimizer_state_dict": get_optimizer_state_dict,
    f"{STATE}.get_state_dict": get_state_dict,
    f"{STATE}.set_model_state_dict": set_model_state_dict,
    f"{STATE}.set_optimizer_state_dict": set_optimizer_state_dict,
    f"{STATE}.set_state_dict": set_state_dict,
    f"{STATE}.StateDictOptions": options,
    **{
        f"{DCP}{middle}.{name}": dcp_load if name.startswith("load") else dcp
        for middle in ("", ".state_dict_saver", ".state_dict_loader")
        for name in ("save", "load", "async_save", "save_state_dict", "load_state_dict")
    },
}
