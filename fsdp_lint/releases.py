"""How a rule's programs end on each release of torch, kept as JSON and shown on the rule's page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

HOLDS, ENDS, SILENT, ERROR, HANG = "holds", "ends", "silent", "error", "hang"
UNKNOWN = "unknown"
_WORDS = {
    HOLDS: "right",
    ENDS: "no error",
    SILENT: "wrong without an error",
    ERROR: "an error",
    HANG: "a hang",
    UNKNOWN: "nothing, as its right twin fails there, too",
}
_LENGTH = 150


@dataclass(frozen=True)
class Ended:
    """How a run ended: the program's probe holds (ENDS: and asks for no more than its end) or fails silently, there is
    an error, or ranks wait in vain; UNKNOWN where it says nothing of the mistake. `why` is what was said of it.
    """

    kind: str
    why: str

    @property
    def symptom(self) -> tuple[str, str]:
        """What a user would tell apart: the way it ends, and the type of the error."""
        return self.kind, self.why.partition(":")[0] if self.kind == ERROR else ""

    def __str__(self) -> str:
        text = self.why.replace("`", "'")
        said = f": `{text if len(text) <= _LENGTH else text[: _LENGTH - 3] + '...'}`" if self.kind == ERROR else ""
        return _WORDS[self.kind] + said


Kept = Mapping[str, Mapping[str, Ended]]  # by release, the oldest first, and by program


def load(folder: Path) -> Kept:
    """What was kept of each release in this folder."""
    paths = sorted(folder.glob("*.json"), key=lambda path: [int(part) for part in path.stem.split(".")])
    return {
        path.stem: {name: Ended(*told) for name, told in json.loads(path.read_text(encoding="utf-8")).items()}
        for path in paths
    }


def mistakes(kept: Kept, rule: str) -> list[str]:
    """The wrong programs of a rule that were run."""
    start = f"{rule.replace('-', '_')}/bad_"
    return sorted({name for found in kept.values() for name in found if name.startswith(start)})


def shown(found: Mapping[str, Ended], bad: str) -> Ended:
    """How a mistake shows on one release; UNKNOWN where the right twin of its program fails there in the same way, or
    stops."""
    twins = [found[name] for word in ("good", "fixed") if (name := bad.replace("/bad_", f"/{word}_")) in found]
    right = any(twin.kind in (HOLDS, ENDS) for twin in twins)
    if bad in found and (right or (found[bad].kind == ERROR and any(twin.kind == SILENT for twin in twins))):
        return found[bad]
    return Ended(UNKNOWN, twins[0].why if twins else "")


def spans(kept: Kept, bad: str) -> list[tuple[str, Ended]]:
    """The ranges of releases ("2.4 to 2.6") on which a mistake shows in one way, and how; the oldest first."""
    each = [(release.rpartition(".")[0], shown(found, bad)) for release, found in kept.items()]
    parts = [list(part) for _, part in groupby(each, key=lambda item: item[1].symptom)]
    return [(" to ".join(dict.fromkeys((part[0][0], part[-1][0]))), part[-1][1]) for part in parts]


def as_markdown(kept: Kept, rule: str) -> str:
    """What runs of a rule's simplest wrong programs show, by release; nothing where none was run."""
    lines = []
    for bad in mistakes(kept, rule):
        found = spans(kept, bad)
        told = "; ".join(f"{releases}: {ended}" for releases, ended in found)
        lines.append(f"- `{bad.rpartition('/')[2]}` on torch {told}.")
    return "\n".join(lines)
