"""Which texts stand in for which files in the after-run: the tool's own fixes, or a fix that was made by hand."""

from __future__ import annotations

import io
import os
import subprocess
import tokenize
from collections.abc import Mapping, Sequence
from pathlib import Path

from fsdp_lint.engine import fix_files
from fsdp_lint.settings import Settings
from fsdp_lint.verify.plan import CannotRun


def from_fixes(files: Sequence[Path], settings: Settings, unsafe: bool) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The files that the tool's fixes change, by real path, and what went wrong."""
    result = fix_files(files, settings, unsafe)
    texts = {os.path.realpath(path): _encoded(path, after) for path, (_, after) in result.changed.items()}
    return texts, tuple(result.errors)


def _encoded(path: Path, text: str) -> bytes:
    encoding, _ = tokenize.detect_encoding(io.BytesIO(path.read_bytes()).readline)
    return text.encode(encoding)


def from_hand(given: str, entry: str, root: Path) -> dict[str, bytes]:
    """The files that a hand-made fix changes: `given` is a file in place of the script, a folder that is laid over the
    project, or over a folder of it that has its files, or a git revision of the project. Raises CannotRun."""
    path = Path(given)
    if path.is_dir():
        texts = _from_folder(path.resolve(), entry, root)
    elif path.is_file():
        texts = {os.path.realpath(entry): path.read_bytes()}
    else:
        texts = _from_revision(given, Path(entry).parent)
    changed = {name: text for name, text in texts.items() if not _same(name, text)}
    if not changed:
        raise CannotRun(f"--after {given}: nothing in it differs from the program")
    return changed


def _same(name: str, text: bytes) -> bool:
    return os.path.isfile(name) and Path(name).read_bytes() == text


def _from_folder(folder: Path, entry: str, root: Path) -> dict[str, bytes]:
    """Laid over the folder, from the project's down to the script's, in which most of its files are."""
    script, root = Path(os.path.realpath(entry)), root.resolve()
    names = [each.relative_to(folder) for each in sorted(folder.rglob("*.py"))]
    bases = [base for base in script.parents if base.is_relative_to(root)] or [*script.parents]

    def fits(base: Path) -> tuple[int, bool]:
        own = script.is_relative_to(base) and script.relative_to(base) in names
        return sum((base / name).is_file() for name in names), own

    base = max((root, *bases), key=fits)
    if names and not fits(base)[0]:
        raise CannotRun(f"--after {folder.name}: the project {root} has none of its files in the same place")
    return {str(base / name): (folder / name).read_bytes() for name in names}


def _from_revision(revision: str, folder: Path) -> dict[str, bytes]:
    root = Path(os.fsdecode(_git(folder, "rev-parse", "--show-toplevel", of=revision)).rstrip("\n"))
    _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}", of=revision)
    listed = _git(root, "diff", "--name-only", "-z", "--diff-filter=d", "-R", revision, "--", "*.py", of=revision)
    names = [os.fsdecode(name) for name in listed.split(b"\0") if name]
    return {os.path.realpath(root / name): _git(root, "show", f"{revision}:{name}", of=revision) for name in names}


def _git(folder: Path, *arguments: str, of: str) -> bytes:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        done = None
    if done is None or done.returncode != 0:
        raise CannotRun(f"--after {of}: no such file or folder, and no revision of a git repository here")
    return done.stdout


def as_pairs(texts: Mapping[str, bytes]) -> dict[str, tuple[str, str]]:
    """Before and after of each file, as text."""
    pairs = {}
    for name, after in texts.items():
        before = Path(name).read_bytes() if os.path.isfile(name) else b""
        pairs[name] = (before.decode("utf-8", "replace"), after.decode("utf-8", "replace"))
    return pairs
