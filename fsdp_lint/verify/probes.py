"""For each rule the question whether its mistake is seen in a run, and the evidence in words."""

from __future__ import annotations

from fsdp_lint.verify import setup_probes, state_probes
from fsdp_lint.verify.errors import ANYWHERE, HERE, MIXED, raises
from fsdp_lint.verify.evidence import Case, Evidence, Probe, attempts_of, no_step, readings_of
from fsdp_lint.verify.hang import short
from fsdp_lint.verify.measures import Run, collective_totals

_MANY = 1.5  # times the collectives of the right program
_WHOLE = 0.5  # a gather of more than this share of all that is gathered is no saving


def never_trains(case: Case) -> Evidence:
    """Parameters in the optimizer that are not the model's."""
    record = case.run.first
    if record is None or not (record.steps or record.optimizers):
        return no_step(case.run)
    counts = case.run.changed
    moved = f", {counts[0]} of {counts[1]} trainable parameters changed" if counts else ""
    here = [each for site, each in record.optimizers.items() if site in case.sites]
    every = here or [(record.stale, record.optimizer_parameters)]
    stale, count = (sum(each) for each in zip(*every, strict=True))
    text = f"{stale} of {count} parameters in the optimizer are not the model's{moved}"
    still = counts is not None and counts[1] > 0 and counts[0] == 0
    return Evidence(stale > 0 or (still and case.fixed), text)


def keeps_dead_parameters(case: Case) -> Evidence:
    """Parameters that are alive and belong to no module."""
    record = case.run.first
    if record is None or record.dead is None:
        return no_step(case.run)
    text = f"{record.dead} parameters that no module has are kept"
    return Evidence(record.dead > 0 or record.stale > 0, text)


def plain_beside_sharded(case: Case) -> Evidence:
    """Plain parameters in a sharded model, which nobody synchronises."""
    record = case.run.first
    mixed = _raised(case.run, MIXED)
    if mixed:
        return Evidence(True, mixed)
    if record is None or (not record.sharded and record.wrapper != "fsdp1"):
        return Evidence(None, "no sharded model was found")
    differ = case.run.disagreeing
    said = "" if differ is None or not record.plain else f", ranks differ in {len(differ)} of them"
    others = f"{record.sharded} sharded" if record.sharded else "those of FSDP1"
    return Evidence(bool(record.plain), f"{len(record.plain)} plain parameters beside {others}{said}")


def ranks_differ(case: Case) -> Evidence:
    """Values that every rank holds whole, and that differ."""
    differ = case.run.disagreeing
    if differ is None or case.run.first is None:
        return Evidence(None, "one rank cannot differ from others")
    text = f"ranks differ in {len(differ)} of {len(case.run.first.plain)} unsharded parameters"
    return Evidence(bool(differ), text)


def ranks_build_different_models(case: Case) -> Evidence:
    """Values that differed when they were sharded."""
    differ = case.run.built_unequal
    if differ is None or case.run.first is None:
        return Evidence(None, "no parameter was seen before it was sharded on several ranks")
    total = len(case.run.first.built)
    return Evidence(bool(differ), f"ranks shard different values of {len(differ)} of {total} parameters")


def buffers_differ(case: Case) -> Evidence:
    """Buffers that differ between ranks."""
    differ = case.run.buffers_unequal
    first, other = case.run.first, case.other.first if case.other is not None else None
    if differ is None or first is None:
        return Evidence(None, "one rank cannot differ from others")
    text = f"ranks differ in {len(differ)} of {len(first.buffers)} buffers"
    if not differ and other is None:
        return Evidence(None, f"{text}; whether their values are right shows beside a right program only")
    if differ or case.fixed or other is None:
        return Evidence(bool(differ), text)
    moved = [name for name, value in first.buffers.items() if other.buffers.get(name, value) != value]
    return Evidence(bool(moved), f"{text}; {len(moved)} hold other values than with the fix")


def many_collectives(case: Case) -> Evidence:
    """More collectives a step than in the other run, or units that are leaves of the model."""
    record, collectives = case.run.first, case.run.collectives
    if record is None or not collectives:
        return no_step(case.run)
    mine = sum(one.count for one in collectives)
    leaves = sum(kind == "leaf" for kind in record.units.values())
    text = f"{mine} collectives a step for {len(record.units)} units"
    other = sum(one.count for one in (case.other.collectives if case.other is not None else None) or ())
    if case.fixed and other:
        return Evidence(mine * _MANY > other, text)
    if other and mine > _MANY * other:
        return Evidence(True, text)
    return Evidence(leaves > len(record.units) / 2, f"{text}, {leaves} of them modules without children")


