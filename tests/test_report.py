"""What each report shows of the same findings."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click import unstyle

from fsdp_lint.findings import (
    Applicability,
    Coverage,
    LocatedFinding,
    LocatedFix,
    Place,
    Related,
    Report,
    Severity,
    TextEdit,
    Unfollowed,
)
from fsdp_lint.report import concise, github, text
from fsdp_lint.report import json as as_json
from fsdp_lint.report.lines import Lines, closing, fixable

COVERAGE = Coverage(files=12, read=5, sites=4, followed=4)
SOURCE = """\
model = Net()
optimizer = AdamW(model.parameters())
fully_shard(model)
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SOURCE)
    return str(tmp_path / "train.py")


def finding(path: str, **changes: object) -> LocatedFinding:
    values: dict[str, object] = {
        "place": Place(path, 2, 13, 2, 38),
        "code": "FSDP101",
        "name": "optimizer-before-shard",
        "severity": Severity.ERROR,
        "message": "`optimizer` gets parameters that `model` will not keep",
        "help": "Build the optimizer after the last sharding call.",
        "url": "https://example.org/optimizer-before-shard.md",
        "related": (Related(Place(path, 3, 1, 3, 19), "`model` is sharded here"),),
        "fix": LocatedFix(
            Applicability.SAFE,
            "Build `optimizer` after the sharding",
            (TextEdit(Place(path, 2, 1, 3, 1), ""), TextEdit(Place(path, 4, 1, 4, 1), "optimizer = ...\n")),
        ),
    }
    return LocatedFinding(**(values | changes))  # type: ignore[arg-type]


def report(*findings: LocatedFinding, coverage: Coverage = COVERAGE, errors: tuple[str, ...] = ()) -> Report:
    return Report(findings, errors, coverage)


def shown(*findings: LocatedFinding, given: dict[str, str] | None = None) -> str:
    return unstyle(text.render(report(*findings), Lines(given), quiet=True))


def test_text_shows_the_span_the_witnesses_and_what_to_do(path: str) -> None:
    assert unstyle(text.render(report(finding(path)), Lines())) == (
        "train.py:2:13: error FSDP101 optimizer-before-shard: [*] `optimizer` gets parameters that `model` will "
        "not keep\n"
        "     2 | optimizer = AdamW(model.parameters())\n"
        "       |             ^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  because train.py:3:1: `model` is sharded here\n"
        "     3 | fully_shard(model)\n"
        "       | ^^^^^^^^^^^^^^^^^^\n"
        "  help: Build the optimizer after the last sharding call.\n"
        "  fix: Build `optimizer` after the sharding (`--fix` does it)\n"
        "\n"
        "[*] 1 fixable with --fix.\n"
        "Found 1 error in 1 file (12 files seen, 5 speak of FSDP). Sharding sites: 4 seen, 4 followed.\n"
    )


def test_text_says_who_applies_a_fix(path: str) -> None:
    def fixed(kind: Applicability, unsafe: bool = False) -> str:
        one = finding(path, fix=LocatedFix(kind, "Do it", ()))
        return unstyle(text.render(report(one), Lines(), unsafe=unsafe))

    assert "[*]" not in fixed(Applicability.DISPLAY, unsafe=True)
    assert "  suggestion: Do it (not applied by the tool)\n" in fixed(Applicability.DISPLAY)
    assert "  fix: Do it (`--fix --unsafe-fixes` does it: see what else it changes)\n" in fixed(Applicability.UNSAFE)
    assert ": [*] `optimizer`" not in fixed(Applicability.UNSAFE)
    assert ": [*] `optimizer`" in fixed(Applicability.UNSAFE, unsafe=True)
    assert ": [*] `optimizer`" in fixed(Applicability.SAFE)
    assert "fix:" not in shown(finding(path, fix=None))


def test_text_shows_the_change_of_a_fix_where_it_is_asked_for(path: str) -> None:
    fix = LocatedFix(Applicability.DISPLAY, "Do it", ())
    changes = {fix: "--- a.py\n+++ a.py\n@@ -1 +1 @@\n-a\x1b[2J\n+b\n"}
    said = unstyle(text.render(report(finding(path, fix=fix)), Lines(), quiet=True, changes=changes))
    assert said.endswith("(not applied by the tool)\n    --- a.py\n    +++ a.py\n    @@ -1 +1 @@\n    -a�[2J\n    +b\n")


