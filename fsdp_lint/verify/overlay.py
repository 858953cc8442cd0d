"""An import overlay: other texts stand in for files of the program, in this process and in those that it spawns.

A fixed copy of a script beside an editable-installed package would import the package's unfixed files. So nothing is
copied: every import of an overlaid file, and the script itself, is compiled from the other text under the file's own
name, and each text that was really loaded is written down by its hash.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import io
import json
import linecache
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, Any

VARIABLE = "FSDP_LINT_OVERLAY"
_HOOK = '''\
"""Gives spawned Python processes the overlay, then does what this file hides."""
import importlib.machinery, importlib.util, os, sys
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = {paths!r}
try:
    from fsdp_lint.verify import overlay
    overlay.from_environment()
finally:
    del sys.path[:{count}]
others = [path for path in sys.path if os.path.abspath(path or ".") != here]
spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
'''


class Overlay:
    """Texts by real path, and the folder in which loaded files are written down."""

    def __init__(self, texts: Mapping[str, bytes], notes: Path) -> None:
        self.texts = dict(texts)
        self.notes = notes

    def save(self) -> dict[str, str]:
        """Writes the overlay down for processes to come; the variables that they need for it."""
        folder = self.notes / "overlay"
        folder.mkdir()
        listed = {}
        for number, (path, text) in enumerate(sorted(self.texts.items())):
            (folder / f"{number}.py").write_bytes(text)
            listed[path] = f"{number}.py"
        (folder / "files.json").write_text(json.dumps(listed), encoding="utf-8")
        paths = [str(Path(__file__).parents[2])]
        hook = _HOOK.format(paths=paths, count=len(paths))
        (folder / "sitecustomize.py").write_text(hook, encoding="utf-8")
        inherited = os.environ.get("PYTHONPATH", "")
        return {
            VARIABLE: str(self.notes),
            "PYTHONPATH": os.pathsep.join(path for path in (str(folder), inherited) if path),
        }

    def get(self, path: str) -> bytes | None:
        """The text that stands in for this file, which is written down as loaded; None where the file stands."""
        text = self.texts.get(os.path.realpath(path))
        if text is not None:
            told = json.dumps({"path": os.path.realpath(path), "sha256": hashlib.sha256(text).hexdigest()})
            with (self.notes / f"loaded-{os.getpid()}").open("a", encoding="utf-8") as file:
                file.write(told + "\n")
            lines = io.TextIOWrapper(io.BytesIO(text), encoding=_encoding(text)).read().splitlines(keepends=True)
            linecache.cache[path] = (len(text), None, lines, path)
        return text

    def install(self) -> None:
        """From here on this process imports the other texts."""
        if self.texts:
            sys.meta_path.insert(0, _Finder(self))
            self._stand_in_for_scripts()

    def _stand_in_for_scripts(self) -> None:
        """A spawned worker runs the main script again, by its path."""
        real = io.open_code

        def open_code(path: str) -> IO[bytes]:
            text = self.get(path) if isinstance(path, str) and path.endswith(".py") else None
            return real(path) if text is None else io.BytesIO(text)

        io.open_code = open_code


def _encoding(text: bytes) -> str:
    import tokenize

    return tokenize.detect_encoding(io.BytesIO(text).readline)[0]


def from_environment() -> None:
    """Installs the overlay of the process that started this one, if it had one."""
    notes = os.environ.get(VARIABLE)
    if notes is None:
        return
    folder = Path(notes) / "overlay"
    listed = json.loads((folder / "files.json").read_text(encoding="utf-8"))
    Overlay({path: (folder / name).read_bytes() for path, name in listed.items()}, Path(notes)).install()


def loaded(notes: Path) -> dict[str, str]:
    """The overlaid files that some process has really loaded, with the hash of what it loaded."""
    found = {}
    for note in sorted(notes.glob("loaded-*")):
        for line in note.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            found[one["path"]] = one["sha256"]
    return found


class _Finder(MetaPathFinder):
    """Lets the other finders find, and gives overlaid files another loader; finds files that only the overlay has."""

    def __init__(self, overlay: Overlay) -> None:
        self.overlay = overlay

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(fullname, path, target)
            if spec is None:
                continue
            if spec.origin and os.path.realpath(spec.origin) in self.overlay.texts:
                spec.loader = _Loader(fullname, spec.origin, self.overlay)
            elif spec.origin is None and spec.loader is None:  # a folder: the overlay may know better
                return self._only_here(fullname, path) or spec
            return spec  # type: ignore[no-any-return]
        return self._only_here(fullname, path)

    def _only_here(self, fullname: str, path: Sequence[str] | None) -> importlib.machinery.ModuleSpec | None:
        tail = fullname.rpartition(".")[2]
        for folder in path if path is not None else sys.path:
            for name, package in ((f"{tail}/__init__.py", True), (f"{tail}.py", False)):
                origin = os.path.realpath(os.path.join(folder or ".", name))
                if origin in self.overlay.texts:
                    loader = _Loader(fullname, origin, self.overlay)
                    spec = importlib.machinery.ModuleSpec(fullname, loader, origin=origin, is_package=package)
                    spec.has_location = True
                    if package:
                        spec.submodule_search_locations = [os.path.dirname(origin)]
                    return spec
        return None


class _Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from the overlay's text; never from a cache of bytecode, and writes none."""

    def __init__(self, fullname: str, path: str, overlay: Overlay) -> None:
        super().__init__(fullname, path)
        self.overlay = overlay

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        raise OSError("no bytecode of an overlaid file")

    def set_data(self, path: Any, data: Any, *, _mode: int = 0o666) -> None:
        return None

    def get_data(self, path: Any) -> bytes:
        text = self.overlay.get(str(path))
        return super().get_data(path) if text is None else text


def code_of(path: str, overlay: Overlay) -> CodeType:
    """The compiled script at this path, from the overlay if it is there. Raises OSError and SyntaxError."""
    text = overlay.get(path)
    return compile(Path(path).read_bytes() if text is None else text, path, "exec", dont_inherit=True)
