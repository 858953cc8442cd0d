"""Changes of one call: the function that is called, keywords renamed, dropped and given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fsdp_lint.findings import Place, TextEdit
from fsdp_lint.fix.edits import ChangeCall
from fsdp_lint.fix.lines import Lines, Refused
from fsdp_lint.fix.names import path_of
from fsdp_lint.source.file import Site, Source, Span

if TYPE_CHECKING:
    import libcst as cst


def argument(call: Site, keyword: str, position: int | None = None) -> Site | None:
    """The value that a call gives for a parameter, by keyword or by position (from 0); None where it gives none.

    None, too, where a `*` before that position makes it unknown, and where the node is no call.
    """
    import libcst as cst

    node = call.node
    if not isinstance(node, cst.Call):
        return None
    for arg in node.args:
        if arg.keyword is not None and arg.keyword.value == keyword:
            return Site(call.source, arg.value)
    if position is None or position >= len(node.args):
        return None
    if any(arg.star or arg.keyword is not None for arg in node.args[: position + 1]):
        return None
    return Site(call.source, node.args[position].value)


def keywords(call: Site) -> tuple[str, ...]:
    """The keywords that a call spells out, in order."""
    import libcst as cst

    node = call.node
    return tuple(arg.keyword.value for arg in node.args if arg.keyword) if isinstance(node, cst.Call) else ()


def positionals(call: Site) -> int:
    """How many arguments a call gives without a keyword."""
    import libcst as cst

    node = call.node
    return sum(arg.keyword is None for arg in node.args) if isinstance(node, cst.Call) else 0


def function_of(call: Site) -> Site | None:
    """The expression that is called: `a.b` in `a.b(c)`."""
    import libcst as cst

    return Site(call.source, call.node.func) if isinstance(call.node, cst.Call) else None


def receiver_of(call: Site) -> Site | None:
    """The object of a method call: `a.b` in `a.b.c(d)`; None where no attribute is called."""
    import libcst as cst

    node = call.node
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        return Site(call.source, node.func.value)
    return None


def is_path(site: Site) -> bool:
    """Whether a node is a name or attributes of one: `model`, `self.model`."""
    return path_of(site.node) is not None


def text_of(site: Site) -> str:
    """What the file says at a node, with the brackets around it, in the file's own words and line ends."""
    return site.source.tree.code_for_node(site.node).strip()


def call_edits(edit: ChangeCall, lines: Lines) -> Iterator[TextEdit]:
    """The changes as edits of the text. Raises Refused where the call is not as the edit takes it to be."""
    import libcst as cst

    node, source = edit.call.node, edit.call.source
    if not isinstance(node, cst.Call):
        raise Refused
    if edit.function is not None:
        yield TextEdit(_place(source, source.span(node.func)), edit.function)
    _check(edit, node)
    yield from _changed(edit, node, source)
    dropped = [arg.keyword is not None and arg.keyword.value in edit.drop for arg in node.args]
    yield from _drops(node.args, dropped, source, lines)
    names = [edit.rename.get(word, word) for word in keywords(edit.call)]
    new = [f"{name}={text}" for name, text in edit.put.items() if name not in names]
    if new:
        yield from _added(new, node, dropped, source, lines)


def _check(edit: ChangeCall, node: cst.Call) -> None:
    import libcst as cst

    there = [arg.keyword.value for arg in node.args if arg.keyword is not None]
    after = [edit.rename.get(word, word) for word in there if word not in edit.drop]
    if not {*edit.rename, *edit.drop} <= {*there} or len(after) != len(set(after)):
        raise Refused
    if {*edit.put} - {*after}:
        # What `**` unpacks may hold the keyword already; a bare generator must stay the only argument.
        if any(
            arg.star == "**" or (isinstance(arg.value, cst.GeneratorExp) and not arg.value.lpar) for arg in node.args
        ):
            raise Refused


def _changed(edit: ChangeCall, node: cst.Call, source: Source) -> Iterator[TextEdit]:
    """Keywords that are renamed, values that are replaced."""
    for arg in node.args:
        if arg.keyword is None or arg.keyword.value in edit.drop:
            continue
        name = edit.rename.get(arg.keyword.value, arg.keyword.value)
        if name != arg.keyword.value:
            yield TextEdit(_place(source, source.span(arg.keyword)), name)
        if name in edit.put:
            yield TextEdit(_place(source, outer_span(Site(source, arg.value))), edit.put[name])


def _drops(args: Sequence[cst.Arg], dropped: Sequence[bool], source: Source, lines: Lines) -> Iterator[TextEdit]:
    """Arguments that go: whole rows where they stand on rows of their own, else with one comma beside them."""
    index = 0
    while index < len(args):
        if not dropped[index]:
            index += 1
            continue
        if _on_own_rows(args[index], source, lines):
            first, last = _arg_span(args[index], source).row, _arg_span(args[index], source).end_row
            while lines.is_comment(first - 1) and lines.indent(first - 1) == lines.indent(first):
                first -= 1
            yield lines.cut(first, last)
            index += 1
            continue
        end = index
        while end + 1 < len(args) and dropped[end + 1] and not _on_own_rows(args[end + 1], source, lines):
            end += 1
        yield _drop_inline(args, index, end, source, lines)
        index = end + 1


