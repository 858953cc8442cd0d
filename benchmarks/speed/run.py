"""CPU seconds and peak memory of whole runs of fsdp-lint, ruff and other tools, in turns: for docs/performance.md.

    python benchmarks/speed/run.py DEST... [--peers VENV]   source trees: cold, warm, one file changed
    python benchmarks/speed/run.py DEST... --filter         whether all files give what those that speak of FSDP do
    python benchmarks/speed/run.py --starts                 small runs, and 400 and 800 fixes in one file
    python benchmarks/speed/run.py --growth 100 1000        projects made up, of so many files

DEST is any source tree, for instance torchtitan 0.3.0 unpacked; several are copied into one. Each run is a new process;
the first turn is not counted, it brings the files into the system's cache. CPU seconds are the user plus the system
time of the process and its children: wall time says little on a machine that others use too. `--peers` names a virtual
environment with the other tools; where there is none, it is made with all that can be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import projects

OWN = [sys.executable, "-m", "fsdp_lint"]
# Each with what the command says behind its name; they look at one folder.
PEERS = {
    "torch-preflight": ["check"],
    "torchfix": ["--select=ALL"],
    "fixit": ["lint"],
    "flake8": ["--isolated"],
    "pylint": ["--recursive=y", "--disable=all", "--enable=E"],
}
# Run in place of the command where the byte prefilter is not to be asked.
_UNFILTERED = (
    "from fsdp_lint import engine, cli; engine._seeds = lambda scope, *_: (sorted(scope.universe), []); cli.main()"
)


@dataclass
class Row:
    """One command: what is done before each run of it, and what the runs took, in seconds and MiB."""

    name: str
    command: Sequence[str]
    before: Callable[[], None] = lambda: None
    seconds: list[float] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)

    def turn(self, counted: bool) -> None:
        """One run."""
        self.before()
        process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        # Findings are no failure of a run, nor are files that it could not read.
        if process.returncode < 0 or process.returncode > 32:
            raise SystemExit(f"{' '.join(self.command)}: exit code {process.returncode}")
        if counted:
            self.seconds.append(usage.ru_utime + usage.ru_stime)
            self.memory.append(usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10))


def measured(rows: Sequence[Row], turns: int, against: str = "") -> None:
    """Runs all rows in turns and prints their medians, and how many times the yardstick's each is."""
    for turn in range(turns + 1):
        for row in rows:
            row.turn(turn > 0)
    yardstick = next((statistics.median(row.seconds) for row in rows if row.name == against), None)
    print(f"{'':40} {'CPU s':>8} {'lowest':>8} {'highest':>8} {'MiB':>6}  {'ratio' if yardstick else ''}")
    for row in rows:
        middle = statistics.median(row.seconds)
        ratio = f"  {middle / yardstick:.1f}" if yardstick else ""
        low, high = min(row.seconds), max(row.seconds)
        print(f"{row.name:40} {middle:8.3f} {low:8.3f} {high:8.3f} {max(row.memory):6.0f}{ratio}")


def _copied(trees: Sequence[Path], scratch: str) -> Path:
    """A folder with a copy of each tree, and a line about how much that is."""
    copy = Path(scratch) / "trees"
    for tree in trees:
        shutil.copytree(tree, copy / tree.name)
    files = [path for path in copy.rglob("*.py") if path.is_file()]
    lines = sum(path.read_bytes().count(b"\n") for path in files)
    print(f"{', '.join(tree.name for tree in trees)}: {len(files)} files, {lines} lines")
    return copy


