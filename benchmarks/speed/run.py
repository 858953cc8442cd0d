"""CPU seconds of whole runs of fsdp-lint and of ruff on the same tree, in turns.

    python benchmarks/speed/run.py DEST

DEST is any source tree, for instance torchtitan 0.3.0 unpacked. A run is a new process and keeps nothing from the one
before; the first turn is not counted, it brings the files into the system's cache. CPU seconds are the user plus the
system time of the process and its children.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def cpu_seconds(command: Sequence[str]) -> float:
    """Runs a command to its end. Findings (exit code 1) and files it could not read (2) are no failure of the run."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 2):
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path, metavar="DEST", help="the source tree to look at")
    parser.add_argument("--turns", type=int, default=5, help="counted turns of both (default: 5)")
    arguments = parser.parse_args()
    files = [path for path in arguments.dest.rglob("*.py") if path.is_file()]
    if not files:
        parser.error(f"{arguments.dest}: no Python files")
    ruff = shutil.which("ruff", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if ruff is None:
        parser.error("ruff is not installed: pip install ruff")
    tree = str(arguments.dest)
    commands = {
        "fsdp-lint": [sys.executable, "-m", "fsdp_lint", tree],
        "ruff": [ruff, "check", "--isolated", "--no-cache", "--select", "NPY,TID251", tree],
    }
    lines = sum(path.read_bytes().count(b"\n") for path in files)
    print(f"{tree}: {len(files)} files, {lines} lines")
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(arguments.turns + 1):
        for name, command in commands.items():
            spent = cpu_seconds(command)
            if turn:
                seconds[name].append(spent)
                print(f"turn {turn}: {name:10} {spent:8.3f} s")
    medians = {name: statistics.median(spent) for name, spent in seconds.items()}
    for name, median in medians.items():
        print(
            f"median: {name:10} {median:8.3f} s   (lowest {min(seconds[name]):.3f}, highest {max(seconds[name]):.3f})"
        )
    print(f"ratio of medians: {medians['fsdp-lint'] / medians['ruff']:.1f}")


if __name__ == "__main__":
    main()
