"""Runs fixture programs on forked gloo ranks and judges the probe that each of them names.

A program is an ordinary training script. It says in a `# /// verify` block how many ranks it wants and which probe must
fail when it is a `bad_` program and hold when it is not. One process with torch loaded forks the ranks, so a run costs
no import. The ranks share an empty folder as their working directory, never outlive their parent, and are killed with
their children when the time is up.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import gc
import importlib
import json
import math
import os
import pickle
import re
import runpy
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from fsdp_lint.verify import processes
from fsdp_lint.verify.processes import Ending, Limits, free_port, torchrun_environment

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

torch: Any = None  # loaded by `load_torch`, once, in the parent

WANTED_BY_RANKS = (  # what a program imports late, loaded before the fork
    "torch.distributed.checkpoint.format_utils",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.device_mesh",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "torch.nn.parallel",
    "torch._dynamo",
)
GROUP_TIMEOUT = 5.0  # seconds after which a collective that not every rank has reached raises
TIME_LIMIT = 60.0  # seconds after which a rank that has not ended is killed
GRACE = 8.0  # seconds that the others get once one rank has failed


def load_torch() -> Any:
    """Torch, with all that the programs need of it. Raises ImportError where it is not installed."""
    global torch
    if torch is None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch = importlib.import_module("torch")
            for name in WANTED_BY_RANKS:
                importlib.import_module(name)
    return torch


def _module(name: str) -> Any:
    return importlib.import_module(name)


@dataclass(frozen=True)
class Program:
    """A fixture program: the file to run, and what its verify block says."""

    name: str
    entry: Path
    verify: Mapping[str, Any]

    @property
    def bad(self) -> bool:
        """Whether its probe must fail."""
        return self.name.rpartition("/")[2].startswith("bad_")

    @property
    def probe(self) -> str:
        return str(self.verify["probe"])

    @property
    def ranks(self) -> int:
        return int(self.verify.get("ranks", 2))


@dataclass(frozen=True)
class Rank:
    """How one rank ended: "ok", "error", "died" (a signal) or "hang" (killed when the time was up)."""

    outcome: str
    error: str
    output: str
    measured: Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """All ranks of one run, and the two folders it left: what the program wrote, and what the watch wrote."""

    ranks: tuple[Rank, ...]
    files: Path
    notes: Path

    @property
    def trouble(self) -> str | None:
        """The first rank that did not end well, in words; None where all did."""
        for number, rank in enumerate(self.ranks):
            if rank.outcome != "ok":
                return f"rank {number}: {rank.outcome} {rank.error}".rstrip()
        return None


def read_verify(text: str) -> dict[str, Any] | None:
    """The TOML in a program's `# /// verify` block; None where there is no such block."""
    block = re.search(r"^# /// verify\n((?:#(?: .*)?\n)+?)# ///$", text, re.MULTILINE)
    if block is None:
        return None
    return tomllib.loads("".join(line[2:] + "\n" for line in block[1].splitlines()))


def programs(fixtures: Path) -> Iterator[Program]:
    """Every fixture program that has a verify block. In a folder of several files, `train.py` is the entry."""
    for folder in sorted(path for path in fixtures.iterdir() if path.is_dir()):
        for path in sorted(folder.iterdir()):
            entry = path / "train.py" if path.is_dir() else path
            if entry.suffix == ".py" and entry.is_file():
                verify = read_verify(entry.read_text(encoding="utf-8"))
                if verify is not None:
                    yield Program(f"{folder.name}/{path.stem}", entry, verify)


# ------------------------------------------------------------------------------------------------------- the ranks


