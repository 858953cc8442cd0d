"""What was mapped for a program that was written for other devices, each with the line that asked for it."""

from __future__ import annotations

import sys

from fsdp_lint.verify.instrument.sites import Sites


class Mapping:
    """What was mapped, each with the line that asked for it first."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self._noted: dict[str, str] = {}

    def note(self, what: str) -> None:
        """This was asked for here."""
        if what not in self._noted:
            self._noted[what] = self.sites.here()

    @property
    def told(self) -> list[str]:
        """One line each: what, and where."""
        return [f"{what}\t{site}" for what, site in self._noted.items() if site]


def asked_by_torch() -> bool:
    """Whether torch asks for its own sake: it is told the truth."""
    name = sys._getframe(2).f_globals.get("__name__", "")
    return bool(name == "torch" or name.startswith("torch."))
