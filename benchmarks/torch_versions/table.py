"""Writes the tables of docs/torch-versions.md from what `releases.py` has kept.

python benchmarks/torch_versions/table.py [--check]        # --check: only say whether the page is up to date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fsdp_lint.releases import ENDS, HOLDS, UNKNOWN, Kept, load, shown, spans

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "torch-versions.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
CELLS = {HOLDS: "no", ENDS: "ends", UNKNOWN: "-"}


def table(kept: Kept, programs: Sequence[str]) -> Iterator[str]:
    """One row a program, one column a release."""
    releases = [release.rpartition(".")[0] for release in kept]
    yield f"| rule | program | {' | '.join(releases)} |"
    yield f"| --- | --- |{' --- |' * len(releases)}"
    for bad in programs:
        kinds = [shown(found, bad).kind for found in kept.values()]
        cells = " | ".join(CELLS.get(kind, kind) for kind in kinds)
        yield f"| [{_rule(bad)}](rules/{_rule(bad)}.md) | {bad.rpartition('/')[2]} | {cells} |"


def differences(kept: Kept, programs: Sequence[str]) -> Iterator[str]:
    """What differs, with what was said in each range of releases."""
    for bad in programs:
        found = spans(kept, bad)
        if len(found) > 1:
            yield f"- **{_rule(bad)}**, `{bad.rpartition('/')[2]}`:"
            yield from (f"  - {releases}: {ended}" for releases, ended in found)


def _rule(bad: str) -> str:
    return bad.partition("/")[0].replace("_", "-")


def page(text: str) -> str:
    """The page with its tables made anew."""
    kept = load(DOCS / "records" / "torch")
    programs = sorted({name for found in kept.values() for name in found if "/bad_" in name})
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [BEGIN, "", *table(kept, programs), "", "Where releases differ:", "", *differences(kept, programs), "", END]
    return before + "\n".join(lines) + after


def main() -> None:
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if old == new else f"{PAGE}: not what was kept; run this without --check")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
