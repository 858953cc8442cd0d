"""Runs each rule's simplest wrong program and its right twin on several releases of torch, on two CPU ranks.

    python benchmarks/torch_versions/releases.py [FOLDER...] [--rule RULE-NAME]
    python benchmarks/torch_versions/releases.py [FOLDER...] --all --results DEST

A FOLDER is an unpacked wheel with its stubs (`stub_cuda.py`); without one, the torch that is installed is run. What
came of each is kept in `docs/records/torch/RELEASE.json`, from which `table.py` and the rules' pages are written. With
--all every program that runs here is run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from choose import pairs, runnable
from stub_cuda import STUBS

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "docs" / "records" / "torch"


def judged(folder: Path | None, names: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Runs the programs on one torch: its release, and how each ended. Raises RuntimeError where it cannot be run."""
    environment = dict(os.environ)
    if folder is not None:
        environment |= {"PYTHONPATH": str(folder.resolve()), "LD_LIBRARY_PATH": str(folder.resolve() / STUBS)}
    command = [sys.executable, str(HERE / "judge.py"), *names]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        release = process.stdout.readline().strip().partition("+")[0]
        for line in process.stdout:
            yield release, json.loads(line)
    if process.returncode:
        raise RuntimeError(f"{folder or 'the torch that is installed'}: the run stopped with {process.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--rule", action="append", default=[])
    parser.add_argument("--all", action="store_true", dest="every")
    parser.add_argument("--results", type=Path, default=RESULTS)
    wanted = parser.parse_args()
    chosen = {name for pair in pairs(wanted.rule) for name in (pair.bad, pair.twin)}
    names = sorted(runnable() if wanted.every else chosen)
    for folder in wanted.folders or [None]:
        for release, run in judged(folder, names):
            print(release, *run.values(), sep="\t", flush=True)
            _keep(wanted.results / f"{release}.json", run)


def _keep(path: Path, run: dict[str, str]) -> None:
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept[run["program"]] = [run["kind"], run["why"]]
    path.parent.mkdir(exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
