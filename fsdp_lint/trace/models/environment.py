"""Ranks, environment variables, process groups, devices and meshes."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from fsdp_lint.trace.events import InitProcessGroup, MakeMesh, SetDevice, UseCuda
from fsdp_lint.trace.models import configs
from fsdp_lint.trace.models.api import NOTHING, Call, Machine, constant_name
from fsdp_lint.trace.values import (
    Choice,
    Const,
    External,
    Mapping,
    Mesh,
    Object,
    Rank,
    Sequence,
    Unknown,
    Value,
    WorldSize,
)

if TYPE_CHECKING:
    from fsdp_lint.source.file import Site

VARIABLES = {
    "RANK": "world",
    "SLURM_PROCID": "world",
    "OMPI_COMM_WORLD_RANK": "world",
    "LOCAL_RANK": "local",
    "SLURM_LOCALID": "local",
}
WORLD = ("WORLD_SIZE", "SLURM_NTASKS")
MAIN = re.compile(
    r"^_?(is_)?((global_|world_)?(main|master|leader|chief|primary)(_process|_rank|_worker)?|global_zero|rank_?zero|rank_?0"
    r"|world_process_zero|main_proc|rank_zero)$"
)
LOCAL_MAIN = re.compile(r"^_?is_local_(main|master)(_process|_rank)?$|^is_local_process_zero$")
ACCELERATOR = re.compile(r"(cuda|xpu|npu|hpu|mps|mtia)(:|$)")
CURRENT = re.compile(r"current_(accelerator|device|cuda_device)\(")


# What a function calls that says which process this is.
TELLING = frozenset({"get_rank", "get_node_local_rank", "init_process_group", "set_device"})


def is_size_name(name: str) -> bool:
    """True for what one calls the number of processes."""
    return name in ("world", "world_size", "n_ranks", "num_processes")


@functools.lru_cache(maxsize=1 << 12)
def rank_zero_name(name: str) -> str | None:
    """The scope ("world", "local") that an attribute or function of this name tests for; None for other names."""
    if LOCAL_MAIN.match(name):
        return "local"
    return (
        "world" if MAIN.match(name) and name not in ("main", "_main", "master", "primary", "leader", "chief") else None
    )


def get_rank(run: Machine, call: Call) -> Value:
    """`dist.get_rank(group)`."""
    group = call.get(0, "group")
    scope = "world" if group is None or (isinstance(group, Const) and group.value is None) else "group"
    return Rank(name="rank", scope=scope, owner=group if scope == "group" else None)


def local_rank(run: Machine, call: Call) -> Value:
    """`get_node_local_rank()` and its like."""
    return Rank(name="local_rank", scope="local")


def world_size(run: Machine, call: Call) -> Value:
    """`dist.get_world_size(group)`."""
    group = call.get(0, "group")
    whole = group is None or (isinstance(group, Const) and group.value is None)
    return WorldSize(name="world_size", owner=None if whole else group)


def size_and_rank(run: Machine, call: Call) -> Value:
    """torchtune's `get_world_size_and_rank()`."""
    return Sequence(items=[WorldSize(name="world_size"), Rank(name="rank", scope="world")])


def spawn(run: Machine, call: Call) -> Value:
    """`torch.multiprocessing.spawn(function, args=...)`: the function gets the number of the process first."""
    function, given = call.first("fn"), call.get(1, "args")
    args = given.items if isinstance(given, Sequence) and given.exact else []
    rest = [given] if given is not None and not args else []
    worker = Call(site=call.site, args=[Rank(name="rank"), *args], open=bool(rest), rest=rest, name=function.name)
    run.invoke(function, worker)
    return NOTHING


def distributed(run: Machine, call: Call) -> Value:
    """`dist.is_initialized()`, `dist.is_available()`: true in a run that shards."""
    return run.opaque_test(("distributed",), "single")


