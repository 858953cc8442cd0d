"""Runs fixture programs with the torch of this process, and prints a line of JSON for each: how its run ended.

    python benchmarks/torch_versions/judge.py PROGRAM...       # as in `optimizer_before_shard/bad_inline`

`releases.py` starts it, once for each torch.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.setdlopenflags(os.RTLD_LAZY | os.RTLD_GLOBAL)  # stubs have only what is looked up at once
REPO = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPO / "tests"), str(Path(__file__).parent)]

import like_a_gpu  # noqa: E402
import ranks  # noqa: E402

from fsdp_lint.releases import ENDS, ERROR, HANG, HOLDS, SILENT, Ended  # noqa: E402

LEFT_ALONE = re.compile(r"Timed out waiting|Connection closed by peer|Connection reset|Broken pipe|[Tt]imeout")
AS_IT_IS = {"gloo_training"}  # what gloo cannot do is its mistake


def ended(program: ranks.Program, folder: Path) -> Ended:
    """Runs a program and says how that ended."""
    run = ranks.run_program(program, folder / "run")
    failed = [rank for rank in run.ranks if rank.outcome in ("error", "died") and not LEFT_ALONE.search(rank.error)]
    if failed:
        kind = SILENT if _found_by_itself(program, failed[0]) else ERROR
        return Ended(kind, _first_line(failed[0].error))
    if run.trouble is not None:
        return Ended(HANG, "")  # what a rank that was left alone says differs from run to run
    why = ranks.PROBES[program.probe](program, run, folder)
    if why is not None:
        return Ended(SILENT, _first_line(why))
    return Ended(ENDS if program.probe == "ends" else HOLDS, "")


def _found_by_itself(program: ranks.Program, rank: ranks.Rank) -> bool:
    """Whether the error is a check of the program's own, without which nothing would be said."""
    files = re.findall(r'^ *File "(.+)", line', rank.output, re.MULTILINE)
    return rank.error.startswith("AssertionError") and Path(files[-1]).is_relative_to(program.entry.parent)


def _first_line(text: str) -> str:
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return re.sub(r" \(/[^)]*\)", "", line)  # where this torch lies


def main() -> None:
    known = {program.name: program for program in ranks.programs(REPO / "fixtures")}
    as_it_is = [name for name in sys.argv[1:] if name.partition("/")[0] in AS_IT_IS]
    torch = ranks.load_torch()
    print(torch.__version__)
    _run([known[name] for name in as_it_is])
    like_a_gpu.prepare(torch)
    _run([known[name] for name in sys.argv[1:] if name not in as_it_is])


def _run(programs: list[ranks.Program]) -> None:
    for program in programs:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({"program": program.name, **asdict(ended(program, Path(folder)))}), flush=True)


if __name__ == "__main__":
    main()
