"""Where two rules could speak of one call, one of them does: no fixture program has both at one place."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_fixtures import lint, name_of, programs

BORDERS = (
    ("FSDP101", "FSDP102"),
    ("FSDP101", "FSDP110"),
    ("FSDP301", "FSDP302"),
    ("FSDP302", "FSDP308"),
    ("FSDP401", "FSDP402"),
    ("FSDP402", "FSDP502"),
    ("FSDP606", "FSDP613"),
    ("FSDP405", "FSDP903"),
    ("FSDP901", "FSDP905"),
    ("FSDP702", "FSDP902"),
    ("FSDP703", "FSDP903"),
    ("FSDP705", "FSDP706"),
    ("FSDP705", "FSDP903"),
    ("FSDP704", "FSDP706"),
    ("FSDP203", "FSDP212"),
    ("FSDP212", "FSDP320"),
    ("FSDP307", "FSDP321"),
    ("FSDP320", "FSDP321"),
    ("FSDP212", "FSDP620"),
    ("FSDP212", "FSDP621"),
)


@pytest.mark.parametrize(
    "path",
    [
        p
        for p in programs()
        if p.parent.name
        in {
            "accumulation_syncs_every_step",
            "ddp_no_sync_noop",
            "dtensor_scalar_read",
            "fsdp1_api_on_fsdp2",
            "fsdp1_clip_api",
            "fsdp1_kwargs_on_fully_shard",
            "fsdp1_save_on_every_rank",
            "fsdp_config_conflict",
            "fsdp_setting_ignored",
            "gradscaler_flavour",
            "hsdp_unsynced_init",
            "mp_policy_mismatch",
            "old_fsdp2_import",
            "optimizer_after_forward",
            "optimizer_before_shard",
            "rank_divergent_branch",
            "removed_name",
            "seed_differs_by_rank",
            "set_sync_off_not_restored",
            "sharded_checkpoint_read_whole",
            "sharded_type_final_save",
            "shared_checkpoint_path",
            "stale_param_reference",
            "to_local_arithmetic",
            "torch_save_sharded_state",
            "wrap_policy_missing",
        }
    ],
    ids=name_of,
)
def test_two_neighbours_do_not_speak_of_one_place(path: Path) -> None:
    found: dict[tuple[str, int], set[str]] = {}
    for finding in lint(path).findings:
        found.setdefault((finding.place.path, finding.place.row), set()).add(finding.code)
    assert [codes for codes in found.values() if any(set(pair) <= codes for pair in BORDERS)] == []
