"""Which files must not reach a parser: size and depth are judged on the bytes, since no `except` helps later.

Measured with LibCST 1.9 on CPython 3.11, default stack and recursion limit:

- brackets: 100 deep parse in 0.07 s and can be visited; 150 raise RecursionError in a visit, 1,000 calls in each other
  parse in 10 s, and 3,000 brackets (closed or not, also within an f-string) kill the process with a segmentation fault;
- chains: 300 operators, attributes, subscripts, adjacent strings, `elif`s, `for`s of a comprehension or lambdas can be
  visited, 400 raise RecursionError; of `.f()` 150 can, 200 cannot, and 3,000 take 19 s to parse;
- harmless at 3,000: comparisons, arguments, targets, decorators, `case`s, `|` of patterns, semicolons, comments;
- blocks: LibCST itself refuses more than 99 levels of indentation with a plain syntax error;
- size: about 13 s and 900 MB for each megabyte of dense code.

Every string is skipped by the rules of the language, but for the fields of f-strings, which are code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_BYTES = 1_500_000
MAX_ELIFS = 250

# 100 brackets, 250 links of a chain, 125 chained calls, or what adds up to as much.
_BRACKET, _LINK, _MAX_WEIGHT = 3, 2, 500

_QUOTES = (b"'", b'"', b"'''", b'"""')
_PLAIN = b"|".join(
    (
        rb"'''[^\\']*(?:(?:\\.|'(?!''))[^\\']*)*'''",
        rb'"""[^\\"]*(?:(?:\\.|"(?!""))[^\\"]*)*"""',
        rb"'[^\\'\r\n]*(?:\\.[^\\'\r\n]*)*'",
        rb'"[^\\"\r\n]*(?:\\.[^\\"\r\n]*)*"',
    )
)
_FORMATTED = rb"\b(?:[fFtT][rR]?|[rR][fFtT])(?P<open>'''|\"\"\"|'|\")"
_WORDS = rb"\b(?:and|or|not|if|else|lambda|for|await)\b"
_CODE = re.compile(
    rb"(?P<opening>[(\[{])|(?P<closing>[)\]}])|(?P<reset>[,;])|(?P<newline>\n|\r)|(?P<colon>:)"
    rb"|(?P<formatted>%s)|(?P<link>%s|\*\*?|//?|[.+\-%%@|&^~]|%s)|#[^\r\n]*|\\\r?\n" % (_FORMATTED, _PLAIN, _WORDS),
    re.DOTALL,
)
_STOP = {quote: rb"|(?P<end>%s)%s" % (quote, b"" if len(quote) == 3 else rb"|(?P<cut>[\r\n])") for quote in _QUOTES}
_TEXT = {quote: re.compile(rb"\\.|\{\{|(?P<opening>\{)" + stop, re.DOTALL) for quote, stop in _STOP.items()}
_FORMAT = {
    quote: re.compile(rb"\\.|(?P<opening>\{)|(?P<closing>\})" + stop, re.DOTALL) for quote, stop in _STOP.items()
}

# Whole lines that cannot weigh too much, since they are short, and that leave nothing open: most of any file.
_SIMPLE = rb"[^\n\r()\[\]{}'\"\\#]*"
_STRING = rb"'[^'\\\n\r{}]*'(?!')|\"[^\"\\\n\r{}]*\"(?!\")"
_INNER = rb"[(\[{]%s(?:(?:%s)%s)*[)\]}]" % (_SIMPLE, _STRING, _SIMPLE)
_OUTER = rb"[(\[{]%s(?:(?:%s|%s)%s)*[)\]}]" % (_SIMPLE, _STRING, _INNER, _SIMPLE)
_LINES = re.compile(
    rb"(?:(?=[^\n]{0,%d}\n)%s(?:(?:%s|%s)%s)*(?:#[^\r\n]*)?\n)*"
    % (_MAX_WEIGHT // (_BRACKET + _LINK) - 1, _SIMPLE, _STRING, _OUTER, _SIMPLE)
)


def refuse(data: bytes) -> str | None:
    """Why these bytes must not be parsed, in a few words for a message; None when they may."""
    if len(data) > MAX_BYTES:
        return f"too large to analyse ({len(data) / 1e6:.1f} MB, the limit is {MAX_BYTES / 1e6:g} MB)"
    at = _too_deep(data)
    if at is None:
        at = _too_many_elifs(data)
    if at is None:
        return None
    line = len(re.findall(rb"\r\n|\r|\n", data[:at])) + 1
    return f"nested or chained too deeply to analyse (line {line})"


@dataclass(slots=True)
class _Level:
    """What is open: a bracket, the field of an f-string, or (with a quote) the text of an f-string or of a format."""

    quote: bytes = b""
    is_field: bool = False
    links: int = 0

    @property
    def tokens(self) -> re.Pattern[bytes]:
        if not self.quote:
            return _CODE
        return _FORMAT[self.quote] if self.is_field else _TEXT[self.quote]


def _too_deep(data: bytes) -> int | None:
    """Where the brackets and chains that are open at once weigh too much."""
    if len(data) < _MAX_WEIGHT // (_BRACKET + _LINK):
        return None
    levels = [_Level()]
    weight = 0
    position = _end_of_lines(data, 0)
    while True:
        level = levels[-1]
        found = level.tokens.search(data, position)
        if found is None:
            return None
        position = found.end()
        kind = found.lastgroup
        if kind == "open":
            kind = "formatted"
        if kind == "link":
            level.links += 1
            weight += _LINK
        elif kind == "opening":
            level.links += 1
            levels.append(_Level(is_field=bool(level.quote)))
            weight += _BRACKET + _LINK
        elif kind == "formatted":
            level.links += 1
            levels.append(_Level(quote=found["open"]))
            weight += _BRACKET + _LINK
        elif kind == "reset" or (kind == "newline" and len(levels) == 1):
            weight -= _LINK * level.links
            level.links = 0
            if kind == "newline" and not weight:
                position = _end_of_lines(data, position)
        elif kind in ("closing", "end", "cut") and len(levels) > 1:
            weight -= _BRACKET + _LINK * level.links
            levels.pop()
        elif kind == "colon" and level.is_field:
            # A format is text again, up to the field's own closing bracket.
            level.quote = next(each.quote for each in reversed(levels) if each.quote)
        if weight > _MAX_WEIGHT:
            return found.start()


def _end_of_lines(data: bytes, position: int) -> int:
    found = _LINES.match(data, position)
    return found.end() if found else position


def _too_many_elifs(data: bytes) -> int | None:
    """Where one `if` has more `elif`s than can be visited: LibCST nests each in the one before."""
    if len(re.findall(rb"\belif\b", data)) <= MAX_ELIFS:
        return None
    counts: dict[bytes, int] = {}
    for line in re.finditer(rb"^([ \t]*)(elif\b|else\b|if\b|)", data, re.MULTILINE):
        indent, word = line.groups()
        if word == b"elif":
            counts[indent] = counts.get(indent, 0) + 1
            if counts[indent] > MAX_ELIFS:
                return line.start()
        elif word == b"if":
            counts[indent] = 0
    return None
