"""Which rules a word such as FSDP101, FSDP1 or optimizer-before-shard means."""

from __future__ import annotations

import re


def covers(selector: str, code: str, name: str) -> bool:
    """Whether `selector` means the rule: its name, its code, or the beginning of its code with all of its letters.

    All letters, because `F` is another tool's family and must not reach FSDP101.
    """
    word = selector.strip().upper()
    if word == name.upper():
        return True
    letters = re.match("[A-Z]*", code.upper())
    return bool(word) and code.upper().startswith(word) and letters is not None and len(word) >= letters.end()


def weight(selector: str, code: str, name: str) -> int:
    """How closely `selector` means the rule, 0 where it does not: a name or whole code weighs more than a family."""
    if not covers(selector, code, name):
        return 0
    return len(code) if selector.strip().upper() == name.upper() else len(selector.strip())
