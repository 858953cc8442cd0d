"""Every wrong fixture program through `fsdp-lint verify`: what does a run say about its mistake?

    python benchmarks/verify/fixtures.py [RULE...] [--mode cpu]

Prints one line a program: the verdict on the finding of the folder's rule, and the evidence; at the end the table of
docs/verify.md, by rule. A program that has no fix of ours is proved with its right twin as the fix, where there is one
of the same name.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fsdp_lint.settings import Settings
from fsdp_lint.verify.plan import CannotRun, Target
from fsdp_lint.verify.proof import Wish, prove

FIXTURES = Path(__file__).parents[2] / "fixtures"


def programs(rules: list[str]) -> Iterator[tuple[str, Path]]:
    """The entry of each wrong program, with the name of its folder's rule."""
    for folder in sorted(FIXTURES.iterdir()):
        rule = folder.name.replace("_", "-")
        if folder.is_dir() and (not rules or rule in rules):
            for path in sorted(folder.glob("bad_*")):
                entry = path / "train.py" if path.is_dir() else path
                if entry.is_file() and "\n# skip = " not in entry.read_text(encoding="utf-8") and _expects(path, rule):
                    yield rule, entry


def _expects(path: Path, rule: str) -> bool:
    """Whether a finding of the rule is expected in the program."""
    files = path.rglob("*.py") if path.is_dir() else [path]
    return any(f"# expect: {rule}" in file.read_text(encoding="utf-8") for file in files)


def twin(entry: Path) -> str | None:
    """The right program that differs from this one in little, or None."""
    name = entry.parent.name if entry.name == "train.py" else entry.name
    holder = entry.parent.parent if entry.name == "train.py" else entry.parent
    for word in ("fixed_", "good_"):
        path = holder / name.replace("bad_", word, 1)
        if path.exists():
            return str(path)
    return None


def verdict(rule: str, entry: Path, mode: str) -> tuple[str, str]:
    """The best verdict on a finding of this rule, and the evidence."""
    settings = Settings(entry.parent)
    for after in (None, twin(entry)):
        wish = Wish(Target(str(entry)), mode=mode, timeout=60, patience=5, after=after)
        try:
            proof = prove(wish, settings)
        except CannotRun as error:
            return "cannot run", str(error)
        found = [v for v in proof.verdicts if v.finding.name == rule]
        if not found:
            return "no finding", proof.before.ended
        best = min(found, key=lambda v: _ORDER.index(v.verdict))
        if best.verdict not in ("seen", "not observable") or twin(entry) is None:
            break
    alone = _ALONE if best.verdict == "seen" and proof.after is None else ""
    return best.verdict, alone + best.because


_ALONE = "no fix of ours and no right twin: "
_ORDER = ["confirmed", "seen", "not run", "not seen", "not observable"]


def table(told: list[tuple[str, str, str]]) -> Iterator[str]:
    """The verdicts by rule, as Markdown, with the first reason why one says nothing. Where one is "seen", the program
    has no fix of ours and no right twin, or the evidence stands here."""
    yield "| rule | confirmed | seen | not seen | not observable | why |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for rule in dict.fromkeys(rule for rule, _, _ in told):
        mine = [(said, why) for each, said, why in told if each == rule]
        counts = Counter(said for said, _ in mine)
        why = next((why for said, why in mine if said != "confirmed" and not why.startswith(_ALONE)), "")
        others = sum(counts[each] for each in counts if each not in _ORDER or each == "not run")
        cells = [str(counts[each] or "") for each in ("confirmed", "seen", "not seen")]
        told_why = " ".join(why.split()).replace("|", "\\|")[:160]
        yield f"| {rule} | {' | '.join(cells)} | {counts['not observable'] + others or ''} | {told_why} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rules", nargs="*")
    parser.add_argument("--mode", default="cpu")
    given = parser.parse_args()
    told: list[tuple[str, str, str]] = []
    for rule, entry in programs(given.rules):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            said, why = verdict(rule, entry, given.mode)
            os.chdir("/")
        told.append((rule, said, why))
        print(f"{entry.relative_to(FIXTURES)}: {said} ({time.monotonic() - began:.0f} s)\n    {why}", flush=True)
    print(*table(told), sep="\n")
    counts = Counter(said for _, said, _ in told)
    print(", ".join(f"{count} {said}" for said, count in counts.most_common()), file=sys.stderr)


if __name__ == "__main__":
    main()
