"""The runs of docs/verify.md: each section prints a table in Markdown and can write the JSON of each proof.

    python benchmarks/verify/measure.py [lesson] [foreign] [cost] [gpus] [fsdp1] [setup] [--small] [--ranks 8,64]
                                    [--only NAME,NAME] [--records DIR] [--opacus DIR] [--torchdiff DIR]

lesson    the lesson's five mistakes and two more on a GPT of 2.2 billion parameters, before and after, simulated
foreign   three programs that are not ours, as they are: accelerate's (installed), opacus's example (a folder of its
          source distribution, installed editable), torchdiff's trainer (the same) on synthetic data
cost      step time with and without the instruments
gpus      the lesson's mistakes on all GPUs with NCCL, and simulated at the same number of ranks
fsdp1     their twins with FSDP1, the same way
setup     mistakes of set-up, most of which only NCCL shows; on one GPU those that one rank can make
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from fsdp_lint.settings import Settings
from fsdp_lint.verify import report, runner
from fsdp_lint.verify.measures import Run, collective_totals
from fsdp_lint.verify.plan import CannotRun, Plan, Target
from fsdp_lint.verify.proof import Proof, Wish, prove

PROGRAMS = Path(__file__).parent / "programs"
MISTAKES: dict[str, str | None] = {  # each with the fix that was made by hand, or None where the tool's own is proved
    "optimizer_before_shard.py": None,
    "shard_every_leaf.py": None,
    "torch_save_sharded_state.py": None,
    "ddp_where_fsdp_unneeded.py": "ddp.py",
    "to_local_arithmetic.py": "full_tensor_arithmetic.py",
    "root_only_shard.py": "shard_every_block.py",
    "root_not_sharded.py": None,
}
ON_GPUS: dict[str, str | None] = {"large.py": None, "collective_under_rank_guard.py": "collective_on_every_rank.py"}
FSDP1: dict[str, str | None] = {
    "fsdp1_optimizer_before_shard.py": None,
    "fsdp1_shard_every_leaf.py": "fsdp1_every_block.py",
    "fsdp1_save_on_every_rank.py": None,
    "fsdp1_root_only_shard.py": "fsdp1_every_block.py",
    "fsdp1_local_norm.py": None,
}
SETUP: dict[str, str | None] = {
    "cpu_offload_needs_gloo.py": None,
    "gloo_training.py": "nccl_training.py",
    "missing_set_device.py": None,
    "init_through_local.py": None,
    "full_state_dict_no_offload.py": None,
    "every_rank_full_load.py": "one_rank_full_load.py",
    "hsdp_mesh_order.py": "hsdp_mesh_right.py",
}
ON_ONE = ("gloo_training.py",)  # of these one rank is enough


class Bench:
    """Where programs lie and records go."""

    def __init__(self, folder: Path, records: Path | None) -> None:
        self.folder = folder
        self.records = records
        self.settings = Settings(folder, gpu_memory=141.0)

    def prove(self, name: str, wish: Wish, settings: Settings | None = None) -> Proof | None:
        """The proof, kept as JSON; None, with the reason printed, where it could not be had."""
        began = time.monotonic()
        try:
            proof = prove(wish, settings or self.settings)
        except CannotRun as error:
            print(f"{name}: {error}", flush=True)
            return None
        if not proof.ran:
            print(report.failure(proof)[-1500:], proof.obstacle, flush=True)
        print(f"<!-- {name} {proof.plan.mode} {proof.plan.ranks}: {time.monotonic() - began:.0f} s -->", flush=True)
        if self.records is not None:
            path = self.records / f"{name.removesuffix('.py')}-{proof.plan.mode}-{proof.plan.ranks}.json"
            path.write_text(report.to_json(proof).replace(f"{self.folder}/", ""), encoding="utf-8")
        return proof


def table(rows: list[list[str]]) -> None:
    """Prints rows as Markdown."""
    for number, row in enumerate(rows):
        print("| " + " | ".join(row) + " |")
        if number == 0:
            print("|" + " --- |" * len(row))
    print(flush=True)


HEAD = ["program", "run", "held", "peak", "reserved", "collectives a step", "changed", "step ms", "losses", "ended"]


def row(name: str, which: str, run: Run) -> list[str]:
    """One run, in exact bytes."""
    held, first = run.held, run.first
    kinds = collective_totals(run.collectives or ())
    losses = run.losses
    return [
        name,
        which,
        f"{held.training:,}" if held else "-",
        f"{run.peak_bytes:,}" if run.peak_bytes else "-",
        f"{first.reserved_bytes:,}" if first and first.reserved_bytes else "-",
        ", ".join(f"{count} {kind} {size:,}" for kind, count, size in kinds) or "-",
        "{} of {}".format(*run.changed) if run.changed else "not measured",
        f"{run.step_ms:.0f}" if run.step_ms else "not measured",
        " ".join(f"{loss:.3f}" for loss in losses[:6]) if losses else "not measured",
        run.ended[:80],
    ]


def verdicts(proof: Proof) -> Iterator[str]:
    for each in proof.verdicts:
        yield f"- `{each.finding.name}` at {Path(each.finding.place.path).name}:{each.finding.place.row}: " + (
            f"**{each.verdict}**; {each.because}"
        )


def tell(rows: list[list[str]], said: list[str]) -> None:
    table([HEAD, *rows])
    print("\n".join(said), "\n", flush=True)


def lesson(bench: Bench, mode: str, ranks: int, programs: dict[str, str | None]) -> None:
    """The mistakes, before and after."""
    print(f"\n### {mode}, {ranks} ranks\n", flush=True)
    rows: list[list[str]] = []
    said: list[str] = []
    for name, fix in programs.items():
        after = str(bench.folder / fix) if fix else None
        target = Target(str(bench.folder / name))
        proof = bench.prove(name, Wish(target, mode, ranks, timeout=120, patience=15, after=after))
        if proof is not None:
            rows.append(row(name, "before", proof.before))
            said += verdicts(proof)
            if proof.after is not None:
                rows.append(row(name, "after", proof.after.run))
    tell(rows, said)


def foreign(bench: Bench, mode: str, opacus: Path | None, torchdiff: Path | None) -> None:
    """Programs that are not ours."""
    print(f"\n### programs of others, {mode}\n", flush=True)
    targets = {"accelerate": (Target(module="accelerate.test_utils.scripts.test_merge_weights"), bench.folder)}
    if opacus is not None:
        digits(bench.folder)
        targets["opacus"] = (Target(str(opacus / "examples" / "fsdp_example.py")), opacus)
    if torchdiff is not None:
        words = ("--mode", "bench", "--synthetic_bench", "--no_compile", "--batch_size", "8", "--seq_len", "256")
        targets["torchdiff"] = (Target(module="torchdiff.train", arguments=words), torchdiff)
    rows: list[list[str]] = []
    said: list[str] = []
    for name, (target, root) in targets.items():
        ranks = 8 if mode == "simulate" else 2
        proof = bench.prove(name, Wish(target, mode, ranks, timeout=120), Settings(root))
        if proof is not None:
            rows.append(row(target.name, "before", proof.before))
            said += verdicts(proof) if proof.verdicts else [f"- {name}: no findings"]
            if proof.after is not None:
                rows.append(row(target.name, "after", proof.after.run))
    tell(rows, said)


def digits(folder: Path) -> None:
    """Random images in MNIST's format, where opacus's example looks for them: nothing is downloaded."""
    raw = folder / "mnist" / "MNIST" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", 2048), ("t10k", 256)):
        images = struct.pack(">IIII", 2051, count, 28, 28) + os.urandom(count * 28 * 28)
        (raw / f"{name}-images-idx3-ubyte").write_bytes(images)
        labels = bytes(number % 10 for number in range(count))
        (raw / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels)


def cost(bench: Bench, mode: str, ranks: int) -> None:
    """Step time with operations seen in no step, in the first ones, and in all."""
    print(f"\n### what the instruments cost, {mode}, {ranks} ranks\n", flush=True)
    gpus = runner.instrument().gpus()
    rows = [["operations seen", "step ms, median", "smallest", "largest", "peak"]]
    for counted in ("none", "some", "all"):
        target = Target(str(bench.folder / "shard_every_block.py"))
        run = runner.run(Plan(target, mode, ranks, on_cpu=not gpus, steps=8, timeout=120, counted=counted))
        times = run.first.step_ms if run.first is not None else ()
        if run.step_ms is None or not times:
            print(counted, run.ended)
            continue
        numbers = (run.step_ms, min(times), max(times))
        rows.append([counted, *(f"{number:.1f}" for number in numbers), f"{run.peak_bytes or 0:,}"])
    table(rows)


def main() -> None:
    """Runs the sections that are named, or all that this machine can do."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", default=["lesson", "foreign", "cost"])
    parser.add_argument("--small", action="store_true", help="a small model, to try the whole on a CPU")
    parser.add_argument("--ranks", default="8,64")
    parser.add_argument("--mode", default="simulate")
    parser.add_argument("--only", default="", help="of gpus and fsdp1, these programs")
    parser.add_argument("--records", type=Path)
    parser.add_argument("--opacus", type=Path)
    parser.add_argument("--torchdiff", type=Path)
    given = parser.parse_args()
    instrument = runner.instrument()
    print(f"torch {instrument.prepare()}, {instrument.gpus()} GPUs", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
        if given.small:
            for model in (folder / "gpt.py", folder / "large.py"):
                small = re.sub("WIDTH = [0-9]+", "WIDTH = 64", model.read_text(encoding="utf-8"))
                model.write_text(re.sub("DEPTH = [0-9]+", "DEPTH = 3", small), encoding="utf-8")
        os.chdir(folder)
        bench = Bench(folder, given.records)
        counts = [int(each) for each in given.ranks.split(",")]
        if "lesson" in given.sections:
            for count in counts:
                lesson(bench, given.mode, count, MISTAKES)
        if "foreign" in given.sections:
            foreign(bench, given.mode, given.opacus, given.torchdiff)
        if "cost" in given.sections:
            cost(bench, given.mode, counts[0])
        wanted = {f"{each}.py" for each in given.only.split(",") if each}
        gpus = instrument.gpus()
        for section, programs in {"gpus": {**MISTAKES, **ON_GPUS}, "fsdp1": FSDP1, "setup": SETUP}.items():
            if section in given.sections:
                chosen = {name: fix for name, fix in programs.items() if not wanted or name in wanted}
                if section == "setup" and gpus == 1:
                    chosen = {name: fix for name, fix in chosen.items() if name in ON_ONE}
                for mode in ("nccl", "simulate") if gpus else (given.mode,):
                    lesson(bench, mode, gpus or counts[0], chosen)
        os.chdir("/")


if __name__ == "__main__":
    main()