def fork_ranks(target: Callable[[], Mapping[str, Any]], ranks: int, folder: Path, limit: float = TIME_LIMIT) -> Run:
    """Runs `target` on forked ranks that have torchrun's variables; what it returns is what was measured."""
    load_torch()
    files, notes = folder / "files", folder / "notes"
    files.mkdir(parents=True)
    notes.mkdir()
    port = free_port()
    endings = processes.fork_ranks(
        lambda rank: _be_a_rank(target, rank, files, notes),
        lambda rank: torchrun_environment(rank, ranks, port),
        ranks,
        notes,
        Limits(whole=limit, grace=GRACE),
    )
    return Run(tuple(_read_rank(notes, rank, ending) for rank, ending in enumerate(endings)), files, notes)


def _read_rank(notes: Path, rank: int, ending: Ending) -> Rank:
    output = (notes / f"{rank}.log").read_text(encoding="utf-8", errors="replace")
    note = notes / f"{rank}.json"
    if note.is_file():
        told = json.loads(note.read_text(encoding="utf-8"))
        return Rank("error" if told["error"] else "ok", told["error"], output, told["measured"])
    if ending.late:
        return Rank("hang", "", output, {})
    return Rank("died", f"by signal {ending.signal}", output, {})


def _be_a_rank(target: Callable[[], Mapping[str, Any]], rank: int, files: Path, notes: Path) -> int:
    """Runs in the forked child and writes what happened; its exit code."""
    error, measured = "", {}
    try:
        os.chdir(files)
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        torch.seed()  # as in a process of its own, which draws its own
        measured = dict(target())
        if "error" in measured:
            error = str(measured.pop("error"))
    except BaseException as problem:
        traceback.print_exc()
        error = f"{type(problem).__name__}: {problem}"
    unfinished = notes / f"{rank}.json.part"
    unfinished.write_text(json.dumps({"error": error, "measured": measured}), encoding="utf-8")
    unfinished.rename(notes / f"{rank}.json")
    return 1 if error else 0


