"""Turns edits on nodes into edits on spans of the original text; all bytes outside those spans stay as they are."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fsdp_lint.findings import LocatedFix, Place, TextEdit
from fsdp_lint.fix.arguments import call_edits, outer_span
from fsdp_lint.fix.blocks import between as between
from fsdp_lint.fix.blocks import block_of as block_of
from fsdp_lint.fix.blocks import body, enclosing, stands_alone
from fsdp_lint.fix.blocks import common_block as common_block
from fsdp_lint.fix.blocks import siblings as siblings
from fsdp_lint.fix.blocks import statement_of as statement_of
from fsdp_lint.fix.edits import (
    ChangeCall,
    Edit,
    EnsureImport,
    Fix,
    Guard,
    InsertAfter,
    InsertBefore,
    MoveAfter,
    RemoveStatement,
    RenameModule,
    Replace,
    Rewrite,
    Wrap,
)
from fsdp_lint.fix.imports import import_edits, renamed
from fsdp_lint.fix.lines import Lines, Refused
from fsdp_lint.fix.moves import can_move_after as can_move_after
from fsdp_lint.fix.moves import movable_around as movable_around
from fsdp_lint.source.file import Site, Source
from fsdp_lint.source.structure import children

if TYPE_CHECKING:
    import libcst as cst

# Comments that speak to a tool or open a stretch of the file: they are not about the statement below them.
_NOT_ABOUT_A_STATEMENT = ("# %%", "#%%", "# region", "#region", "# fmt:", "# isort:", "# ///", "# endregion")


def locate(fix: Fix) -> LocatedFix | None:
    """The fix as spans of text, in the order of files and rows. None where an edit cannot be made simply."""
    try:
        edits = [text_edit for edit in fix.edits for text_edit in _text_edits(edit)]
        for imports in _imports(fix.edits):
            edits += import_edits(imports, _lines(imports[0].source))
    except Refused:
        return None
    edits.sort(key=lambda edit: edit.place)
    for first, second in itertools.pairwise(edits):
        a, b = first.place, second.place
        if a.path == b.path and (a.end_row, a.end_column) > (b.row, b.column):
            return None
    return LocatedFix(fix.applicability, fix.message, tuple(edits)) if edits else None


def _imports(edits: Sequence[Edit]) -> list[list[EnsureImport]]:
    """The imports that a fix needs, by file and module."""
    found: dict[tuple[int, str, bool], list[EnsureImport]] = {}
    for edit in edits:
        if isinstance(edit, EnsureImport):
            found.setdefault((id(edit.source), edit.module, bool(edit.name)), []).append(edit)
    return [*found.values()]


def _text_edits(edit: Edit) -> Iterator[TextEdit]:
    match edit:
        case Replace(site, text):
            yield _replace(site, text)
        case Wrap(site, before, after):
            yield from _wrap(site, before, after)
        case ChangeCall(call):
            yield from call_edits(edit, _lines(call.source))
        case MoveAfter(statements, anchor):
            yield from _move(statements, anchor)
        case InsertAfter(anchor, text):
            lines = _lines(anchor.source)
            home = _on_own_line(anchor, last=True)
            yield lines.insert(_row_behind(home, lines), lines.written(text, _indent(home, lines)))
        case InsertBefore(anchor, text, of):
            lines = _lines(anchor.source)
            home = _on_own_line(anchor, last=False)
            rows = _with_comments(of, text.strip("\n").split("\n"))
            yield lines.insert(_rows(home, lines)[0], lines.written("\n".join(rows), _indent(home, lines)))
        case RemoveStatement(site):
            yield from _remove(site)
        case Rewrite(site, text):
            yield _rewrite(site, text)
        case Guard(site, test):
            yield from _guard(site, test)
        case RenameModule(statement):
            yield from renamed(edit, _lines(statement.source))
        case EnsureImport():
            pass  # all imports of a fix are brought in together


@functools.lru_cache(maxsize=8)
def _lines(source: Source) -> Lines:
    return Lines(source.path, source.text, source.tree.default_newline, source.tree.default_indent)


def _replace(site: Site, text: str) -> TextEdit:
    span = site.source.span(site.node)
    if any(comment not in text for comment in _comments_in(site)):
        raise Refused
    place = Place(str(site.source.path), span.row, span.column, span.end_row, span.end_column)
    return TextEdit(place, text.replace("\n", site.source.tree.default_newline))


def _comments_in(site: Site) -> Iterator[str]:
    import libcst as cst

    yield from (node.value for node in _inside(site.node) if isinstance(node, cst.Comment))


def _wrap(site: Site, before: str, after: str) -> Iterator[TextEdit]:
    import libcst as cst

    plain = cst.Name | cst.Attribute | cst.Subscript | cst.Call | cst.List | cst.Dict | cst.Set | cst.SimpleString
    if after.startswith(".") and not isinstance(site.node, plain) and not getattr(site.node, "lpar", ()):
        before, after = f"{before}(", f"){after}"
    span, path = outer_span(site), str(site.source.path)
    if before:
        yield TextEdit(Place(path, span.row, span.column, span.row, span.column), before)
    if after:
        yield TextEdit(Place(path, span.end_row, span.end_column, span.end_row, span.end_column), after)


def _on_own_line(anchor: Site, last: bool) -> Site:
    """The anchor's statement, where a line above or below it stands next to the anchor and to nothing else."""
    import libcst as cst

    home = statement_of(anchor)
    node = anchor.node
    while node is not home.node and not isinstance(node, cst.BaseSmallStatement):
        above = anchor.source.parent(node)
        assert above is not None
        node = above
    alone = node is home.node or (
        isinstance(home.node, cst.SimpleStatementLine) and node is home.node.body[-1 if last else 0]
    )
    if not alone:
        raise Refused
    return home


