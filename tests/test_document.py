"""Settings in YAML and JSON files: which are read, where a finding in them lies, and what takes it back."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_lint import engine
from fsdp_lint.cache import Cache
from fsdp_lint.settings import Settings
from fsdp_lint.source.document import Document
from fsdp_lint.source.suppress import Suppressions

WRONG = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
downcast_bf16: 'no'
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: FULL_SHARD
"""
RIGHT = WRONG.replace("FULL_SHARD", "true")


def found(root: Path, cache: Cache | None = None) -> list[str]:
    report = engine.analyse([root], Settings(root=root), cache=cache)
    assert report.errors == ()
    return [f"{Path(one.place.path).name}:{one.place.spot} {one.code}" for one in report.findings]


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "conf/a.yaml"])
def test_a_finding_lies_at_the_key(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(WRONG)
    assert found(tmp_path) == [f"{Path(name).name}:6:3 FSDP620"]


def test_json_indented_by_tabs(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(
        '{\n\t"distributed_type": "FSDP",\n\t"fsdp_config": {\n'
        '\t\t"fsdp_version": 2, "fsdp_reshard_after_forward": "FULL_SHARD"\n\t}\n}\n'
    )
    assert found(tmp_path) == ["a.json:4:22 FSDP620"]


@pytest.mark.parametrize(
    "text",
    [
        RIGHT,
        WRONG.replace("distributed_type: FSDP\n", ""),
        WRONG.replace("distributed_type: FSDP", "distributed_type: DEEPSPEED"),
        WRONG.replace("LOCAL_MACHINE", "AMAZON_SAGEMAKER"),
        WRONG.replace("FULL_SHARD", "{{ strategy }}"),
        WRONG.replace("FULL_SHARD", "[unclosed"),
        f"{WRONG}---\n{WRONG}",
        "accelerate:\n" + "".join(f"  {line}\n" for line in WRONG.splitlines()),
        WRONG.replace("FULL_SHARD", "FULL_SHARD  # fsdp-lint: ignore[fsdp-config-conflict] for an older release"),
        f"# fsdp-lint: ignore-file[FSDP620]\n{WRONG}",
        WRONG + "".join(f"# {'x' * 98}\n" for _ in range(700)),
    ],
)
def test_silence(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert found(tmp_path) == []


def test_line_ends_and_anchors(tmp_path: Path) -> None:
    (tmp_path / "crlf.yaml").write_bytes(WRONG.replace("\n", "\r\n").encode())
    shared = WRONG.replace("fsdp_config:", "main_training_function: &main main\nfsdp_config: &block")
    (tmp_path / "shared.yaml").write_text(shared)
    assert found(tmp_path) == ["crlf.yaml:6:3 FSDP620", "shared.yaml:7:3 FSDP620"]


def test_what_git_ignores_or_the_user_excludes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("out/\n")
    for folder in ("out", "third_party"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.yaml").write_text(WRONG)
    assert engine.analyse([tmp_path], Settings(root=tmp_path, exclude=("third_party/",))).findings == ()


def test_an_earlier_run_is_not_taken_for_one_on_other_settings(tmp_path: Path) -> None:
    root, cache = tmp_path / "project", Cache(tmp_path / "cache")
    root.mkdir()
    (root / "a.yaml").write_text(RIGHT)
    assert found(root, cache) == []
    (root / "a.yaml").write_text(WRONG)
    (root / "b.yaml").write_text(WRONG)
    assert found(root, cache) == ["a.yaml:6:3 FSDP620", "b.yaml:6:3 FSDP620"]
    assert found(root, cache) == ["a.yaml:6:3 FSDP620", "b.yaml:6:3 FSDP620"]
    (root / "a.yaml").write_text("words: none\n")
    assert found(root, cache) == ["b.yaml:6:3 FSDP620"]


PROGRAM = """\
from transformers import TrainingArguments

args = TrainingArguments("out", gradient_checkpointing=True, fsdp="full_shard", fsdp_config="conf/fsdp.json")
"""


def test_a_file_that_a_program_names(tmp_path: Path) -> None:
    root, cache = tmp_path / "project", Cache(tmp_path / "cache")
    (root / "src").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "src" / "train.py").write_text(PROGRAM)
    assert found(root, cache) == []
    for folder, expected in ((root, ["train.py:3:8 FSDP620"]), (root / "src", [])):  # two of the name: which is meant?
        (folder / "conf").mkdir()
        (folder / "conf" / "fsdp.json").write_text('{"activation_checkpointing": true}')
        assert found(root, cache) == expected
    (root / "conf" / "fsdp.json").unlink()
    assert found(root, cache) == ["train.py:3:8 FSDP620"]
    (root / "src" / "conf" / "fsdp.json").write_text('{"activation_checkpointing": false}')
    assert found(root, cache) == []


def test_settings_alone_are_named_like_any_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(WRONG)
    (tmp_path / "train.py").write_text(PROGRAM)
    report = engine.analyse([tmp_path / "a.yaml"], Settings(root=tmp_path))
    assert [one.code for one in report.findings] == ["FSDP620"]
    assert (report.coverage.files, report.coverage.read) == (1, 1)


@pytest.mark.parametrize(
    ("line", "hides"),
    [
        ("key: value  # noqa: FSDP620", True),
        ("# fsdp-lint: ignore", True),
        ("key: 'it''s # 1'  # noqa", True),
        ('key: "a # noqa"', False),
        ("key: value#noqa", False),
    ],
)
def test_comments_of_yaml(line: str, hides: bool) -> None:
    assert Suppressions(f"{line}\n", settings=True).hides("FSDP620", "fsdp-config-conflict", 1, 1) == hides


def test_values_are_as_the_launcher_reads_them() -> None:
    document = Document(Path("a.yaml"), "a: no\nb: 'no'\nc: {d: 1}\n")
    assert document.value == {"a": False, "b": "no", "c": {"d": 1}}
    inner = document.site("c", "d")
    assert inner is not None
    assert document.span(inner.node).column == 5