@dataclass
class Watch:
    """What one rank sees of a program while it runs: hooks around torch, put in before the program is loaded."""

    program: Program
    notes: Path
    roots: list[Any] = field(default_factory=list)
    alive: dict[int, Any] = field(default_factory=dict)
    sharded: list[Any] = field(default_factory=list)
    before: dict[str, list[float]] = field(default_factory=dict)
    replaced: list[weakref.ref[Any]] = field(default_factory=list)
    stale: int | None = None
    written: list[str] = field(default_factory=list)
    private_imports: list[str] = field(default_factory=list)
    all_gathers: list[int] = field(default_factory=lambda: [0])
    batches: list[list[float]] = field(default_factory=list)
    states: dict[int, list[list[float]]] = field(default_factory=dict)
    resumed: list[bool] = field(default_factory=list)
    gathered: list[int] = field(default_factory=list)
    read_whole: int = 0

    def install(self) -> None:
        self._watch_sharding()
        self._watch_training()
        self._watch_files()
        self._watch_reading()
        if self.program.probe == "whole-on-one-rank":
            self._watch_gathering()
        self._watch_imports()
        self._limit_collectives()
        if self.program.verify.get("foreach"):
            self._prefer_foreach()
        if self.program.probe == "values-written":
            torch.use_deterministic_algorithms(True, warn_only=True)  # new memory is filled with NaN, too

    # what is put in

    def _watch_sharding(self) -> None:
        fsdp = _module("torch.distributed.fsdp")
        real = fsdp.fully_shard

        @functools.wraps(real)
        def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
            for part in module if isinstance(module, (list, tuple)) else [module]:
                self._about_to_shard(part)
            return real(module, *args, **kwargs)

        for home in ("fsdp", "fsdp._fully_shard", "_composable.fsdp"):
            _module(f"torch.distributed.{home}").fully_shard = fully_shard

        wrapper = fsdp.FullyShardedDataParallel
        start = wrapper.__init__

        def init(this: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            self._about_to_shard(module)
            start(this, module, *args, **kwargs)
            self.sharded.append(this)

        wrapper.__init__ = init

    def _about_to_shard(self, module: Any) -> None:
        if isinstance(module, torch.nn.Module):
            self.sharded.append(module)
            if self.program.probe == "no-stale-parameters":  # to_empty refuses tensors with weak references
                self.replaced += [weakref.ref(parameter) for parameter in module.parameters()]

    def _watch_training(self) -> None:
        torch.nn.modules.module.register_module_forward_pre_hook(self._about_to_call)
        optimizers = _module("torch.optim.optimizer")
        optimizers.register_optimizer_step_post_hook(lambda *_: self.all_gathers.append(0))
        if self.program.probe == "optimizer-resumes":
            optimizers.register_optimizer_step_pre_hook(lambda optimizer, *_: self._about_to_step(optimizer))
            optimizers.register_optimizer_step_post_hook(lambda optimizer, *_: self._has_stepped(optimizer))
        real = torch.Tensor.backward

        @functools.wraps(real)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self.stale is None:
                gc.collect()
                live = {id(parameter) for root in self.roots for parameter in root.parameters()}
                held = {id(kept) for kept in (ref() for ref in self.replaced) if kept is not None}
                self.stale = len(held - live)
            return real(*args, **kwargs)

        torch.Tensor.backward = backward

    def _about_to_step(self, optimizer: Any) -> None:
        """A second optimizer should begin where the first has stopped; steps of no length make torch's empty state."""
        if not any(float(group["lr"]) for group in optimizer.param_groups):
            return
        if self.states and id(optimizer) not in self.states:
            self.resumed.append(_state_sums(optimizer) == list(self.states.values())[-1])

    def _has_stepped(self, optimizer: Any) -> None:
        self.alive[id(optimizer)] = optimizer
        if not any(float(group["lr"]) for group in optimizer.param_groups):
            return
        self.states[id(optimizer)] = _state_sums(optimizer)

    def _about_to_call(self, module: Any, inputs: tuple[Any, ...]) -> None:
        """The outermost module that is called and holds a sharded one is a model."""
        self.alive[id(module)] = module  # taking DDP down after its process group hangs now and then
        parts = {id(part) for part in module.modules()}
        if any(id(module) in {id(part) for part in root.modules()} for root in self.roots):
            return
        if any(id(part) in parts for part in self.sharded):
            self.roots.append(module)
            self.before |= self._checksums(len(self.roots) - 1)
            self.batches += [_checksum(value) for value in inputs if isinstance(value, torch.Tensor)]
            if self.program.probe == "starts-as-alone":
                self._keep_values("start.pt")

    def _watch_files(self) -> None:
        for home, name, place in ((torch, "save", 1), (pickle, "dump", 1)):
            self._watch_writer(home, name, place)
        with contextlib.suppress(ImportError):
            self._watch_writer(_module("safetensors.torch"), "save_file", 1)

    def _watch_writer(self, home: Any, name: str, place: int) -> None:
        real = getattr(home, name)

        @functools.wraps(real)
        def write(*args: Any, **kwargs: Any) -> Any:
            where = args[place] if len(args) > place else kwargs.get("f", kwargs.get("filename"))
            path = where if isinstance(where, (str, os.PathLike)) else getattr(where, "name", None)
            if isinstance(path, (str, os.PathLike)):
                self.written.append(os.path.abspath(path))
            return real(*args, **kwargs)

        setattr(home, name, write)

    def _watch_reading(self) -> None:
        real = torch.load

        @functools.wraps(real)
        def load(*args: Any, **kwargs: Any) -> Any:
            self.read_whole += not kwargs.get("mmap")
            return real(*args, **kwargs)

        torch.load = load

    def _watch_gathering(self) -> None:
        """How many entries each full state dict has here, whoever asks for it."""
        home = _module("torch.distributed.checkpoint.state_dict")
        real = home.get_model_state_dict

        @functools.wraps(real)
        def get_model_state_dict(*args: Any, **kwargs: Any) -> Any:
            state = real(*args, **kwargs)
            self.gathered.append(sum(not _is_dtensor(value) for value in state.values()))
            return state

        home.get_model_state_dict = get_model_state_dict
        wrapper = _module("torch.distributed.fsdp").FullyShardedDataParallel
        take = wrapper.state_dict

        def state_dict(this: Any, *args: Any, **kwargs: Any) -> Any:
            state = take(this, *args, **kwargs)
            self.gathered.append(len(state))
            return state

        wrapper.state_dict = state_dict

    def _watch_imports(self) -> None:
        real = builtins.__import__
        folder = str(self.program.entry.parent)

        def watched(name: str, globals: Any = None, *args: Any, **kwargs: Any) -> Any:
            asker = (globals or {}).get("__file__") or ""
            private = any(part.startswith("_") for part in name.split("."))
            if asker.startswith(folder) and name.startswith("torch.distributed") and private:
                self.private_imports.append(name)
            return real(name, globals, *args, **kwargs)

        builtins.__import__ = watched

    def _limit_collectives(self) -> None:
        dist = _module("torch.distributed")
        real = dist.init_process_group

        @functools.wraps(real)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            return real(*args, **(kwargs | {"timeout": timedelta(seconds=GROUP_TIMEOUT)}))

        dist.init_process_group = init_process_group

    def _prefer_foreach(self) -> None:
        """On a GPU optimizers take the foreach path by default; on the CPU they do not, and hide errors."""
        home = _module("torch.optim.optimizer")
        real = home._get_foreach_kernels_supported_devices
        home._get_foreach_kernels_supported_devices = lambda: [*real(), "cpu"]

    # the run, and what is read after it

    def run(self) -> dict[str, Any]:
        sys.argv = [str(self.program.entry)]
        sys.path.insert(0, str(self.program.entry.parent))
        error = ""
        with self._counting() if self.program.probe == "collectives" else contextlib.nullcontext():
            try:
                runpy.run_path(str(self.program.entry), run_name="__main__")
            except SystemExit as stop:
                error = f"SystemExit: {stop.code}" if stop.code else ""
            except BaseException as problem:
                traceback.print_exc()
                error = f"{type(problem).__name__}: {problem}"
        return self._measure() | ({"error": error} if error else {})

    def _counting(self) -> Any:
        mode = _module("torch.utils._python_dispatch").TorchDispatchMode
        gathers = ("_allgather_base_", "allgather_", "all_gather_into_tensor", "all_gather_into_tensor_out")
        counts = self.all_gathers

        class Counting(mode):  # type: ignore[misc, valid-type]
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                if any(kind.__name__ == "DTensor" for kind in types):
                    return NotImplemented
                space, _, name = func._schema.name.partition("::")
                if space in ("c10d", "_c10d_functional") and name in gathers:
                    counts[-1] += 1
                return func(*args, **(kwargs or {}))

        return Counting()

    def _measure(self) -> dict[str, Any]:
        covered = {id(part) for root in self.roots for part in root.modules()}
        for module in reversed(self.sharded):  # models that were never called
            if id(module) not in covered:
                self.roots.append(module)
                covered |= {id(part) for part in module.modules()}
        after: dict[str, list[float]] = {}
        plain: dict[str, list[float]] = {}
        for number in range(len(self.roots)):
            sums = self._checksums(number)
            after |= sums
            parameters = dict(self.roots[number].named_parameters())
            plain |= {k: v for k, v in sums.items() if not _is_dtensor(parameters[k.partition(":")[2]])}
        self._keep_values("pt")
        trained = {n for r in self.roots for n, p in r.named_parameters() if p.requires_grad}
        return {
            "changed": {k: after.get(k) != v for k, v in self.before.items() if k.partition(":")[2] in trained},
            "plain": plain,
            "stale": self.stale,
            "units": sum(_units(root) for root in self.roots),
            "written": self.written,
            "private_imports": self.private_imports,
            "all_gathers": self.all_gathers[:-1],
            "unwritten": sorted({name for root in self.roots for name in _unwritten(root)}),
            "shares": {name: _share(value) for root in self.roots for name, value in root.named_parameters()},
            "batches": self.batches,
            "resumed": self.resumed,
            "gathered": self.gathered,
            "read_whole": self.read_whole,
        }

    def _checksums(self, number: int) -> dict[str, list[float]]:
        root = self.roots[number]
        _reshard(root)
        return {f"{number}:{name}": _checksum(value) for name, value in root.named_parameters()}

    def _keep_values(self, ending: str) -> None:
        """This rank's part of every parameter, for the parent to put the whole model together."""
        values: dict[str, Any] = {}
        for root in self.roots:
            for name, value in root.named_parameters():
                if value.device.type == "meta":
                    continue
                dims = [p.dim for p in value.placements if p.is_shard()] if _is_dtensor(value) else []
                values[name] = (_local(value).detach().cpu().clone(), dims[0] if dims else None)
        with (self.notes / f"{os.environ['RANK']}.{ending}").open("wb") as file:
            pickle.dump(values, file)


def _is_dtensor(value: Any) -> bool:
    return hasattr(value, "_local_tensor")


def _local(value: Any) -> Any:
    return value._local_tensor if _is_dtensor(value) else value


def _checksum(value: Any) -> list[float]:
    local = _local(value.detach())
    if local.device.type == "meta":
        return []
    local = local.double().cpu().flatten()
    return [float(local.sum()), float((local * torch.arange(1, local.numel() + 1)).sum())]


def _unwritten(root: Any) -> Iterator[str]:
    """The names of parameters and buffers that hold NaN."""
    for name, value in [*root.named_parameters(), *root.named_buffers()]:
        local = _local(value.detach())
        if local.device.type != "meta" and local.is_floating_point() and bool(local.isnan().any()):
            yield name


def _share(value: Any) -> dict[str, Any]:
    """How much of a parameter lies here, where among the shards that is, and its values' checksum."""
    placements = list(value.placements) if _is_dtensor(value) else []
    at = value.device_mesh.get_coordinate() if placements else []
    place = [at[number] for number, placement in enumerate(placements) if placement.is_shard()]
    return {"local": _local(value).numel(), "all": value.numel(), "place": place, "sum": _checksum(value)}


def _state_sums(optimizer: Any) -> list[list[float]]:
    """What an optimizer remembers of each parameter on this rank, in the order of its groups."""
    found = []
    for parameter in (each for group in optimizer.param_groups for each in group["params"]):
        values = [value for _, value in sorted(optimizer.state.get(parameter, {}).items())]
        found.append([x for value in values if isinstance(value, torch.Tensor) for x in _checksum(value)])
    return found


def _reshard(root: Any) -> None:
    """A unit may still be gathered (the root is after a forward): its own parameters are those that train."""
    for module in root.modules():
        if hasattr(module, "reshard") and hasattr(module, "_get_fsdp_state"):
            module.reshard()


def _units(root: Any) -> int:
    """How many groups of parameters are gathered at once, each on its own."""
    groups: dict[int, Any] = {}
    for module in root.modules():
        if hasattr(module, "_get_fsdp_state"):
            state = module._get_fsdp_state()
            found = getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]
            groups |= {id(group): group for group in found if group is not None and group.fsdp_params}
        elif getattr(module, "_handle", None) is not None:
            groups[id(module._handle)] = module._handle
    return len(groups)


