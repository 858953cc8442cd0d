"""Every fixture program does what its name says when it is run on real ranks.

A `bad_` program fails the probe that it names, and a `good_` or `fixed_` one holds it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import ranks

FIXTURES = Path(__file__).parents[1] / "fixtures"
PROGRAMS = {program.name: program for program in ranks.programs(FIXTURES)}

pytestmark = pytest.mark.ranks


@pytest.mark.parametrize("name", PROGRAMS)
def test_probe_fails_on_bad_and_holds_on_good_programs(name: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    if "skip" in program.verify:
        pytest.skip(str(program.verify["skip"]))
    try:
        ranks.load_torch()
    except ImportError:
        pytest.skip("needs torch")
    why = ranks.judge(program, tmp_path)
    if program.bad:
        assert why is not None, f"{program.probe} holds, so the program shows no mistake"
    else:
        assert why is None, why