def on_trees(trees: Sequence[Path], turns: int, peers: Path | None) -> None:
    """fsdp-lint cold, warm and after a change, ruff, and the peers that are installed."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = _copied(trees, scratch)
        os.environ["XDG_CACHE_HOME"] = scratch
        changing = sorted(path for path in copy.rglob("*.py") if b"fully_shard" in path.read_bytes())

        def change() -> None:
            changing[0].write_bytes(changing[0].read_bytes() + b"# changed\n")

        rows = [
            Row("ruff, no cache", [*_ruff(), "--no-cache", str(copy)]),
            Row("fsdp-lint, no cache", [*OWN, "--no-cache", str(copy)]),
            Row("fsdp-lint, nothing changed", [*OWN, str(copy)]),
        ]
        if changing:
            rows.append(Row("fsdp-lint, one file changed", [*OWN, str(copy)], change))
            # What is there after a change is known before the next turn.
            rows.append(Row("fsdp-lint, nothing changed again", [*OWN, str(copy)]))
        rows += [Row(" ".join(command[:2]), [*command, str(copy)]) for command in _peers(peers)]
        measured(rows, turns, "ruff, no cache")


def _ruff() -> list[str]:
    found = shutil.which("ruff", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if found is None:
        raise SystemExit("ruff is not installed: pip install ruff")
    return [found, "check", "--isolated", "--select", "NPY,TID251"]


def _peers(folder: Path | None) -> list[list[str]]:
    """The commands of the other tools in this virtual environment, which is made where it is not there."""
    if folder is None:
        return []
    if not folder.exists():
        venv.create(folder, with_pip=True)
        for name in PEERS:
            subprocess.run([folder / "bin" / "pip", "install", "--quiet", name], check=False)
    found = {name: folder / "bin" / name for name in PEERS}
    missing = [name for name, path in found.items() if not path.exists()]
    if missing:
        print(f"not installed: {', '.join(missing)}")
    return [[str(path), *PEERS[name]] for name, path in found.items() if path.exists()]


def filtered(trees: Sequence[Path]) -> None:
    """Whether the findings are the same where all files are looked at as if they spoke of FSDP."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = _copied(trees, scratch)
        asked = ["--no-cache", "--output-format", "json", str(copy)]
        with_it, without = (
            subprocess.run([*command, *asked], stdout=subprocess.PIPE, check=False).stdout
            for command in (OWN, [sys.executable, "-c", _UNFILTERED])
        )
        found = len(json.loads(with_it))
        print(f"{found} findings, {'the same' if with_it == without else 'OTHERS'} without the prefilter")


def starts(turns: int) -> None:
    """What a small run takes, and many fixes in one file."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["XDG_CACHE_HOME"] = scratch
        rows = [Row("--version", [*OWN, "--version"]), Row("--help", [*OWN, "--help"])]
        (folder / "plain").mkdir()
        (folder / "plain" / "plain.py").write_text("import os\nprint(os.getcwd())\n")
        rows.append(Row("a file without FSDP", [*OWN, "--no-cache", str(folder / "plain" / "plain.py")]))
        for number in (1, 400, 800):
            (folder / str(number)).mkdir()
            projects.findings(folder / str(number), number)
            command = [*OWN, "--diff", "--select", "optimizer-before-shard", str(folder / str(number))]
            rows.append(Row(f"--diff of a file with {number} fixes", command))
        (folder / "few").mkdir()
        projects.few(folder / "few", 40)
        rows.append(Row("40 files, 6 speak of FSDP: cold", [*OWN, "--no-cache", str(folder / "few")]))
        rows.append(Row("40 files, 6 speak of FSDP: warm", [*OWN, str(folder / "few")]))
        measured(rows, turns)


def growth(sizes: Sequence[int], turns: int) -> None:
    """Projects of several sizes, and one file with 2 ** 20 paths."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = []
        for kind, write in projects.GROWING.items():
            for size in sizes:
                folder = Path(scratch) / f"{kind}-{size}"
                folder.mkdir()
                write(folder, size)
                rows.append(Row(f"{kind}, {size} files", [*OWN, "--no-cache", str(folder)]))
        folder = Path(scratch) / "paths"
        folder.mkdir()
        projects.paths(folder, 20)
        rows.append(Row("2 ** 20 paths in one file", [*OWN, "--no-cache", str(folder)]))
        measured(rows, turns)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path, metavar="DEST", nargs="*", help="the source trees to look at")
    parser.add_argument("--peers", type=Path, metavar="VENV", help="an environment with other tools, or for them")
    parser.add_argument("--filter", action="store_true", help="compare with what is found without the prefilter")
    parser.add_argument("--starts", action="store_true", help="measure small runs, and many fixes in one file")
    parser.add_argument("--growth", type=int, nargs="+", default=[], metavar="FILES", help="projects of so many files")
    parser.add_argument("--turns", type=int, default=5, help="counted turns (default: 5)")
    arguments = parser.parse_args()
    # An installed tool has its bytecode, so that runs which may not write it would measure the compiler.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if arguments.dest and arguments.filter:
        filtered(arguments.dest)
    elif arguments.dest:
        on_trees(arguments.dest, arguments.turns, arguments.peers)
    if arguments.starts:
        starts(arguments.turns)
    if arguments.growth:
        growth(arguments.growth, arguments.turns)
    if not arguments.dest and not arguments.starts and not arguments.growth:
        parser.error("name source trees, or --starts, or --growth")


if __name__ == "__main__":
    main()