# ---------------------------------------------------------------------------------------------------------- probes


def run_program(program: Program, folder: Path, ranks: int | None = None) -> Run:
    """The program on its ranks, under the watch."""
    notes = folder / "notes"

    def target() -> dict[str, Any]:
        watch = Watch(program, notes)
        watch.install()
        return watch.run()

    return fork_ranks(target, ranks or program.ranks, folder)


def judge(program: Program, folder: Path) -> str | None:
    """Why the program's probe does not hold, in words; None where it holds."""
    run = run_program(program, folder / "run")
    wanted: str | None = program.verify.get("fails")
    if run.trouble is not None:
        seen = "\n".join(f"{rank.error}\n{rank.output}" for rank in run.ranks)
        if not program.bad:
            return f"{run.trouble}\n{seen}"
        if wanted is None:
            raise AssertionError(f"{program.name} should fail its probe, not stop: {run.trouble}\n{seen}")
        if wanted not in seen:
            raise AssertionError(f"{program.name} stops for another reason than {wanted!r}: {run.trouble}\n{seen}")
        return run.trouble
    if program.bad and wanted is not None:
        return None  # it was to stop, and it did not
    return PROBES[program.probe](program, run, folder)


def ends(program: Program, run: Run, folder: Path) -> str | None:
    """Every rank comes to the end of the program."""
    return run.trouble


