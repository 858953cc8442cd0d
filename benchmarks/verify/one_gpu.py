"""What one GPU shows: `simulate` for memory and `shared` for training, of small and of large models.

    python benchmarks/verify/one_gpu.py [--small]

Prints the reports of the default modes, whether training in `shared` is that of the same program on two CPU ranks, what
`shared` costs in time, and the cases in which a program names another GPU than the first. `--small`: to try the whole
on a CPU, where `shared` is run on CPU ranks.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
import time
from pathlib import Path

from fsdp_lint.settings import Settings
from fsdp_lint.verify import report, runner
from fsdp_lint.verify.measures import Run
from fsdp_lint.verify.plan import Plan, Target
from fsdp_lint.verify.proof import Wish, prove

PROGRAMS = Path(__file__).parent / "programs"
WRONG = ("optimizer_before_shard", "root_not_sharded", "to_local_arithmetic", "collective_under_rank_guard")
FIXES = {"to_local_arithmetic": "full_tensor_arithmetic", "collective_under_rank_guard": "collective_on_every_rank"}

NAMES_OTHER_GPUS = """\
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

rank = int(os.environ["LOCAL_RANK"])
assert torch.cuda.device_count() >= 2
device = torch.device(f"cuda:{rank}")
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(3)]).cuda(rank)
WRAP
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stream = torch.cuda.Stream(device=rank)
torch.manual_seed(rank)
dist.barrier(device_ids=[rank])
for step in range(6):
    x = torch.randn(4, 32).to(device)
    with torch.cuda.stream(stream):
        y = torch.ones(1, device=rank)
    torch.cuda.synchronize(rank)
    torch.cuda.memory_allocated(rank)
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    dist.all_reduce(y, op=dist.ReduceOp.AVG)
    optimizer.step()
"""
WRAPS = {
    "fsdp2": "for layer in model:\n    fully_shard(layer)\nfully_shard(model)",
    "fsdp1": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP\n"
    "model = FSDP(model, device_id=rank, use_orig_params=True)",
    "ddp": "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])",
    "hsdp": "mesh = dist.init_device_mesh('cuda', (1, 2), mesh_dim_names=('replicate', 'shard'))\n"
    "for layer in model:\n    fully_shard(layer, mesh=mesh)\nfully_shard(model, mesh=mesh)",
    "mixed precision": "from torch.distributed.fsdp import MixedPrecisionPolicy\n"
    "policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n"
    "for layer in model:\n    fully_shard(layer, mp_policy=policy)\nfully_shard(model, mp_policy=policy)",
    "cpu offload": "from torch.distributed.fsdp import CPUOffloadPolicy\n"
    "for layer in model:\n    fully_shard(layer, offload_policy=CPUOffloadPolicy())\n"
    "fully_shard(model, offload_policy=CPUOffloadPolicy())",
}


def told(run: Run) -> str:
    """One run in a line; peaks as each rank itself has counted them."""
    losses = " ".join(f"{loss:.5f}" for loss in run.losses or ())
    peaks = [record.peak_bytes for record in run.alive]
    held = run.held.training if run.held is not None else None
    changed = "{} of {}".format(*run.changed) if run.changed else "-"
    return f"{run.seconds:5.1f} s | held {held} | peaks {peaks} | changed {changed} | losses {losses} | {run.ended}"


def compare(folder: Path, name: str, text: str, gpu: bool) -> None:
    """The same program on ranks that share the GPU, and on CPU ranks."""
    path = folder / "other_gpus.py"
    path.write_text(text, encoding="utf-8")
    target = Target(str(path))
    for mode, on_cpu in (("shared", not gpu), ("cpu", True)):
        run = runner.run(Plan(target, mode, 2, on_cpu=on_cpu, timeout=120))
        print(f"{name}, {mode}: {told(run)}", flush=True)
        for trouble in run.troubles[:1]:
            print(trouble.site, trouble.log[-1500:], flush=True)
        if mode == "shared" and run.first is not None:
            print("   mapped:", "; ".join(line.partition("\t")[0] for line in run.first.mapped), flush=True)


def main() -> None:
    """Runs all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--records", type=Path, help="write the JSON of each proof into this folder")
    given = parser.parse_args()
    instrument = runner.instrument()
    gpu = bool(instrument.gpus())
    print(f"torch {instrument.prepare()}, {instrument.gpus()} GPUs", flush=True)
    records = given.records.resolve() if given.records is not None else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
        if given.small:
            model = (folder / "gpt.py").read_text(encoding="utf-8")
            model = re.sub("DEPTH = [0-9]+", "DEPTH = 3", re.sub("WIDTH = [0-9]+", "WIDTH = 64", model))
            (folder / "gpt.py").write_text(model, encoding="utf-8")
        os.chdir(folder)
        for wrap, text in WRAPS.items():
            compare(folder, wrap, NAMES_OTHER_GPUS.replace("WRAP", text), gpu)
        for program in WRONG:
            began = time.monotonic()
            fix = FIXES.get(program)
            after = str(folder / f"{fix}.py") if fix else None
            modes = {} if gpu else {"mode": "simulate", "beside": ("cpu",)}
            wish = Wish(Target(f"{program}.py"), timeout=240, patience=30, after=after, **modes)  # type: ignore[arg-type]
            proof = prove(wish, Settings(folder, gpu_memory=141.0))
            print(f"\n### {program}: {time.monotonic() - began:.0f} s\n\n{report.to_text(proof)}", flush=True)
            for other in proof.beside:
                print("before,", told(other.before), "\nafter, ", told(other.after.run) if other.after else "-")
            if records is not None:
                text = report.to_json(proof).replace(f"{folder}/", "")
                (records / f"{program}-one-gpu.json").write_text(text, encoding="utf-8")
        os.chdir("/")


if __name__ == "__main__":
    main()
