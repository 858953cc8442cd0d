"""How a file can write the name of a thing of a library at some place, with the import that this needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fsdp_lint.fix.edits import EnsureImport
from fsdp_lint.fix.imports import dotted
from fsdp_lint.fix.names import beginnings, names_of
from fsdp_lint.source.file import Site
from fsdp_lint.trace.models.loaded import WITH_PACKAGE

if TYPE_CHECKING:
    import libcst as cst


def spelled(site: Site, module: str, name: str) -> tuple[str, tuple[EnsureImport, ...]] | None:
    """What to write at `site` for `module.name`, and the edits that make it hold there.

    As the file already calls it, where it imports the name or a package on the way to it (`nn.utils.clip_grad_norm_`
    after `from torch import nn`); else the bare name with an import of it. None where a variable of a function
    around the site hides the name.
    """
    hidden = _hidden(site)
    for word, rest in _ways(site, module, name):
        if word not in hidden:
            return (f"{word}.{rest}" if rest else word), ()
    if name in hidden:
        return None
    return name, (EnsureImport(site.source, module, name),)


def spelled_in_module(site: Site, module: str, name: str) -> tuple[str, tuple[EnsureImport, ...]] | None:
    """As `spelled`, but what is not there yet comes by `import module`: for short names such as `os.environ`."""
    found = spelled(site, module, name)
    if found is None or not found[1]:
        return found
    if module.partition(".")[0] in _hidden(site):
        return None
    return f"{module}.{name}", (EnsureImport(site.source, module, ""),)


def spelled_here(site: Site, path: Path, name: str) -> str | None:
    """What `name`, defined at the top level of the project's file `path`, is called at `site`.

    None where nothing of that name is there. An import of that name is taken to be of this thing.
    """
    import libcst as cst

    hidden = _hidden(site)
    if name in hidden:
        return None
    if path == site.source.path:
        return name
    for line in site.source.tree.body:
        for node in line.body if isinstance(line, cst.SimpleStatementLine) else ():
            if isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
                for alias in node.names:
                    if dotted(alias.name) == name and dotted(node.module).rpartition(".")[2] in (
                        path.stem,
                        path.parent.name,
                    ):
                        local = dotted(alias.asname.name) if alias.asname else name
                        return local if local not in hidden else None
    return None


def _ways(site: Site, module: str, name: str) -> Iterator[tuple[str, str]]:
    """The names of the file's top level through which the thing is reached, with the path from there."""
    wanted = f"{module}.{name}"
    bound, loaded = _imported(site)
    for word, path in bound:
        if path == wanted:
            yield word, ""
    for word, path in sorted(bound, key=lambda each: -len(each[1])):
        if (module in loaded or module == path) and f"{module}.".startswith(f"{path}."):
            yield word, wanted.removeprefix(f"{path}.")


def _imported(site: Site) -> tuple[list[tuple[str, str]], set[str]]:
    """What the file imports when it is loaded, those in `try` and `if` aside: names with their dotted paths.

    And the modules that are loaded then, so that attributes of a package lead to them.
    """
    import libcst as cst

    lines = [line for line in site.source.tree.body if isinstance(line, cst.SimpleStatementLine)]
    bound: list[tuple[str, str]] = []
    loaded = set(WITH_PACKAGE)
    for node in (small for line in lines for small in line.body):
        match node:
            case cst.Import(names=aliases):
                for alias in aliases:
                    path = dotted(alias.name)
                    loaded.update(beginnings(path))
                    first = path.partition(".")[0]
                    bound.append((dotted(alias.asname.name), path) if alias.asname else (first, first))
            case cst.ImportFrom(module=base, relative=[], names=[*members]):
                for alias in members:
                    local = alias.asname.name if alias.asname else alias.name
                    bound.append((dotted(local), f"{dotted(base)}.{dotted(alias.name)}"))
    return bound, loaded


def _hidden(site: Site) -> set[str]:
    """The variables and parameters of the functions around a node."""
    import libcst as cst

    names: set[str] = set()
    node: cst.CSTNode | None = site.node
    while node is not None:
        if isinstance(node, cst.FunctionDef):
            names |= {path.partition(".")[0] for path in _bound_in(node)}
        node = site.source.parent(node)
    return names


def _bound_in(function: cst.FunctionDef) -> set[str]:
    import libcst as cst

    params = function.params
    own = {param.name.value for param in (*params.params, *params.posonly_params, *params.kwonly_params)}
    for star in (params.star_arg, params.star_kwarg):
        if isinstance(star, cst.Param):
            own.add(star.name.value)
    return own | {path for path in names_of(function.body).bound if "." not in path}