def parameters_change(program: Program, run: Run, folder: Path) -> str | None:
    """Every parameter that may train has another value after the run than before the first forward."""
    changed: dict[str, bool] = {}
    for rank in run.ranks:  # a rank may hold an empty part of a small parameter
        for name, moved in rank.measured["changed"].items():
            changed[name] = changed.get(name, False) or moved
    kept = [name for name, moved in changed.items() if not moved]
    if not changed:
        return "no sharded model was called"
    return f"{len(kept)} of {len(changed)} parameters never change: {kept[:4]}" if kept else None


def ranks_agree(program: Program, run: Run, folder: Path) -> str | None:
    """What is not sharded has the same values on every rank after training."""
    first = run.ranks[0].measured["plain"]
    differ = {name for rank in run.ranks for name, value in rank.measured["plain"].items() if value != first.get(name)}
    return f"ranks disagree on {sorted(differ)[:4]}" if differ else None


def replicas_agree(program: Program, run: Run, folder: Path) -> str | None:
    """Ranks that hold the same part of a parameter hold the same values after training."""
    seen: dict[tuple[str, tuple[int, ...]], list[float]] = {}
    differ = set()
    for rank in run.ranks:
        for name, share in rank.measured["shares"].items():
            if seen.setdefault((name, tuple(share["place"])), share["sum"]) != share["sum"]:
                differ.add(name)
    return f"replicas disagree on {sorted(differ)[:4]}" if differ else None


