"""What one rank sees of a program: all instruments together, and the record that they make."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed.fsdp
from torch.utils._python_dispatch import _get_current_dispatch_mode

from fsdp_lint.verify.instrument import gloo
from fsdp_lint.verify.instrument.attempts import Attempts
from fsdp_lint.verify.instrument.collectives import Collectives
from fsdp_lint.verify.instrument.mapping import Mapping
from fsdp_lint.verify.instrument.models import Models
from fsdp_lint.verify.instrument.places import backend_of, gpus_used, layouts
from fsdp_lint.verify.instrument.readings import Readings
from fsdp_lint.verify.instrument.saves import Saves
from fsdp_lint.verify.instrument.sites import Sites
from fsdp_lint.verify.instrument.steps import COUNTED, Steps
from fsdp_lint.verify.instrument.storages import Storages
from fsdp_lint.verify.instrument.troubles import cannot_be_pretended, show, trouble_of, what_is_pretended
from fsdp_lint.verify.instrument.values import Values, batch_of
from fsdp_lint.verify.instrument.wholes import Wholes
from fsdp_lint.verify.measures import Attempt, Collective, Held, RankRecord, Reading, Save, Trouble
from fsdp_lint.verify.plan import Plan
from fsdp_lint.verify.progress import note

_exit = os._exit
_OF_A_GPU = ("CUDA", "cuda", "NVIDIA", "nvidia", "nccl", "NCCL")
_NEEDS = "this line needs a GPU and cannot be mapped to the CPU"
_EPOCHS = 50  # ends of data loaders after which a loop is taken to have none


class Watch:
    """One rank's instruments. `leave` writes the record and ends the process, whatever the program still has to do."""

    def __init__(self, plan: Plan, rank: int, notes: Path, sites: Sites) -> None:
        self.plan, self.rank, self.notes, self.sites = plan, rank, notes, sites
        self.on_gpu = not plan.on_cpu
        self.mapping = Mapping(sites)
        self.storages = None if self.on_gpu else Storages()
        self.models = Models()
        self.values = Values(self.models)
        self.readings = Readings(sites)
        self.attempts = Attempts(sites)
        self.wholes = Wholes(sites)
        self.compile_site = self.optimizer_site = ""
        self.steps = Steps(sites, self.on_gpu, self._before_first_step, self._before_step, self._after_step)
        self.saves = Saves(
            sites, self.models, notes, plan.mode == "simulate", self._after_save, lambda: self.steps.made
        )
        shared = plan.mode == "shared"
        log = notes / f"{rank}.calls"
        self.collectives = Collectives(sites, log, self.storages, lambda: self.steps.backward_site, shared)
        self.seen: dict[str, Any] = {}
        self._loaded = set(sys.modules)
        self._ended_loaders = 0
        self._seen_so_far: dict[str, Any] = {}
        self._batch_hook: Any = None

    def install(self) -> None:
        """Puts the instruments in; to be called before the program is loaded."""
        self._follow_optimizers()
        self._follow_sharding()
        self._follow_compile()
        self.steps.install()
        self.readings.install()
        self.attempts.install()
        self.wholes.install()
        self.saves.install()
        if self.storages is not None:
            self.storages.install()
            gloo.follow_waits(lambda: self.collectives.on)
        self._follow_ends()
        if self.plan.until_saved:
            self._end_loaders()
        hooks = torch.nn.modules.module
        self._batch_hook = hooks.register_module_forward_pre_hook(lambda _, inputs: self._first_batch(inputs))
        if self.plan.counted != "none":
            self.collectives.__enter__()

    def _follow_ends(self) -> None:
        """The time limit comes as a signal, which the program may not take for itself; and if it ends the process at
        once, what was seen is written down before."""
        signal.signal(signal.SIGUSR2, lambda *_: self.leave(self._late()))
        real, mine = signal.signal, os.getpid()

        @functools.wraps(real)
        def handle(number: Any, handler: Any) -> Any:
            return real(
                number, handler if number != signal.SIGUSR2 or os.getpid() != mine else signal.getsignal(number)
            )

        def leave_at_once(code: int) -> None:
            if os.getpid() != mine:  # a child of the program's own
                _exit(code)
            self.leave("the program ended", SystemExit(code) if code else None)

        signal.signal = handle  # type: ignore[assignment]
        os._exit = leave_at_once  # type: ignore[assignment]

    def _late(self) -> str:
        when = f"after {self.steps.made} steps" if self.steps.made else "before its first step"
        return f"stopped at the time limit of {self.plan.timeout:g} s, {when}"

    def _follow_optimizers(self) -> None:
        real = torch.optim.Optimizer.__init__

        @functools.wraps(real)
        def init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            real(optimizer, *args, **kwargs)
            self.models.built(optimizer, self.sites.here())
            self.optimizer_site = self.optimizer_site or self.sites.here()
            if self.steps.optimizer_is_built():
                self.models.forget()
                self.values.before = {}
                self.seen.pop("last", None)

        torch.optim.Optimizer.__init__ = init

    def _follow_sharding(self) -> None:
        real = torch.distributed.fsdp.fully_shard

        @functools.wraps(real)
        def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.values.built:
                note(self.notes, self.rank, "sharding the model")
            with self._measuring():
                self.values.about_to_shard(module)
            return real(module, *args, **kwargs)

        for name in ("fsdp", "fsdp._fully_shard", "_composable.fsdp"):
            home: Any = importlib.import_module(f"torch.distributed.{name}")
            home.fully_shard = fully_shard

    def _follow_compile(self) -> None:
        for home, name in ((torch, "compile"), (torch.nn.Module, "compile")):
            setattr(home, name, self._noting_compile(getattr(home, name)))

    def _noting_compile(self, real: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(real)
        def asked(*args: Any, **kwargs: Any) -> Any:
            self.compile_site = self.compile_site or self.sites.here()
            return real(*args, **kwargs)

        return asked

    def _end_loaders(self) -> None:
        """Once enough steps are made a data loader has no more batches than one: the save after the loop comes soon."""
        loader: Any = importlib.import_module("torch.utils.data.dataloader")
        real = loader._BaseDataLoaderIter.__next__

        def following(batches: Any) -> Any:
            if self.steps.made >= self.plan.steps and batches._num_yielded:
                self.mapping.note(f"the data loader ends after {self.plan.steps} steps")
                self._ended_loaders += 1
                raise StopIteration
            return real(batches)

        loader._BaseDataLoaderIter.__next__ = following

    # -------------------------------------------------------------------------------------------- while it runs

    @contextlib.contextmanager
    def _measuring(self) -> Iterator[None]:
        """Inside, what is done is ours and is not counted."""
        self.collectives.on = False
        try:
            with torch.no_grad():
                yield
        finally:
            self.collectives.on = True

    def _first_batch(self, inputs: Any) -> None:
        with self._measuring():
            self.seen["batch"] = batch_of(inputs)
        if self.seen["batch"]:
            self._batch_hook.remove()

    def _before_first_step(self) -> None:
        with self._measuring():
            self.models.find()
            self.values.remember()
            self.seen["started"] = self.values.started()
            self.seen.update(self._optimizers())
            without = [n for n, p in self.models.parameters() if p.requires_grad and p.grad is None]
            self.seen["without_gradient"] = without
            self._batch_hook.remove()
            note(self.notes, self.rank, f"step 1 of {self.plan.steps}")

    def _before_step(self) -> None:
        if self.plan.until_saved:
            with self._measuring():
                self.saves.keep_if_saved()  # from here on the values are others than those that were saved

    def _optimizers(self) -> dict[str, Any]:
        """Whose parameters the optimizers have."""
        found = self.models.parameters_by_optimizer()
        stale, count = (sum(each[at] for each in found.values()) for at in (0, 1))
        return {"optimizers": found, "stale": stale, "optimizer_parameters": count}

    def _after_step(self, number: int) -> None:
        self.collectives.timeline.end()
        # All ranks leave at the end of the step that follows a save, or with the program: one that left at once would
        # be waited for, with NCCL without end.
        if self.plan.until_saved and self._has_steps() and self.saves.made_before(self.steps.made):
            self.leave(f"stopped after a save and {self.steps.made} steps")
        if self._ended_loaders >= _EPOCHS:
            self.leave(f"stopped after {self.steps.made} steps")
        with self._measuring():
            self._take_peak(number)
            if number <= COUNTED:
                self.seen["collectives"] = [Collective(*one) for one in self.collectives.take()]
                self._take_held()
                self.seen["units"] = self.models.units()
                self.seen["backwards"] = self.steps.backwards
            if number == 0:
                self.seen["dead"] = self.models.dead()
                self.seen["backend"] = backend_of(self.models)  # the program may take its group down before it ends
            if number == COUNTED and self._times_steps:
                self._stop_counting()
            if number + 1 == self.plan.steps:
                self.seen["changed"] = self.values.changed()
                self.seen["last"] = True
        if number + 1 >= self.plan.steps and not self.plan.until_saved:
            self.leave(f"stopped after {self.steps.made} steps")
        self._keep_so_far(number)
        done = number + 1 >= self.plan.steps
        note(self.notes, self.rank, "behind the steps" if done else f"step {number + 2} of {self.plan.steps}")
        if number + 1 == self.plan.steps and self._times_steps:
            self.collectives.__enter__()  # whatever comes after the steps may hang, and is logged
        self._forget_peak()
        if number + 1 == COUNTED and self.plan.counted != "none":
            self.collectives.timeline.begin()

    def _keep_so_far(self, number: int) -> None:
        """Writes down what a signal that cannot be answered would take along, as that which a full memory ends in."""
        if number < self.plan.steps and not (self._times_steps and number > COUNTED):
            with self._measuring():
                if number <= COUNTED:
                    self._seen_so_far = {
                        "changed": self.values.changed(),
                        "trained": list(self.values.before),
                        "sharded": self.values.replicated()[1],
                    }
                seen = {**self._of_models(), **self._seen_so_far, **self.seen}
                seen.pop("last", None)
                self._write(self._told("", None, seen, cut=True), f"{self.rank}.so-far.json")
        (self.notes / f"{self.rank}.steps").write_text(str(self.steps.made), encoding="utf-8")

    def _of_models(self) -> dict[str, Any]:
        """What is known of the models at any time."""
        elements, size = self.models.size()
        found = {"wrapper": self.models.wrapper(), "units": self.models.units(), "layouts": layouts(self.models)}
        return {**found, "elements": elements, "model_bytes": size}

    def _write(self, record: RankRecord, name: str) -> None:
        unfinished = self.notes / f"{name}.part"
        unfinished.write_text(json.dumps(dataclasses.asdict(record)), encoding="utf-8")
        unfinished.rename(self.notes / name)

    def _after_save(self) -> None:
        if self.plan.mode == "simulate":
            self.leave(f"stopped before a save, after {self.steps.made} steps")
        if self.plan.until_saved and self.plan.processes == 1 and self.saves.made and self._has_steps():
            self.leave(f"stopped after a save and {self.steps.made} steps")

    def _has_steps(self) -> bool:
        """Whether as many steps are made as are wanted before a save counts."""
        return self.steps.made >= (self.plan.steps if self.plan.until_loaded else 1)

    @property
    def _times_steps(self) -> bool:
        """Whether steps are left alone after the counted ones, and timed."""
        return self.on_gpu and self.plan.counted == "some" and self.plan.mode != "shared"

    def _stop_counting(self) -> None:
        """From here on the program runs as it would without us: a mode around it turns torch.compile off."""
        if _get_current_dispatch_mode() is self.collectives:
            self.collectives.__exit__(None, None, None)

    def _take_held(self) -> None:
        gc.collect()  # what waits to be collected is held or not, as it happens
        storages: set[int] = set()
        held = self.models.held(storages)
        if self.storages is not None:
            self.storages.settle(storages)
        whole = self.storages.live if self.storages is not None else torch.cuda.memory_allocated()
        alone = self.plan.mode != "shared"  # where ranks share a GPU, gloo's copies are among the rest
        self.seen["held"] = Held(**held, other=max(0, whole - sum(held.values())) if alone else None)

    def _take_peak(self, number: int) -> None:
        peak = self.storages.peak if self.storages is not None else torch.cuda.max_memory_allocated()
        if number == 0:
            self.seen["startup_peak_bytes"] = self.seen["peak_bytes"] = peak
        elif number == 1:
            self.seen["peak_bytes"] = peak
        else:
            self.seen["peak_bytes"] = max(self.seen["peak_bytes"], peak)
        if self.on_gpu and self.plan.mode != "shared":
            self.seen["reserved_bytes"] = torch.cuda.max_memory_reserved()

    def _forget_peak(self) -> None:
        if self.storages is not None:
            self.storages.start_again()
        else:
            torch.cuda.reset_peak_memory_stats()

    # ------------------------------------------------------------------------------------------------- the end

    def leave(self, ended: str, error: BaseException | None = None) -> None:
        """Writes the record and ends this process without running anything more of the program."""
        self.collectives.on = False
        stopped = self.notes / "stopped"
        if error is not None and stopped.exists():  # another rank has seen enough, and is gone
            ended, error = "stopped with the others", None
        elif ended.startswith("stopped"):
            stopped.touch()
        beyond = what_is_pretended(error) if self.plan.mode == "simulate" else ""
        if beyond and self.steps.made:
            ended, error = f"stopped before {beyond}, after {self.steps.made} steps", None
        if error is not None and not isinstance(error, SystemExit):
            show(error)
        self._write(self._record(ended, error), f"{self.rank}.json")
        note(self.notes, self.rank, "done")
        self._wait_for_others(error)
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        _exit(1 if error is not None else 0)

    def _wait_for_others(self, error: BaseException | None) -> None:
        """A rank that leaves takes its connections with it: the others may still be in the last step."""
        longest = 0.0 if error is not None else 1.5 if self.plan.until_saved else 10.0
        deadline = time.monotonic() + min(self.plan.patience, longest)
        while time.monotonic() < deadline:
            if all((self.notes / f"{rank}.json").exists() for rank in range(self.plan.processes)):
                return
            time.sleep(0.005)

    def _record(self, ended: str, error: BaseException | None) -> RankRecord:
        trouble = None if error is None else self._trouble(error)
        seen = dict(self.seen)
        with contextlib.suppress(Exception), torch.no_grad():
            self.saves.keep_for_others(self.plan.until_saved)
            self.models.find()  # a program that makes no step has models too
            self.models.reshard()
            if self.steps.backward_site and not self.steps.made:  # the first step was refused
                seen.update(self._optimizers())
            if "last" not in seen and self.values.before:
                seen["changed"] = self.values.changed()
            seen["trained"] = list(self.values.before)
            plain, seen["sharded"] = self.values.replicated()
            seen["plain"] = plain
            seen["buffers"] = self.values.buffers()
            seen["shards"] = self.values.shards()
            seen["built"] = self.values.built
            seen.update(self._of_models())
            seen.setdefault("backend", backend_of(self.models))
        seen.pop("last", None)
        if not self.steps.made:
            seen["backwards"] = self.steps.backwards
            seen["unstepped"] = [Collective(*one) for one in self.collectives.take()]
        return self._told(ended, trouble, seen)

    def _told(self, ended: str, trouble: Trouble | None, seen: dict[str, Any], cut: bool = False) -> RankRecord:
        return RankRecord(
            torch=str(torch.__version__),
            device=_device_name() if self.on_gpu else "cpu",
            ended=ended,
            steps=self.steps.made,
            by_backwards=self.steps.by_backwards,
            losses=tuple(self.steps.losses),
            step_ms=tuple(self.steps.milliseconds) if self.on_gpu else (),
            saves=tuple(Save(**one) for one in self.saves.made),
            readings=tuple(Reading(**{**one, "values": tuple(one["values"])}) for one in self.readings.made.values()),
            attempts=tuple(Attempt(*one) for one in self.attempts.told(bool(self.steps.backward_site))),
            wholes=tuple(self.wholes.told),
            gpus=gpus_used() if self.on_gpu else {},
            made_at=self.collectives.made_at,
            memory=tuple(self.collectives.timeline.memory),
            timeline=tuple(self.collectives.timeline.collectives),
            mapped=tuple(self.mapping.told),
            compiled=_compiled(),
            compile_site=self.compile_site,
            optimizer_site=self.optimizer_site,
            visited=tuple(_visited(self.sites, self._loaded)),
            trouble=trouble,
            cut=cut,
            **seen,
        )

    def _trouble(self, error: BaseException) -> Trouble:
        trouble = trouble_of(error, self.sites, self.rank)
        beyond = what_is_pretended(error) if self.plan.mode == "simulate" else ""
        if beyond:
            return dataclasses.replace(trouble, kind="pretended", text=cannot_be_pretended(beyond))
        if trouble.kind != "memory":
            needs = self.plan.on_cpu and any(word in trouble.text for word in _OF_A_GPU)
            return dataclasses.replace(trouble, text=f"{trouble.text} [{_NEEDS}]") if needs else trouble
        peak = self.storages.peak if self.storages is not None else torch.cuda.max_memory_allocated()
        highest = self.seen["peak_bytes"] = max(peak, self.seen.get("peak_bytes", 0))
        return dataclasses.replace(trouble, text=f"out of memory (peak {highest:,} bytes): {trouble.text}")


def _device_name() -> str:
    return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else "cpu"


def _compiled() -> bool:
    """Whether torch.compile has compiled anything."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return bool(dynamo is not None and dynamo.counters["stats"].get("unique_graphs", 0))


def _visited(sites: Sites, before: set[str]) -> Iterator[str]:
    """The program's own files that were loaded."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) if name == "__main__" or name not in before else None
        if isinstance(file, str) and file.endswith(".py") and sites.own(file):
            yield os.path.realpath(file)
