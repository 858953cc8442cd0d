"""Where `from module import name` goes in a file: beside its like, in isort's order."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from fsdp_lint.findings import Place, TextEdit
from fsdp_lint.fix.edits import EnsureImport, RenameModule
from fsdp_lint.fix.lines import Lines, Refused
from fsdp_lint.source.file import Site, Source

if TYPE_CHECKING:
    import libcst as cst


def import_edits(edits: Sequence[EnsureImport], lines: Lines) -> Iterator[TextEdit]:
    """The edits that bring in names of one module in one file, where they are not there already.

    Raises Refused where a name is taken.
    """
    source, module = edits[0].source, edits[0].module
    missing = [edit for edit in edits if not _is_imported(edit)]
    if any((edit.name or module.partition(".")[0]) in _top_level_names(source) for edit in missing):
        raise Refused
    names = sorted({edit.name for edit in missing}, key=_member_key)
    if not names:
        return
    runs = _runs(source)
    for node in (node for run in runs for node in run if names[0]):
        if _module(node) == module:
            into = [_into_names(source, node, name, lines) for name in names]
            if None not in into:
                yield from (edit for edit in into if edit is not None)
                return
    text = f"from {module} import {', '.join(names)}" if names[0] else f"import {module}"
    yield _new_import(source, runs, module, text, lines)


def _new_import(
    source: Source, runs: Sequence[Sequence[cst.CSTNode]], module: str, text: str, lines: Lines
) -> TextEdit:
    root = module.partition(".")[0]
    like = [run for run in runs if any(name.partition(".")[0] == root for node in run for name in _modules(node))]
    others = [run for run in runs if "__future__" not in _modules(run[0])]
    if not like and not others:
        return _first_import(source, runs, text, lines)
    plain = text.startswith("import ")
    if not like and root in sys.stdlib_module_names:
        ours = [run for run in others if any(_is_standard(name) for node in run for name in _modules(node))]
        if not ours:
            # The standard library has a paragraph of its own, above all others.
            return lines.insert(source.span(others[0][0]).row, [*lines.written(text, ""), lines.newline])
        like = ours
    run = like[0] if like else others[0] if plain else others[-1]
    row = _row_of_plain(source, run, module) if plain else _row_in(source, run, module)
    return lines.insert(row, lines.written(text, ""))


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names and module != "__future__"


def _small(node: cst.CSTNode) -> cst.CSTNode:
    """The only small statement of a line, or the node itself."""
    import libcst as cst

    return node.body[0] if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 else node


def dotted(node: cst.CSTNode | None) -> str:
    """`a.b.c` for names and attributes of names; empty for anything else."""
    import libcst as cst

    match node:
        case cst.Name(value=name):
            return name
        case cst.Attribute(value=base, attr=cst.Name(value=name)):
            return f"{dotted(base)}.{name}"
    return ""


def _module(node: cst.CSTNode) -> str | None:
    """The module of a `from` import that names no parent folder."""
    import libcst as cst

    small = _small(node)
    return dotted(small.module) if isinstance(small, cst.ImportFrom) and not small.relative else None


def _modules(node: cst.CSTNode) -> list[str]:
    import libcst as cst

    small = _small(node)
    if isinstance(small, cst.Import):
        return [dotted(alias.name) for alias in small.names]
    module = _module(node)
    return [module] if module else []


def _runs(source: Source) -> list[list[cst.CSTNode]]:
    """The top-level imports before the first definition, in runs that no blank line or other statement breaks."""
    import libcst as cst

    runs: list[list[cst.CSTNode]] = []
    previous_row = None
    for node in source.tree.body:
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            break
        if isinstance(_small(node), cst.Import | cst.ImportFrom):
            span = source.span(node)
            if previous_row != span.row - 1:
                runs.append([])
            runs[-1].append(node)
            previous_row = span.end_row
    return runs


def _everywhere(source: Source) -> Iterator[cst.CSTNode]:
    """The small statements that run when the file is imported, in `try` and `if` too, but not for type checkers."""
    import libcst as cst

    open_nodes: list[cst.CSTNode] = [*source.tree.body]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, cst.BaseSmallStatement):
            yield node
        elif isinstance(node, cst.If) and "TYPE_CHECKING" in source.tree.code_for_node(node.test):
            continue
        elif not isinstance(node, cst.FunctionDef | cst.ClassDef):
            open_nodes.extend(node.children)


def _is_imported(edit: EnsureImport) -> bool:
    import libcst as cst

    for node in _everywhere(edit.source):
        if isinstance(node, cst.Import) and not edit.name:
            if any(dotted(alias.name) == edit.module and alias.asname is None for alias in node.names):
                return True
        elif isinstance(node, cst.ImportFrom) and not node.relative and dotted(node.module) == edit.module:
            if isinstance(node.names, cst.ImportStar):
                return True
            if any(dotted(alias.name) == edit.name and alias.asname is None for alias in node.names):
                return True
    return False


def _top_level_names(source: Source) -> set[str]:
    """The names that the file binds at its top level."""
    import libcst as cst

    names: set[str] = set()
    for node in _everywhere(source):
        match node:
            case cst.Import(names=aliases) | cst.ImportFrom(names=[*aliases]):
                names.update(dotted(a.asname.name if a.asname else a.name).partition(".")[0] for a in aliases)
            case cst.Assign(targets=targets):
                names.update(dotted(target.target) for target in targets)
            case cst.AnnAssign(target=target):
                names.add(dotted(target))
    names.update(n.name.value for n in source.tree.body if isinstance(n, cst.FunctionDef | cst.ClassDef))
    return names


def _member_key(name: str) -> tuple[int, str]:
    """isort's order of members: CONSTANTS, Classes, functions."""
    if name.isupper() and len(name) > 1:
        return 0, name
    return (1 if name[:1].isupper() else 2), name