def _head(home: Site) -> int:
    """The row in which a statement begins; its decorators are part of it."""
    import libcst as cst

    row = home.source.span(home.node).row
    if isinstance(home.node, cst.FunctionDef | cst.ClassDef):
        return min([row, *(home.source.span(decorator).row for decorator in home.node.decorators)])
    return row


def _indent(home: Site, lines: Lines) -> str:
    return lines.indent(_head(home))


def _rows(home: Site, lines: Lines) -> tuple[int, int]:
    """The first and last row of a statement with the comments that stand on it and those that end its body."""
    head = first = _head(home)
    indent = lines.indent(head)
    while lines.is_comment(first - 1) and lines.indent(first - 1) == indent:
        if lines.content(first - 1).strip().startswith(_NOT_ABOUT_A_STATEMENT):
            break
        first -= 1
    # Comments from the very first row on are about the file: `#!`, coding, licence.
    return (head if first == 1 else first), _row_behind(home, lines) - 1


def _row_behind(home: Site, lines: Lines) -> int:
    """The row after a statement, past the comments that are indented like its body."""
    indent = _indent(home, lines)
    last = row = home.source.span(home.node).end_row
    while lines.is_blank(row + 1) or lines.is_comment(row + 1):
        row += 1
        if lines.is_blank(row):
            continue
        if not (lines.indent(row).startswith(indent) and lines.indent(row) != indent):
            break
        last = row
    return last + 1


def _rewrite(site: Site, text: str) -> TextEdit:
    if not stands_alone(site):
        raise Refused
    home, lines = statement_of(site), _lines(site.source)
    first, last = _head(home), _row_behind(home, lines) - 1
    above, rows = [], text.strip("\n").split("\n")
    for code, comment in _comments(home, lines, first, last):
        if comment in text:
            continue
        # A comment behind a call stays behind that call; a statement of one row has nothing else to say it of.
        beside = [index for index, row in enumerate(rows) if code and _begin(row) == _begin(code)]
        if not beside and code and first == last:
            beside = [len(rows) - 1]
        if beside:
            rows[beside[0]] += f"  {comment}"
        else:
            above.append(comment)
    return lines.swap(first, last, lines.written("\n".join([*above, *rows]), _indent(home, lines)))


def _with_comments(statements: Sequence[Site], rows: list[str]) -> list[str]:
    """New rows with the comments of the statements that they stand for: those of a row's end behind the last one."""
    above: list[str] = []
    rows, written = [*rows], "\n".join(rows)
    for home in map(statement_of, statements):
        lines = _lines(home.source)
        (first, last), head = _rows(home, lines), _head(home)
        above += [lines.content(row).strip() for row in range(first, head)]
        for code, comment in _comments(home, lines, head, last):
            if comment in written:
                continue
            if code and comment == lines.content(home.source.span(home.node).end_row).rstrip()[-len(comment) :]:
                rows[-1] += f"  {comment}"
            else:
                above.append(comment)
    return [*above, *rows]


def _begin(row: str) -> str:
    return row.strip().partition("(")[0]


