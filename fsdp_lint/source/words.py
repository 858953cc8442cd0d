"""The byte prefilter: which files speak of FSDP at all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from fsdp_lint.source.discover import NOTEBOOK


def any_of(words: Iterable[str]) -> re.Pattern[bytes]:
    """A pattern that finds any of the words as a whole word in a file's bytes."""
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=lambda w: (-len(w), w)))
    return re.compile(rb"(?<![A-Za-z0-9_])(?:" + alternatives.encode() + rb")(?![A-Za-z0-9_])")


def spelled_out(path: Path, data: bytes) -> bytes:
    """A file's bytes as words can be looked for in them: an escaped line end in a notebook is no part of a word."""
    return data.replace(b"\\n", b"\n") if path.suffix == NOTEBOOK else data
