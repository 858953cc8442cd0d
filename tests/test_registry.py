"""The installed rules: how they are found, named, selected and asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fsdp_lint import registry
from fsdp_lint.registry import RegisteredRule, RegistryError, find, first_sentence, section, select
from fsdp_lint.rule import Rule, Severity
from fsdp_lint.selectors import covers
from fsdp_lint.settings import Settings

DOC = """Something is wrong.

## How to mend it

Call `model.to(device)` after it, e.g. in `main()`. Then load.

## When to leave it

Never.
"""


def rule(code: str, name: str, on: bool = True) -> RegisteredRule:
    return RegisteredRule(name, Rule(lambda trace: iter(()), code, Severity.ERROR, "0.1", on_by_default=on), DOC)


KNOWN = (
    rule("FSDP101", "optimizer-before-shard"),
    rule("FSDP102", "stale-param-reference"),
    rule("FSDP202", "root-not-sharded"),
    rule("FSDP299", "noisy", on=False),
    rule("X1", "of-another-pack"),
)


def selected(**settings: tuple[str, ...]) -> list[str]:
    return [each.rule.code for each in select(KNOWN, Settings(Path("/"), **settings))]  # type: ignore[arg-type]


def test_by_default_those_that_are_on() -> None:
    assert selected() == ["FSDP101", "FSDP102", "FSDP202", "X1"]


@pytest.mark.parametrize("selector", ["FSDP101", "fsdp101", "FSDP10", "optimizer-before-shard"])
def test_a_rule_goes_by_code_name_and_family(selector: str) -> None:
    assert "FSDP101" in selected(select=(selector,))
    assert "FSDP202" not in selected(select=(selector,))
    assert "FSDP101" not in selected(ignore=(selector,))


def test_families() -> None:
    assert selected(select=("FSDP2",)) == ["FSDP202", "FSDP299"]
    assert selected(select=("FSDP",)) == ["FSDP101", "FSDP102", "FSDP202", "FSDP299"]
    assert selected(ignore=("FSDP",)) == ["X1"]
    assert not covers("F", "FSDP101", "optimizer-before-shard"), "another tool's family"
    assert not covers("", "FSDP101", "optimizer-before-shard")


def test_extend_select_adds() -> None:
    assert selected(extend_select=("noisy",)) == ["FSDP101", "FSDP102", "FSDP202", "FSDP299", "X1"]
    assert selected(select=("X1",), extend_select=("FSDP202",)) == ["FSDP202", "X1"]


def test_the_closer_selector_wins_and_ignore_if_equal() -> None:
    assert selected(select=("FSDP1",), ignore=("FSDP101",)) == ["FSDP102"]
    assert selected(select=("FSDP101",), ignore=("FSDP1",)) == ["FSDP101"]
    assert selected(select=("FSDP101",), ignore=("optimizer-before-shard",)) == []
    assert selected(ignore=("FSDP",), extend_select=("FSDP1",)) == ["FSDP101", "FSDP102", "X1"]


@pytest.mark.parametrize("key", ["select", "ignore", "extend_select"])
def test_an_unknown_rule_is_an_error_that_names_the_nearest(key: str) -> None:
    with pytest.raises(RegistryError) as caught:
        selected(**{key: ("optimiser-before-shard",)})
    assert str(caught.value) == (
        f"unknown rule 'optimiser-before-shard' in `{key.replace('_', '-')}`; did you mean 'optimizer-before-shard'?"
    )


def test_an_unknown_rule_in_the_per_file_ignores() -> None:
    with pytest.raises(RegistryError, match=r"'FSDP110' in `per-file-ignores\.tests/`; did you mean 'FSDP10"):
        select(KNOWN, Settings(Path("/"), per_file_ignores=(("tests/", ("FSDP110",)),)))


def test_find() -> None:
    assert find(KNOWN, "fsdp202").name == find(KNOWN, "Root-Not-Sharded").name == "root-not-sharded"
    with pytest.raises(RegistryError, match="unknown rule 'root-not-shard'; did you mean 'root-not-sharded'"):
        find(KNOWN, "root-not-shard")
    with pytest.raises(RegistryError, match="lists them all"):
        find(KNOWN, "qqqqqq")


def test_the_docstring_gives_summary_and_help() -> None:
    assert KNOWN[0].summary == "Something is wrong."
    assert KNOWN[0].help == "Call `model.to(device)` after it, e.g. in `main()`."
    assert KNOWN[0].url.endswith("/docs/rules/optimizer-before-shard.md")
    assert section(DOC, "When to leave it") == "Never."
    assert section(DOC, "References") == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("One. Two.", "One."),
        ("Over\ntwo lines. Two.", "Over two lines."),
        ("Use `a. b` now. Two.", "Use `a. b` now."),
        ("Since torch 2.6 it is `x`. Two.", "Since torch 2.6 it is `x`."),
        ("No end\n\nNext. paragraph", "No end"),
        ("Write this:\n\n```python\na. b\n```", "Write this:"),
        ("", ""),
    ],
)
def test_first_sentence(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


def test_the_installed_rules_are_sorted_and_unlike() -> None:
    known = registry.rules()
    codes = [each.rule.code for each in known]
    assert codes == sorted(set(codes))
    assert len({each.name for each in known}) == len(known)


PACK = {"none": "", "broken": "raise RuntimeError('no\\nway')", "bare": "x = 1"}


def run(tmp_path: Path, *packs: str) -> str:
    """What the registry says where these packs are installed, and nothing else."""
    for pack in packs:
        (tmp_path / f"pack_{pack}").mkdir()
        (tmp_path / f"pack_{pack}" / "__init__.py").touch()
        if pack != "none":
            (tmp_path / f"pack_{pack}" / "some_rule.py").write_text(PACK.get(pack) or pack_rule(pack))
        info = tmp_path / f"pack_{pack}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pack_{pack}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[fsdp_lint.rules]\n{pack} = pack_{pack}\n")
    program = (
        "import sys, importlib.metadata as metadata\n"
        "import fsdp_lint.registry as registry, fsdp_lint.rule\n"
        f"sys.path[:] = [{str(tmp_path)!r}, *(p for p in sys.path if 'site-packages' not in p)]\n"
        "try:\n"
        "    print([each.name for each in registry.rules()])\n"
        "except registry.RegistryError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    return done.stdout


def pack_rule(code: str) -> str:
    return (
        '"""A rule."""\n'
        "from fsdp_lint.rule import Rule, Severity\n"
        f"RULE = Rule(lambda trace: iter(()), code={code!r}, severity=Severity.ERROR, since='1')\n"
    )


def test_packs_of_others_are_found(tmp_path: Path) -> None:
    assert run(tmp_path, "Y1") == "['some-rule']\n"


def test_no_rules_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    assert "pip install" in run(tmp_path)


def test_a_pack_that_does_not_work_is_named(tmp_path: Path) -> None:
    assert "rule pack `broken`: pack_broken.some_rule cannot be imported: RuntimeError: no way" in run(
        tmp_path, "broken"
    )


def test_a_module_without_a_rule_is_named(tmp_path: Path) -> None:
    assert "rule pack `bare`: pack_bare.some_rule defines no RULE" in run(tmp_path, "bare")


def test_two_rules_of_one_name_are_named(tmp_path: Path) -> None:
    assert "two rules are called" in run(tmp_path, "Y1", "Y2")