def _comments(home: Site, lines: Lines, first: int, last: int) -> Iterator[tuple[str, str]]:
    """The comments inside a statement and its body, in order, each with the code before it in its row."""
    import libcst as cst

    spans = [home.source.span(node) for node in _inside(home.node) if isinstance(node, cst.Comment)]
    for span in sorted(spans, key=lambda span: span.row):
        if first <= span.row <= last:
            content = lines.content(span.row)
            yield content[: span.column - 1].strip(), content[span.column - 1 :].rstrip()


def _inside(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in children(node):
        yield from _inside(child)


def _guard(site: Site, test: str) -> Iterator[TextEdit]:
    if not stands_alone(site):
        raise Refused
    home, lines = statement_of(site), _lines(site.source)
    first, last = _head(home), _row_behind(home, lines) - 1
    inside_strings, step = set(_rows_in_strings(home)), site.source.tree.default_indent
    path = str(site.source.path)
    for row in range(first, last + 1):
        head = f"{_indent(home, lines)}if {test}:{lines.newline}" if row == first else ""
        more = "" if row in inside_strings or lines.is_blank(row) else step
        if head or more:
            yield TextEdit(Place(path, row, 1, row, 1), head + more)


def _remove(site: Site) -> Iterator[TextEdit]:
    import libcst as cst

    if not stands_alone(site):
        raise Refused
    home, lines = statement_of(site), _lines(site.source)
    first, last = _rows(home, lines)
    if isinstance(block_of(home).node, cst.IndentedBlock) and len(siblings(home)) == 1:
        yield lines.swap(first, last, lines.written("pass", _indent(home, lines)))
        return
    yield from _cuts([(first, last)], home, lines)


def _move(statements: Sequence[Site], anchor: Site) -> Iterator[TextEdit]:
    homes = [statement_of(site) for site in statements]
    block = set(body(block_of(homes[0]).node))
    if not all(stands_alone(site) for site in statements) or not all(home.node in block for home in homes):
        raise Refused
    beside = [site for site in enclosing(anchor) if site.node in block]
    target = beside[0] if beside else statement_of(anchor)
    if anchor.source is not homes[0].source or len(block) == len(set(homes)):
        raise Refused
    lines = _lines(anchor.source)
    if any(first <= _head(target) <= last for first, last in (_rows(home, lines) for home in homes)):
        raise Refused
    runs = _joined([_rows(home, lines) for home in homes], lines)
    inside_strings = {row for home in homes for row in _rows_in_strings(home)}
    was, now = _indent(homes[0], lines), _indent(target, lines)
    moved: list[str] = []
    for first, last in runs:
        for row in range(first, last + 1):
            text = lines.content(row)
            if row not in inside_strings and text.startswith(was):
                text = now + text.removeprefix(was)
            moved.append(text + (lines.rows[row - 1][len(lines.content(row)) :] or lines.newline))
    yield from _cuts(runs, homes[0], lines)
    yield lines.insert(_row_behind(target, lines), moved)


def _joined(regions: Sequence[tuple[int, int]], lines: Lines) -> list[tuple[int, int]]:
    """Regions with nothing but blank rows between them become one."""
    runs: list[tuple[int, int]] = []
    for first, last in regions:
        if runs and runs[-1][1] < first and all(lines.is_blank(row) for row in range(runs[-1][1] + 1, first)):
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    return runs


def _rows_in_strings(home: Site) -> Iterator[int]:
    """The rows that begin inside a string: white space there is content."""
    import libcst as cst

    open_nodes = [home.node]
    while open_nodes:
        node = open_nodes.pop()
        if isinstance(node, cst.SimpleString | cst.FormattedString):
            span = home.source.span(node)
            yield from range(span.row + 1, span.end_row + 1)
        else:
            open_nodes.extend(children(node))


def _cuts(runs: Sequence[tuple[int, int]], home: Site, lines: Lines) -> Iterator[TextEdit]:
    """Takes whole rows away, and of two blank gaps that meet where they stood the smaller one."""
    opens_block = siblings(home)[0] == home
    for first, last in runs:
        above = below = 0
        while lines.is_blank(first - 1 - above):
            above += 1
        while lines.is_blank(last + 1 + below):
            below += 1
        at_start = opens_block and first == runs[0][0] and not above and not lines.is_comment(first - 1)
        at_end = last + below == len(lines)
        if at_start or (above >= below and not at_end):
            yield lines.cut(first, last + below)
        else:
            yield lines.cut(first - above, last)
