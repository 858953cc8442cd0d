"""Questions about the releases of torch, and of transformers, that a project allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet

RELEASES = (
    "1.13",
    "2.0",
    "2.1",
    "2.2",
    "2.3",
    "2.4",
    "2.5",
    "2.6",
    "2.7",
    "2.8",
    "2.9",
    "2.10",
    "2.11",
    "2.12",
    "2.13",
)
NEWEST = RELEASES[-1]


def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def allowed(torch: SpecifierSet | None) -> list[str]:
    """The releases that the range admits, oldest first; only the newest where there is no range."""
    if torch is None:
        return [NEWEST]
    found = [release for release in RELEASES if any(torch.contains(f"{release}.{patch}") for patch in range(4))]
    return found or [NEWEST]


def newest_is_between(torch: SpecifierSet | None, low: str, high: str) -> bool:
    """True when the newest release that the range admits is at least `low` and below `high`."""
    return _number(low) <= _number(allowed(torch)[-1]) < _number(high)


def oldest_is_below(torch: SpecifierSet | None, release: str) -> bool:
    """True when the range admits releases older than `release`."""
    return _number(allowed(torch)[0]) < _number(release)


def newest_is_below(torch: SpecifierSet | None, release: str) -> bool:
    """True when the range admits only releases older than `release`."""
    return _number(allowed(torch)[-1]) < _number(release)


def is_below(library: SpecifierSet | None, major: int, minor: int) -> bool:
    """True when a range of another library's releases ends before `major.minor`: none of the next ones is in it."""
    if library is None:
        return False
    later = [f"{major}.{minor + more}.{patch}" for more in range(60) for patch in range(5)]
    return not any(library.contains(one) for one in (*later, f"{major + 1}.0.0", f"{major + 1}.9.0", "999.0.0"))
