"""Notebooks: the cells are one program, findings name the cell, and a fix changes a cell's source and nothing else."""

from __future__ import annotations

import ast
import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from fsdp_lint import engine, settings
from fsdp_lint.fix.writing import write_all
from fsdp_lint.source.notebook import cell_at, program, with_program
from fsdp_lint.source.text import Unreadable

if TYPE_CHECKING:
    from conftest import Lint

NOTEBOOK = Path("/project/train.ipynb")
FIXTURES = Path(__file__).parents[1] / "fixtures"

IMPORTS = "%pip install -q torch\nimport torch\nfrom torch.distributed.fsdp import fully_shard"
BAD_CELL = (
    "%%time\nmodel = torch.nn.Linear(8, 8)  # größer\noptimizer = torch.optim.AdamW(model.parameters())\n"
    "files = !ls *.pt\nfully_shard(model)\nmodel?"
)
FIXED_CELL = (
    "%%time\nmodel = torch.nn.Linear(8, 8)  # größer\nfiles = !ls *.pt\nfully_shard(model)\n"
    "optimizer = torch.optim.AdamW(model.parameters())\nmodel?"
)

# How programs write notebooks: Jupyter, nbformat's compact form, VS Code, other tools.
STYLES: dict[str, dict[str, Any]] = {
    "jupyter": {"indent": 1, "ensure_ascii": False},
    "escaped": {"indent": 1},
    "one line": {},
    "compact": {"separators": (",", ":"), "ensure_ascii": False},
    "tabs, sorted": {"indent": "\t", "sort_keys": True},
    "four blanks": {"indent": 4, "separators": (",", " : ")},
}


def as_list(source: str) -> list[str]:
    return source.splitlines(keepends=True)


def code(source: str | list[str], **more: object) -> dict[str, Any]:
    outputs = [{"name": "stdout", "output_type": "stream", "text": ["fully_shard é \u2028 \\n", '{["source": 1']}]
    return {"cell_type": "code", "execution_count": 3, "metadata": {}, "outputs": outputs, "source": source, **more}


