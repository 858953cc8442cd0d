"""Jupyter notebooks: their code cells as one program, and a changed program back into the cells it came from.

Each cell begins with a row `# %%`, a mark and the cell's number among all cells. What IPython reads and Python does not
(`%magic`, `!command`, `name?`, cells in other languages) becomes comments behind a mark, so that the rows of code keep
their columns and each row can be turned back. Format: https://nbformat.readthedocs.io/en/latest/format_description.html
"""

from __future__ import annotations

import ast
import functools
import io
import json
import re
import sys
import warnings
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdp_lint.source.discover import NOTEBOOK
from fsdp_lint.source.text import Unreadable

# Private-use characters: https://www.unicode.org/faq/private_use.html. A notebook that has them itself is refused.
_HIDDEN, _CELL = "\ue000", "\ue001"
_HEAD = re.compile(rf"^# %%{_CELL}(\d+)\n", re.MULTILINE)
_MARKED = re.compile(rf"(?:(?:pass|get_ipython\(\))?#|# %%){_HIDDEN}")

# Cell magics whose cell runs as Python among the names of the others. `%%timeit` keeps its names to itself.
_PYTHON_CELLS = frozenset({"capture", "debug", "prun", "px", "time"})
_CELL_MAGIC = re.compile(r"\s*%%(\w*)")
# A magic goes on where its row ends in a backslash; behind `=` there are none but `%` and `!`. Of those without
# their `%` only installing is common: https://ipython.readthedocs.io/en/stable/interactive/magics.html#magic-automagic
_MAGIC = re.compile(
    r"(?P<head>[ \t]*(?P<target>[\w.,\[\]*'\" \t]+=[ \t]*(?=[%!][^=]))?)"
    r"(?P<magic>(?:[%!?]|(?:pip|conda|mamba) +(?:un)?install\b|[\w.*]+\?\??[ \t]*(?=[\r\n]|\Z))"
    r"(?:[^\\\r\n]|\\(?:\r\n|[\s\S])?)*)"
)
_TOKEN = re.compile(
    r"#[^\r\n]*|'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^\\'\r\n])*'|\"(?:\\.|[^\\\"\r\n])*\""
    r"|\\(?:\r\n|.)|(?P<opening>[(\[{])|(?P<closing>[)\]}])|(?P<newline>\r\n|\r|\n)",
    re.DOTALL,
)

_JSON = json.JSONDecoder()
_SPACED = re.compile(r'\s*\{\s*"[^"]*": ')
_BLANKS = re.compile(r"[ \t\r\n]*")


def program(path: Path, text: str) -> str:
    """The program in a file's text: that of a notebook's cells, else the text itself. Raises Unreadable."""
    if path.suffix != NOTEBOOK:
        return text
    return "".join(f"# %%{_CELL}{cell.number}\n{cell.code}" for cell in _cells(text))


def with_program(path: Path, text: str, changed: str) -> str:
    """The file's text with a changed program: in a notebook only the `source` of cells that differ becomes another.

    Raises ValueError where the program has not the same cells any more.
    """
    if path.suffix != NOTEBOOK:
        return changed
    cells = _cells(text)
    above, *parts = _HEAD.split(changed)
    if above or parts[::2] != [str(cell.number) for cell in cells]:
        raise ValueError("edits cross the border of two cells")
    pieces: list[str] = []
    done = 0
    for cell, code in zip(cells, parts[1::2], strict=True):
        if code != cell.code:
            source = _MARKED.sub("", code)
            if not cell.source.endswith(("\n", "\r")):
                source = source.removesuffix("\n").removesuffix("\r")
            pieces += text[done : cell.start], _written(source, text, cell)
            done = cell.end
    return "".join([*pieces, text[done:]])


def cell_at(program: str, row: int) -> tuple[int, int]:
    """The number of the cell in which a row of a notebook's program lies, and how many rows of the program stand above
    the cell. The row behind a cell's last one is still its own."""
    numbers, heads = _heads(program)
    at = max(bisect_left(heads, row) - 1, 0)
    return numbers[at], heads[at]


@functools.lru_cache(maxsize=8)
def _heads(program: str) -> tuple[list[int], list[int]]:
    rows = enumerate(io.StringIO(program, newline=""), 1)
    found = [(int(head[1]), row) for row, text in rows if (head := _HEAD.match(text))]
    return [number for number, _ in found], [row for _, row in found]


@dataclass(frozen=True, slots=True)
class _Cell:
    """A code cell: its number among all cells, from 1, its `source` and where that stands in the notebook's text, and
    what it gives to the program."""

    number: int
    source: str
    start: int
    end: int
    code: str