def gathered_whole(case: Case) -> Evidence:
    """One all-gather that brings most of the model."""
    collectives = case.run.collectives
    gathers = [one for one in collectives or () if one.kind == "all_gather" and one.unit]
    if not gathers:
        return no_step(case.run) if collectives is None else Evidence(None, "nothing was gathered")
    largest, once = max(one.largest for one in gathers), sum(one.largest for one in gathers)
    peak = f", peak {case.run.peak_bytes:,} bytes" if case.run.peak_bytes is not None else ""
    text = f"the largest all-gather brings {largest:,} of {once:,} bytes{peak}"
    return Evidence(largest > _WHOLE * once, text)


def saves_shards(case: Case) -> Evidence:
    """DTensors in a file that torch.save wrote, or a file that does not give the model back."""
    saves = [save for _, save in case.run.saves]
    if not saves:
        return Evidence(None, "nothing was saved while it ran")
    with_shards = [save for save in saves if save.dtensors]
    bad = [save for save in saves if save.reload is not None and save.reload != "equal"]
    if with_shards:
        one = with_shards[0]
        read = f", a reload {_verb(one.reload)}" if one.reload else ""
        return Evidence(True, f"{one.dtensors} DTensors in the file saved at {short(one.site)}{read}")
    if bad:
        return Evidence(True, f"the file saved at {short(bad[0].site)}: a reload {_verb(bad[0].reload)}")
    read = ", a reload gives the same model" if any(save.reload == "equal" for save in saves) else ""
    return Evidence(False, f"no DTensor in {len(saves)} saved files{read}")


def one_file_many_writers(case: Case) -> Evidence:
    """One path that several ranks write."""
    writers: dict[str, set[int]] = {}
    for rank, save in case.run.saves:
        writers.setdefault(save.path, set()).add(rank)
    if not writers:
        return Evidence(None, "nothing was saved while it ran")
    if len(case.run.records) < 2:
        return Evidence(None, "one rank shares no file")
    shared = {path: ranks for path, ranks in writers.items() if len(ranks) > 1}
    return Evidence(bool(shared), f"{len(shared)} of {len(writers)} files are written by several ranks")


def every_rank_saves(case: Case) -> Evidence:
    """Saves on more than one rank."""
    ranks = {rank for rank, _ in case.run.saves}
    if not ranks:
        return Evidence(None, "nothing was saved while it ran")
    if len(case.run.records) < 2:
        return Evidence(None, "one rank only")
    return Evidence(len(ranks) > 1, f"{len(ranks)} of {len(case.run.records)} ranks save")


def reads_its_part(case: Case) -> Evidence:
    """A number read from a part of a tensor, different on each rank."""
    here = readings_of(case)
    if not any(here):
        nothing = "no number is read from a part of a tensor there"
        return Evidence(False if case.fixed else None, nothing)
    partial = [reading for each in here for reading in each if reading.partial]
    if not partial:
        return Evidence(False, "what is read there is whole")
    agreed = [site for record in case.run.alive for site in record.made_at if site in case.new]
    if agreed:
        return Evidence(False, f"the parts are brought together at {short(agreed[0])}")
    reads = list(zip(*(each[0].values for each in here if each), strict=False))
    values = next((each for each in reads if len(set(each)) > 1), reads[0])
    if not case.run.moves_values or len(values) < 2:
        return Evidence(True, f"a part of a tensor is read at {short(partial[0].site)}")
    told = " / ".join(f"{value:.6g}" for value in values[:4])
    if len(set(values)) == 1:
        return Evidence(False, f"every rank reads {values[0]:.6g}")
    return Evidence(True, f"at {short(partial[0].site)} the ranks read {told}")


def hooks_are_silent(case: Case) -> Evidence:
    """Hooks on parameters that no backward calls."""
    hooks = [one for each in attempts_of(case, "hook") for one in each]
    if not hooks:
        return Evidence(False if case.fixed else None, "no hook is put on a parameter there before gradients are made")
    calls = sum(one.worked for one in hooks)
    count = sum(one.count for one in hooks)
    return Evidence(calls == 0, f"{count} hooks put on parameters at {short(hooks[0].site)} are called {calls} times")