def test_the_line_on_fixes_counts_by_kind() -> None:
    def said(*kinds: Applicability, unsafe: bool = False) -> str:
        found = [finding("/a.py", fix=LocatedFix(kind, "Do it", ())) for kind in kinds]
        return fixable(report(*found, finding("/a.py", fix=None)), unsafe)

    safe, more, shown_only = Applicability.SAFE, Applicability.UNSAFE, Applicability.DISPLAY
    assert said(safe, safe, shown_only) == "[*] 2 fixable with --fix.\n"
    assert said(safe, more) == "[*] 1 fixable with --fix, 1 more with --unsafe-fixes.\n"
    assert said(more) == "1 fixable with --fix --unsafe-fixes.\n"
    assert said(safe, more, unsafe=True) == "[*] 2 fixable with --fix --unsafe-fixes.\n"
    assert said() == said(shown_only) == ""


def test_text_marks_the_first_line_of_a_long_span(path: str) -> None:
    said = shown(finding(path, place=Place(path, 2, 1, 3, 5), related=()))
    assert "     2 | optimizer = AdamW(model.parameters())\n       | " + "^" * 37 + "\n" in said


@pytest.mark.parametrize(
    ("line", "column", "end", "marked"),
    [
        ("\tx = f(a)", 6, 10, "        ^^^^"),
        ("名前 = f(a)", 6, 10, "       ^^^^"),
        ("e\u0301 = f(a)", 6, 10, "    ^^^^"),
        ("f(a)", 1, 1, "^"),
    ],
)
def test_carets_stand_under_the_span(path: str, line: str, column: int, end: int, marked: str) -> None:
    said = shown(finding(path, place=Place(path, 1, column, 1, end), related=()), given={path: line})
    assert f"       | {marked}\n" in said


def test_text_shows_the_part_of_a_long_line_that_matters(path: str) -> None:
    line = "x = [" + "1, " * 2000 + "f(a), " + "2, " * 2000 + "]"
    start = line.index("f(a)") + 1
    said = shown(finding(path, place=Place(path, 1, start, 1, start + 4), related=()), given={path: line})
    rows = said.split("\n")
    assert max(len(row) for row in rows) < 200
    assert rows[1][rows[2].index("^") :].startswith("f(a)")


def test_a_source_line_cannot_steer_the_terminal(path: str) -> None:
    said = text.render(report(finding(path, place=Place(path, 1, 1, 1, 2))), Lines({path: "a = '\x1b[2J\x07'\n"}))
    assert "\x1b[2J" not in said and "\x07" not in said


def test_a_file_that_is_gone_or_shorter_now_does_no_harm(path: str) -> None:
    assert "optimizer-before-shard" in shown(finding(path, place=Place(path, 99, 1, 99, 2)))
    assert "optimizer-before-shard" in shown(finding(path + ".gone"), finding("/odd/\udcff.py"))


def test_rows_are_not_split_at_form_feeds(path: str) -> None:
    said = shown(
        finding(path, place=Place(path, 2, 1, 2, 2), related=()), given={path: "a\x0cb\u2028c\r\nsecond\rthird"}
    )
    assert "     2 | second\n" in said


def test_concise_has_one_line_each(path: str) -> None:
    def fixed(kind: Applicability) -> LocatedFinding:
        return finding(path, fix=LocatedFix(kind, "Do it", ()), severity=Severity.INFO, message="wrong")

    found = report(finding(path), *map(fixed, Applicability), finding(path, fix=None, message="wrong"))
    assert concise.render(found, quiet=True).splitlines() == [
        "train.py:2:13: error FSDP101 optimizer-before-shard: [*] `optimizer` gets parameters that `model` will "
        "not keep",
        "train.py:2:13: info FSDP101 optimizer-before-shard: [*] wrong",
        "train.py:2:13: info FSDP101 optimizer-before-shard: [unsafe fix] wrong",
        "train.py:2:13: info FSDP101 optimizer-before-shard: [suggestion] wrong",
        "train.py:2:13: error FSDP101 optimizer-before-shard: wrong",
    ]
    assert concise.render(found, quiet=True, unsafe=True).count("[*]") == 3


