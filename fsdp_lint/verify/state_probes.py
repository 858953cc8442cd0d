"""Probes for mistakes with optimizers' states, gradients' norms and scales, and with sharding that did not happen."""

from __future__ import annotations

from fsdp_lint.verify.errors import raised, raises
from fsdp_lint.verify.evidence import Case, Evidence, attempts_of, readings_of
from fsdp_lint.verify.hang import short


def clips_by_its_piece(case: Case) -> Evidence:
    """Gradients that each rank clips by the norm of its own piece; or FSDP1's method, which an FSDP2 model lacks."""
    error = raised(case, "fsdp1-clip-api")
    if error:
        return Evidence(True, error)
    norms = [each for each in readings_of(case, "norm") if each]
    if not norms:
        ended = f", and the run ends with {case.run.ended}" if case.run.troubles else ""
        return Evidence(None if ended else False, f"no gradients of FSDP1's pieces are clipped there{ended}")
    site = short(norms[0][0].site)
    if not case.run.moves_values or len(norms) < 2:
        return Evidence(True, f"at {site} gradients of FSDP1's pieces are clipped by the norm of this rank's piece")
    reads = list(zip(*(each[0].values for each in norms), strict=False))
    values = next((each for each in reads if len(set(each)) > 1), reads[0])
    told = " / ".join(f"{value:.4g}" for value in values[:4])
    return Evidence(len(set(values)) > 1, f"at {site} the ranks clip one gradient by the norms {told}")


def scales_differ(case: Case) -> Evidence:
    """Ranks whose gradient scaler has seen an overflow, and others whose has not."""
    if case.run.mode == "simulate":
        return Evidence(None, "a simulated group has no other ranks; --mode cpu or nccl shows it")
    scales = [each for record in case.run.alive if (each := [r for r in record.readings if r.how == "scale"])]
    if len(scales) < 2:
        return Evidence(None, "no scaler that is on was updated on several ranks")
    for values in zip(*(each[0].values for each in scales), strict=False):
        if len(set(values)) > 1:
            told = " / ".join(f"{value:g}" for value in values[:4])
            return Evidence(True, f"the ranks' scales differ: {told}")
    return Evidence(False, f"every rank has the scale {scales[0][0].values[-1]:g}")


def loads_into_nothing(case: Case) -> Evidence:
    """Checkpoints that are loaded into an optimizer's state dict which has no state yet."""
    loads = [one for each in attempts_of(case, "load") for one in each]
    if not loads:
        return Evidence(False if case.fixed else None, "no optimizer's state is loaded there")
    count, filled = sum(one.count for one in loads), sum(one.worked for one in loads)
    text = (
        f"{count - filled} of {count} loads at {short(loads[0].site)} go into an optimizer's state dict without state"
    )
    return Evidence(filled < count, text)


def keeps_the_piece_of_one(case: Case) -> Evidence:
    """The state of one rank's pieces, saved or loaded as that of all."""
    restored = [each[0] for each in readings_of(case, "restored") if each]
    error = raised(case, "optimizer-state-naive-fsdp1")
    if error and (restored or "parameter group" in error):
        return Evidence(True, error)
    firsts = {one.values[0] for one in restored}
    if len(restored) > 1 and len(firsts) == 1 and firsts != {0.0}:
        return Evidence(True, f"all {len(restored)} ranks get one state at {short(restored[0].site)}, for other pieces")
    taken = [one for each in attempts_of(case, "state") for one in each if one.worked < one.count]
    savers = {rank for rank, _ in case.run.saves}
    if not taken:
        return Evidence(False if case.fixed else None, "no state of FSDP1's pieces is taken or given there")
    if len(case.run.records) < 2 or not savers:
        return Evidence(None, "whether other ranks save their pieces is not seen")
    saving = f"{len(savers)} of {case.run.ranks} ranks save"
    text = f"at {short(taken[0].site)} the state of a rank's own pieces is taken, {saving}"
    return Evidence(len(savers) < case.run.ranks, text)


def stays_whole(case: Case) -> Evidence:
    """A model that is not sharded although sharding was asked for."""
    record = case.run.first
    if record is None or not record.elements:
        return Evidence(None, f"no model was found: {case.run.ended}")
    differ = case.run.disagreeing
    apart = f", ranks differ in {len(differ)} of {len(record.plain)} parameters" if differ else ""
    if record.plain and not record.wrapper:
        return Evidence(True, f"nothing is sharded{apart}")
    if record.plain and record.wrapper == "fsdp2":
        return Evidence(True, f"{len(record.plain)} parameters are not sharded, {record.sharded} are{apart}")
    return Evidence(False, "the model is sharded: no error was swallowed")


def becomes_half(case: Case) -> Evidence:
    """FSDP's error for another type, or parameters of two bytes that the optimizer steps in."""
    said = raises("cast-after-shard")(case)
    record = case.run.first
    if said.seen or record is None or not record.elements or (not record.steps and not case.fixed):
        return said
    each = record.model_bytes / record.elements
    return Evidence(True if each < 4 else said.seen, f"{said.text}; the parameters take {each:.3g} bytes each")


def names_are_wrapped(case: Case) -> Evidence:
    """Parameters whose names begin with torch.compile's wrapper."""
    record = case.run.first
    if record is None or not record.trained:
        return Evidence(None, f"no model was found: {case.run.ended}")
    wrapped = [name for name in record.trained if name.startswith("_orig_mod.")]
    return Evidence(bool(wrapped), f"{len(wrapped)} of {len(record.trained)} parameters' names begin with _orig_mod.")


def asks_fsdp1(case: Case) -> Evidence:
    """What FSDP2 raises where FSDP1 is asked; what it leaves out without a word is not seen."""
    said = raises("fsdp1-api-on-fsdp2")(case)
    if said.seen is False and not case.fixed:
        return Evidence(None, f"{said.text}; what FSDP2 leaves out without a word a run does not show")
    return said
