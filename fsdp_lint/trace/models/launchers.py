"""Which programs a file of settings for accelerate's launcher is for: nothing says so but where the two lie."""

from __future__ import annotations

import re
from pathlib import Path

PROGRAMS = frozenset({"src", "scripts", "script", "train", "training"})
SETTINGS_FOLDER = re.compile(r"\.?((accelerate|fsdp|launch(er)?)[_-]?)?(conf|config)s?|accelerate", re.IGNORECASE)


def belongs(launcher: Path, program: Path) -> bool:
    """True where a file for the launcher lies with a program: in its folder, in a folder of settings beside it, or
    above one that is for programs only by its name."""
    home = launcher.parent.parent if SETTINGS_FOLDER.fullmatch(launcher.parent.name) else launcher.parent
    below = program.parent.name in PROGRAMS and program.parent.parent == home
    return program.parent in (launcher.parent, home) or below
