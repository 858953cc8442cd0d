"""Positions and imports of a source: those of LibCST and of the interpreter, had in a cheaper way."""

from __future__ import annotations

import ast
from pathlib import Path

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from fsdp_lint.source.file import Source, Span
from fsdp_lint.source.structure import below, children
from fsdp_lint.source.text import decode

FIXTURES = Path(__file__).parents[1] / "fixtures"
ODD = {
    "empty": "",
    "a comment only": "# nothing\n",
    "no last line end": "import a; import b\nx = (\n    1,\n)",
    "decorators": "# first\n\n@one\n@two(3)\nasync def f(a, *, b=1):\n    # in it\n    await a\n    # end\n# after\n",
    "carriage returns": "import a\r\n\r\n\r\ndef f():\r\n\treturn '''x\r\ny'''\r\n",
    "continued lines": "x = 1 + \\\n    2; y = 3\nif x: y = 4; z = 5\nelse: pass\n",
    "form feeds": "x = 1\n\x0c\ndef f():\n    pass\n\x0c\ny = 2\n",
    "a doc string": '"""Says\n\nmore."""\n\nfrom __future__ import annotations\nclass A(\n    B\n):\n    x: int = 1\n',
    "matches": "match x:\n    case [1, *_]:\n        pass\n    case _: pass\ntry:\n    pass\nfinally:\n    x = 1\n",
}


def texts() -> dict[str, str]:
    """Odd ones, and one program of each rule."""
    first = [sorted(folder.glob("*.py"))[:1] for folder in sorted(FIXTURES.iterdir()) if folder.is_dir()]
    return ODD | {f"{path.parent.name}/{path.name}": decode(path.read_bytes()) for paths in first for path in paths}


@pytest.mark.parametrize("text", texts().values(), ids=texts())
def test_positions_are_those_of_libcst(text: str) -> None:
    source = Source(Path("x.py"), text)
    wanted = MetadataWrapper(source.tree, unsafe_skip_copy=True).resolve(PositionProvider)
    for node in below(source.tree):
        if node in wanted:
            at = wanted[node]
            assert source.span(node) == Span(at.start.line, at.start.column + 1, at.end.line, at.end.column + 1)


@pytest.mark.parametrize("text", texts().values(), ids=texts())
def test_children_are_all_nodes_and_imports_come_in_order(text: str) -> None:
    source = Source(Path("x.py"), text)
    blank = (cst.SimpleWhitespace, cst.Newline)
    for node in below(source.tree):
        assert {id(child) for child in children(node)} == {
            id(child) for child in node.children if not isinstance(child, blank)
        }
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    rows = [node.lineno for node in nodes if isinstance(node, ast.Import) or not node.level]
    assert [source.span(node).row for node in source.imports()] == sorted(rows)
    assert all(isinstance(node, cst.Import | cst.ImportFrom) for node in source.imports())
