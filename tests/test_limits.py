"""What may reach a parser: programs that would kill or stall it are refused, ordinary ones never."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from fsdp_lint.source.limits import MAX_BYTES, refuse


def elifs(count: int) -> str:
    return "if a:\n    pass\n" + "elif b:\n    pass\n" * count


DEEP: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: "x = " + "(" * n + "1" + ")" * n,
    "lists": lambda n: "x = " + "[" * n + "1" + "]" * n,
    "dictionaries": lambda n: "x = " + "{1: " * n + "1" + "}" * n,
    "calls in calls": lambda n: "x = " + "f(" * n + "1" + ")" * n,
    "never closed": lambda n: "x = " + "f(" * n,
    "fields of an f-string": lambda n: "x = f'{" + "(" * n + "a" + ")" * n + "}'",
    "format specifications": lambda n: "x = f'{a" + ":{b" * n + "}" * n + "}'",
    "f-strings in f-strings": lambda n: "x = " + "f'{" * n + "1" + "}'" * n,
    "chained calls": lambda n: "x = a" + ".b()" * n,
    "attributes": lambda n: "x = a" + ".b" * n,
    "subscripts": lambda n: "x = a" + "[0]" * n,
    "sums": lambda n: "x = " + "1 + " * n + "1",
    "signs": lambda n: "x = " + "-" * n + "1",
    "nots": lambda n: "x = " + "not " * n + "1",
    "ors": lambda n: "x = (" + "a or\n" * n + "b)",
    "conditions": lambda n: "x = " + "a if b else " * n + "1",
    "lambdas": lambda n: "x = " + "lambda: " * n + "1",
    "adjacent strings": lambda n: "x = (" + "'a'\n" * n + ")",
    "elifs": elifs,
    "behind a string": lambda n: "x = ')' * 3 + \"it's\" + '''\n'''\ny = " + "(" * n + "1" + ")" * n,
    "dotted import": lambda n: "import a" + ".b" * n,
}

HARMLESS: dict[str, Callable[[int], str]] = {
    "arguments": lambda n: "f(" + "1, " * n + ")",
    "comparisons": lambda n: "x = " + "a < " * n + "1",
    "targets": lambda n: "x = " * n + "1",
    "a long list": lambda n: "x = [\n" + "    f(a.b, -1, [2]),\n" * n + "]",
    "a long function": lambda n: "def f():\n" + "    a.b(1 + 2)[0] = not c\n" * n,
    "brackets in a string": lambda n: "x = '" + "(" * n + "'",
    "brackets in a raw string": lambda n: "x = rb'\\" + "(" * n + "'",
    "brackets in a docstring": lambda n: '"""' + "([{\n" * n + '"""',
    "brackets in a comment": lambda n: "# " + "(" * n + "\nx = 1  # don't " + "[" * n,
    "brackets in the text of an f-string": lambda n: "x = f'''" + "(-" * n + "{a}'''",
    "a rule of dashes": lambda n: "# " + "-" * n + "\nx = '" + "-" * n + "'",
    "f-strings side by side": lambda n: "".join(
        f'x = f"{{a["b"]}} ({{c!r:>{{d}}}}) {{{{{{e}}" # ({i}\n' for i in range(n)
    ),
    "ifs": lambda n: elifs(3) * n,
}


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("depth", [1000, 3000])
def test_what_kills_the_parser_is_refused_with_its_line(kind: str, depth: int) -> None:
    reason = refuse(("import os\n" + DEEP[kind](depth)).encode())
    assert reason is not None and "\n" not in reason
    assert "nested or chained too deeply" in reason and "line" in reason


@pytest.mark.parametrize("kind", [kind for kind in DEEP if kind != "never closed"])
def test_what_people_write_is_not_refused(kind: str) -> None:
    assert refuse((DEEP[kind](30) + "\n").encode() * 20) is None


@pytest.mark.parametrize("kind", HARMLESS)
def test_length_is_not_depth(kind: str) -> None:
    assert refuse(HARMLESS[kind](3000).encode()) is None


@pytest.mark.parametrize("kind", [kind for kind in DEEP if kind not in ("never closed", "f-strings in f-strings")])
def test_what_is_let_through_can_be_visited(kind: str) -> None:
    """At the edge of the limit LibCST parses, visits and finds positions in a fresh process."""
    depth = max(n for n in range(10, 251, 5) if refuse(DEEP[kind](n).encode()) is None)
    program = (
        "import sys, libcst\n"
        "from libcst.metadata import MetadataWrapper, PositionProvider\n"
        "MetadataWrapper(libcst.parse_module(sys.stdin.read()), unsafe_skip_copy=True).resolve(PositionProvider)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=DEEP[kind](depth),
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_line_is_the_line_of_the_depth() -> None:
    assert "line 3" in str(refuse(b"a = 1\r\nb = 2\r\nc = " + b"(" * 500))


def test_large_files_are_refused_with_their_size() -> None:
    reason = refuse(b"x = 1\n" * (MAX_BYTES // 5))
    assert reason is not None and "too large" in reason and "MB" in reason


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"\xef\xbb\xbf", b"'", b'"""', b"f'{", b"f'", b")" * 500, b"\\", b"\x00" * 300, b"\xff" * 300]
)
def test_odd_bytes_are_left_to_the_parser(data: bytes) -> None:
    assert refuse(data) is None