def assigns_nothing(case: Case) -> Evidence:
    """Assignments to the data of a DTensor after which it has the values that it had."""
    given = [one for each in attempts_of(case, "data") for one in each]
    if not given:
        return Evidence(False if case.fixed else None, "the data of no DTensor is assigned there")
    count, worked = sum(one.count for one in given), sum(one.worked for one in given)
    text = f"{count - worked} of {count} assignments to data at {short(given[0].site)} leave the values as they were"
    return Evidence(worked < count, text)


def reduces_again(case: Case) -> Evidence:
    """Collectives of the user's own at the finding's lines, for gradients that FSDP has reduced."""
    made = [(site, count) for record in case.run.alive for site, count in record.made_at.items() if site in case.sites]
    if not made:
        return Evidence(False if case.fixed else None, "no collective is made there; a division is not seen")
    return Evidence(True, f"{sum(n for _, n in made)} collectives of the program's own at {short(made[0][0])}")


def hangs(case: Case) -> Evidence:
    """Ranks that wait in different collectives."""
    run = case.run
    if run.mode == "simulate":
        return Evidence(None, "a simulated group does not wait")
    if run.hung:
        return Evidence(True, run.difference or "the ranks wait, in the same collectives as far as they were logged")
    return Evidence(False, f"no rank waits: {run.ended}")


def no_gradients(case: Case) -> Evidence:
    """Trainable parameters that get no gradient."""
    record = case.run.first
    if record is None or not record.steps:
        return no_step(case.run)
    without, all_ = len(record.without_gradient), len(record.trained)
    counts = case.run.changed
    moved = f", {counts[0]} of {counts[1]} changed" if counts else ""
    return Evidence(without > 0, f"{without} of {all_} trainable parameters have no gradient at the first step{moved}")


def same_batches(case: Case) -> Evidence:
    """The first batch of every rank is the same."""
    batches = [record.batch for record in case.run.alive if record.batch]
    if len(batches) < 2:
        return Evidence(None, "the batches of several ranks were not seen")
    kinds = len(set(batches))
    return Evidence(kinds < len(batches), f"{kinds} different first batches on {len(batches)} ranks")


def more_reductions(case: Case) -> Evidence:
    """More reduce-scatters a step than in the other run."""
    collectives = case.run.collectives
    if not collectives:
        return _reduced_too_early(case)
    mine = _count(case.run, "reduce_scatter")
    units = len({one.unit for one in collectives if one.kind == "reduce_scatter"})
    text = f"{mine} reduce-scatters a step for {units} units"
    if case.fixed and case.other is not None and case.other.collectives:
        return Evidence(mine >= _count(case.other, "reduce_scatter"), text)
    return Evidence(mine > units, text)


def _reduced_too_early(case: Case) -> Evidence:
    """Reduce-scatters in a run that ended before its first step, after fewer backwards than a step of the other has."""
    record, other = case.run.first, case.other.first if case.other is not None else None
    if record is None or other is None or not other.steps or not 0 < record.backwards < other.backwards:
        return no_step(case.run)
    mine = sum(one.count for one in record.unstepped if one.kind == "reduce_scatter")
    text = f"{mine} reduce-scatters in {record.backwards} of the {other.backwards} backwards of a step"
    return Evidence(mine > 0, f"{text}; then {case.run.ended}")


def ddp_would_fit(case: Case) -> Evidence:
    """What DDP would hold, by formula; measured where the other run is DDP."""
    record = case.run.first
    if record is None or not record.elements:
        return Evidence(None, "no model was found")
    if record.wrapper in ("ddp", ""):
        held = case.run.held
        return Evidence(False, f"DDP holds {held.training:,} bytes a rank" if held else "not sharded any more")
    held = case.run.held
    if held is None or case.run.collectives is None:
        return no_step(case.run)
    mine = f"FSDP holds {held.training:,}"
    gathered = sum(one.bytes for one in case.run.collectives if one.kind == "all_gather")
    text = (
        f"{record.elements:,} parameters: DDP would hold 16 bytes each, {16 * record.elements:,} bytes a rank; "
        f"{mine} and gathers {gathered:,} bytes a step"
    )
    return Evidence(True, text)


def half_precision(case: Case) -> Evidence:
    """Parameters of two bytes, which the optimizer then steps in."""
    record = case.run.first
    if record is None or not record.elements or not record.steps:
        return no_step(case.run)
    each = record.model_bytes / record.elements
    return Evidence(each < 4, f"the parameters that the optimizer steps take {each:.3g} bytes each")


