"""What `fsdp-lint verify` says of programs with one mistake: before, after, and why; on gloo ranks or one of many."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ranks

from fsdp_lint.settings import Settings
from fsdp_lint.verify import report, runner
from fsdp_lint.verify.expectations import Expectation
from fsdp_lint.verify.plan import CannotRun, Plan, Target
from fsdp_lint.verify.proof import Proof, Wish, find_entry, modes, prove, refuse_old

FIXTURES = Path(__file__).parents[1] / "fixtures"
KEYS = {"mode", "ranks", "device", "torch", "before", "after", "verdicts"}
RUN_KEYS = {"held", "peak_bytes", "collectives", "losses", "parameters_changed", "step_ms", "ended"}
VERDICT_KEYS = {"code", "name", "filename", "location", "verdict", "because"}

TRAIN = """\
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)).cuda()
{before}
for layer in model:
    fully_shard(layer)
fully_shard(model)
{after}
for step in range({steps}):
    x = torch.randn(4, 8, device="cuda")
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
{end}
"""
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)"
RIGHT = TRAIN.format(before="", after=OPTIMIZER, steps=100000, end="")
WRONG = TRAIN.format(before=OPTIMIZER, after="", steps=100000, end="")

pytestmark = pytest.mark.ranks
Prove = Callable[..., Proof]


@pytest.fixture(autouse=True)
def torch_is_there() -> None:
    pytest.importorskip("torch", reason="needs torch")
    ranks.load_torch()


@pytest.fixture
def proved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prove:
    """Writes the files into an empty project and proves `train.py`."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    def run(target: Target | None = None, files: dict[str, str] | None = None, **wish: Any) -> Proof:
        for name, text in (files or {}).items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        wish = {"mode": "cpu", "timeout": 60.0, "patience": 5.0, **wish}
        return prove(Wish(target or Target("train.py"), **wish), Settings(tmp_path))

    return run


def verdict(proof: Proof, rule: str) -> tuple[str, str]:
    (found,) = [each for each in proof.verdicts if each.finding.name == rule]
    return found.verdict, found.because


def test_the_fix_of_an_early_optimizer_is_confirmed_and_told_in_json(proved: Prove) -> None:
    proof = proved(files={"train.py": WRONG})
    assert verdict(proof, "optimizer-before-shard")[0] == "confirmed"
    assert proof.ran and proof.holds
    told = json.loads(report.to_json(proof))
    assert told.keys() == KEYS
    assert told["before"].keys() == told["after"].keys() == RUN_KEYS
    assert {key for each in told["verdicts"] for key in each} == VERDICT_KEYS
    assert (told["mode"], told["ranks"], told["device"]) == ("cpu", 2, "cpu")
    assert told["before"]["parameters_changed"] == 0 and told["after"]["parameters_changed"] == 1
    assert told["before"]["step_ms"] is None, "the time of a step on a CPU says nothing about a GPU"
    assert told["before"]["ended"] == "stopped after 6 steps"
    elements = 2 * (8 * 8 + 8)
    wrong, right = told["before"]["held"], told["after"]["held"]
    assert (wrong["optimizer_only"], wrong["optimizer_state"]) == (4 * elements, 0)
    assert right["optimizer_only"] == 0
    assert right["parameters"] == right["gradients"] == 4 * elements // 2
    assert 4 * elements <= right["optimizer_state"] <= 4 * elements + 4 * 4, "two moments, and a step count each"
    assert len(told["after"]["losses"]) == 6
    text = report.to_text(proof)
    assert "fixed file train.py: loaded" in text
    assert "backend nccl to gloo (train.py:7)" in text


