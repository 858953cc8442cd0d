"""The cache: what comes from it is what a new run would say, and it never stands in anybody's way."""

from __future__ import annotations

import importlib.metadata
import sys
import threading
from pathlib import Path

import pytest
from conftest import Lint

from fsdp_lint import basis
from fsdp_lint.analysis import Analysis
from fsdp_lint.cache import Cache
from fsdp_lint.engine import analyse
from fsdp_lint.findings import Report
from fsdp_lint.outcomes import Outcome
from fsdp_lint.project.roots import Root
from fsdp_lint.settings import Settings

ONLY = ("optimizer-before-shard",)
HELPER = """\
import torch

def build(model):
    return torch.optim.AdamW(model.parameters())
"""
TRAIN = """\
import torch
from torch.distributed.fsdp import fully_shard
from helper import build

model = torch.nn.Linear(8, 8)
optimizer = build(model)
fully_shard(model)
"""
LAUNCHED = """\
from accelerate import Accelerator

accelerator = Accelerator()
if accelerator.is_main_process:
    accelerator.save_state("states")
"""
LAUNCHER = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
"""
HARMLESS = "def build(model):\n    return None\n"


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    """An empty cache."""
    return Cache(tmp_path_factory.mktemp("cache") / "fsdp-lint")


def names(report: Report) -> list[str]:
    """The rules of the findings."""
    return [finding.name for finding in report.findings]


def agreed(here: Path, settings: Settings, cache: Cache) -> Report:
    """The report with the cache, which is that of a new run."""
    report = analyse([here], settings, cache=cache)
    assert report == analyse([here], settings)
    return report


def test_a_warm_run_says_the_same_and_loads_no_parser(lint: Lint, here: Path, bad: str) -> None:
    (here / "train.py").write_text(bad)
    plain = lint("--no-cache")
    assert "optimizer-before-shard" in plain.stdout
    assert not (here / ".cache").exists()
    cold, warm = lint(), lint(PYTHONPROFILEIMPORTTIME="1")
    assert cold.stdout == warm.stdout == plain.stdout
    assert cold.returncode == warm.returncode == plain.returncode == 1
    loaded = {line.rpartition("|")[2].strip() for line in warm.stderr.splitlines()}
    assert "fsdp_lint.cache" in loaded
    assert not {"libcst", "torch", "fsdp_lint_rules", "fsdp_lint.analysis"} & loaded


def test_clean_removes_what_was_kept(lint: Lint, here: Path, bad: str) -> None:
    (here / "train.py").write_text(bad)
    lint()
    folder = here / ".cache" / "fsdp-lint"
    assert list(folder.iterdir())
    assert lint("clean").returncode == 0
    assert not folder.exists()


def test_a_cache_that_cannot_be_written_or_read_changes_nothing(lint: Lint, here: Path, bad: str) -> None:
    (here / "train.py").write_text(bad)
    (here / "file").write_text("")
    nowhere = lint(XDG_CACHE_HOME=str(here / "file"))
    first = lint()
    for entry in (here / ".cache" / "fsdp-lint").iterdir():
        entry.write_bytes(entry.read_bytes()[:-7] + b"nonsense")
    assert nowhere.stdout == first.stdout == lint().stdout
    assert nowhere.stderr == first.stderr == ""


def test_a_changed_file_is_seen(here: Path, cache: Cache) -> None:
    (here / "train.py").write_text(TRAIN)
    (here / "helper.py").write_text(HARMLESS)
    settings = Settings(root=here, select=ONLY)
    assert names(agreed(here, settings, cache)) == []
    (here / "helper.py").write_text(HELPER)
    assert names(agreed(here, settings, cache)) == ["optimizer-before-shard"]
    (here / "helper.py").write_text(HARMLESS)
    assert names(agreed(here, settings, cache)) == []


def test_a_changed_file_makes_only_what_rests_on_it_run_again(
    here: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three scripts; the helper of two of them changes, then one script, then a file that none of them enters."""
    for name, helper in {"one": "build", "two": "build", "three": "other"}.items():
        (here / f"{name}.py").write_text(TRAIN.replace("helper", helper))
    (here / "build.py").write_text(HARMLESS)
    (here / "other.py").write_text(HARMLESS)
    (here / "aside.py").write_text("from torch.distributed.fsdp import fully_shard\n")
    settings = Settings(root=here, select=ONLY)
    ran: list[str] = []
    entered = Analysis._run

    def run(self: Analysis, root: Root) -> Outcome:
        ran.append(root.path.stem)
        return entered(self, root)

    def again() -> tuple[list[str], list[str]]:
        """What was run with the cache, and what is found: the same as without."""
        ran.clear()
        monkeypatch.setattr(Analysis, "_run", run)
        report = analyse([here], settings, cache=cache)
        monkeypatch.setattr(Analysis, "_run", entered)
        assert report == analyse([here], settings)
        return sorted(set(ran)), [Path(finding.place.path).stem for finding in report.findings]

    assert again() == (["one", "three", "two"], [])
    assert again() == ([], [])
    (here / "build.py").write_text(HELPER)
    assert again() == (["one", "two"], ["build"])
    (here / "three.py").write_text(TRAIN.replace("helper", "build"))
    assert again() == (["three"], ["build"])
    (here / "aside.py").write_text("import torch.distributed.fsdp as FSDP\n")
    assert again() == ([], ["build"])
    (here / "build.py").unlink()
    assert again() == (["one", "three", "two"], [])
    (here / "build.py").write_text(HELPER)
    assert again() == (["one", "three", "two"], ["build"])