def _drop_inline(args: Sequence[cst.Arg], first: int, last: int, source: Source, lines: Lines) -> TextEdit:
    start, end = _arg_span(args[first], source), _arg_span(args[last], source)
    if first > 0:
        before = _arg_span(args[first - 1], source)
        gap = (before.end_row, before.end_column, start.row, start.column)
        place = Place(str(source.path), before.end_row, before.end_column, end.end_row, end.end_column)
    elif last + 1 < len(args):
        after = _arg_span(args[last + 1], source)
        gap = (end.end_row, end.end_column, after.row, after.column)
        place = Place(str(source.path), start.row, start.column, after.row, after.column)
    else:
        code = source.tree.code_for_node(args[last])
        comma = len(code) - len(code.rstrip(", ")) if _has_comma(args[last]) else 0
        gap = (end.end_row, end.end_column, end.end_row, end.end_column)
        place = Place(str(source.path), start.row, start.column, end.end_row, end.end_column + comma)
    if "#" in lines.between(*gap):
        raise Refused
    return TextEdit(place, "")


def _added(
    new: Sequence[str], node: cst.Call, dropped: Sequence[bool], source: Source, lines: Lines
) -> Iterator[TextEdit]:
    """New keywords behind the last argument that stays."""
    kept = [arg for arg, goes in zip(node.args, dropped, strict=True) if not goes]
    if not kept:
        span = source.span(node)
        row, column = span.end_row, span.end_column - 1
        if node.args:
            first = _arg_span(node.args[0], source)
            row, column = first.row, first.column
            if any(_on_own_rows(arg, source, lines) for arg in node.args):
                raise Refused
        yield TextEdit(Place(str(source.path), row, column, row, column), ", ".join(new))
        return
    last = kept[-1]
    span = _arg_span(last, source)
    at = Place(str(source.path), span.end_row, span.end_column, span.end_row, span.end_column)
    if not _on_own_rows(last, source, lines):
        yield TextEdit(at, "".join(f", {text}" for text in new))
        return
    comma = _has_comma(last)
    if not comma:
        yield TextEdit(at, ",")
    rows = [f"{text}," for text in new]
    if not comma:
        rows[-1] = rows[-1][:-1]
    yield lines.insert(span.end_row + 1, lines.written("\n".join(rows), lines.indent(span.row)))


def _has_comma(arg: cst.Arg) -> bool:
    import libcst as cst

    return isinstance(arg.comma, cst.Comma)


def _arg_span(arg: cst.Arg, source: Source) -> Span:
    """From the keyword or the stars to the end of the value with its brackets, without the comma."""
    value = outer_span(Site(source, arg.value))
    if arg.keyword is not None:
        start = source.span(arg.keyword)
        return Span(start.row, start.column, value.end_row, value.end_column)
    if arg.star:
        whole = source.span(arg)
        return Span(whole.row, whole.column, value.end_row, value.end_column)
    return value


def _on_own_rows(arg: cst.Arg, source: Source, lines: Lines) -> bool:
    """Whether an argument's rows hold nothing else: no other argument, no bracket of the call."""
    span = _arg_span(arg, source)
    if lines.content(span.row)[: span.column - 1].strip():
        return False
    rest = lines.content(span.end_row)[span.end_column - 1 :].strip()
    return not rest.removeprefix(",").strip().partition("#")[0]


def outer_span(site: Site) -> Span:
    """Where an expression stands, with the brackets around it."""
    source, node = site.source, site.node
    span = source.span(node)
    left, right = getattr(node, "lpar", ()), getattr(node, "rpar", ())
    if not left:
        return span
    code = source.tree.code_for_node
    row, column = _back(span.row, span.column, "".join(code(one) for one in left), source)
    after = "".join(code(one) for one in right).replace("\r\n", "\n").replace("\r", "\n")
    end_row = span.end_row + after.count("\n")
    tail = after.rpartition("\n")[2]
    return Span(row, column, end_row, len(tail) + 1 if "\n" in after else span.end_column + len(tail))


def _back(row: int, column: int, before: str, source: Source) -> tuple[int, int]:
    """The place from which `before` leads to this one."""
    before = before.replace("\r\n", "\n").replace("\r", "\n")
    first = before.count("\n")
    if not first:
        return row, column - len(before)
    content = Lines(source.path, source.text).content(row - first)
    return row - first, len(content) - len(before.partition("\n")[0]) + 1


def _place(source: Source, span: Span) -> Place:
    return Place(str(source.path), span.row, span.column, span.end_row, span.end_column)
