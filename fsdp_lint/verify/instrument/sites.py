"""Which line of the user's program is running."""

from __future__ import annotations

import os
import sys
import sysconfig
import traceback
from types import FrameType, TracebackType

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_LIBRARIES = tuple(
    os.path.realpath(path) + os.sep
    for path in {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
)


class Sites:
    """Tells the program's own files from libraries: all that is not installed, and what lies beside the entry."""

    def __init__(self, entry: str) -> None:
        self.home = _home(entry)
        self._known: dict[str, bool] = {}

    def own(self, filename: str) -> bool:
        """Whether a code object's file is the program's."""
        known = self._known.get(filename)
        if known is None:
            known = self._known[filename] = self._is_own(filename)
        return known

    def _is_own(self, filename: str) -> bool:
        if filename.startswith("<"):
            return False
        path = os.path.realpath(filename)
        if path.startswith(_OURS + os.sep):
            return False
        return path.startswith(self.home) or not (path.startswith(_LIBRARIES) or "/site-packages/" in path)

    def here(self) -> str:
        """The innermost line of the program that is running in this thread, as path:line; "" where there is none."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if self.own(frame.f_code.co_filename):
                return f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def of(self, trace: TracebackType | None) -> str:
        """The innermost line of the program in a traceback."""
        return next(reversed(self.all_of(trace)), "")

    def all_of(self, trace: TracebackType | None) -> list[str]:
        """All lines of the program in a traceback, the innermost last."""
        return [f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(trace) if self.own(f.filename)]


def _home(entry: str) -> str:
    """The folder of the entry, or of the outermost package that it is in: its own even where it is installed."""
    folder = os.path.dirname(os.path.realpath(entry))
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        above = os.path.dirname(folder)
        if not os.path.isfile(os.path.join(above, "__init__.py")):
            break
        folder = above
    return folder + os.sep


def inside(*places: str) -> bool:
    """Whether a function of this name and file ending, as "file.py:function", is running in this thread."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        for place in places:
            file, _, name = place.rpartition(":")
            if code.co_filename.endswith(file) and name in ("", code.co_name):
                return True
        frame = frame.f_back
    return False