def markdown(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": [text]}


def book(*cells: dict[str, Any], **more: Any) -> dict[str, Any]:
    kernel = {"display_name": "Python 3 — ü", "language": "python", "name": "python3"}
    told = {"kernelspec": kernel, "language_info": {"name": "python", "version": "3.11.2"}}
    return {"cells": list(cells), "metadata": told, "nbformat": 4, "nbformat_minor": 5, **more}


def notebook(*sources: str) -> str:
    """A notebook as Jupyter writes it, with a heading as its first cell."""
    return json.dumps(book(markdown("# A heading"), *map(code, map(as_list, sources))), indent=1) + "\n"


def code_rows(*sources: str) -> list[str]:
    """The program of a notebook of these cells, without the rows that begin cells."""
    rows = program(NOTEBOOK, notebook(*sources)).split("\n")
    return [row for row in rows[:-1] if not row.startswith("# %%\ue001")]


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("shape", [as_list, str])
def test_a_fix_changes_the_source_of_its_cell_and_no_other_byte(
    style: str, shape: Callable[[str], Any], here: Path
) -> None:
    def written(cell: str) -> bytes:
        untouched = code(shape('%%bash\necho "$(" é'), metadata={"tags": ["ü"], "source": "no"})
        whole = book(markdown("ä"), code(shape(IMPORTS)), code(shape(cell)), untouched)
        return (json.dumps(whole, **STYLES[style]) + "\n" * ("indent" in STYLES[style])).encode()

    path = here / "train.ipynb"
    path.write_bytes(written(BAD_CELL))
    result = engine.fix_files([path], settings.Settings(root=here))
    assert not result.errors and path.read_bytes() == written(BAD_CELL)
    assert write_all(result.changed, here) == ([path], [])
    assert path.read_bytes() == written(FIXED_CELL)


def test_the_diff_is_one_of_the_file(here: Path, lint: Lint) -> None:
    (here / "train.ipynb").write_text(notebook(IMPORTS, BAD_CELL))
    done = lint("--diff")
    assert (done.returncode, done.stderr) == (1, "")
    subprocess.run(["git", "apply", "-p0"], cwd=here, input=done.stdout.encode(), check=True, timeout=60)
    assert (here / "train.ipynb").read_text() == notebook(IMPORTS, FIXED_CELL)


def test_spellings_of_rows_that_stay_are_kept(here: Path, lint: Lint) -> None:
    text = notebook(IMPORTS, BAD_CELL).replace('"%%time', r'"\u0025%time').replace("g\\u00f6ßer", "g\\u00F6ßer")
    (here / "train.ipynb").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert lint("--fix", ".").returncode == 0
    first, second = r'    "optimizer = torch.optim.AdamW(model.parameters())\n",', r'    "fully_shard(model)\n",'
    lines = text.split("\n")
    at = lines.index(first)
    lines[at : at + 3] = [lines[at + 1], second, first]
    assert (here / "train.ipynb").read_bytes() == b"\xef\xbb\xbf" + "\r\n".join(lines).encode()


ROWS = st.sampled_from(
    [
        "x = 1",
        "",
        "%time x",
        "!ls \\\n  -l",
        "if x:\n    !ls\n    x?",
        "s = '''\n%a\n'''",
        "f(\n  1)",
        "y = %who",
        "# é",
        "?x",
    ]
)
SOURCES = st.lists(ROWS, max_size=4).flatmap(lambda rows: st.sampled_from(["", "\n"]).map("\n".join(rows).__add__))


@given(
    st.lists(st.tuples(SOURCES, st.booleans(), st.booleans()), min_size=1, max_size=4), st.sampled_from(sorted(STYLES))
)
@examples(deadline=None, max_examples=150)
def test_only_cells_whose_code_differs_are_written(cells: list[tuple[str, bool, bool]], style: str) -> None:
    """Each cell comes with whether its source is a list, and whether a row is to be put in front of it."""
    before, after, changed = book(markdown("x")), book(markdown("x")), ""
    for source, listed, changes in cells:
        shape: Callable[[str], Any] = as_list if listed and source else str
        before["cells"].append(code(shape(source)))
        new = "z = 2\n" + source if source else "z = 2"
        after["cells"].append(code(shape(new if changes else source)))
    text = json.dumps(before, **STYLES[style])
    assert with_program(NOTEBOOK, text, program(NOTEBOOK, text)) == text
    parts = program(NOTEBOOK, text).split("# %%\ue001")[1:]
    for part, (_, _, changes) in zip(parts, cells, strict=True):
        head, _, rest = part.partition("\n")
        changed += f"# %%\ue001{head}\n" + ("z = 2\n" if changes else "") + rest
    result = with_program(NOTEBOOK, text, changed)
    assert json.loads(result) == after
    assert result == json.dumps(after, **STYLES[style])


def test_a_program_with_other_cells_is_refused() -> None:
    text = notebook("a = 1", "b = 2")
    with pytest.raises(ValueError, match="border of two cells"):
        with_program(NOTEBOOK, text, program(NOTEBOOK, text).replace("# %%\ue0013\n", ""))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("%matplotlib inline\nx = 1", ["# %%\ue000%matplotlib inline", "x = 1"]),
        ("!pip install \\\n   torch\nx = 1", ["# %%\ue000!pip install \\", "# %%\ue000   torch", "x = 1"]),
        ("if a:\n    !ls\nx = 1", ["if a:", "    pass#\ue000!ls", "x = 1"]),
        ("files = !ls\nx = 1", ["files = get_ipython()#\ue000!ls", "x = 1"]),
        ("a, b = %who\nx = 1", ["a, b = get_ipython()#\ue000%who", "x = 1"]),
        ("model.fit??\nx = 1", ["# %%\ue000model.fit??", "x = 1"]),
        ("?model\nx = 1", ["# %%\ue000?model", "x = 1"]),
        ("pip install -U torch\nx = 1", ["# %%\ue000pip install -U torch", "x = 1"]),
        ("%%time\nx = 1", ["# %%\ue000%%time", "x = 1"]),
        ("%%bash\necho (\n", ["# %%\ue000%%bash", "# %%\ue000echo ("]),
        ("%%timeit\nx = 1", ["# %%\ue000%%timeit", "# %%\ue000x = 1"]),
        ("%%writefile a.py\nimport torch", ["# %%\ue000%%writefile a.py", "# %%\ue000import torch"]),
    ],
)
def test_what_is_not_python_is_hidden_in_its_row(source: str, expected: list[str]) -> None:
    assert code_rows(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "x = (a\n% b\n)",
        "s = '''\n!no\n%no\n'''",
        's = f"""\n?no\n"""',
        "x = a \\\n% b",
        "x = a != b",
        "x = 5 % 3  # why?",
        "s = 'what?'",
        "s = '%d' % x",
        "x = ['(', # (\n1\n% b]",
        "await f()\nx = 1",
    ],
)
def test_python_is_left_alone(source: str) -> None:
    assert code_rows(source) == source.split("\n")