def sharded_by(program: Program, run: Run, folder: Path) -> str | None:
    """Each rank holds as small a part of the model as it should: one of `shards`."""
    held = sum(share["local"] for share in run.ranks[0].measured["shares"].values())
    whole = sum(share["all"] for share in run.ranks[0].measured["shares"].values())
    right = program.verify["shards"]
    return f"rank 0 holds {held} of {whole} elements, not 1/{right}" if round(whole / held) != right else None


def values_written(program: Program, run: Run, folder: Path) -> str | None:
    """After training no parameter and no buffer holds NaN, with which all new memory is filled here."""
    found = sorted({name for rank in run.ranks for name in rank.measured["unwritten"]})
    return f"never written, or reached by what was not: {found[:4]}" if found else None


def starts_as_alone(program: Program, run: Run, folder: Path) -> str | None:
    """Before the first forward the ranks together hold the model with which one process would start."""
    alone = run_program(program, folder / "alone", ranks=1)
    if alone.trouble is not None:
        return f"alone, {alone.trouble}"
    (truth,) = _kept(alone, "start.pt")
    parts = _kept(run, "start.pt")
    for name, (right, _) in truth.items():
        dim = parts[0][name][1]
        whole = parts[0][name][0] if dim is None else torch.cat([part[name][0] for part in parts], dim)
        if not _equal(whole, right):
            return f"{name} is not what one process would start with"
    return None


def batches_differ(program: Program, run: Run, folder: Path) -> str | None:
    """The ranks' first batches are not the same."""
    first = [rank.measured["batches"][:1] for rank in run.ranks]
    return "all ranks train on the same batch" if all(batch == first[0] for batch in first) else None


def no_stale_parameters(program: Program, run: Run, folder: Path) -> str | None:
    """Nothing holds on to a parameter that sharding has replaced, when the first backward begins."""
    counts = [rank.measured["stale"] for rank in run.ranks]
    if None in counts:
        return "no backward was run"
    return f"{max(counts)} dead parameters are kept" if any(counts) else None