def variable(name: str) -> Value:
    """An environment variable."""
    if name in VARIABLES:
        return Rank(name=name.lower(), scope=VARIABLES[name])
    if name in WORLD:
        return WorldSize(name="world_size")
    return Unknown(name=name)


def getenv(run: Machine, call: Call) -> Value:
    """`os.getenv(name)` and `os.environ.get(name)`."""
    return _variable(run, constant_name(call.get(0, "key")))


def _variable(run: Machine, name: str) -> Value:
    if name in VARIABLES or name in WORLD:
        return variable(name)
    return run.child(run.external("os.environ"), f"[{name!r}]")


def set_variable(run: Machine, name: str, site: Site) -> None:
    """A variable of the environment is set: a process that sees one GPU has chosen its device."""
    if name == "CUDA_VISIBLE_DEVICES":
        run.emit(SetDevice, site, how=name)
    configs.set_variable(run, name, site)


def setdefault(run: Machine, call: Call) -> Value:
    """`os.environ.setdefault(name, value)`."""
    set_variable(run, constant_name(call.get(0, "key")), call.site)
    return getenv(run, call)


def update(run: Machine, call: Call) -> Value:
    """`os.environ.update({name: value})`."""
    given = call.get(0, "")
    names = [*given.items, *call.kwargs] if isinstance(given, Mapping) else [*call.kwargs]
    for name in names:
        set_variable(run, str(name), call.site)
    return NOTHING


def init_process_group(run: Machine, call: Call) -> Value:
    """`init_process_group(backend, ..., device_id=)`."""
    device_id = call.get(9, "device_id")
    run.emit(
        InitProcessGroup,
        call.site,
        backend=_backend(call.get(0, "backend")),
        device_id=device_id,
        kwargs_known=not call.open,
    )
    if device_id is not None:
        run.emit(SetDevice, call.site, how="device_id")
    return NOTHING


def _backend(value: Value | None) -> Value | None:
    """The name of a backend: `dist.Backend.NCCL` is the text "nccl"."""
    if isinstance(value, External) and value.dotted.rpartition(".")[0].endswith(".Backend"):
        return Const(value=value.dotted.rpartition(".")[2].lower())
    if isinstance(value, Object) and value.cls.endswith(".Backend") and value.args:
        return value.args[0]
    return value


def set_device(run: Machine, call: Call) -> Value:
    """`torch.cuda.set_device(device)`."""
    run.emit(SetDevice, call.site, how="set_device")
    return NOTHING


def device_context(run: Machine, call: Call) -> Value:
    """`with torch.cuda.device(i)`."""
    run.emit(SetDevice, call.site, how="torch.cuda.device")
    return Unknown()


def device(run: Machine, call: Call) -> Value:
    """`torch.device(...)`."""
    return Object(cls="torch.device", args=tuple(call.args), kwargs=dict(call.kwargs))


def init_device_mesh(run: Machine, call: Call) -> Value:
    """`init_device_mesh(device, sizes, mesh_dim_names=)`: sets the device of this process, too."""
    mesh = run.new(
        Mesh(
            name="mesh",
            device=call.first("device_type"),
            sizes=call.get(1, "mesh_shape"),
            names=call.kwargs.get("mesh_dim_names"),
        )
    )
    run.emit(MakeMesh, call.site, mesh=mesh)
    run.emit(SetDevice, call.site, how="init_device_mesh")
    return mesh


def cuda_default(run: Machine, call: Call) -> Value:
    """`torch.set_default_device("cuda")`."""
    if bare_cuda(call.first()):
        run.emit(UseCuda, call.site, value=Unknown(), how='set_default_device("cuda")')
    return NOTHING


def bare_cuda(value: Value | None) -> bool:
    """True for CUDA without an index: `"cuda"`, `torch.device("cuda")`, or either as one of two."""
    if isinstance(value, Const):
        return bool(value.value == "cuda")
    if isinstance(value, Object) and value.cls == "torch.device":
        return len(value.args) == 1 and not value.kwargs and bare_cuda(value.args[0])
    if isinstance(value, Choice):
        found = [bare_cuda(option) for option, _ in value.options]
        plain = [bare_cuda(o) or constant_name(o) == "cpu" or _is_cpu(o) for o, _ in value.options]
        return any(found) and all(plain)
    return False


