"""Which releases of transformers a project allows, and what that makes of `fsdp="full_shard"`."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from fsdp_lint.engine import analyse
from fsdp_lint.settings import load
from fsdp_lint.trace.versions import is_below

PROGRAM = """\
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments


def main(rows):
    args = TrainingArguments("out", fsdp="full_shard", bf16=True)
    Trainer(AutoModelForCausalLM.from_pretrained("gpt2"), args, train_dataset=rows).train()
"""


@pytest.mark.parametrize("said", ["<5", "==4.57.3", "~=4.40", ">=4.38,<5.0", "<=5.9.0", ">=4.40,<5.10"])
def test_a_range_that_ends_before_a_release(said: str) -> None:
    assert is_below(SpecifierSet(said), 5, 10)


@pytest.mark.parametrize("said", [">=4.40", "<6", "==5.10.1", "~=5.2", "==5.*", "!=4.46", ">=4.40,<=5.24.0"])
def test_a_range_that_goes_on(said: str) -> None:
    assert not is_below(SpecifierSet(said), 5, 10)
    assert not is_below(None, 5, 10)


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("requirements.txt", "torch>=2.6\ntransformers==4.57.3\n", True),
        ("requirements.txt", "torch>=2.6\ntransformers>=4.57.3\n", False),
        ("requirements.txt", "torch>=2.6\n", False),
        ("setup.py", "setup(install_requires=['torch', 'transformers<5'])", True),
        ("pyproject.toml", '[project]\nname = "x"\ndependencies = ["transformers[torch]>=4.45,<5"]\n', True),
    ],
)
def test_full_shard_without_auto_wrap_by_release(tmp_path: Path, name: str, text: str, found: bool) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / name).write_text(text)
    (tmp_path / ".git").mkdir()
    report = analyse([tmp_path], load(tmp_path))
    assert ("FSDP212" in {finding.code for finding in report.findings}) is found
