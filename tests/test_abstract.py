"""The two trees of a file are one program: each node that a run meets has its twin in LibCST's tree."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import libcst as cst
import pytest

from fsdp_lint.source.file import Site, Source
from fsdp_lint.source.structure import inner, program_below

ROOT = Path(__file__).parent.parent
FILES = [*sorted(ROOT.glob("fixtures/*/*.py"))[::8], *ROOT.glob("tests/trace/*.py"), *ROOT.glob("fsdp_lint/**/*.py")]
SYNTAX = '''\
"""doc"""
import a.b as c, d
from . import e
from ..f.g import h as i, j
from k import *
x = y = "a" "b" f"{z!r:>{w}}" f"{q(1)}"; n = 1_000 + 0x1F - 1e3 * 2j / 1e999
x: int = -1
x: str
x += 1; x //= 2; x |= y; x @= z
del x, y[0]
del (a, b)
assert x, "m"
raise
raise A from b
global g1, g2
p = not a and b or c and d and e
q = (a and b) and c
r = a < b <= c != d is not e not in f
s = x[1], x[1:2:3], x[:, None], x[(1, 2)], x[(a), (b)], x[(1,)], x[()], x[...]
t = (yield), (yield 1), (yield from z), (lambda *a, b=1, **k: a), (w := 1), (a if b else c)
u = [*a, b], {*a}, {**a, "k": v}, (*a, b), ()
v = [i for i in x if i if j for k in l], {i for i in x}, {i: j for i, j in x}, f(i for i in x)
f(*a, 1, k=2, *b, **c)
f(k=1, *b)
b"bytes", None, True, r"\\d", """three
lines"""
if a: b; c
elif d:
    e
else:
    if f:
        g
while a: break
else: continue
for i, *j in x:
    pass
else:
    pass
try:
    pass
except A as e:
    raise
except (B, C):
    pass
except:
    pass
else:
    pass
finally:
    pass
with a as b, c: pass
with (a as b, c as (d, e)):
    pass
@decorator(1)
class C(B, *bs, metaclass=M, **kw):
    def f(self, a, /, b: int = 1, *args: str, c, d=2, **k) -> None:
        nonlocal z
        return
    def g(self, *, a): return 1
async def co():
    async with a as b:
        await c
    async for i in x:
        yield i
    return [i async for i in x]
match x:
    case 1 | "a" if y: pass
    case None: pass
    case [a, *_] | {"k": v, **r}: pass
    case (1, 2): pass
    case C(a, b=2) as z: pass
    case _: pass
'''


def unpaired(source: Source) -> list[str]:
    """What a run would see of the file that LibCST's tree does not have, or has otherwise."""
    found: list[str] = []
    for node in program_below(source.abstract):
        twin = source.concrete(node)
        if twin is node:
            if not isinstance(node, cst.FormattedStringText | cst.FormattedStringExpression):
                found.append(f"{type(node).__name__} stands alone")
        elif content(node) != content(twin):
            found.append(f"{content(node)} is {content(twin)}")
    return found


def content(node: Any) -> object:
    """What a node says by itself."""
    match node:
        case cst.Name(value=value):
            return value
        case cst.SimpleString() | cst.ConcatenatedString():
            return node.evaluated_value
        case cst.Integer(value=value) | cst.Float(value=value) | cst.Imaginary(value=value):
            return ast.literal_eval(value)
        case cst.Arg():
            return node.star, node.keyword is None
        case cst.BinaryOperation() | cst.BooleanOperation() | cst.UnaryOperation() | cst.AugAssign():
            return type(node.operator)
        case cst.ComparisonTarget():
            return type(node.operator)
        case cst.FunctionDef() | cst.For() | cst.With() | cst.CompFor():
            return type(node), node.asynchronous is not None
        case cst.If():
            return type(node.orelse)
        case cst.ImportFrom():
            return len(node.relative), isinstance(node.names, cst.ImportStar)
        case cst.Module() | cst.BaseSuite() | cst.SimpleStatementLine() | cst.BaseString():
            return None
        case cst.MatchList() | cst.MatchTuple():
            return len(node.patterns)
    return type(node), len(inner(node))


def test_all_syntax_is_seen_alike() -> None:
    assert unpaired(Source(Path("x.py"), SYNTAX)) == []


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_lines_may_end_in_any_way(ends: str) -> None:
    assert unpaired(Source(Path("x.py"), SYNTAX.replace("\n", ends))) == []


def test_our_own_files_and_an_eighth_of_the_fixtures_are_seen_alike() -> None:
    assert len(FILES) > 300
    wrong = {path.name: unpaired(Source(path, path.read_text())) for path in FILES}
    assert {name: what for name, what in wrong.items() if what} == {}


def test_a_site_is_the_same_from_either_tree() -> None:
    source = Source(Path("x.py"), "x = 1\n\n\ndef f():\n    return (\n        g(1)\n    )\n")
    call = next(node for node in program_below(source.abstract) if isinstance(node, cst.Call))
    seen = Site(source, call)
    assert seen.row == 6
    written = Site(source, seen.node)
    assert written == seen and hash(written) == hash(seen) and written.node is not call
    assert source.span(seen.node).row == 6 and source.parent(seen.node) is not None


def test_newer_syntax_than_the_interpreter_knows_is_left_to_libcst() -> None:
    source = Source(Path("x.py"), "type X = int\n")
    assert (source.abstract is source.tree) == (sys.version_info < (3, 12))


def test_runs_ask_only_for_what_both_trees_have() -> None:
    asking = {
        path.name for path in (ROOT / "fsdp_lint" / "trace").rglob("*.py") if "children(node)" in path.read_text()
    }
    assert asking == set()


def test_a_site_is_the_same_whenever_it_is_made() -> None:
    source = Source(Path("x.py"), "f(1)\n")
    early = Site(source, source.tree.body[0])
    assert Site(source, early.node) == early and Site(source, source.abstract.body[0]) == early
