"""How many known mistakes the tool finds in right real code that was made wrong, and what it says of harmless edits.

    python benchmarks/recall/run.py DEST [--only M2,M7] [--package NAME,...] [--limit N] [--list]

DEST holds one folder a package of code that uses FSDP and is right. Each mutation makes one edit at a time; a site
counts where the edit makes the mistake (`not_sites.txt` names those that were read and do not). Found means: the named
rule speaks of the edited function, and did not before. A negative mutation (N1 ...) changes nothing of what is right;
whatever is found after it and was not before is a false alarm. `--list` names each miss and each alarm with the place
in the right code. With `--limit`, so many sites a mutation and package are tried, spread over all that there are.
With `--results FOLDER`, what came of each package is kept there, and a package that is there is not run again: the
table can be made in several goes.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from recall.mutation import Mutant, Mutation, mutants
from recall.mutations import MUTATIONS, by_number
from recall.package import Outcome, Package


@dataclass(frozen=True)
class Tried:
    """One edit and what came of it: the place in the right code, and what was found besides, a line for each."""

    mutation: str
    place: str
    function: str
    found: bool
    entered: bool
    others: tuple[str, ...]


@dataclass
class Score:
    """What came of one mutation."""

    outcomes: list[Tried] = field(default_factory=list)

    @property
    def found(self) -> int:
        """How many were found."""
        return sum(outcome.found for outcome in self.outcomes)

    @property
    def alarms(self) -> int:
        """How many brought something besides."""
        return sum(bool(outcome.others) for outcome in self.outcomes)


def sample(all_of_them: list[Mutant], limit: int | None) -> list[Mutant]:
    """At most so many, spread evenly."""
    if limit is None or len(all_of_them) <= limit:
        return all_of_them
    return [all_of_them[at * len(all_of_them) // limit] for at in range(limit)]


@functools.cache
def no_sites() -> frozenset[tuple[str, str, str]]:
    """Mutation, end of the path, and function (with a colon and the row for one place in it) of what is no site."""
    lines = Path(__file__).with_name("not_sites.txt").read_text(encoding="utf-8").splitlines()
    parts = [line.split("\t") for line in lines if not line.startswith("#")]
    return frozenset((mutation, path, function) for mutation, path, function, _ in parts)


def is_none(mutant: Mutant) -> bool:
    """True where the edit was read in its place and makes no mistake."""
    places = (mutant.function, f"{mutant.function}:{mutant.row}")
    known = [path for name, path, at in no_sites() if name == mutant.mutation.name and at in places]
    return any(mutant.path.as_posix().endswith(f"/{path}") for path in known)


def tried(package: Package, mutation: Mutation, limit: int | None) -> Iterator[Outcome]:
    """The outcomes of one mutation in one package."""
    sites = [m for view in package.views for m in mutants(mutation, view) if package.right(m) and not is_none(m)]
    for mutant in sample(sites, limit):
        yield package.judge(mutant)


def measure(
    folders: Iterable[Path], chosen: list[Mutation], limit: int | None, keep: Path | None, results: Path | None
) -> Iterator[Tried]:
    """What came of each edit in all folders."""
    for folder in folders:
        kept = results / f"{folder.name}.json" if results is not None else None
        if kept is not None and kept.exists():
            yield from (Tried(**each) for each in json.loads(kept.read_text(encoding="utf-8")))
            continue
        began = time.perf_counter()
        package = Package(folder, keep / f"{folder.name}.pickle" if keep is not None else None)
        found = [told(outcome, folder.parent) for mutation in chosen for outcome in tried(package, mutation, limit)]
        spent = time.perf_counter() - began - package.seconds
        print(f"{folder.name}: right code {package.seconds:.0f} s, edits {spent:.0f} s", file=sys.stderr, flush=True)
        if kept is not None:
            kept.write_text(json.dumps([asdict(each) for each in found], indent=1), encoding="utf-8")
        yield from found


def told(outcome: Outcome, dest: Path) -> Tried:
    """An outcome without its trees."""
    mutant = outcome.mutant
    others = tuple(
        f"{each.code} at {Path(each.place.path).relative_to(dest)}:{each.place.row} {each.message}"
        for each in outcome.others
    )
    place = f"{mutant.path.relative_to(dest)}:{mutant.row}"
    return Tried(mutant.mutation.name, place, mutant.function, outcome.found, outcome.entered, others)


def lines(each: Tried, positive: bool) -> Iterator[str]:
    """A line for a miss, and one for each thing that was found besides."""
    if positive and not each.found:
        yield f"{each.mutation} missed {each.place} in {each.function}" + ("" if each.entered else " (no run)")
    for other in each.others:
        yield f"{each.mutation} alarm  {each.place} in {each.function}: {other}"


def table(scores: dict[str, Score], chosen: list[Mutation]) -> Iterator[str]:
    """The table, as Markdown."""
    yield "| mutation | edit | rule | sites | found | missed | other findings |"
    yield "| --- | --- | --- | ---: | ---: | ---: | ---: |"
    total = Score()
    for mutation in chosen:
        score = scores.get(mutation.name, Score())
        sites = len(score.outcomes)
        counts = (score.found, sites - score.found) if mutation.codes else ("", "")
        if mutation.codes:
            total.outcomes += score.outcomes
        codes = ", ".join(sorted(mutation.codes)) or "none"
        yield f"| {mutation.name} | {mutation.what} | {codes} | {sites} | {counts[0]} | {counts[1]} | {score.alarms} |"
    sites = len(total.outcomes)
    share = f" ({100 * total.found / sites:.0f} %)" if sites else ""
    yield f"| all | positive | | {sites} | {total.found}{share} | {sites - total.found} | {total.alarms} |"


def main() -> int:
    """Measures and prints; the exit code says whether all negative ones stayed silent."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path, metavar="DEST", help="the folder with one folder a package")
    parser.add_argument("--only", help="comma-separated names of mutations")
    parser.add_argument("--package", help="comma-separated names of packages")
    parser.add_argument("--without", help="comma-separated names of packages to leave out")
    parser.add_argument("--limit", type=int, help="at most so many sites of a mutation in a package")
    parser.add_argument("--list", action="store_true", help="name each miss and each false alarm")
    parser.add_argument("--results", type=Path, help="a folder for what came of each package")
    parser.add_argument(
        "--keep",
        type=Path,
        help="a folder for the runs of right code, to be used again: quick, but only while the tool stays alike",
    )
    args = parser.parse_args()
    wanted = args.only.split(",") if args.only else None
    chosen = sorted((m for m in MUTATIONS if wanted is None or m.name in wanted), key=by_number)
    folders = sorted(path for path in args.dest.resolve().iterdir() if path.is_dir())
    if args.package:
        folders = [path for path in folders if path.name in args.package.split(",")]
    if args.without:
        folders = [path for path in folders if path.name not in args.without.split(",")]
    sys.setrecursionlimit(12_000)
    for made in (args.keep, args.results):
        if made is not None:
            made.mkdir(parents=True, exist_ok=True)
    scores: dict[str, Score] = defaultdict(Score)
    positive = {m.name for m in chosen if m.codes}
    for each in measure(folders, chosen, args.limit, args.keep, args.results):
        scores[each.mutation].outcomes.append(each)
        for line in lines(each, each.mutation in positive) if args.list else ():
            print(line, flush=True)
    for line in table(scores, chosen):
        print(line)
    return int(any(scores[m.name].alarms for m in chosen if not m.codes and m.name in scores))


if __name__ == "__main__":
    sys.exit(main())
