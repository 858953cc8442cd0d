"""The byte prefilter: which files speak of FSDP at all."""

from __future__ import annotations

import re
from collections.abc import Iterable


def any_of(words: Iterable[str]) -> re.Pattern[bytes]:
    """A pattern that finds any of the words as a whole word in a file's bytes."""
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=lambda w: (-len(w), w)))
    return re.compile(rb"(?<![A-Za-z0-9_])(?:" + alternatives.encode() + rb")(?![A-Za-z0-9_])")
