"""The user's own functions, declared in the configuration, count as what they are said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_lint import engine
from fsdp_lint.settings import Settings, SettingsError, load

PROGRAM = """
import torch
import torch.nn as nn
from torch.distributed.fsdp import FSDPModule
from acme import registry


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])


def main(cfg):
    model = Net()
    {before}
    registry.parallelize(cfg, model)
    {after}
    for step in range(10):
        model(step).sum().backward()
        optimizer.step()
    {last}


main(None)
"""
SHARDS = ("acme.registry.parallelize(1)",)
BUILD = "optimizer = torch.optim.AdamW(model.parameters())"


def found(tmp_path: Path, before: str = "", after: str = "", last: str = "", **declared: tuple[str, ...]) -> set[str]:
    """The names of what is found in a program that shards by a registry."""
    file = tmp_path / "train.py"
    file.write_text(PROGRAM.format(before=before, after=after, last=last))
    report = engine.analyse([file], Settings(root=tmp_path, ignore=("FSDP207",), **declared))  # type: ignore[arg-type]
    assert report.errors == ()
    return {finding.name for finding in report.findings}


def test_a_shard_function_by_position(tmp_path: Path) -> None:
    assert found(tmp_path, before=BUILD, shard_functions=SHARDS) == {"optimizer-before-shard"}
    assert found(tmp_path, before=BUILD) == set()
    assert found(tmp_path, after=BUILD, shard_functions=SHARDS) == set()


@pytest.mark.parametrize("name", ["registry.parallelize(1)", "acme.registry.parallelize(1)"])
def test_a_name_as_the_caller_writes_it_or_dotted(tmp_path: Path, name: str) -> None:
    assert "optimizer-before-shard" in found(tmp_path, before=BUILD, shard_functions=(name,))


@pytest.mark.parametrize("name", ["shard", "acme.registry.shard", "shard(net)"])
def test_a_name_that_is_imported_from_a_library(tmp_path: Path, name: str) -> None:
    early = f"{BUILD}; from acme.registry import shard; shard(model)"
    assert found(tmp_path, before=early) == set()
    assert found(tmp_path, before=early, shard_functions=(name,)) == {"optimizer-before-shard"}


@pytest.mark.parametrize("name", ["shard(model)", "shard(1)"])
@pytest.mark.parametrize("call", ["shard(cfg, model)", "shard(cfg, model=model)"])
def test_the_signature_of_a_projects_function_gives_positions_their_names(tmp_path: Path, name: str, call: str) -> None:
    (tmp_path / "ours.py").write_text("import native\n\n\ndef shard(cfg, model):\n    native.go(cfg, model)\n")
    early = f"{BUILD}; from ours import shard; {call}"
    assert found(tmp_path, before=early, shard_functions=(name,)) == {"optimizer-before-shard"}


def test_an_argument_that_is_not_there_shards_nothing(tmp_path: Path) -> None:
    assert found(tmp_path, before=BUILD, shard_functions=("acme.registry.parallelize(model)",)) == set()


@pytest.mark.parametrize("call", ["parallelize(cfg, model)", "parallelize(cfg=cfg, module=model)"])
@pytest.mark.parametrize("order", [1, -1])
def test_one_function_by_position_and_by_name(tmp_path: Path, call: str, order: int) -> None:
    early = f"{BUILD}; registry.{call}"
    names = ("acme.registry.parallelize(module)", "acme.registry.parallelize(1)")
    file = tmp_path / "train.py"
    file.write_text(
        PROGRAM.format(before=early, after="", last="").replace("    registry.parallelize(cfg, model)\n", "")
    )
    settings = Settings(root=tmp_path, ignore=("FSDP207",), shard_functions=names[::order])
    assert {one.name for one in engine.analyse([file], settings).findings} == {"optimizer-before-shard"}


def test_a_property_of_the_projects_own_is_a_rank_guard(tmp_path: Path) -> None:
    (tmp_path / "ours.py").write_text(
        "import native\n\n\nclass Place:\n    @property\n    def lead(self):\n        return native.lead()\n\n"
        "    @property\n    def verbose(self):\n        return native.verbose()\n"
    )
    guards, sync = ("ours.Place.lead",), ("acme.registry.sync",)
    for name, expected in (("lead", {"collective-under-rank-guard"}), ("verbose", set())):
        last = f"from ours import Place; place = Place()\n    if place.{name}: registry.sync(model)"
        both = found(tmp_path, after=BUILD, last=last, shard_functions=SHARDS, rank_guards=guards, collectives=sync)
        assert both == expected


def test_an_optimizer_factory_takes_a_model(tmp_path: Path) -> None:
    early, factory = "optimizer = registry.make(model=model)", ("acme.registry.make(model)",)
    assert found(tmp_path, before=early, shard_functions=SHARDS) == set()
    both = found(tmp_path, before=early, shard_functions=SHARDS, optimizer_factories=factory)
    assert both == {"optimizer-before-shard"}


def test_a_collective_under_a_rank_guard(tmp_path: Path) -> None:
    last = "if registry.lead(): registry.sync(model)"
    guards, sync = ("acme.registry.lead",), ("acme.registry.sync",)
    assert found(tmp_path, after=BUILD, last=last, shard_functions=SHARDS) == set()
    both = found(tmp_path, after=BUILD, last=last, shard_functions=SHARDS, rank_guards=guards, collectives=sync)
    assert both == {"collective-under-rank-guard"}


def test_a_save_names_its_arguments(tmp_path: Path) -> None:
    last = "registry.dump('model.pt', state=model.state_dict())"
    saves = ("acme.registry.dump(state, 0)",)
    assert found(tmp_path, after=BUILD, last=last, shard_functions=SHARDS) == set()
    assert "torch-save-sharded-state" in found(tmp_path, after=BUILD, last=last, shard_functions=SHARDS, saves=saves)


def test_as_many_arguments_as_names_are_these(tmp_path: Path) -> None:
    saves, last = ("acme.registry.dump(state, path)",), "registry.dump(model.state_dict(), 'model.pt')"
    assert "torch-save-sharded-state" in found(tmp_path, after=BUILD, last=last, shard_functions=SHARDS, saves=saves)
    last = "registry.dump(cfg, model.state_dict(), 'model.pt')"
    assert found(tmp_path, after=BUILD, last=last, shard_functions=SHARDS, saves=saves) == set()


def test_frameworks_that_shard_are_known(tmp_path: Path) -> None:
    sharding = "import torchtune.training as training; training.shard_model(model, [], cpu_offload=False)"
    assert found(tmp_path, before=f"{BUILD}; {sharding}") == {"optimizer-before-shard"}
    assert found(tmp_path, after=f"{sharding}; {BUILD}") == set()
    by_name = sharding.replace("(model, ", "(model=model, shard_conditions=")
    assert found(tmp_path, before=f"{BUILD}; {by_name}") == {"optimizer-before-shard"}


@pytest.mark.parametrize("text", ['["a b"]', '["f(x"]', '["f(,)"]', '"f"', "[1]", '["2f"]'])
def test_what_is_no_function_is_an_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "fsdp-lint.toml").write_text(f"shard-functions = {text}")
    with pytest.raises(SettingsError, match="`shard-functions` must be a list of functions"):
        load(tmp_path)


def test_the_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "fsdp-lint.toml").write_text('shard-functions = ["wrap(model)"]\nsaves = ["a.b.dump(state, 1)"]')
    read = load(tmp_path).declarations()
    assert read["shard-functions"] == ("wrap(model)",)
    assert read["saves"] == ("a.b.dump(state, 1)",)