def test_simulate_knows_memory_and_collectives_and_no_values(proved: Prove) -> None:
    proof = proved(files={"train.py": WRONG}, mode="simulate", ranks=16)
    assert verdict(proof, "optimizer-before-shard")[0] == "confirmed"
    told = json.loads(report.to_json(proof))
    for run in (told["before"], told["after"]):
        assert run["losses"] is None and run["parameters_changed"] is None
    elements = 2 * (8 * 8 + 8)
    padded = 2 * (16 * 8 + 16)  # a dimension of 8 on 16 ranks: rank 0 has one row of 16
    assert told["after"]["held"]["parameters"] in (4 * elements // 8, 4 * padded // 16)
    kinds = {each["kind"]: each["count"] for each in told["after"]["collectives"]}
    assert kinds == {"all_gather": 4, "reduce_scatter": 2}
    assert "not measured in this mode" in report.to_text(proof)


def test_two_modes_are_kept_apart_and_each_says_what_it_knows(proved: Prove) -> None:
    wanted = tuple(map(Expectation.parse, ("peak<=1GiB", "changed>=100%")))
    proof = proved(files={"train.py": WRONG}, mode="simulate", ranks=4, beside=("cpu",), expectations=wanted)
    assert [kept.holds for kept in proof.kept] == [True, True], "the peak by the first mode, changes by the other"
    told = json.loads(report.to_json(proof))
    (beside,) = told["beside"]
    assert (told["mode"], beside["mode"]) == ("simulate", "cpu")
    assert told["after"]["losses"] is None and len(beside["after"]["losses"]) == 6
    said, because = verdict(proof, "optimizer-before-shard")
    assert said == "confirmed" and because.startswith("cpu: "), "the mode that has seen parameters change"
    text = report.to_text(proof)
    assert text.index("mode simulate, one rank of 4") < text.index("mode cpu, 4 ranks")


def test_what_one_mode_cannot_run_another_can(proved: Prove) -> None:
    text = RIGHT.replace("fully_shard(model)", "model = torch.nn.parallel.DistributedDataParallel(model)")
    text = text.replace("for layer in model:\n    fully_shard(layer)\n", "")
    proof = proved(files={"train.py": text}, mode="simulate", beside=("cpu",))
    assert proof.ran and not proof.ran_here
    told = report.to_text(proof)
    assert (
        "could not be run in this mode: train.py stops before its first step: DDP does not run in a simulated" in told
    )
    assert proof.beside[0].before.steps == 6


def test_a_hang_before_the_first_step_is_a_result(proved: Prove) -> None:
    ways = "dist.broadcast(x, 0) if dist.get_rank() == 0 else dist.all_reduce(x)"
    text = f"import torch\nimport torch.distributed as dist\ndist.init_process_group()\nx = torch.ones(4)\n{ways}\n"
    proof = proved(files={"train.py": text}, patience=2.0)
    assert proof.ran and not proof.holds and proof.before.hung
    told = "rank 0 is in broadcast (16 bytes) at train.py:5, rank 1 went on to all_reduce (16 bytes) at train.py:5"
    assert told in report.to_text(proof) and json.loads(report.to_json(proof))["before"]["held"] is None


def test_where_no_mode_can_be_had_nothing_is_run(proved: Prove) -> None:
    with pytest.raises(CannotRun, match=r"mode nccl needs one GPU a rank.*; mode shared needs a GPU"):
        proved(files={"train.py": RIGHT}, mode="nccl", ranks=99, beside=("shared",))


@pytest.mark.parametrize(("name", "code"), [("SIGABRT", 6), ("SIGSEGV", 11)])
def test_a_rank_that_a_signal_ends_is_no_hang(name: str, code: int, proved: Prove) -> None:
    """The others wait for it, and their collectives differ from its own; but none of them went another way."""
    end = f"if dist.get_rank():\n    os.kill(os.getpid(), {code})\ndist.barrier()"
    proof = proved(files={"train.py": TRAIN.format(before="", after=OPTIMIZER, steps=3, end=end)})
    assert not proof.before.hung and proof.before.ended.startswith(f"was ended by {name} (")
    assert f"rank 1 was ended by {name}" in (told := report.to_text(proof))
    assert "; its last collective was at train.py:18" in told, "not where it ended: that is not known"


def test_what_was_measured_until_a_signal_ends_the_ranks_is_told(proved: Prove) -> None:
    """Nobody can answer SIGKILL, which the kernel sends where memory is full."""
    proof = proved(files={"train.py": TRAIN.format(before="", after=OPTIMIZER, steps=3, end="os.kill(os.getpid(), 9)")})
    run = proof.before
    assert proof.ran and not proof.holds and not run.hung and run.steps == 3
    assert run.ended == "was ended by SIGKILL (Killed) after 3 steps [which is what a full memory ends in]"
    assert run.held is not None and run.held.optimizer_state and run.peak_bytes and run.collectives
    assert run.losses is not None and len(run.losses) == 3 and run.parameters_changed == 1


ENDLESS = """\
import re
if dist.get_rank():
    re.match("(a|a)*b", "a" * 60)
model[0].weight.full_tensor()
"""


def test_a_rank_at_work_when_the_time_is_up_is_no_hang(proved: Prove) -> None:
    """It cannot hear the signal, and writes nothing down; the other one waits for it, and not for long."""
    text = TRAIN.format(before="", after=OPTIMIZER, steps=3, end=ENDLESS)
    proof = proved(files={"train.py": text}, timeout=7.0, patience=60.0)
    assert not proof.before.hung and "was still running when the time was up" in report.to_text(proof)


def test_modes_are_chosen_by_the_gpus() -> None:
    wish = Wish(Target("train.py"))
    assert [modes(wish, gpus) for gpus in (0, 1, 8)] == [("cpu",), ("simulate", "shared"), ("nccl",)]
    assert modes(Wish(Target("train.py"), mode="simulate"), 1) == ("simulate",)


def test_ranks_that_share_a_gpu_take_the_first_whatever_they_ask_for(proved: Prove, tmp_path: Path) -> None:
    """Without a GPU, so the first one is mapped on to the CPU; the group is the one that has GPU tensors on gloo."""
    other = (
        'rank = int(os.environ["RANK"])\nassert torch.cuda.device_count() == 2\n'
        "device = torch.device(f'cuda:{rank}')\n"
        "with torch.cuda.device(rank):\n    extra = [torch.ones(2, device=device), torch.ones(2).cuda(rank),"
        " torch.ones(2).to(rank), torch.ones(2, device=rank)]\n"
        "dist.barrier(device_ids=[rank])\ndist.all_reduce(extra[0], op=dist.ReduceOp.AVG)\n"
    )
    (tmp_path / "train.py").write_text(RIGHT.replace("torch.manual_seed(0)", other), encoding="utf-8")
    run = runner.run(Plan(Target(str(tmp_path / "train.py")), "shared", 2, on_cpu=True, timeout=60, patience=5))
    assert run.steps == 6, [trouble.log for trouble in run.troubles]
    assert run.parameters_changed == 1 and run.losses is not None and len(run.losses) == 6
    assert run.peak_bytes is None and run.step_ms is None, "gloo's copies and a shared GPU say nothing of a real run"
    mapped = {line.split("\t")[0] for record in run.alive for line in record.mapped}
    assert {"other GPUs to the first", "backend nccl to gloo", "barrier(device_ids=...)"} <= mapped


GATHERS = """\
import torch
import torch.distributed as dist
from fsdp_lint.verify.instrument.collectives import through_the_host

dist.init_process_group("gloo")
group = dist.group.WORLD.group_name
mine = torch.full((2,), float(dist.get_rank()))
op = torch.ops._c10d_functional
assert through_the_host(op.all_gather_into_tensor.default, (mine, 2, group)).tolist() == [0, 0, 1, 1]
both = through_the_host(op.all_gather_into_tensor_coalesced.default, ([mine, mine + 1], 2, group))
assert [each.tolist() for each in both] == [[0, 0, 1, 1], [1, 1, 2, 2]]
"""


def test_what_gloo_gathers_through_the_host_is_what_it_gathers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(GATHERS, encoding="utf-8")
    run = runner.run(Plan(Target(str(tmp_path / "train.py")), "cpu", 2, on_cpu=True, timeout=60, patience=5))
    assert not run.troubles, run.troubles[0].log


def test_what_the_mode_cannot_do_after_the_fix_is_no_verdict_on_it(proved: Prove) -> None:
    wrapped = "model = torch.nn.parallel.DistributedDataParallel(model)\n"
    after = RIGHT.replace("for layer in model:\n    fully_shard(layer)\nfully_shard(model)\n", wrapped)
    proof = proved(files={"train.py": RIGHT, "ddp.py": after}, after="ddp.py", mode="simulate")
    said, because = verdict(proof, "ddp-where-fsdp-unneeded")
    assert said == "not observable" and because.endswith("after: DDP does not run in a simulated group")


@pytest.mark.gpu
def test_a_whole_parameter_is_gathered_by_ranks_that_share_a_gpu(tmp_path: Path) -> None:
    if not runner.instrument().gpus():
        pytest.skip("needs a CUDA GPU")
    read = "optimizer.step()\n    assert model[0].weight.full_tensor().shape == (8, 8)"
    (tmp_path / "train.py").write_text(RIGHT.replace("optimizer.step()", read), encoding="utf-8")
    run = runner.run(Plan(Target(str(tmp_path / "train.py")), "shared", 2, on_cpu=False, timeout=120))
    assert not run.troubles and run.steps == 6, run.troubles[0].log


@pytest.mark.gpu
def test_ranks_that_share_a_gpu_train_as_those_on_cpus_do(tmp_path: Path) -> None:
    if not runner.instrument().gpus():
        pytest.skip("needs a CUDA GPU")
    (tmp_path / "train.py").write_text(RIGHT.replace('(4, 8, device="cuda")', "(4, 8).cuda()"))
    target = Target(str(tmp_path / "train.py"))
    shared = runner.run(Plan(target, "shared", 2, on_cpu=False, timeout=120))
    alone = runner.run(Plan(target, "cpu", 2, on_cpu=True, timeout=120))
    assert shared.first is not None and shared.first.device != "cpu"
    assert shared.parameters_changed == 1
    assert shared.losses == pytest.approx(alone.losses, rel=1e-3)


def test_two_runs_of_one_program_agree(proved: Prove) -> None:
    first = json.loads(report.to_json(proved(files={"train.py": RIGHT})))
    again = json.loads(report.to_json(proved()))
    # The peak too: what gloo's threads still hold is waited for, which needs Linux.
    for key in (
        "held",
        "collectives",
        "losses",
        "parameters_changed",
        *["peak_bytes"] * sys.platform.startswith("linux"),
    ):
        assert first["before"][key] == again["before"][key]
    assert first["after"] is None


def test_the_units_that_made_the_collectives_are_told(proved: Prove) -> None:
    text = report.to_text(proved(files={"train.py": RIGHT}))
    rows = [line.split() for line in text.splitlines() if line.startswith("* ")]
    assert [row[:3] for row in rows] == [["*", "all_gather", "4"], ["*", "reduce_scatter", "2"]]
    assert all(row[-2:] == ["(2", "units)"] for row in rows), "units that differ in a number only share a row"


def test_a_port_that_is_taken_is_not_met_on(proved: Prove, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        monkeypatch.setenv("MASTER_PORT", str(other.getsockname()[1]))
        named = f'os.environ["MASTER_PORT"] = "{other.getsockname()[1]}"\ndist.init'
        proof = proved(files={"train.py": RIGHT.replace("dist.init", named)})
    assert proof.before.steps == 6 and "MASTER_PORT to a free one" in report.to_text(proof)


def test_the_end_runs_nothing_more_of_the_program(proved: Prove, tmp_path: Path) -> None:
    loop = RIGHT[RIGHT.index("for step in") :].replace("\n", "\n    ").rstrip()
    text = RIGHT[: RIGHT.index("for step in")] + f"try:\n    {loop}\nfinally:\n    open('finally', 'w')\n"
    proof = proved(files={"train.py": text})
    assert proof.before.ended == "stopped after 6 steps"
    assert not (tmp_path / "finally").exists()


def test_torch_compile_is_told(proved: Prove) -> None:
    text = RIGHT.replace(OPTIMIZER, f'{OPTIMIZER}\nmodel.compile(backend="eager")')
    told = report.to_text(proved(files={"train.py": text}))
    assert "torch.compile (asked for at train.py:15) was not active" in told


HOOK = "model[0].weight.register_hook(lambda gradient: gradient * 2)"
SUM = "\nfor p in model.parameters():\n    dist.all_reduce(p.grad.to_local())\n"


@pytest.mark.parametrize(
    ("rule", "wrong", "right"),
    [
        ("param-hook-never-fires", TRAIN.format(before=HOOK, after=OPTIMIZER, steps=9, end=""), RIGHT),
        (
            "param-data-assign",
            RIGHT.replace(OPTIMIZER, OPTIMIZER + "\nfor p in model.parameters():\n    p.data = p.data * 0.5"),
            RIGHT.replace(OPTIMIZER, OPTIMIZER + "\nfor p in model.parameters():\n    p.data.mul_(0.5)"),
        ),
        (
            "manual-gradient-reduction",
            RIGHT.replace("backward()", "backward()" + SUM.replace("\n", "\n    ").rstrip()),
            RIGHT,
        ),
    ],
)
def test_what_comes_to_nothing_or_is_done_twice_is_seen(rule: str, wrong: str, right: str, proved: Prove) -> None:
    said, because = verdict(proved(files={"train.py": wrong, "right.py": right}, after="right.py"), rule)
    assert said == "confirmed", because


def test_a_fix_by_hand_is_proved_and_an_unsuccessful_one_is_not(proved: Prove) -> None:
    proof = proved(files={"train.py": WRONG, "right.py": RIGHT}, after="right.py")
    assert verdict(proof, "optimizer-before-shard")[0] == "confirmed"
    proof = proved(files={"still.py": WRONG + "# another text\n"}, after="still.py")
    assert verdict(proof, "optimizer-before-shard")[0] == "seen"
    assert not proof.holds


def test_a_hang_is_a_result_that_names_both_lines(proved: Prove) -> None:
    end = "if dist.get_rank() == 0:\n    model[0].weight.full_tensor()\ndist.barrier()\n"
    proof = proved(files={"train.py": TRAIN.format(before="", after=OPTIMIZER, steps=2, end=end)}, patience=3.0)
    said, because = verdict(proof, "collective-under-rank-guard")
    assert said == "seen"
    assert "rank 0 is in all_gather" in because and "train.py:21" in because
    assert "rank 1 went on to barrier" in because and "train.py:22" in because
    assert proof.before.hung and not proof.holds


def test_a_sharded_save_is_read_back_and_what_was_there_is_kept(proved: Prove, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"the user's own")
    end = 'if dist.get_rank() == 0:\n    torch.save(model.state_dict(), "model.pt")'
    proof = proved(files={"train.py": TRAIN.format(before="", after=OPTIMIZER, steps=3, end=end)})
    said, because = verdict(proof, "torch-save-sharded-state")
    assert said == "confirmed", because
    assert "a reload differs" in because and "a reload gives the same model" in because
    assert (tmp_path / "model.pt").read_bytes() == b"the user's own"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".git", "model.pt", "train.py"]


@pytest.mark.parametrize(
    ("lines", "said", "told"),
    [
        ("twin = copy.deepcopy(model)\n", "seen", "does not support deepcopy"),
        ("data = {}['no such data']\ntwin = copy.deepcopy(model)\n", "not observable", "KeyError"),
        ("twin = copy.deepcopy(model, os.environ['NO_SUCH'])\n", "not observable", "KeyError"),
    ],
)
def test_an_error_that_is_not_the_mistakes_own_says_nothing(lines: str, said: str, told: str, proved: Prove) -> None:
    """Not even on the finding's own line."""
    text = TRAIN.format(before="", after=f"{OPTIMIZER}\n{lines}", steps=1, end="")
    found, because = verdict(proved(files={"train.py": "import copy\n" + text}), "deepcopy-sharded")
    assert found == said and told in because


def test_an_error_that_came_of_the_mistakes_own_shows_it(proved: Prove) -> None:
    wrapped = "try:\n    twin = copy.deepcopy(model)\nexcept Exception as error:\n"
    wrapped += "    raise SystemError('training failed') from error\n"
    text = "import copy\n" + TRAIN.format(before="", after=OPTIMIZER + "\n" + wrapped, steps=1, end="")
    proof = proved(files={"train.py": text})
    assert verdict(proof, "deepcopy-sharded")[0] == "seen"
    assert "does not support deepcopy" in verdict(proof, "deepcopy-sharded")[1]
    log = proof.before.troubles[0].log
    assert "training failed" in log and "does not support deepcopy" in log
    assert "fsdp_lint" not in log, "frames of ours are no part of the program's traceback"


WRAPPED = (
    RIGHT.replace("import fully_shard", "import FullyShardedDataParallel as FSDP")
    .replace("for layer in model:\n    fully_shard(layer)\nfully_shard(model)\n", "model = FSDP(model)\n")
    .replace("range(100000)", "range(3)")
)
CLIP = "backward()\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)"
LOCAL_SUM = """\
def total(model):
    found = []
    for p in model.parameters():
        part = p.to_local()
        found.append(part.abs().sum())
    return sum(found)

"""
MESH = 'mesh = init_device_mesh("cuda", (2, 1), mesh_dim_names=("shard", "replicate"))\n'
ON_MESH = (
    RIGHT.replace("import os\n", "import os\nfrom torch.distributed.device_mesh import init_device_mesh\n")
    .replace("for layer", MESH + "for layer")
    .replace("fully_shard(layer)", "fully_shard(layer, mesh=mesh)")
    .replace("fully_shard(model)", "fully_shard(model, mesh=mesh)")
)


@pytest.mark.parametrize(
    ("rule", "wrong", "right", "told"),
    [
        (
            "fsdp1-clip-api",
            WRAPPED.replace("backward()", CLIP),
            WRAPPED.replace("backward()", "backward()\n    model.clip_grad_norm_(0.1)"),
            "the ranks clip one gradient by the norms",
        ),
        (
            "to-local-arithmetic",
            LOCAL_SUM + RIGHT.replace("range(100000)", "range(2)") + "print(total(model))\n",
            RIGHT.replace("range(100000)", "range(2)"),
            "the ranks read",
        ),
        (
            "hsdp-mesh-order",
            ON_MESH,
            ON_MESH.replace("(2, 1)", "(1, 2)").replace('"shard", "replicate"', '"replicate", "shard"'),
            "shard (size 2) replicates",
        ),
    ],
)
def test_the_harm_is_measured(rule: str, wrong: str, right: str, told: str, proved: Prove) -> None:
    proof = proved(files={"train.py": wrong, "right.py": right}, after="right.py")
    said, because = verdict(proof, rule)
    assert said == "confirmed", because
    assert told in because.partition("; after")[0]


def test_the_whole_state_dict_is_counted_on_each_rank(proved: Prove) -> None:
    end = """\
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
if dist.get_rank() == 0:
    torch.save(state, "model.pt")
"""
    proof = proved(files={"train.py": TRAIN.format(before="", after=OPTIMIZER, steps=2, end=end)})
    said, because = verdict(proof, "full-state-dict-no-offload")
    assert said == "confirmed" and "before: 2 of 2 ranks" in because and "after: 1 of 2 ranks" in because


@pytest.mark.parametrize(
    ("rule", "text", "mode"),
    [
        ("missing-set-device", RIGHT.replace('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n', ""), "nccl"),
        (
            "init-through-local",
            RIGHT.replace(OPTIMIZER, "torch.nn.init.normal_(model[0].weight.to_local())\n" + OPTIMIZER),
            "nccl",
        ),
    ],
)
def test_what_a_mode_cannot_show_names_the_one_that_can(rule: str, text: str, mode: str, proved: Prove) -> None:
    said, because = verdict(proved(files={"train.py": text}), rule)
    assert said == "not observable" and f"--mode {mode}" in because


def test_a_mistake_in_another_file_lets_the_run_go_to_its_save(proved: Prove) -> None:
    """The script says nothing of saving: only what the first run has loaded tells that one is to come."""
    saving = "import torch\nimport torch.distributed as dist\n\n\ndef keep(model):\n    state = model.state_dict()\n"
    saving += '    if dist.get_rank() == 0:\n        torch.save(state, "model.pt")\n'
    text = TRAIN.format(before="", after=OPTIMIZER, steps=20, end="keep(model)\n")
    proof = proved(files={"train.py": "from saving import keep\n" + text, "saving.py": saving})
    said, because = verdict(proof, "torch-save-sharded-state")
    assert said == "confirmed", because
    assert "a reload gives the same model" in because


def test_ranks_that_are_not_seeded_draw_different_numbers_and_the_same_again(proved: Prove) -> None:
    text = RIGHT.replace("torch.manual_seed(0)\n", "")
    first, again = proved(files={"train.py": text}), proved()
    assert first.before.built_unequal, "as processes do that are started one by one"
    assert first.before.losses == again.before.losses


PACKAGED = {
    "pack/__init__.py": "",
    "pack/setup.py": """\
        def prepare(model):
            import torch
            from torch.distributed.fsdp import fully_shard

            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            for layer in model:
                fully_shard(layer)
            fully_shard(model)
            return optimizer
        """.replace("\n        ", "\n").lstrip(),
    "pack/scripts/__init__.py": "",
    "pack/scripts/train.py": """\
        import multiprocessing
        import os
        import sys
        from pack.setup import prepare


        def worker():
            assert prepare.__module__ == "pack.setup" and "torch" not in sys.modules


        def main():
            import torch
            import torch.distributed as dist

            if os.environ["RANK"] == "0":
                spawned = multiprocessing.get_context("spawn").Process(target=worker)
                spawned.start()
                spawned.join()
                assert spawned.exitcode == 0
            dist.init_process_group("gloo")
            model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
            optimizer = prepare(model)
            for step in range(100000):
                optimizer.zero_grad()
                model(torch.randn(4, 8)).pow(2).mean().backward()
                optimizer.step()


        if __name__ == "__main__":
            main()
        """.replace("\n        ", "\n").lstrip(),
}


@pytest.mark.parametrize("as_module", [False, True])
def test_the_fixed_package_is_what_runs_also_in_spawned_workers(
    as_module: bool, proved: Prove, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is imported from a path that stands first, as an editable install puts it: a copy would lose. Its
    files import torch late, so that the spawned worker need not load it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    target = Target(module="pack.scripts.train") if as_module else Target("pack/scripts/train.py")
    proof = proved(target, files=PACKAGED)
    said, because = verdict(proof, "optimizer-before-shard")
    assert said == "confirmed", (because, [trouble.log for trouble in proof.before.troubles])
    assert {Path(path).name for path in proof.hashes} == {"setup.py"}
    assert proof.after is not None and dict(proof.after.run.loaded) == proof.hashes
    assert "prepare" not in sys.modules and "pack" not in sys.modules


def test_a_fixed_file_that_is_not_loaded_proves_nothing(proved: Prove, tmp_path: Path) -> None:
    """The program reads its code itself, which no import hook sees."""
    read = 'exec(compile(open("loop.py").read(), "loop.py", "exec"))\n'
    (tmp_path / "fix").mkdir()
    (tmp_path / "fix" / "other.py").write_text("x = 2\n")
    proof = proved(files={"train.py": WRONG, "other.py": "x = 1\n", "loop.py": read}, after="fix")
    assert verdict(proof, "optimizer-before-shard")[0] == "not run"
    assert not proof.holds
    assert "NOT loaded" in report.to_text(proof)


BUILT = """\
import torch
from torch.distributed.fsdp import fully_shard


def build():
    model = torch.nn.Linear(8, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    fully_shard(model)
    return model, optimizer
"""
BUILDS = """\
import os
import torch
import torch.distributed as dist
from build import build
import other

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model, optimizer = build()
for step in range(100):
    model(torch.randn(4, 8, device="cuda")).pow(2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("drops", "said"), [("", "confirmed"), ("import other\n", "not run")])
def test_a_fix_by_hand_may_change_files_that_the_run_does_not_load(drops: str, said: str, proved: Prove) -> None:
    """The folder has no script, and lies over the project's folder that has its files. What the run before has loaded
    must be loaded again."""
    old, new = "    fully_shard(model)\n", "    optimizer = torch.optim.AdamW(model.parameters())\n"
    fixed = BUILT.replace(new, "").replace(old, old + new)
    files = {"src/app/build.py": BUILT, "src/app/train.py": BUILDS, "src/app/other.py": "", "src/app/test_it.py": ""}
    fix = {
        "fix/app/build.py": fixed,
        "fix/app/test_it.py": "x = 1\n",
        "fix/app/new.py": "",
        "fix/app/other.py": "x = 1\n",
    }
    if drops:
        fix["fix/app/train.py"] = BUILDS.replace(drops, "")
    proof = proved(Target("src/app/train.py"), files={**files, **fix}, after="fix", steps=2)
    assert verdict(proof, "optimizer-before-shard")[0] == said
    told = report.to_text(proof)
    assert "fixed file src/app/test_it.py: not part of this run" in told
    assert f"fixed file src/app/other.py: {'NOT loaded' if drops else 'loaded'}" in told


def test_a_folder_that_fits_nowhere_is_no_fix(proved: Prove) -> None:
    with pytest.raises(CannotRun, match="has none of its files"):
        proved(files={"train.py": WRONG, "fix/elsewhere/loop.py": "x = 1\n"}, after="fix")


def test_what_is_expected_is_compared_with_the_after_run(proved: Prove) -> None:
    wanted = ("peak<=1GiB", "saving>=99%", "changed>=100%", "step<=5ms")
    proof = proved(files={"train.py": WRONG}, expectations=tuple(map(Expectation.parse, wanted)))
    assert [kept.holds for kept in proof.kept] == [True, False, True, None]
    assert not proof.holds


@pytest.mark.parametrize("text", ["peak", "peak<=", "peak<=4lightyears", "speed>=1", "saving>=3GiB", "peak<=3%"])
def test_an_expectation_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(CannotRun):
        Expectation.parse(text)


def test_a_program_that_fails_early_is_told_in_its_own_words(proved: Prove) -> None:
    proof = proved(files={"train.py": "import torch\n\nraise ValueError('no data')\n"})
    assert not proof.ran
    assert report.failure(proof).rstrip().endswith("ValueError: no data")
    assert "fsdp_lint" not in report.failure(proof)
    assert "failed before its first step: ValueError: no data" in proof.obstacle


BY_HAND = """\
for step in range(100000):
    model(torch.randn(4, 8, device="cuda")).pow(2).mean().backward()
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(p.grad, alpha=0.1)
            p.grad = None
"""


def test_without_an_optimizer_a_step_is_a_backward(proved: Prove) -> None:
    proof = proved(files={"train.py": TRAIN.format(before="", after="", steps=0, end=BY_HAND)})
    run = proof.before
    assert proof.ran and run.ended == "stopped after 6 steps" and "a step is a backward" in report.to_text(proof)
    assert run.parameters_changed == 1 and run.losses is not None and len(run.losses) == 6
    assert run.held is not None and run.held.gradients == run.held.parameters and not run.held.optimizer_state
    assert {one.kind for one in run.collectives or ()} == {"all_gather", "reduce_scatter"}


def test_backwards_before_the_optimizer_is_built_are_forgotten(proved: Prove) -> None:
    warm = "trial = torch.nn.Linear(8, 1)\ntrial(torch.randn(4, 8)).sum().backward()\ndel trial\n"
    warm += 'for _ in range(3):\n    model(torch.randn(4, 8, device="cuda")).sum().backward()\n'
    proof = proved(files={"train.py": TRAIN.format(before="", after=warm + OPTIMIZER, steps=99, end="")})
    assert proof.before.steps == 6 and proof.before.held is not None and proof.before.held.optimizer_state
    assert proof.before.parameters_changed == 1
    assert "a step is a backward" not in report.to_text(proof)


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (OPTIMIZER, "the optimizer that is built at train.py:14 makes no step"),
        ("", "no optimizer step and no backward"),
    ],
)
def test_what_is_missing_for_a_step_is_told(after: str, told: str, proved: Prove) -> None:
    text = TRAIN.format(before="", after=after, steps=0, end="").replace("fully_shard", "print")
    proof = proved(files={"train.py": text.replace("import print", "import fully_shard")})
    assert not proof.ran and told in proof.obstacle


def test_a_line_that_needs_a_gpu_is_told_also_after_the_first_step(proved: Prove) -> None:
    text = TRAIN.format(before="", after=OPTIMIZER, steps=3, end="torch.cuda.graph_pool_handle()")
    proof = proved(files={"train.py": text})
    told = report.to_text(proof)
    assert proof.before.steps == 3
    assert "graph_pool_handle needs a CUDA GPU [this line needs a GPU and cannot be mapped to the CPU]" in told


def test_a_program_that_names_no_gpu_is_not_told_of_one(proved: Prove) -> None:
    text = RIGHT.replace('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))\n', "").replace('"nccl"', '"gloo"')
    proof = proved(files={"train.py": text.replace(".cuda()", "").replace(', device="cuda"', "")})
    assert proof.before.first is not None and proof.before.first.mapped == ()


def test_a_program_that_ends_by_an_error_is_not_right(proved: Prove) -> None:
    broken = proved(files={"train.py": TRAIN.format(before="", after=OPTIMIZER, steps=3, end="raise ValueError('no')")})
    assert broken.ran and not broken.holds
    whole = proved(files={"train.py": TRAIN.format(before="", after=OPTIMIZER, steps=3, end="")})
    assert whole.ran and whole.holds


@pytest.mark.parametrize("mode", ["cpu", "simulate"])
@pytest.mark.parametrize(
    "save",
    [
        'with open("model.pt", "wb") as file:\n        torch.save(model.state_dict(), file)',
        'torch.save(model.state_dict(), "new.tmp"); __import__("os").replace("new.tmp", "model.pt")',
    ],
)
def test_a_checkpoint_of_the_users_outlives_every_way_to_overwrite_it(
    save: str, mode: str, proved: Prove, tmp_path: Path
) -> None:
    (tmp_path / "model.pt").write_bytes(b"the user's own")
    end = f"if dist.get_rank() == 0:\n    {save}"
    proved(files={"train.py": TRAIN.format(before="", after=OPTIMIZER, steps=3, end=end)}, mode=mode)
    assert (tmp_path / "model.pt").read_bytes() == b"the user's own"


@pytest.mark.parametrize("end", ["raise torch.OutOfMemoryError('CUDA out of memory')", "torch.empty(2**60)"])
def test_memory_that_does_not_suffice_is_a_result(end: str, proved: Prove) -> None:
    proof = proved(files={"train.py": TRAIN.format(before="", after=OPTIMIZER, steps=1, end=end)})
    assert proof.ran and proof.before.ended.startswith("out of memory (peak ")
    assert proof.before.peak_bytes, "the peak is told, too"
    assert f"(peak {proof.before.peak_bytes:,} bytes)" in proof.before.ended


def test_what_cannot_be_simulated_is_named(proved: Prove) -> None:
    wrapped = "model = torch.nn.parallel.DistributedDataParallel(model)\n"
    text = RIGHT.replace("for layer in model:\n    fully_shard(layer)\nfully_shard(model)\n", wrapped)
    proof = proved(files={"train.py": text}, mode="simulate")
    assert not proof.ran
    assert "DDP does not run in a simulated group at train.py:" in proof.obstacle
    assert "--mode cpu or nccl" in proof.obstacle


def test_an_exchange_of_objects_is_no_full_memory_in_simulate(proved: Prove) -> None:
    """What should come from the rank that is pretended would be whatever lies in memory: here, a size of 1 TiB."""
    exchange = "junk = torch.full((1,), 2**40)\ndel junk\ndist.broadcast_object_list([None], src=1)\n"
    text = TRAIN.format(before="", after=exchange + OPTIMIZER, steps=3, end="")
    proof = proved(files={"train.py": text}, mode="simulate")
    assert not proof.ran
    told = "broadcast_object_list exchanges objects, which the pretended group cannot do at train.py:16; --mode cpu"
    assert told in proof.obstacle


def test_an_exchange_of_states_ends_a_simulated_run_as_a_save_does(proved: Prove) -> None:
    sharded = "    fully_shard(layer)\nfully_shard(model)"
    text = TRAIN.format(before="", after=OPTIMIZER, steps=3, end="FSDP.optim_state_dict(model, optimizer)")
    text = text.replace("import fully_shard", "import FullyShardedDataParallel as FSDP")
    text = text.replace(f"for layer in model:\n{sharded}", "model = FSDP(model, use_orig_params=True)")
    proof = proved(files={"train.py": text}, mode="simulate", ranks=4)
    assert proof.ran and proof.holds
    assert proof.before.ended == "stopped before FSDP.optim_state_dict, after 3 steps"


def test_the_time_limit_before_the_first_step_is_told(proved: Prove) -> None:
    proof = proved(files={"train.py": RIGHT.replace("optimizer.step()", "while True: pass")}, timeout=5.0)
    assert not proof.ran
    limit = "train.py: stopped at the time limit of 5 s, before its first step, and without one the "
    assert proof.obstacle.startswith(limit), proof.obstacle


def test_a_program_that_does_not_end_is_stopped_and_still_told(proved: Prove) -> None:
    endless = RIGHT.replace("optimizer.step()", "optimizer.step()\nwhile True:\n    pass")
    endless = endless.replace("range(100000)", "range(2)")
    proof = proved(files={"train.py": endless}, timeout=8.0)
    assert proof.before.steps == 2 and proof.before.ended.startswith("stopped at the time limit")


def test_modules_are_found_without_importing_their_parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "outer").mkdir()
    (tmp_path / "outer" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "outer" / "__main__.py").write_text("")
    (tmp_path / "outer" / "inner.py").write_text("")
    monkeypatch.chdir(tmp_path)
    assert Path(find_entry(Target(module="outer.inner"))).name == "inner.py"
    assert Path(find_entry(Target(module="outer"))).name == "__main__.py"
    for name in ("outer.no", "nowhere.at.all"):
        with pytest.raises(CannotRun):
            find_entry(Target(module=name))


STUBBORN = """\
import multiprocessing, os, signal, sys, time
from multiprocessing import shared_memory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    time.sleep(600)
memory = shared_memory.SharedMemory(create=True, size=1 << 20)
open(f"pid-{os.getpid()}", "w").write(memory.name)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["SIGINT", "SIGTERM"])
def test_nothing_is_left_behind_when_it_is_interrupted(how: str, tmp_path: Path) -> None:
    import signal

    (tmp_path / "train.py").write_text(STUBBORN)
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, "-m", "fsdp_lint", "verify", "train.py", "--mode", "cpu"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    verify = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    notes: list[Path] = []
    deadline = time.monotonic() + 90
    while len(notes) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
        notes = [path for path in tmp_path.glob("pid-*") if path.read_text()]
    assert len(notes) == 2
    group = {int(path.name.removeprefix("pid-")) for path in notes}
    shared = [f"/dev/shm/{path.read_text().lstrip('/')}" for path in notes]
    assert all(os.path.exists(path) for path in shared)
    verify.send_signal(getattr(signal, how))
    _, said = verify.communicate(timeout=60)
    assert verify.returncode in (130, 143) and "Traceback" not in said
    assert not any(os.path.exists(f"/proc/{pid}") for pid in group)
    assert not living_in(tmp_path), "also what left its session"
    assert not any(os.path.exists(path) for path in shared)
    assert not list((tmp_path / "tmp").iterdir())


def living_in(folder: Path) -> list[int]:
    """Processes whose current folder this is."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if entry.readlink() == folder:
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.gpu
def test_a_gpu_counts_every_byte(tmp_path: Path) -> None:
    if not runner.instrument().gpus():
        pytest.skip("needs a CUDA GPU")
    (tmp_path / "train.py").write_text(RIGHT)
    run = runner.run(Plan(Target(str(tmp_path / "train.py")), "simulate", 8, on_cpu=False))
    assert run.first is not None and run.first.device != "cpu"
    assert run.peak_bytes and run.step_ms and run.held is not None and run.held.training < run.peak_bytes


def test_without_torch_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RIGHT)
    program = "import sys; sys.modules['torch'] = None; from fsdp_lint.cli import main; main()"
    command = [sys.executable, "-c", program, "verify", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "fsdp-lint: verify runs the program, so it needs torch: pip install 'fsdp-lint[verify]'\n"


@pytest.mark.parametrize(("version", "refused"), [("2.8.0+cpu", True), ("2.9.1", False), ("2.13.0", False)])
def test_an_old_torch_is_refused_with_the_reason(version: str, refused: bool) -> None:
    if not refused:
        refuse_old(version)
        return
    with pytest.raises(CannotRun, match="sums gradients"):
        refuse_old(version)
