"""Writes docs/torch-versions.md from what `releases.py` has kept: rule by release, and where a release differs.

python benchmarks/torch_versions/table.py [--check]        # --check: only say whether the page is up to date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from choose import REPO, Pair, pairs
from judge import ERROR, HOLDS

PAGE = REPO / "docs" / "torch-versions.md"
RESULTS = Path(__file__).resolve().parent / "results"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
RIGHT, ENDS, NOT_RUN = "no", "ends", "-"

WORDS = {RIGHT: "right", ENDS: "no error", NOT_RUN: "the right twin is not right, either"}

Results = dict[str, dict[str, list[str]]]


def read() -> Results:
    """By release, oldest first, and program: how it ended and what was said."""
    paths = sorted(RESULTS.glob("*.json"), key=lambda path: [int(part) for part in path.stem.split(".")])
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def cell(found: dict[str, list[str]], pair: Pair) -> tuple[str, str]:
    """How the mistake shows on a release, and what is said then; or why it cannot be seen there."""
    if pair.bad not in found or pair.twin not in found:
        return NOT_RUN, "not run"
    kind, why = found[pair.bad]
    right, trouble = found[pair.twin]
    if right != HOLDS:
        return NOT_RUN, trouble
    if kind == HOLDS:
        return (ENDS if pair.probe == "ends" else RIGHT), why
    return kind, why


def table(results: Results, chosen: Sequence[Pair]) -> Iterator[str]:
    """One row a rule and generation of FSDP, one column a release."""
    releases = [release.rpartition(".")[0] for release in results]
    yield f"| rule | FSDP | {' | '.join(releases)} |"
    yield f"| --- | --- |{' --- |' * len(releases)}"
    for pair in chosen:
        cells = [cell(found, pair)[0] for found in results.values()]
        yield f"| [{pair.rule}](rules/{pair.rule}.md) | {pair.generation} | {' | '.join(cells)} |"


def differences(results: Results, chosen: Sequence[Pair]) -> Iterator[str]:
    """The rows that are not alike all through, with what was said in each range of releases."""
    for pair in chosen:
        cells = {release: cell(found, pair) for release, found in results.items()}
        spans = [list(span) for _, span in groupby(cells.items(), key=lambda item: _symptom(*item[1]))]
        if len(spans) > 1:
            yield f"- **{pair.rule}**, FSDP{pair.generation}, `{pair.bad}`:"
            for span in spans:
                kind, why = span[-1][1]
                releases = sorted({span[0][0], span[-1][0]}, key=list(cells).index)
                said = f": `{_short(why)}`" if kind == ERROR or (kind == NOT_RUN and why) else ""
                yield f"  - {' to '.join(releases)}: {WORDS.get(kind, kind)}{said}"


def _symptom(kind: str, why: str) -> tuple[str, str]:
    return kind, why.partition(":")[0] if kind == ERROR else ""


def _short(why: str) -> str:
    text = why.replace("`", "'")
    return text if len(text) <= 110 else text[:107] + "..."


def page(text: str) -> str:
    """The page with its tables made anew."""
    results, chosen = read(), list(pairs([]))
    chosen.sort(key=lambda pair: (pair.rule, pair.generation))
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    lines = [
        BEGIN,
        "",
        *table(results, chosen),
        "",
        "Where releases differ:",
        "",
        *differences(results, chosen),
        "",
        END,
    ]
    return before + "\n".join(lines) + after


def main() -> None:
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if old == new else f"{PAGE}: not what the results say; run this without --check")
    PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