def unit_count(program: Program, run: Run, folder: Path) -> str | None:
    """The model is as many units as it should be."""
    units, right = run.ranks[0].measured["units"], program.verify["units"]
    return f"{units} units, not {right}" if units != right else None


def collectives(program: Program, run: Run, folder: Path) -> str | None:
    """A step has as many all-gathers as it should have."""
    steps, right = run.ranks[0].measured["all_gathers"], program.verify["all_gathers"]
    if not steps:
        return "no optimizer step was run"
    return f"{steps[-1]} all-gathers a step, not {right}" if steps[-1] != right else None


def optimizer_resumes(program: Program, run: Run, folder: Path) -> str | None:
    """The second optimizer of the run begins with the state that the first has left, on every rank."""
    found = [rank.measured["resumed"] for rank in run.ranks]
    if not all(found):
        return "no second optimizer made a step"
    lost = [number for number, resumed in enumerate(found) if not all(resumed)]
    return f"the state of the optimizer is lost on ranks {lost}" if lost else None


def one_reader(program: Program, run: Run, folder: Path) -> str | None:
    """No file is read into the memory of more than one rank."""
    readers = [number for number, rank in enumerate(run.ranks) if rank.measured["read_whole"]]
    return f"ranks {readers} read whole files" if len(readers) > 1 else None


def whole_on_one_rank(program: Program, run: Run, folder: Path) -> str | None:
    """The whole state dict is gathered, and only rank 0 holds it."""
    held = [number for number, rank in enumerate(run.ranks) if any(rank.measured["gathered"])]
    if not held:
        return "nothing was gathered"
    return f"ranks {held} hold the whole state dict" if held != [0] else None


def prints_true(program: Program, run: Run, folder: Path) -> str | None:
    """Something is printed, and no truth value in it is False."""
    values = [value for rank in run.ranks for value in re.findall(r"\bTrue\b|\bFalse\b", rank.output)]
    if not values:
        return "nothing is printed"
    return "False is printed" if "False" in values else None


def one_writer_a_file(program: Program, run: Run, folder: Path) -> str | None:
    """Something is saved, and no path is written by two ranks."""
    writers: dict[str, set[int]] = {}
    for number, rank in enumerate(run.ranks):
        for path in rank.measured["written"]:
            writers.setdefault(path, set()).add(number)
    shared = sorted(Path(path).name for path, ranks in writers.items() if len(ranks) > 1)
    if not any(run.files.rglob("*")):
        return "nothing was saved"
    return f"written by several ranks: {shared}" if shared else None


def public_imports(program: Program, run: Run, folder: Path) -> str | None:
    """The program's own files import nothing private from torch.distributed."""
    names = sorted({name for rank in run.ranks for name in rank.measured["private_imports"]})
    return f"imports {names}" if names else None


def value_is_global(program: Program, run: Run, folder: Path) -> str | None:
    """The numbers that the ranks print are those that one process prints that holds everything."""
    alone = run_program(program, folder / "alone", ranks=1)
    if alone.trouble is not None:
        return f"alone, {alone.trouble}"
    truth = _numbers(alone.ranks[0].output)
    printed = [(number, _numbers(rank.output)) for number, rank in enumerate(run.ranks) if _numbers(rank.output)]
    if not truth or not printed:
        return "nothing is printed"
    for number, values in printed:
        if len(values) != len(truth):
            return f"rank {number} prints {values}, the truth is {truth}"
        for value, right in zip(values, truth, strict=True):
            if not math.isclose(value, right, rel_tol=2e-3, abs_tol=1e-5):
                return f"rank {number} prints {value}, the truth is {right}"
    return None


def _numbers(output: str) -> list[float]:
    """The decimal numbers and truth values in the lines that a program printed."""
    words = re.findall(r"-?\d+\.\d+(?:e[+-]?\d+)?|\bTrue\b|\bFalse\b|\bnan\b", output)
    return [float({"True": 1, "False": 0}.get(word, word)) for word in words]


