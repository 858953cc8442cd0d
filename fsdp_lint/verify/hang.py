"""The verdict on a hang: from the ranks' logs of collectives, the first place where they differ."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fsdp_lint.verify.measures import Call


def read_calls(notes: Path, ranks: int) -> list[list[Call]]:
    """The collectives that each rank began, in order."""
    found = []
    for rank in range(ranks):
        log = notes / f"{rank}.calls"
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
        fields = [line.split("\t") for line in lines]
        found.append([Call(kind, int(size), group, site) for kind, size, group, site in fields])
    return found


def first_difference(calls: Sequence[Sequence[Call]]) -> str | None:
    """Where two ranks went different ways, in words; None where all made the same collectives in each group."""
    found = side_by_side(calls)
    if found is None:
        return None
    members, at = found
    seen = _at(members, at)
    first, *others = sorted(seen, key=lambda rank: (seen[rank] is None, rank))
    other = next(rank for rank in others if _shape(seen[rank]) != _shape(seen[first]))
    return f"rank {first} {_told(seen[first], members[first], True)}, " + (
        f"rank {other} {_told(seen[other], members[other], False)}"
    )


def two_ways(calls: Sequence[Sequence[Call]]) -> bool:
    """Whether two ranks began different collectives at one place: one that has ended begins none."""
    found = side_by_side(calls)
    return found is not None and len({_shape(call) for call in _at(*found).values() if call is not None}) > 1


def side_by_side(calls: Sequence[Sequence[Call]]) -> tuple[dict[int, list[Call]], int] | None:
    """The logs by rank of the first group whose ranks went different ways, and the place where they did."""
    for group in sorted({call.group for each in calls for call in each}):
        members = {
            rank: own for rank, each in enumerate(calls) if (own := [call for call in each if call.group == group])
        }
        if group in _MAIN:
            members = {rank: [call for call in each if call.group == group] for rank, each in enumerate(calls)}
        for at in range(max(map(len, members.values()), default=0)):
            if len({_shape(call) for call in _at(members, at).values()}) > 1:
                return members, at
    return None


_MAIN = ("0", "")  # the name of the group of all ranks


def _at(members: dict[int, list[Call]], at: int) -> dict[int, Call | None]:
    return {rank: each[at] if at < len(each) else None for rank, each in members.items()}


def _shape(call: Call | None) -> tuple[str, int] | None:
    return None if call is None else (call.kind, call.bytes)


def _told(call: Call | None, own: Sequence[Call], first: bool) -> str:
    if call is None:
        last = f" after {own[-1].kind} at {short(own[-1].site)}" if own else ""
        return f"made no further collective{last}"
    verb = "is in" if first else "went on to"
    return f"{verb} {call.kind} ({call.bytes:,} bytes) at {short(call.site)}"


def short(site: str) -> str:
    """A site with the file's name only."""
    path, _, line = site.rpartition(":")
    return f"{Path(path).name}:{line}" if path else site or "an unknown line"