def test_a_file_that_fills_a_table_of_another_is_seen(here: Path, cache: Cache) -> None:
    """It is imported for what its top level does; it does so, or not."""
    (here / "table.py").write_text("TABLE = []\ndef put(made):\n    TABLE.append(made)\n    return made\n")
    (here / "train.py").write_text(
        "import torch\nimport fill\nfrom table import TABLE\nfrom torch.distributed.fsdp import fully_shard\n"
        "def main(model):\n    optimizer = torch.optim.SGD(model.parameters())\n"
        "    for shard in TABLE:\n        shard(model)\n    print(fully_shard)\n"
    )
    fills = "from table import put\n@put\ndef shard(model):\n    from torch.distributed.fsdp import fully_shard as f\n"
    settings = Settings(root=here, select=ONLY)
    for body in ("    f(model)\n", "", "    f(model)\n"):
        (here / "fill.py").write_text(fills + body if body else "")
        assert names(agreed(here, settings, cache)) == (["optimizer-before-shard"] if body else [])


def test_a_file_that_appears_or_goes_is_seen(here: Path, cache: Cache) -> None:
    (here / "train.py").write_text(TRAIN)
    settings = Settings(root=here, select=ONLY)
    assert names(agreed(here, settings, cache)) == []
    (here / "helper.py").write_text(HELPER)
    assert names(agreed(here, settings, cache)) == ["optimizer-before-shard"]
    (here / "helper.py").unlink()
    assert names(agreed(here, settings, cache)) == []


@pytest.mark.parametrize("aside", ["ignored", "../outside"])
def test_a_file_that_is_not_looked_at_itself_is_seen(here: Path, cache: Cache, aside: str) -> None:
    (here / "project").mkdir()
    (here / ".git").rmdir()
    here = here / "project"
    (here / ".git").mkdir()
    (here / ".gitignore").write_text("/ignored/\n")
    (here / "train.py").write_text(TRAIN)
    folder = here / aside
    folder.mkdir()
    settings = Settings(root=here, select=ONLY, roots=(aside,))
    assert names(agreed(here, settings, cache)) == []
    (folder / "helper.py").write_text(HARMLESS)
    assert names(agreed(here, settings, cache)) == []
    (folder / "helper.py").write_text(HELPER)
    assert names(agreed(here, settings, cache)) == ["optimizer-before-shard"]


def test_a_file_for_the_launcher_that_changes_is_seen(here: Path, cache: Cache) -> None:
    (here / "train.py").write_text(LAUNCHED)
    (here / "configs").mkdir()
    settings = Settings(root=here, select=("collective-under-rank-guard",))
    assert names(agreed(here, settings, cache)) == []
    (here / "configs" / "fsdp.yaml").write_text(LAUNCHER)
    assert names(agreed(here, settings, cache)) == ["collective-under-rank-guard"]
    assert names(analyse([here / "train.py"], settings, cache=cache)) == ["collective-under-rank-guard"]
    (here / "configs" / "fsdp.yaml").write_text(LAUNCHER.replace("FSDP", "MULTI_GPU"))
    assert names(agreed(here, settings, cache)) == []
    (here / "configs" / "fsdp.yaml").rename(here / "fsdp.txt")
    assert names(agreed(here, settings, cache)) == []


def test_changed_settings_are_seen(here: Path, cache: Cache, bad: str) -> None:
    (here / "train.py").write_text(bad)
    assert names(agreed(here, Settings(root=here, select=ONLY), cache)) == ["optimizer-before-shard"]
    assert names(agreed(here, Settings(root=here, select=ONLY, ignore=ONLY), cache)) == []


def test_the_versions_of_torch_that_a_project_declares_are_part_of_the_ground(here: Path) -> None:
    settings = Settings(root=here)
    without = basis.ground(settings)
    assert basis.ground(settings) == without
    (here / "requirements.txt").write_text("torch>=2.6\n")
    declared = basis.ground(settings)
    (here / "requirements.txt").write_text("torch>=2.6.1\n")
    assert len({without, declared, basis.ground(settings)}) == 3


def test_changed_rules_are_part_of_the_ground(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "pack_of_rules").mkdir()
    (here / "pack_of_rules" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(here)
    found = [basis.ground(Settings(root=here))]
    entry = importlib.metadata.EntryPoint("own", "pack_of_rules", basis.GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [entry])
    found.append(basis.ground(Settings(root=here)))
    (here / "pack_of_rules" / "some_rule.py").write_text("RULE = None\n")
    found.append(basis.ground(Settings(root=here)))
    (here / "pack_of_rules" / "some_rule.py").write_text("RULE = True\n")
    found.append(basis.ground(Settings(root=here)))
    assert len(set(found)) == 4
    assert "pack_of_rules" not in sys.modules


def test_a_run_that_could_not_do_its_job_is_made_again(here: Path, cache: Cache) -> None:
    (here / "train.py").write_text("from torch.distributed.fsdp import fully_shard\ndef (:\n")
    first = agreed(here, Settings(root=here), cache)
    assert first.errors
    assert agreed(here, Settings(root=here), cache).errors == first.errors


def test_the_cache_does_not_grow_without_end(cache: Cache) -> None:
    small = Cache(cache.folder, limit=10_000)
    for number in range(100):
        small.put(f"{number:03}", "x" * 1_000)
    kept = [path.stat().st_size for path in small.folder.iterdir()]
    assert 5_000 < sum(kept) <= 10_000
    assert small.get("099") == "x" * 1_000
    assert small.get("000") is None


def test_runs_at_the_same_time_share_the_cache(cache: Cache) -> None:
    values = [str(letter) * 50_000 for letter in range(4)]
    seen: list[object] = []

    def work(value: str) -> None:
        for _ in range(30):
            cache.put("key", value)
            seen.append(cache.get("key"))

    threads = [threading.Thread(target=work, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 120
    assert set(seen) <= set(values)
    assert [path.name for path in cache.folder.iterdir()] == ["key.entry"]