def test_cells_in_other_languages_are_no_code() -> None:
    foreign = code("fully_shard(", metadata={"vscode": {"languageId": "julia"}})
    assert program(NOTEBOOK, json.dumps(book(foreign, code("x = 1")))) == "# %%\ue0012\nx = 1\n"


def test_rows_lead_to_cells() -> None:
    whole = program(NOTEBOOK, notebook("a = 1\nb = 2", "", "c = 3\n"))
    assert whole == "# %%\ue0012\na = 1\nb = 2\n# %%\ue0013\n# %%\ue0014\nc = 3\n"
    assert [cell_at(whole, row) for row in (2, 3, 4, 6, 7)] == [(2, 1), (2, 1), (2, 1), (4, 5), (4, 5)]


def test_findings_name_cell_and_row_in_it(here: Path, lint: Lint) -> None:
    (here / "train.ipynb").write_text(
        notebook(IMPORTS, BAD_CELL.replace("fully_shard(model)\n", ""), "fully_shard(model)")
    )
    said = lint("--ignore", "FSDP207").stdout
    assert said.startswith("train.ipynb:cell 3:3:13: error FSDP101 optimizer-before-shard: ")
    assert "     3 | optimizer = torch.optim.AdamW(model.parameters())\n" in said
    assert "  because train.ipynb:cell 4:1:1: " in said and "     1 | fully_shard(model)\n" in said
    (one,) = json.loads(lint("--ignore", "FSDP207", "--output-format", "json").stdout)
    assert (one["cell"], one["location"], one["end_location"]) == (
        3,
        {"row": 3, "column": 13},
        {"row": 3, "column": 50},
    )
    assert (one["related"][0]["cell"], one["related"][0]["location"]) == (4, {"row": 1, "column": 1})
    github = lint("--output-format", "github", "--ignore", "FSDP207").stdout
    assert github.startswith("::error file=train.ipynb,title=FSDP101 (optimizer-before-shard)::cell 3:3:13: ")
    assert lint("--ignore", "FSDP207").stdout == said, "what is kept says the same"


def test_standard_input_may_be_a_notebook(here: Path, lint: Lint) -> None:
    said = lint("-", "--stdin-filename", "new.ipynb", stdin=notebook(IMPORTS, BAD_CELL)).stdout
    assert said.startswith("new.ipynb:cell 3:3:13: error FSDP101")
    assert "     3 | optimizer = torch.optim.AdamW(model.parameters())\n" in said


@pytest.mark.parametrize("comment", ["# noqa: FSDP101", "# fsdp-lint: ignore[optimizer-before-shard]", "# noqa"])
def test_comments_take_findings_back(comment: str, here: Path, lint: Lint) -> None:
    cell = BAD_CELL.replace("model.parameters())\n", f"model.parameters())  {comment}\n")
    (here / "train.ipynb").write_text(notebook(IMPORTS, cell))
    assert lint().returncode == 0


def test_a_fix_moves_nothing_from_cell_to_cell(here: Path, lint: Lint) -> None:
    text = notebook(IMPORTS, BAD_CELL.replace("fully_shard(model)\n", ""), "fully_shard(model)")
    (here / "train.ipynb").write_text(text)
    done = lint("--fix", "--unsafe-fixes", ".")
    assert (done.returncode, done.stderr) == (1, "")
    assert (here / "train.ipynb").read_text() == text
    assert "  suggestion: Build the optimizer after the model is sharded (not applied by the tool)\n" in done.stdout
    assert "+    " in lint("--show-fixes").stdout


def test_a_notebook_uses_the_project_and_is_used_by_nobody(here: Path, lint: Lint, bad: str) -> None:
    (here / "parts.py").write_text(
        "from torch.distributed.fsdp import fully_shard\n\ndef shard(m):\n    fully_shard(m)\n"
    )
    imports = "import torch\nfrom parts import shard\n"
    cell = imports + "m = torch.nn.Linear(8, 8)\no = torch.optim.AdamW(m.parameters())\nshard(m)"
    # `source` as one string: the words behind a line end stand behind `\n` in the file.
    (here / "use.ipynb").write_text(json.dumps(book(code(cell))))
    (here / "train.ipynb").write_text(notebook(bad))
    (here / "main.py").write_text(
        "import torch\nfrom train import model\nfrom torch.distributed.fsdp import fully_shard\nfully_shard(model)\n"
    )
    places = [
        line.partition(": ")[0]
        for line in lint("--output-format", "concise", "--quiet", "--select", "FSDP101").stdout.splitlines()
    ]
    assert places == ["train.ipynb:cell 2:5:13", "use.ipynb:cell 1:4:5"]
    assert "use.ipynb:cell 1:4:5" in lint("parts.py").stdout