def not_finite(case: Case) -> Evidence:
    """Losses that are no numbers."""
    losses = case.run.losses
    if not losses:
        return Evidence(None, "no loss was seen")
    bad = sum(loss != loss or abs(loss) > 1e30 for loss in losses)
    return Evidence(True if bad else False if case.fixed else None, f"{bad} of {len(losses)} losses are not finite")


def _raised(run: Run, words: str) -> str:
    return next((f"{t.text} at {short(t.site)}" for t in run.troubles if words in t.text or words in t.log), "")


def _count(run: Run, kind: str) -> int:
    return sum(count for each, count, _ in collective_totals(run.collectives or ()) if each == kind)


def _verb(reload: str | None) -> str:
    return {None: "was not tried", "equal": "gives the same model"}.get(reload, str(reload))


PROBES: dict[str, Probe] = {
    "optimizer-before-shard": never_trains,
    "optimizer-after-forward": never_trains,
    "stale-param-reference": keeps_dead_parameters,
    "root-not-sharded": plain_beside_sharded,
    "mutate-after-shard": plain_beside_sharded,
    "ignored-params-unsynced": ranks_differ,
    "shard-every-leaf": many_collectives,
    "root-only-shard": gathered_whole,
    "blocks-in-one-unit": gathered_whole,
    "torch-save-sharded-state": saves_shards,
    "shared-checkpoint-path": one_file_many_writers,
    "fsdp1-save-on-every-rank": every_rank_saves,
    "to-local-arithmetic": reads_its_part,
    "dtensor-scalar-read": reads_its_part,
    "collective-under-rank-guard": hangs,
    "rank-divergent-branch": hangs,
    "uneven-eval-loop": hangs,
    "ddp-where-fsdp-unneeded": ddp_would_fit,
    "set-sync-off-not-restored": no_gradients,
    "accumulation-syncs-every-step": more_reductions,
    "ddp-no-sync-noop": more_reductions,
    "missing-distributed-sampler": same_batches,
    "seed-differs-by-rank": ranks_build_different_models,
    "rank0-load-before-shard": ranks_build_different_models,
    "hsdp-unsynced-init": ranks_build_different_models,
    "buffers-not-initialised": buffers_differ,
    "to-empty-without-init": not_finite,
    "param-hook-never-fires": hooks_are_silent,
    "param-data-assign": assigns_nothing,
    "manual-gradient-reduction": reduces_again,
    "bf16-before-shard": half_precision,
    "missing-set-device": setup_probes.one_gpu_for_many,
    "cpu-offload-needs-gloo": setup_probes.norms_of_offloaded,
    "gloo-training": setup_probes.trains_on_gloo,
    "init-through-local": setup_probes.shards_start_equal,
    "hsdp-mesh-order": setup_probes.mesh_dimensions_swapped,
    "hybrid-without-mesh": setup_probes.nothing_replicates,
    "full-state-dict-no-offload": setup_probes.whole_state_everywhere,
    "every-rank-full-load": setup_probes.whole_file_everywhere,
    "fsdp1-clip-api": state_probes.clips_by_its_piece,
    "gradscaler-flavour": state_probes.scales_differ,
    "dcp-optimizer-raw-state": state_probes.loads_into_nothing,
    "optimizer-state-naive-fsdp1": state_probes.keeps_the_piece_of_one,
    "sharding-failure-swallowed": state_probes.stays_whole,
    "cast-after-shard": state_probes.becomes_half,
    "ac-compile-fsdp-order": state_probes.names_are_wrapped,
    "fsdp1-api-on-fsdp2": state_probes.asks_fsdp1,
}
SAVES = ("torch-save-sharded-state", "shared-checkpoint-path", "fsdp1-save-on-every-rank", "full-state-dict-no-offload")
LOADS = ("dcp-optimizer-raw-state", "optimizer-state-naive-fsdp1", "load-plain-state-dict", "every-rank-full-load")
LATE = (  # mistakes that show only after the training loop
    *SAVES,
    *LOADS,
    "collective-under-rank-guard",
    "rank-divergent-branch",
    "uneven-eval-loop",
    "to-local-arithmetic",
    "dtensor-scalar-read",
)


def probe_of(name: str) -> Probe | None:
    """The probe of a rule; None where a run does not show its mistake."""
    return PROBES.get(name) or (raises(name) if name in ANYWHERE or name in HERE else None)
