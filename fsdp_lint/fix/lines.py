"""A text as numbered rows with their line ends, so that spans can be cut out of it."""

from __future__ import annotations

import io
from pathlib import Path

from fsdp_lint.findings import Place, TextEdit


class Refused(Exception):
    """An edit that cannot be made simply: the finding then has no fix."""


class Lines:
    """Rows count from 1. Only CR, LF and CRLF end a row: `str.splitlines` also splits at form feeds and others."""

    def __init__(self, path: Path, text: str, newline: str = "\n", step: str = "    ") -> None:
        self.path = path
        self.step = step
        self.rows = io.StringIO(text, newline="").readlines()
        self.newline = newline

    def __len__(self) -> int:
        return len(self.rows)

    def content(self, row: int) -> str:
        """A row without its line end."""
        return self.rows[row - 1].rstrip("\r\n")

    def indent(self, row: int) -> str:
        """The white space that a row begins with."""
        content = self.content(row)
        return content[: len(content) - len(content.lstrip())]

    def is_blank(self, row: int) -> bool:
        """Whether the row exists and holds white space at most."""
        return 1 <= row <= len(self.rows) and not self.content(row).strip()

    def is_comment(self, row: int) -> bool:
        """Whether the row exists and holds nothing but a comment."""
        return 1 <= row <= len(self.rows) and self.content(row).lstrip().startswith("#")

    def between(self, row: int, column: int, end_row: int, end_column: int) -> str:
        """The text from one place to another."""
        if row == end_row:
            return self.rows[row - 1][column - 1 : end_column - 1]
        middle = self.rows[row : end_row - 1]
        return "".join([self.rows[row - 1][column - 1 :], *middle, self.rows[end_row - 1][: end_column - 1]])

    def cut(self, first: int, last: int) -> TextEdit:
        """The edit that takes away whole rows, `last` included."""
        return self.swap(first, last, [])

    def swap(self, first: int, last: int, lines: list[str]) -> TextEdit:
        """The edit that puts new rows, each with its line end, in the place of whole rows, `last` included."""
        content = "".join(lines)
        if last == len(self.rows) and not self.rows[-1].endswith(("\n", "\r")):
            place = Place(str(self.path), first, 1, last, len(self.rows[-1]) + 1)
            return TextEdit(place, content.removesuffix("\n").removesuffix("\r"))
        return TextEdit(Place(str(self.path), first, 1, last + 1, 1), content)

    def insert(self, row: int, lines: list[str]) -> TextEdit:
        """The edit that puts new rows, each with its line end, above `row`; the row after the last one will do."""
        content = "".join(lines)
        if row > len(self.rows) and self.rows and not self.rows[-1].endswith(("\n", "\r")):
            column = len(self.rows[-1]) + 1
            place = Place(str(self.path), row - 1, column, row - 1, column)
            return TextEdit(place, self.newline + content.removesuffix("\n").removesuffix("\r"))
        return TextEdit(Place(str(self.path), row, 1, row, 1), content)

    def written(self, text: str, indent: str) -> list[str]:
        """`text` as rows with this file's line ends, each indented; four blanks at its head become the file's step."""
        rows = []
        # A text that quotes the file has the file's line ends already.
        for line in text.replace("\r\n", "\n").strip("\n").split("\n"):
            depth = (len(line) - len(line.lstrip(" "))) // 4
            content = indent + self.step * depth + line[4 * depth :]
            rows.append((content if line.strip() else "") + self.newline)
        return rows
