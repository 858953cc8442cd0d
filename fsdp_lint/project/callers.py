"""Which other files call what leads to FSDP: found by their words, before they are parsed."""

from __future__ import annotations

import re
from pathlib import Path

from fsdp_lint.project.heat import Heat
from fsdp_lint.project.index import FileIndex
from fsdp_lint.project.resolve import Project
from fsdp_lint.source.words import spelled_out

# What stands behind the word `import`, at least: names, or modules with the packages around them. A pattern that begins
# with plain text is found seven times as fast as one that begins with the edge of a word.
IMPORTED = re.compile(rb"import\b[ \t]*(\((?:[^)#]|#[^\n]*)*\)|[^\n\\]*(?:\\\r?\n?[^\n\\]*)*)")
IDENTIFIER = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
SHORT = 2


def callers(
    project: Project, indexes: dict[Path, FileIndex], heat: Heat, rest: list[Path], most: int
) -> dict[Path, FileIndex]:
    """Files that import a hot name from an indexed file, at most so many; callers of functions come before those of
    classes, which may be imported for a hundred other reasons."""
    functions: dict[str, set[Path]] = {}
    classes: dict[str, set[Path]] = {}
    for path, index in indexes.items():
        for name in {*index.imports, *index.contents, *(q for q in (*index.functions, *index.classes) if "." not in q)}:
            if len(name) >= SHORT and heat.stands_for_hot(index, name):
                called = name in index.functions or name in index.contents or not name[:1].isupper()
                homes = functions if called else classes
                homes.setdefault(name, set()).add(path)
    wanted = [_Wanted(homes) for homes in (functions, classes) if homes]
    # Each file is read once for both: most of them speak of neither.
    for path in rest if wanted else ():
        _look_into(path, wanted)
    found: dict[Path, FileIndex] = {}
    for each in wanted:
        for path in each.speaking:
            if len(found) >= most:
                break
            caller = project.index(path) if path not in found else None
            if caller is not None and _imports_any(project, caller, each):
                found[path] = caller
    return found


class _Wanted:
    """Names that are looked for, and the files which have them: `homes`, and the packages around these. `speaking` are
    the files whose words let them import one of the names."""

    def __init__(self, homes: dict[str, set[Path]]) -> None:
        self.speaking: list[Path] = []
        self.names = set(homes)
        self.homes = {path for paths in homes.values() for path in paths}
        self.bytes = {name.encode() for name in homes}
        self.stems = {stem.encode(errors="surrogateescape") for path in self.homes for stem in stems(path)}
        folders = {folder for path in self.homes for folder in path.parents}
        packages = {folder for folder in folders if (folder / "__init__.py").exists()}
        self.folders = packages | {path.parent for path in self.homes if path.name == "__init__.py"}
        self.homes |= {folder / "__init__.py" for folder in packages}


def _look_into(path: Path, wanted: list[_Wanted]) -> None:
    """Notes which of what is wanted a file may import, by its words alone."""
    try:
        data = spelled_out(path, path.read_bytes())
    except OSError:
        return
    imported = set(IDENTIFIER.findall(b" ".join(IMPORTED.findall(data))))
    # It imports the name, or something through which it is reached.
    near = [one for one in wanted if not (imported.isdisjoint(one.bytes) and imported.isdisjoint(one.stems))]
    words = set(IDENTIFIER.findall(data)) if near else set()
    for one in near:
        # `from . import name` spells no module.
        leads = not words.isdisjoint(one.stems) or not one.folders.isdisjoint(path.parents)
        if leads and not words.isdisjoint(one.bytes):
            one.speaking.append(path)


def stems(path: Path) -> set[str]:
    """The names by which an import can lead to a file: its own, and those of the packages around it."""
    found = {path.parent.name if path.stem == "__init__" else path.stem}
    for folder in path.parents:
        if not (folder / "__init__.py").exists():
            break
        found.add(folder.name)
    return found


def _imports_any(project: Project, index: FileIndex, wanted: _Wanted) -> bool:
    names, homes = wanted.names, wanted.homes
    for table in (index.imports, index.inner_imports):
        for targets in table.values():
            for target in targets:
                if target.attribute in names and project.find(index.path, target.module, target.level) in homes:
                    return True
                definition = project.target(index.path, target)
                if definition is None or definition.path not in homes:
                    continue
                if definition.kind == "file" or definition.name in names:
                    return True
    # `import package.module` binds the package alone.
    dotted = (line.module for line in index.import_lines if not line.names and "." in line.module)
    return any(project.find(index.path, module, 0) in homes for module in dotted)