def _into_names(source: Source, node: cst.CSTNode, name: str, lines: Lines) -> TextEdit | None:
    """The edit that adds a name to an import of its module."""
    import libcst as cst

    small = _small(node)
    if not isinstance(small, cst.ImportFrom) or isinstance(small.names, cst.ImportStar):
        return None
    aliases: Sequence[cst.ImportAlias] = small.names
    starts = [source.span(alias.name) for alias in aliases]
    apart = len(aliases) > 1 and starts[0].row != starts[-1].row
    if apart or (small.lpar and starts[0].row != source.span(small).row):
        separator = "," + lines.newline + lines.indent(starts[-1].row)
    else:
        separator = ", "
    for alias, start in zip(aliases, starts, strict=True):
        if _member_key(dotted(alias.name)) > _member_key(name):
            return TextEdit(Place(str(source.path), start.row, start.column, start.row, start.column), name + separator)
    last = aliases[-1]
    end = source.span(last.asname.name if last.asname else last.name)
    place = Place(str(source.path), end.end_row, end.end_column, end.end_row, end.end_column)
    return TextEdit(place, separator + name)


def _row_in(source: Source, run: Sequence[cst.CSTNode], module: str) -> int:
    """The row of a run of imports above which one more `from` import stands in order: plain imports come first."""
    for node in run:
        other = _module(node)
        if other is not None and other != "__future__" and other.lower() > module.lower():
            return source.span(node).row
    return source.span(run[-1]).end_row + 1


def _row_of_plain(source: Source, run: Sequence[cst.CSTNode], module: str) -> int:
    """The row of a run of imports above which one more `import` stands in order."""
    import libcst as cst

    for node in run:
        names = _modules(node)
        if not isinstance(_small(node), cst.Import) or (names and names[0].lower() > module.lower()):
            return source.span(node).row
    return source.span(run[-1]).end_row + 1


def _first_import(source: Source, runs: Sequence[Sequence[cst.CSTNode]], text: str, lines: Lines) -> TextEdit:
    """The edit for a file that imports nothing, or from `__future__` only: a paragraph of its own at the top."""
    above = runs[-1][-1] if runs else None
    if above is None and source.tree.body and source.tree.get_docstring() is not None:
        above = source.tree.body[0]
    written = lines.written(text, "")
    if above is not None:
        return lines.insert(source.span(above).end_row + 1, [lines.newline, *written])
    row = 1
    while lines.is_comment(row):
        row += 1
    gap = [] if lines.is_blank(row) or not len(lines) else [lines.newline]
    return lines.insert(row, [lines.newline, *written, *gap] if row > 1 else [*written, *gap])


def renamed(edit: RenameModule, lines: Lines) -> Iterator[TextEdit]:
    """The edits that give a `from` import another module. Raises Refused for any other statement.

    It moves only within its run of imports, and only where they stood in order before.
    """
    import libcst as cst

    source, node = edit.statement.source, edit.statement.node
    if not isinstance(node, cst.ImportFrom) or node.module is None or node.relative:
        raise Refused
    name = source.span(node.module)
    place = Place(str(source.path), name.row, name.column, name.end_row, name.end_column)
    run = next((run for run in _runs(source) if any(_small(line) is node for line in run)), [])
    line = next((line for line in run if _small(line) is node), None)
    others = [one for one in run if one is not line and _module(one)]
    if line is None:
        yield TextEdit(place, edit.module)
        return
    span = source.span(line)
    rows = lines.rows[span.row - 1 : span.end_row]
    rows[0] = rows[0][: name.column - 1] + edit.module + rows[0][name.end_column - 1 :]
    rows[-1] = rows[-1].rstrip("\r\n") + lines.newline
    if not others or not _in_order(run) or _in_order(run, {id(line): edit.module}):
        # Whole rows, so that another fix that adds an import beside it waits until this one stands.
        yield lines.swap(span.row, span.end_row, rows)
        return
    yield lines.cut(span.row, span.end_row)
    yield lines.insert(_row_in(source, others, edit.module), rows)


def _in_order(run: Sequence[cst.CSTNode], other: Mapping[int, str] | None = None) -> bool:
    """Whether the `from` imports of a run are sorted; `other` are modules that stand in for those written."""
    names = [((other or {}).get(id(node)) or module).lower() for node in run if (module := _module(node))]
    return names == sorted(names)


def module_of(site: Site) -> Site | None:
    """The module's name in a `from module import names` statement."""
    import libcst as cst

    node = site.node
    if isinstance(node, cst.ImportFrom) and node.module is not None and not node.relative:
        return Site(site.source, node.module)
    return None
