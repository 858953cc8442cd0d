"""What is to be run: the program, the mode, how many ranks and steps, and which texts stand in for which files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field


class CannotRun(Exception):
    """The proof cannot be had; the message is one line."""


@dataclass(frozen=True)
class Target:
    """A program: a script by its path, or a module by its dotted name (`-m`), and its arguments."""

    script: str = ""
    module: str = ""
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How it is called on a command line."""
        return " ".join([f"-m {self.module}" if self.module else os.path.relpath(self.script), *self.arguments])


@dataclass(frozen=True)
class Plan:
    """One run. `steps` of the first optimizer are made, and if `until_saved` the program goes on to its first save or
    its end; if `until_loaded` it goes on after a save, until the steps are made. Times are in seconds: `timeout` for
    all, `patience` for one collective. In `cpu`, and in `simulate` where there is no GPU, `on_cpu` says that CUDA is
    mapped to the CPU. Operations are seen in "some" steps, the first ones, and in the others steps are timed; to learn
    what that costs, in "all" or "none". In `shared` the ranks share one GPU."""

    target: Target
    mode: str
    ranks: int
    on_cpu: bool
    steps: int = 6
    timeout: float = 600.0
    patience: float = 30.0
    until_saved: bool = False
    until_loaded: bool = False
    counted: str = "some"
    texts: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def processes(self) -> int:
        """How many ranks really run."""
        return 1 if self.mode == "simulate" else self.ranks

    def after(self, texts: Mapping[str, bytes]) -> Plan:
        """The same with these texts in place of the files."""
        return dataclasses.replace(self, texts=texts)
