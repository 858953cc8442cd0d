"""From the bytes of a Python file to its text, and to what the interpreter's own parser sees in it."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import warnings


class Unreadable(Exception):
    """A file that should have been read could not be; the message says why in one line, without the file's name."""


def decode(data: bytes) -> str:
    """The text of a Python file, line ends kept, a byte order mark dropped. Raises Unreadable."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise Unreadable(f"cannot be decoded: {error}") from None


def parse(text: str) -> ast.Module:
    """The text as the interpreter's own parser sees it, in a tenth of LibCST's time. Raises Unreadable."""
    if "\0" in text:
        raise Unreadable("is not valid Python: it contains a NUL byte")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError) as error:
        where = f"line {error.lineno}, column {error.offset}" if isinstance(error, SyntaxError) else str(error)
        raise Unreadable(f"is not valid Python {sys.version_info[0]}.{sys.version_info[1]}: {where}") from None
    except (RecursionError, MemoryError):
        raise Unreadable("is nested too deeply to be parsed") from None
