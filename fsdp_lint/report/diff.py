"""Changes of files as a unified diff, which `patch` and `git apply` take."""

from __future__ import annotations

import difflib
import io
from collections.abc import Mapping
from pathlib import Path

from fsdp_lint.report.lines import short


def unified(changed: Mapping[Path, tuple[str, str]]) -> str:
    """The texts before and after, file by file; empty where nothing changes."""
    said = []
    for path, (before, after) in sorted(changed.items()):
        old, new = _rows(before), _rows(after)
        for line in difflib.unified_diff(old, new, short(str(path)), short(str(path))):
            said.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(said)


def _rows(text: str) -> list[str]:
    """Rows as `patch` counts them: a form feed or a lone CR ends none."""
    return io.StringIO(text, newline="\n").readlines()
