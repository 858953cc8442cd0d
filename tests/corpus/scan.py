"""Runs the tool over fetched packages and keeps the judged list of findings.

    python tests/corpus/scan.py DEST            prints the list anew, with the verdicts that are known
    python tests/corpus/scan.py DEST --write    writes it to tests/corpus/findings.txt

DEST holds one folder a package. Each line of the list: package, path, line, code, verdict (right, wrong, unsure or
unread) and one line why, with tabs between. The sharding sites seen and followed in the whole corpus go to stderr.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import sys
import time
from pathlib import Path

from fsdp_lint import engine, settings
from fsdp_lint.findings import Coverage, Report

LIST = Path(__file__).with_name("findings.txt")
Key = tuple[str, str, str, str]


def scan(folder: Path) -> tuple[str, Report, float]:
    """The report on one package, with default settings, and the seconds that it took."""
    began = time.perf_counter()
    report = engine.analyse([folder], settings.load(folder))
    return folder.name, report, time.perf_counter() - began


def verdicts() -> dict[Key, str]:
    """What the committed list says of each finding."""
    known: dict[Key, str] = {}
    if LIST.exists():
        for line in LIST.read_text().splitlines():
            package, path, row, code, rest = line.split("\t", 4)
            known[package, path, row, code] = rest
    return known


def main() -> int:
    """Prints or writes the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", help="comma-separated package names")
    parser.add_argument("--messages", action="store_true", help="print messages instead of verdicts")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    folders = sorted(p for p in args.dest.resolve().iterdir() if p.is_dir())
    if args.only:
        folders = [p for p in folders if p.name in args.only.split(",")]
    known = verdicts()
    lines: list[str] = []
    total = Coverage(0, 0, 0, 0)
    failed = 0
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        jobs = [pool.submit(scan, folder) for folder in folders]
        for job in concurrent.futures.as_completed(jobs):
            name, report, seconds = job.result()
            failed += any("crashed" in error for error in report.errors)
            for error in report.errors:
                print(f"{name}: {error}", file=sys.stderr)
            seen = report.coverage
            total = Coverage(
                total.files + seen.files,
                total.read + seen.read,
                total.sites + seen.sites,
                total.followed + seen.followed,
            )
            for finding in report.findings:
                path = Path(finding.place.path).relative_to(args.dest.resolve() / name).as_posix()
                key = (name, path, str(finding.place.row), finding.code)
                lines.append("\t".join([*key, finding.message if args.messages else known.get(key, "unread\t-")]))
                if not args.write:
                    print(lines[-1], flush=True)
            print(
                f"{name}: {len(report.findings)} findings, {seen.followed} of {seen.sites} sites followed, "
                f"{seen.read} of {seen.files} files, {seconds:.1f} s",
                file=sys.stderr,
            )
            for missed in seen.unfollowed:
                print(f"  not followed: {missed.place.path}:{missed.place.row} {missed.why}", file=sys.stderr)
    text = "".join(f"{line}\n" for line in sorted(lines))
    if args.write:
        LIST.write_text(text)
    print(
        f"{len(lines)} findings; sharding sites: {total.sites} seen, {total.followed} followed; {total.files} files",
        file=sys.stderr,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
