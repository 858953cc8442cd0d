"""The byte prefilter: which files speak of FSDP at all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fsdp_lint.source.discover import NOTEBOOK


class Words:
    """Words that are looked for in the bytes of files, as whole words."""

    def __init__(self, words: Iterable[str]) -> None:
        given = sorted({*words}, key=lambda word: (-len(word), word))
        # Plain texts are found ten times as fast as a pattern with several beginnings.
        self._texts = [word.encode() for word in given if not any(one != word and one in word for one in given)]
        alternatives = "|".join(map(re.escape, given)).encode()
        self._pattern = re.compile(rb"(?<![A-Za-z0-9_])(?:" + alternatives + rb")(?![A-Za-z0-9_])")

    def are_in(self, data: bytes) -> bool:
        """Whether one of them is."""
        return any(text in data for text in self._texts) and self._pattern.search(data) is not None


def spelled_out(path: Path, data: bytes) -> bytes:
    """A file's bytes as words can be looked for in them: an escaped line end in a notebook is no part of a word."""
    return data.replace(b"\\n", b"\n") if path.suffix == NOTEBOOK else data
