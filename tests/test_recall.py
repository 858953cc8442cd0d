"""Right programs made wrong: each known mistake is found, and edits that change nothing bring nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fsdp_lint.registry import rules

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO / "benchmarks"))

from recall.mutation import mutants  # noqa: E402
from recall.mutations import MUTATIONS  # noqa: E402
from recall.package import Outcome, Package  # noqa: E402

RULES = {known.rule.code for known in rules()}
POSITIVE = [mutation for mutation in MUTATIONS if mutation.codes & RULES]
NEGATIVE = [mutation for mutation in MUTATIONS if not mutation.codes]
PROGRAMS = sorted(path for path in (REPO / "benchmarks" / "recall" / "right").iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def outcomes() -> list[Outcome]:
    """What comes of every edit in the small right programs."""
    found = []
    for folder in PROGRAMS:
        package = Package(folder)
        assert not package.findings, f"{folder.name} is not right: {package.findings}"
        mutated = [m for mutation in (*POSITIVE, *NEGATIVE) for view in package.views for m in mutants(mutation, view)]
        found += [package.judge(mutant) for mutant in mutated]
    return found


def test_every_mutation_has_a_site(outcomes: list[Outcome]) -> None:
    tried = {o.mutant.mutation.name for o in outcomes}
    assert tried == {m.name for m in (*POSITIVE, *NEGATIVE)}


@pytest.mark.parametrize("name", [m.name for m in POSITIVE])
def test_mistakes_are_found(name: str, outcomes: list[Outcome]) -> None:
    missed = [o.mutant for o in outcomes if o.mutant.mutation.name == name and not o.found]
    assert not missed, [f"{m.path}:{m.row}" for m in missed]


@pytest.mark.parametrize("name", [m.name for m in NEGATIVE])
def test_harmless_edits_bring_nothing(name: str, outcomes: list[Outcome]) -> None:
    alarms = [other for o in outcomes if o.mutant.mutation.name == name for other in o.others]
    assert not alarms, [f"{a.place.path}:{a.place.row} {a.code} {a.message}" for a in alarms]