def test_json_has_the_keys_of_ruffs(path: str) -> None:
    (said,) = json.loads(as_json.render(report(finding(path))))
    assert said == {
        "code": "FSDP101",
        "name": "optimizer-before-shard",
        "message": "`optimizer` gets parameters that `model` will not keep",
        "severity": "error",
        "filename": path,
        "cell": None,
        "location": {"row": 2, "column": 13},
        "end_location": {"row": 2, "column": 38},
        "fix": {
            "applicability": "safe",
            "message": "Build `optimizer` after the sharding",
            "edits": [
                {
                    "content": "",
                    "filename": path,
                    "cell": None,
                    "location": {"row": 2, "column": 1},
                    "end_location": {"row": 3, "column": 1},
                },
                {
                    "content": "optimizer = ...\n",
                    "filename": path,
                    "cell": None,
                    "location": {"row": 4, "column": 1},
                    "end_location": {"row": 4, "column": 1},
                },
            ],
        },
        "url": "https://example.org/optimizer-before-shard.md",
        "related": [
            {
                "filename": path,
                "cell": None,
                "location": {"row": 3, "column": 1},
                "end_location": {"row": 3, "column": 19},
                "message": "`model` is sharded here",
            }
        ],
    }
    assert json.loads(as_json.render(report(finding(path, fix=None))))[0]["fix"] is None
    assert json.loads(as_json.render(report())) == []


def test_github_gets_one_command_a_finding(path: str) -> None:
    assert github.render(report(finding(path)), quiet=True) == (
        "::error file=train.py,line=2,col=13,endLine=2,endColumn=37,title=FSDP101 (optimizer-before-shard)::"
        "`optimizer` gets parameters that `model` will not keep"
        "%0Abecause train.py:3:1: `model` is sharded here"
        "%0Ahelp: Build the optimizer after the last sharding call.\n"
    )


def test_github_escapes_what_would_end_a_command(path: str) -> None:
    odd = finding("/a,b:c%\n.py", message="100%\r\n::error::x", severity=Severity.INFO, related=(), help="")
    assert github.render(report(odd), quiet=True) == (
        "::notice file=/a%2Cb%3Ac%25%0A.py,line=2,col=13,endLine=2,endColumn=37,"
        "title=FSDP101 (optimizer-before-shard)::100%25%0D%0A::error::x\n"
    )


def test_the_closing_line_counts(path: str) -> None:
    found = (
        finding(path),
        finding(path, severity=Severity.INFO),
        finding("/b.py"),
        finding(path, severity=Severity.WARNING),
    )
    assert closing(report(*found)).startswith("Found 2 errors, 1 warning, 1 info in 2 files (")
    assert (
        closing(report(coverage=Coverage(1, 0, 0, 0)))
        == "Nothing found (1 file seen, 0 speak of FSDP). No sharding sites seen."
    )
    assert closing(report(errors=("x.py: is not valid Python",))).endswith(
        " Not complete: 1 problem on standard error."
    )


@pytest.mark.parametrize(("count", "last"), [(3, "train.py:3 (registry)."), (25, "and 15 more.")])
def test_the_closing_line_tells_what_was_not_followed(path: str, count: int, last: str) -> None:
    unfollowed = tuple(Unfollowed(Place(path, row, 1, row, 2), "registry") for row in range(1, count + 1))
    said = closing(report(coverage=Coverage(9, 2, count + 1, 1, unfollowed)))
    assert f"Sharding sites: {count + 1} seen, 1 followed; not followed: train.py:1 (registry), " in said
    assert said.endswith(last)
    assert said.count("registry") == min(count, 10)


@pytest.mark.parametrize("render", [concise.render, github.render, lambda r, quiet: text.render(r, Lines(), quiet)])
def test_quiet_leaves_nothing_but_findings(path: str, render: Callable[[Report, bool], str]) -> None:
    assert render(report(), True) == ""
    assert "Nothing found" in render(report(), False)
