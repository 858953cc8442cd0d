"""Which comments take a finding back, and which only look as if they did."""

from __future__ import annotations

import pytest

from fsdp_lint.source.suppress import Suppressions

CODE, NAME = "FSDP101", "optimizer-before-shard"


def hidden(text: str, first: int = 1, last: int = 1) -> bool:
    return Suppressions(text).hides(CODE, NAME, first, last)


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "#noqa",
        "# NOQA",
        "# NoQA : FSDP101",
        "# noqa: FSDP101",
        "# noqa:FSDP101",
        "# noqa: fsdp101",
        "# noqa: E501, FSDP101",
        "# noqa: E501 FSDP101",
        "# noqa: E501,FSDP101 the optimizer is rebuilt below",
        "# noqa: FSDP1",
        "# type: ignore[misc]  # noqa: FSDP101",
        "# fsdp-lint: ignore[optimizer-before-shard] rebuilt below",
        "# fsdp-lint: ignore[FSDP101]",
        "# fsdp-lint: ignore[ root-not-sharded , Optimizer-Before-Shard ]",
        "# fsdp-lint:ignore[FSDP]",
        "# fsdp-lint: ignore",
        "# FSDP-LINT: IGNORE[fsdp101]",
        "# fsdp-lint: ignore-file[FSDP101]",
        "# fsdp-lint: ignore-file",
    ],
)
def test_hides(comment: str) -> None:
    assert hidden(f"optimizer = AdamW(model.parameters())  {comment}\n")


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa: F401",
        "# noqa: F",
        "# noqa: FSDP102",
        "# noqa: FSDP1010",
        "# noqa: because FSDP needs it",
        "# noqa: F401 FSDP needs it",
        "# noqa:",
        "# noqas",
        "# ruff: noqa",
        "# flake8: noqa",
        "# fsdp-lint: ignore[root-not-sharded]",
        "# fsdp-lint: ignore[]",
        "# fsdp-lint: ignore[F]",
        "# fsdp-lint: ignored",
        "# fsdp-lint: ignore-files",
        "# fsdp-lint is ignored here",
    ],
)
def test_does_not_hide(comment: str) -> None:
    assert not hidden(f"optimizer = AdamW(model.parameters())  {comment}\n")


def test_any_line_of_the_statement_counts_and_no_other() -> None:
    text = "# noqa\noptimizer = AdamW(\n    model.parameters(),\n)  # noqa: FSDP101\n# noqa\n"
    assert hidden(text, 2, 4)
    assert not hidden(text, 2, 3)


def test_a_file_comment_may_stand_anywhere() -> None:
    text = "a = 1\nb = 2\n# fsdp-lint: ignore-file[optimizer-before-shard] a test of the mistake\n"
    assert hidden(text, 1, 1)
    assert not Suppressions(text).hides("FSDP202", "root-not-sharded", 1, 1)


@pytest.mark.parametrize("text", ['x = "# noqa"\n', "'''\n# fsdp-lint: ignore-file\n'''\n", 'x = f"# noqa {y}"\n'])
def test_strings_are_no_comments(text: str) -> None:
    assert not hidden(text)
    assert not hidden(text, 2, 2)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_are_python_rows(end: str) -> None:
    text = end.join(["a = 1\x0c", "b = 2  # noqa", "c = 3"])
    assert [hidden(text, row, row) for row in (1, 2, 3)] == [False, True, False]


@pytest.mark.parametrize("text", ["", "(", "'''", "\x00", "  x\n y\n", "f'{", "x = 1 # noqa\n(((\n", "0777 $ # noqa"])
def test_text_that_is_not_python_is_survived(text: str) -> None:
    Suppressions(text).hides(CODE, NAME, 1, 3)


def test_what_was_read_before_the_broken_part_counts() -> None:
    assert hidden("x = 1  # noqa\n'''\n")
