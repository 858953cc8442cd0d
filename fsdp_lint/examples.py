"""The programs that show a rule, shipped with the tool: its mistakes, their cures, and what only looks like them."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_CHECKOUT = Path(__file__).resolve().parent.parent
_ON_GPUS = ("needs CUDA", "needs a measure of the memory on GPU", "wasteful on GPUs only")
_BLOCK = re.compile(r"^# /// verify\n((?:#(?: .*)?\n)+?)# ///$", re.MULTILINE)


def folder() -> Path | None:
    """Where the programs of all rules are: in the checkout, or installed with the tool; None where they are not."""
    here = _CHECKOUT / "fixtures"
    if here.is_dir() and (_CHECKOUT / "rules").is_dir():
        return here
    spec = importlib.util.find_spec("fsdp_lint_fixtures")
    return next((Path(place) for place in spec.submodule_search_locations or ()), None) if spec is not None else None


def of_rule(name: str) -> Path | None:
    """The folder of one rule's programs."""
    all_ = folder()
    mine = all_ / name.replace("-", "_") if all_ is not None else None
    return mine if mine is not None and mine.is_dir() else None


def mistakes(programs: Path) -> list[Path]:
    """The wrong programs, files or folders, the plainest first: of one file, with a fix, and called `bad_inline`."""

    def plainest(bad: Path) -> tuple[bool, bool, bool, Path]:
        cure = twin(bad)
        return bad.is_dir(), cure is None or not cure.name.startswith("fixed_"), bad.stem != "bad_inline", bad

    return sorted(_programs(programs, "bad_"), key=plainest)


def twin(bad: Path) -> Path | None:
    """The right program that differs from this one in as little as may be: what the tool's fix makes of it, if any."""
    for kind in ("fixed_", "good_"):
        path = bad.with_name(kind + bad.name.removeprefix("bad_"))
        if path.exists():
            return path
    return None


def look_alikes(programs: Path) -> list[Path]:
    """The right programs, those first that are nobody's twin: they look like the mistake and are none."""

    def likest(good: Path) -> tuple[bool, bool, Path]:
        return good.with_name("bad_" + good.name.removeprefix("good_")).exists(), good.is_dir(), good

    return sorted(_programs(programs, "good_"), key=likest)


def _programs(programs: Path, kind: str) -> list[Path]:
    return [path for path in programs.glob(f"{kind}*") if path.suffix == ".py" or entry(path).is_file()]


def entry(program: Path) -> Path:
    """The file of a program that is run."""
    return program / "train.py" if program.is_dir() else program


def wanted(program: Path) -> Mapping[str, Any]:
    """What its `# /// verify` block says: how many ranks it wants, and why it is not run, if so. Empty without one."""
    block = _BLOCK.search(entry(program).read_text(encoding="utf-8"))
    return {} if block is None else tomllib.loads("".join(f"{line[2:]}\n" for line in block[1].splitlines()))


def runs(program: Path, on_gpus: bool = False) -> bool:
    """Whether it can be run without other libraries than torch; some can on GPUs only."""
    said = wanted(program)
    return bool(said) and ("skip" not in said or (on_gpus and needs_gpus(program)))


def needs_gpus(program: Path) -> bool:
    """Whether it is its wish for GPUs that keeps it from running elsewhere."""
    return str(wanted(program).get("skip", "")).startswith(_ON_GPUS)