def _is_cpu(value: Value) -> bool:
    if not isinstance(value, Object) or value.cls != "torch.device":
        return False
    return constant_name(value.args[0] if value.args else value.kwargs.get("type")) == "cpu"


def current_device(run: Machine, call: Call) -> Value:
    """`torch.cuda.current_device()`, `torch.accelerator.current_accelerator()`."""
    return Object(cls="torch.device", args=(Const(value="cuda"), Unknown(name="index")))


def on_accelerator(value: Value) -> bool:
    """True for a device that is certainly not the CPU."""
    if isinstance(value, Const):
        text = value.value
        return (isinstance(text, int) and not isinstance(text, bool)) or (
            isinstance(text, str) and bool(ACCELERATOR.match(text))
        )
    if isinstance(value, Object) and value.cls == "torch.device":
        return bool(value.args) and on_accelerator(value.args[0])
    if isinstance(value, Unknown):
        return bool(ACCELERATOR.match(value.begins) or CURRENT.search(value.name))
    return isinstance(value, Rank)


def mesh_slice(mesh: Mesh, index: Value) -> Mesh | None:
    """`mesh["name"]`, `mesh["one", "other"]`: the same each time; None where the names are not literal."""
    items = index.items if isinstance(index, Sequence) else [index]
    names = tuple(item.value for item in items if isinstance(item, Const) and isinstance(item.value, str))
    if len(names) != len(items):
        return None
    if names not in mesh.slices:
        text = ", ".join(repr(name) for name in names)
        known = mesh.dimension_names()
        sizes = mesh.sizes.items if isinstance(mesh.sizes, Sequence) and len(mesh.sizes.items) == len(known) else []
        picked = [sizes[known.index(name)] for name in names] if sizes and set(names) <= set(known) else None
        mesh.slices[names] = Mesh(
            name=f"{mesh.name}[{text}]".replace("'", '"'),
            device=mesh.device,
            sizes=Sequence(items=picked) if picked is not None else None,
            names=Sequence(items=[Const(value=name) for name in names]),
            of=mesh,
        )
    return mesh.slices[names]


FUNCTIONS = {
    "torch.distributed.get_rank": get_rank,
    "torch.distributed.distributed_c10d.get_rank": get_rank,
    "torch.distributed.get_node_local_rank": local_rank,
    "torch.distributed.get_world_size": world_size,
    "torchtune.utils.get_world_size_and_rank": size_and_rank,
    "torchtune.training.get_world_size_and_rank": size_and_rank,
    "torch.multiprocessing.spawn": spawn,
    "torch.multiprocessing.start_processes": spawn,
    "torch.multiprocessing.spawn.spawn": spawn,
    "torch.distributed.is_initialized": distributed,
    "torch.distributed.is_available": distributed,
    "torch.distributed.is_torchelastic_launched": distributed,
    "os.getenv": getenv,
    "os.environ.get": getenv,
    "os.environ.setdefault": setdefault,
    "os.environ.update": update,
    "torch.distributed.init_process_group": init_process_group,
    "torch.distributed.device_mesh.init_device_mesh": init_device_mesh,
    "torch.distributed.init_device_mesh": init_device_mesh,
    "torch.distributed.device_mesh.DeviceMesh": init_device_mesh,
    "torch.distributed.DeviceMesh": init_device_mesh,
    "torch.cuda.set_device": set_device,
    "torch.accelerator.set_device_index": set_device,
    "torch.accelerator.set_device_idx": set_device,
    "torch.cuda.current_device": current_device,
    "torch.accelerator.current_accelerator": current_device,
    "torch.cuda.device": device_context,
    "torch.device": device,
    "torch.set_default_device": cuda_default,
}