def checkpoint_reloads_equal(program: Program, run: Run, folder: Path) -> str | None:
    """From the files that were saved the whole model can be put together again, with the right values."""
    parts = _kept(run, "pt")
    saved = list(_saved_tensors(run.files))
    if not saved:
        return "nothing was saved"
    for name, (first, dim) in parts[0].items():
        found = [value for key, value in saved if key == name or key.endswith(f".{name}")]
        shards = [part[name][0] for part in parts]
        whole = first if dim is None else torch.cat(shards, dim)
        if any(not _is_dtensor(value) and _equal(value, whole) for value in found):
            continue
        if dim is None or not all(any(_equal(_local(value), shard) for value in found) for shard in shards):
            return f"{name} cannot be put together from {len(found)} saved parts"
    return None


def saved_whole(program: Program, run: Run, folder: Path) -> str | None:
    """What is saved is whole: no file holds a DTensor, of which it would have one rank's shard."""
    saved = list(_saved_tensors(run.files))
    shards = [name for name, value in saved if _is_dtensor(value)]
    return f"{len(shards)} of {len(saved)} saved tensors are one rank's shards" if shards or not saved else None


def own_names(program: Program, run: Run, folder: Path) -> str | None:
    """What is saved has the names of the model's own parameters, without that of a wrapper."""
    names = [name for name, _ in _saved_tensors(run.files)]
    wrapped = [name for name in names if "_orig_mod" in name]
    return f"{len(wrapped)} of {len(names)} names have a wrapper's in them" if wrapped or not names else None


def _kept(run: Run, ending: str) -> list[dict[str, tuple[Any, int | None]]]:
    """Each rank's part of every parameter, and the dimension along which it was cut."""
    parts = []
    for number in range(len(run.ranks)):
        with (run.notes / f"{number}.{ending}").open("rb") as file:
            parts.append(pickle.load(file))
    return parts


def _equal(value: Any, right: Any) -> bool:
    value = value.detach().to("cpu", right.dtype)
    return bool(value.shape == right.shape and torch.equal(value, right))


def _saved_tensors(folder: Path) -> Iterator[tuple[str, Any]]:
    """Every tensor in every checkpoint file below the folder, with its name in the file."""
    from_dcp = [path.parent for path in folder.rglob(".metadata")]
    for directory in from_dcp:
        whole = directory.with_suffix(".whole")
        _module("torch.distributed.checkpoint.format_utils").dcp_to_torch_save(directory, whole)
        yield from _tensors(torch.load(whole, weights_only=False))
        whole.unlink()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.parent not in from_dcp):
        try:
            content = torch.load(path, map_location="cpu", weights_only=False)
        except Exception:
            with path.open("rb") as file:
                content = pickle.load(file)
        yield from _tensors(content)


def _tensors(content: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from _tensors(value, f"{name}.{key}" if name else str(key))


PROBES: dict[str, Callable[[Program, Run, Path], str | None]] = {
    "batches-differ": batches_differ,
    "replicas-agree": replicas_agree,
    "sharded-by": sharded_by,
    "starts-as-alone": starts_as_alone,
    "values-written": values_written,
    "checkpoint-reloads-equal": checkpoint_reloads_equal,
    "collectives": collectives,
    "ends": ends,
    "no-stale-parameters": no_stale_parameters,
    "one-reader": one_reader,
    "own-names": own_names,
    "saved-whole": saved_whole,
    "one-writer-a-file": one_writer_a_file,
    "optimizer-resumes": optimizer_resumes,
    "parameters-change": parameters_change,
    "prints-true": prints_true,
    "public-imports": public_imports,
    "ranks-agree": ranks_agree,
    "unit-count": unit_count,
    "value-is-global": value_is_global,
    "whole-on-one-rank": whole_on_one_rank,
}