def test_where_nothing_was_followed_the_cell_is_named(here: Path, lint: Lint) -> None:
    cell = f"{IMPORTS}\nif False:\n    fully_shard(torch.nn.Linear(1, 1))"
    (here / "train.ipynb").write_text(notebook("x = 1", cell))
    assert "not followed: train.ipynb:cell 3:5 (" in lint().stdout


def test_checkpoints_and_what_is_excluded_are_left_out(here: Path, lint: Lint) -> None:
    for name in (".ipynb_checkpoints/train-checkpoint.ipynb", "old/train.ipynb"):
        (here / name).parent.mkdir()
        (here / name).write_text(notebook(IMPORTS, BAD_CELL))
    (here / "fsdp-lint.toml").write_text('exclude = ["old/*.ipynb"]\n')
    assert lint().stdout.startswith("Nothing found (0 files seen")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{'fully_shard': 1", "is not a notebook: Expecting property name"),
        ('{"cells": ["fully_shard"]}', "is not a notebook: it names no nbformat"),
        ('["fully_shard"]', "is not a notebook: it names no nbformat"),
        (
            json.dumps({"nbformat": 3, "worksheets": ["fully_shard"]}),
            "is a notebook of format 3: only formats from 4 on",
        ),
        (notebook(IMPORTS, "x = 1\nx = = 2"), "is not valid Python 3."),
        (notebook(IMPORTS, "    x = 1"), "is not valid Python 3."),
        (notebook(IMPORTS, "x = '\ue000'"), "cannot be read: cell 3 holds U+E000 or U+E001"),
        (notebook(IMPORTS, f"x = {'(' * 150}1{')' * 150}"), "nested or chained too deeply"),
        ("[" * 100_000 + "fully_shard", "is not a notebook: "),
    ],
)
def test_what_cannot_be_read_has_its_line(text: str, reason: str, here: Path, lint: Lint) -> None:
    (here / "train.ipynb").write_text(text)
    done = lint("--fix")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"fsdp-lint: {here / 'train.ipynb'}: {reason}")
    assert (here / "train.ipynb").read_text() == text


def test_a_broken_cell_is_named() -> None:
    with pytest.raises(Unreadable, match=r"is not valid Python 3\.\d+: cell 3, line 2, column 5"):
        program(NOTEBOOK, notebook("x = 1", "x = 1\nx = = 2"))


@pytest.mark.parametrize(
    "metadata", [{"kernelspec": {"language": "R", "name": "ir"}}, {"language_info": {"name": "julia"}}]
)
def test_notebooks_in_other_languages_are_seen_and_say_nothing(metadata: object, here: Path, lint: Lint) -> None:
    (here / "train.ipynb").write_text(json.dumps(book(code("fully_shard <- ("), metadata=metadata)))
    done = lint()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("(1 file seen, 1 speaks of FSDP). No sharding sites seen.\n")


def test_size_counts_without_outputs(here: Path, lint: Lint) -> None:
    whole = book(code(IMPORTS), code(BAD_CELL, outputs=[{"data": {"image/png": "A" * 3_000_000}}]))
    (here / "train.ipynb").write_text(json.dumps(whole))
    assert "cell 2:3:13: error FSDP101" in lint().stdout


def by_statement(text: str) -> list[str]:
    """A program's text in pieces, one for each statement of the file with what stands above it."""
    rows = text.splitlines(keepends=True)
    firsts = [
        min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) for node in ast.parse(text).body
    ]
    borders = [0, *(first - 1 for first in firsts[1:]), len(rows)]
    return ["".join(rows[a:b]) for a, b in itertools.pairwise(borders)]


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*/bad_inline.py")), ids=lambda path: path.parent.name)
def test_a_program_in_cells_is_the_same_program(path: Path, tmp_path: Path) -> None:
    """Each statement in a cell of its own; rows are compared as they are in the file."""
    text = path.read_text(encoding="utf-8")
    pieces = by_statement(text)
    (tmp_path / "a.py").write_text(text)
    (tmp_path / "b.ipynb").write_text(json.dumps(book(*map(code, pieces))))
    above = [sum(piece.count("\n") for piece in pieces[:number]) for number in range(len(pieces))]
    found = []
    for name in ("a.py", "b.ipynb"):
        report = engine.analyse([tmp_path / name], settings.Settings(root=tmp_path))
        assert not report.errors
        rows = [above[each.place.cell.number - 1] if each.place.cell else 0 for each in report.findings]
        found.append(
            [(f.code, row + f.place.rows[0], f.place.column) for f, row in zip(report.findings, rows, strict=True)]
        )
    assert found[0] == found[1]
