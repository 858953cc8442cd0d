"""The prefilter loses nothing: what the tables name passes it, and without it the same is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_lint import engine
from fsdp_lint.engine import analyse
from fsdp_lint.settings import Settings
from fsdp_lint.source.words import Words
from fsdp_lint.trace.models import fsdp, fsdp1, moved
from fsdp_lint.trace.models.declared import FRAMEWORKS
from fsdp_lint.trace.models.words import WORDS

FIXTURES = Path(__file__).parents[1] / "fixtures"
SPEAKING = Words(WORDS)
# By dotted name, as it is imported.
NAMES = sorted(
    {*fsdp.GENERATION_1, *fsdp.GENERATION_2, *fsdp.REPLICATE, *fsdp1.NAMES, *fsdp1.FUNCTIONS}
    | {*moved.REMOVED, *(f"{module}.name" for module in moved.MOVED)}
    | {f"torch.distributed.fsdp.{name}" for name in (*fsdp.OBJECTS, *fsdp.POLICIES)}
)


def programs() -> list[Path]:
    """The programs of several files of which the prefilter leaves some out, and the single files that it leaves out."""
    found = []
    for path in sorted(FIXTURES.glob("*/*")):
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.suffix == ".py" else []
        if any(not SPEAKING.are_in(file.read_bytes()) for file in files):
            found.append(path)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_what_the_tables_name_passes(name: str) -> None:
    module, _, last = name.rpartition(".")
    assert SPEAKING.are_in(f"from {module} import {last}\n".encode())
    assert SPEAKING.are_in(f"import {name}\n".encode())


def test_functions_of_frameworks_that_shard_pass() -> None:
    assert [name for name in sorted(FRAMEWORKS.words) if not SPEAKING.are_in(f"made = {name}(model)\n".encode())] == []


def test_a_part_of_a_word_does_not_pass() -> None:
    assert not SPEAKING.are_in(b"my_fully_sharded = FSDPX = xFSDP = torch.distributed.fsdpx\n")


@pytest.mark.parametrize("path", programs(), ids=lambda path: path.relative_to(FIXTURES).as_posix())
def test_without_the_prefilter_the_same_is_found(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(root=path if path.is_dir() else path.parent)
    with_it = analyse([path], settings)
    monkeypatch.setattr(engine, "_seeds", lambda scope, *_: (sorted(scope.universe), []))
    without = analyse([path], settings)
    assert with_it.findings == without.findings
    assert with_it.errors == without.errors
