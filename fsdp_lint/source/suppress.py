"""Suppression: which findings the author of a file took back, read from its comments and never from its strings."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator

from fsdp_lint.selectors import covers

# The forms that ruff and flake8 read. Only words shaped like a code count, so that prose behind them ("F401, FSDP needs
# this import") hides nothing.
_NOQA = re.compile(r"#\s*noqa\b(?P<colon>\s*:)?(?P<codes>(?:[\s,]*[A-Z]+[0-9]+\b)*)", re.IGNORECASE)
_OURS = re.compile(
    r"#\s*fsdp-lint\s*:\s*(?P<verb>ignore-file|ignore)\b(?!-)\s*(?P<list>\[(?P<words>[^\]]*)\])?", re.IGNORECASE
)

_QUOTED = re.compile(r""""(?:\\.|[^"\\])*"|'[^']*'""")

_ALL: None = None
_Selectors = tuple[str, ...] | None


class Suppressions:
    """The suppression comments of one file: a program, or `settings`, where a `#` after a space begins a comment."""

    def __init__(self, text: str, settings: bool = False) -> None:
        self._rows: dict[int, list[_Selectors]] = {}
        self._file: list[_Selectors] = []
        lowered = text.lower()
        if "noqa" in lowered or "fsdp-lint" in lowered:
            for row, comment in _comments_in_settings(text) if settings else _comments(text):
                self._read(row, comment)

    def _read(self, row: int, comment: str) -> None:
        for noqa in _NOQA.finditer(comment):
            codes = tuple(re.findall(r"[A-Z]+[0-9]+", noqa["codes"], re.IGNORECASE))
            if codes or not noqa["colon"]:
                self._rows.setdefault(row, []).append(codes or _ALL)
        for ours in _OURS.finditer(comment):
            words = tuple(word.strip() for word in ours["words"].split(",")) if ours["list"] else _ALL
            scope = self._file if ours["verb"].lower() == "ignore-file" else self._rows.setdefault(row, [])
            scope.append(words)

    def hides(self, code: str, name: str, first_row: int, last_row: int) -> bool:
        """Whether a finding of this rule in the statement of these rows (from 1, both included) is taken back."""
        said = list(self._file)
        for row in range(first_row, last_row + 1):
            said += self._rows.get(row, [])
        return any(words is _ALL or any(covers(word, code, name) for word in words) for words in said)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Row and text of each comment, up to where the tokenizer gives up: a file that it dislikes may still be Python."""
    lines = io.StringIO(text, newline=None)
    try:
        for token in tokenize.generate_tokens(lines.readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    except (tokenize.TokenError, SyntaxError):
        return


def _comments_in_settings(text: str) -> Iterator[tuple[int, str]]:
    for row, line in enumerate(io.StringIO(text, newline=None), 1):
        found = re.search(r"(?:^|\s)#", _QUOTED.sub(lambda quoted: "x" * len(quoted[0]), line))
        if found is not None:
            yield row, line[found.start() :].strip()
