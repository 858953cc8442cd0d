"""Probes for mistakes in how ranks are set up: their GPUs, meshes and backends, and what each takes into its memory."""

from __future__ import annotations

from fsdp_lint.verify.errors import raised
from fsdp_lint.verify.evidence import Case, Evidence, no_step
from fsdp_lint.verify.hang import short
from fsdp_lint.verify.measures import Layout, Whole

_MOST = 0.5  # of the largest load: a rank that reads less does not read the whole
_SHARDING, _REPLICATING = ("shard", "fsdp"), ("repl", "ddp")


def one_gpu_for_many(case: Case) -> Evidence:
    """A GPU on which more than one rank has memory."""
    if case.run.mode != "nccl":
        return Evidence(None, f"in mode {case.run.mode} no rank has a GPU of its own; --mode nccl on two GPUs shows it")
    error = raised(case, "missing-set-device")
    if error:
        return Evidence(True, error)
    if len(case.run.alive) < 2:
        return Evidence(None, "one rank has all GPUs to itself; two show it")
    users: dict[str, list[int]] = {}
    for rank, record in enumerate(case.run.alive):
        for number, peak in record.gpus.items():
            users.setdefault(number, []).append(peak if rank else -peak)
    shared = {number: peaks for number, peaks in users.items() if len(peaks) > 1}
    if not shared:
        return Evidence(False, f"each of {len(case.run.alive)} ranks has memory on one GPU only")
    number, peaks = max(shared.items(), key=lambda each: len(each[1]))
    told = " and ".join(f"{abs(peak):,}" for peak in peaks[:4])
    return Evidence(True, f"{len(peaks)} ranks have memory on GPU {number}: {told} bytes at their peaks")


def norms_of_offloaded(case: Case) -> Evidence:
    """NCCL's error for a collective on the CPU."""
    error = raised(case, "cpu-offload-needs-gloo")
    if error:
        return Evidence(True, error)
    if case.run.mode != "nccl":
        return Evidence(None, f"in mode {case.run.mode} the group is not NCCL's; --mode nccl on two GPUs shows it")
    if case.run.ranks == 1:  # where nothing is sharded, nothing is reduced on the CPU
        return Evidence(None, "one rank reduces nothing; two GPUs show it")
    if case.run.troubles or case.run.hung:
        return Evidence(None, f"ended by something else: {case.run.ended}")
    return Evidence(False, f"no error: {case.run.ended}")


def trains_on_gloo(case: Case) -> Evidence:
    """GPU tensors that go through the host's memory."""
    if case.run.mode != "nccl":
        return Evidence(
            None,
            f"in mode {case.run.mode} verify chooses the backend, and torch sums gradients on gloo before 2.9 only; "
            "--mode nccl shows what it costs",
        )
    record = case.run.first
    if record is None or not record.backend:
        return no_step(case.run)
    time = f", a step takes {case.run.step_ms:.1f} ms" if case.run.step_ms is not None else ""
    return Evidence(record.backend == "gloo for cuda", f"the parameters' data is moved by {record.backend}{time}")


def shards_start_equal(case: Case) -> Evidence:
    """Random weights whose shards are the same numbers on ranks that hold different parts."""
    if not case.run.moves_values:
        return Evidence(None, "one rank has no other to differ from; --mode nccl or shared shows it")
    if case.run.first is not None and case.run.first.device == "cpu":
        return Evidence(None, f"{_REPEATS}; --mode nccl or shared shows it")
    counts = case.run.repeated
    if counts is None or not counts[1]:
        return Evidence(None, f"no shards of random weights were seen on several ranks before a step: {case.run.ended}")
    text = f"{counts[0]} of {counts[1]} sharded weights start with equal shards on different ranks"
    if not counts[0] and not case.fixed:
        return Evidence(None, f"{text}; bounds that were computed from a shard's shape are not seen")
    return Evidence(counts[0] > 0, text)


_REPEATS = "on a CPU torch repeats the shards of every random DTensor, of the right program too"


def mesh_dimensions_swapped(case: Case) -> Evidence:
    """A dimension that is called the sharding one and replicates, and the other way round."""
    layouts = [each for record in case.run.alive[:1] for each in record.layouts if len(each.dimensions) == 2]
    if not layouts:
        return Evidence(False if case.fixed else None, "no parameter lies on a mesh of two dimensions")
    swapped = [each for each in layouts if _is_swapped(each)]
    told = ", ".join(
        f"{name or 'unnamed'} (size {size}) {'shards' if shards else 'replicates'}"
        for name, size, shards in (swapped or layouts)[0].dimensions
    )
    held = f"; a rank holds {case.run.held.parameters:,} bytes of parameters" if case.run.held else ""
    return Evidence(bool(swapped), f"the mesh's dimension {told}{held}")


def _is_swapped(layout: Layout) -> bool:
    (first, _, first_shards), (second, _, second_shards) = layout.dimensions
    named = any(word in first.lower() for word in _SHARDING) and any(word in second.lower() for word in _REPLICATING)
    return named and second_shards and not first_shards


def nothing_replicates(case: Case) -> Evidence:
    """Parameters that are sharded over one dimension, where two were wanted."""
    layouts = [each for record in case.run.alive[:1] for each in record.layouts]
    if not layouts:
        return Evidence(None, "no parameter lies on a mesh")
    flat = [each for each in layouts if not any(not shards for _, _, shards in each.dimensions)]
    sizes = " x ".join(str(size) for _, size, _ in (flat or layouts)[0].dimensions)
    text = f"the parameters are sharded over a mesh of {sizes} ranks"
    return Evidence(bool(flat), f"{text}, none replicates" if flat else f"{text}, of which one dimension replicates")


def whole_state_everywhere(case: Case) -> Evidence:
    """A whole state dict in the memory of more than one rank."""
    return _taken(case, "state", "gather a whole state dict", "no state dict is gathered there")


def whole_file_everywhere(case: Case) -> Evidence:
    """A whole checkpoint in the memory of more than one rank."""
    return _taken(case, "file", "read a whole file", "no file is read by torch.load there")


def _taken(case: Case, how: str, verb: str, nothing: str) -> Evidence:
    if case.run.mode == "simulate":
        return Evidence(None, "one rank only; --mode cpu or nccl shows what all take")
    if len(case.run.alive) < 2:
        return Evidence(None, "one rank only")
    by_rank = [_largest(record.wholes, how, case) for record in case.run.alive]
    most = max((whole.bytes for whole in by_rank if whole), default=0)
    first = next((whole for whole in by_rank if whole), None)
    if first is None:
        return Evidence(False if case.fixed else None, nothing)
    ranks = sum(whole is not None and whole.bytes > _MOST * most for whole in by_rank)
    told = f"{ranks} of {len(by_rank)} ranks {verb}, of {most:,} bytes, at {short(first.site)}"
    return Evidence(ranks > 1 and most > 0, told)


def _largest(wholes: tuple[Whole, ...], how: str, case: Case) -> Whole | None:
    """What a rank took at the finding's lines; in the fixed program wherever it is."""
    here = [each for each in wholes if each.how == how and (case.fixed or each.site in case.sites)]
    return max(here, key=lambda each: each.bytes, default=None)