@functools.lru_cache(maxsize=8)
def _cells(text: str) -> list[_Cell]:
    """The code cells of a notebook; none where it speaks another language than Python. Raises Unreadable."""
    try:
        book = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"is not a notebook: {error}") from None
    if not isinstance(book, dict) or not isinstance(book.get("nbformat"), int):
        raise Unreadable("is not a notebook: it names no nbformat")
    if book["nbformat"] < 4 or not isinstance(book.get("cells"), list):
        raise Unreadable(f"is a notebook of format {book['nbformat']}: only formats from 4 on are read")
    if not _is_python(book.get("metadata")):
        return []
    cells = []
    start = next(at for key, at, _, _ in reversed([*_items(text, text.index("{"))]) if key == "cells")
    for number, (_, at, _, cell) in enumerate(_items(text, start), 1):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code" or not _is_python(cell.get("metadata")):
            continue
        for key, first, last, value in _items(text, at):
            if key == "source":
                source = "".join(str(row) for row in value) if isinstance(value, list) else str(value)
                cells.append(_Cell(number, source, first, last, _code(number, source)))
    return cells


def _is_python(metadata: object) -> bool:
    """Whether the metadata of a notebook or a cell names no other language."""
    known = metadata if isinstance(metadata, dict) else {}
    for part, key in (("language_info", "name"), ("kernelspec", "language"), ("vscode", "languageId")):
        inner = known.get(part)
        if isinstance(inner, dict) and isinstance(inner.get(key), str):
            return bool(inner[key].lower().startswith("python"))
    return True


def _items(text: str, at: int) -> Iterator[tuple[object, int, int, object]]:
    """Key (None in a list), start, end and value of each member of the JSON object or list that begins at `at`."""
    closing = "}" if text[at] == "{" else "]"
    at = _after_blanks(text, at + 1)
    while text[at] != closing:
        key = None
        if closing == "}":
            key, at = _JSON.raw_decode(text, at)
            at = _after_blanks(text, _after_blanks(text, at) + 1)
        value, end = _JSON.raw_decode(text, at)
        yield key, at, end, value
        at = _after_blanks(text, end)
        if text[at] == ",":
            at = _after_blanks(text, at + 1)


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _code(number: int, source: str) -> str:
    """What a cell gives to the program, ended by a line end. Raises Unreadable where that is not Python."""
    if _HIDDEN in source or _CELL in source:
        raise Unreadable(f"cannot be read: cell {number} holds U+E000 or U+E001")
    code = _without_magics(source)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Each cell alone: in one program, the indented rows of one cell would go on with the block of another.
            ast.parse(code)
    except (SyntaxError, ValueError) as error:
        where = f", line {error.lineno}, column {error.offset}" if isinstance(error, SyntaxError) else f": {error}"
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        raise Unreadable(f"is not valid Python {version}: cell {number}{where}") from None
    except (RecursionError, MemoryError):
        raise Unreadable(f"is nested too deeply to be parsed: cell {number}") from None
    return code + "\n" if code and not code.endswith(("\n", "\r")) else code


def _without_magics(source: str) -> str:
    """The source with what is not Python behind marks."""
    language = _CELL_MAGIC.match(source)
    if language and language[1] not in _PYTHON_CELLS:
        return "".join(f"# %%{_HIDDEN}{row}" for row in _rows(source))
    pieces: list[str] = []
    at = 0
    while at < len(source):
        magic = _MAGIC.match(source, at)
        end = magic.end() if magic else _end_of_statement(source, at)
        if magic:
            first, *others = _rows(magic["magic"])
            instead = "get_ipython()#" if magic["target"] else "pass#" if magic["head"] else "# %%"
            pieces += magic["head"], instead, _HIDDEN, first, *(f"# %%{_HIDDEN}{row}" for row in others)
        else:
            pieces.append(source[at:end])
        at = end
    return "".join(pieces)


def _end_of_statement(source: str, at: int) -> int:
    """Where the next row begins that is not inside brackets or a string."""
    depth = 0
    for token in _TOKEN.finditer(source, at):
        depth += (token.lastgroup == "opening") - (token.lastgroup == "closing")
        if token.lastgroup == "newline" and depth <= 0:
            return token.end()
    return len(source)


def _rows(text: str) -> list[str]:
    return io.StringIO(text, newline="").readlines()


def _written(source: str, text: str, cell: _Cell) -> str:
    """A changed `source` as JSON in the shape that it has in the notebook; rows that stay are spelled as they were."""
    escaped = text.isascii()
    if text[cell.start] == '"':
        return json.dumps(source, ensure_ascii=escaped)
    items = [*_items(text, cell.start)]
    spelled = {value: text[first:last] for _, first, last, value in items}
    rows = [spelled[row] if row in spelled else json.dumps(row, ensure_ascii=escaped) for row in _rows(source)]
    if not rows or not items:
        return f"[{', '.join(rows)}]"
    opening, closing = text[cell.start : items[0][1]], text[items[-1][2] : cell.end]
    comma = "," + (opening[1:] or (" " if _SPACED.match(text) else ""))
    if len(items) > 1:
        comma = text[items[0][2] : items[1][1]]
    return opening + comma.join(rows) + closing
