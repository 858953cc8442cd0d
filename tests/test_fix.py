"""Edits, moves, rounds and writing: what changes, byte for byte, and what must not."""

from __future__ import annotations

import itertools
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import libcst as cst
import pytest

from fsdp_lint.findings import (
    Applicability,
    Coverage,
    LocatedFinding,
    LocatedFix,
    Place,
    Report,
    Severity,
    TextEdit,
)
from fsdp_lint.fix.apply import Settled, choose, edit_text, settle
from fsdp_lint.fix.arguments import argument, function_of, keywords, receiver_of, text_of
from fsdp_lint.fix.blocks import between, block_of, common_block, siblings, statement_of
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
from fsdp_lint.fix.locate import locate
from fsdp_lint.fix.moves import can_move_after, movable_around
from fsdp_lint.fix.names import names_bound, names_used
from fsdp_lint.fix.spelling import spelled, spelled_in_module
from fsdp_lint.fix.writing import NotWritten, write
from fsdp_lint.source.file import Site, Source
from fsdp_lint.source.text import decode

PATH = Path("/project/train.py")


def nodes(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    yield node
    for child in node.children:
        yield from nodes(child)


def site(source: Source, code: str) -> Site:
    """The smallest node whose code is `code`, the first such node of the file."""
    inside = itertools.islice(nodes(source.tree), 1, None)
    found = [n for n in inside if source.tree.code_for_node(n).strip() == code]
    assert found, f"no node reads {code!r}"
    first = source.span(found[0])
    return Site(source, [n for n in found if source.span(n) == first][-1])


def fixed(text: str, fix: Fix) -> str | None:
    """The text after a fix, which must still be Python; None where there is none."""
    located = locate(fix)
    if located is None:
        return None
    result = edit_text(text, located.edits)
    cst.parse_module(result)
    return result


def edited(text: str, edits: Callable[[Source], tuple[Edit, ...]]) -> str | None:
    """The text after the edits; None where they cannot be made."""
    return fixed(text, Fix("mend", edits(Source(PATH, text))))


def moved(text: str, statement: str = "AdamW(m.parameters())", anchor: str = "fully_shard(m)") -> str | None:
    """The text after the statement and what hangs on it went behind the anchor; None where it must not."""
    source = Source(PATH, text)
    statements = can_move_after(site(source, statement), site(source, anchor))
    if statements is None:
        return None
    return fixed(text, Fix("move", (MoveAfter(statements, site(source, anchor)),)))


# Moves: what the text looks like afterwards.

MOVES = {
    "next line": (
        "m = M()\no = AdamW(m.parameters())\nfully_shard(m)\nrun(o)\n",
        "m = M()\nfully_shard(m)\no = AdamW(m.parameters())\nrun(o)\n",
    ),
    "comments and a trailing comment": (
        "m = M()\n# not its own\n\n# one\n# two\no = AdamW(m.parameters())  # three\nfully_shard(m)  # four\nrun(o)\n",
        "m = M()\n# not its own\n\nfully_shard(m)  # four\n# one\n# two\no = AdamW(m.parameters())  # three\nrun(o)\n",
    ),
    "a comment at the head of the file stays": (
        "# Licence\no = AdamW(m.parameters())\nfully_shard(m)\n",
        "# Licence\nfully_shard(m)\no = AdamW(m.parameters())\n",
    ),
    "a cell mark stays": (
        "m = M()\n# %% optimizer\n# mine\no = AdamW(m.parameters())\nfully_shard(m)\n",
        "m = M()\n# %% optimizer\nfully_shard(m)\n# mine\no = AdamW(m.parameters())\n",
    ),
    "CRLF": (
        "def f():\r\n    m = M()\r\n    o = AdamW(m.parameters())\r\n    fully_shard(m)\r\n    run(o)\r\n",
        "def f():\r\n    m = M()\r\n    fully_shard(m)\r\n    o = AdamW(m.parameters())\r\n    run(o)\r\n",
    ),
    "old Mac line ends": (
        "m = M()\ro = AdamW(m.parameters())\rfully_shard(m)\rrun(o)\r",
        "m = M()\rfully_shard(m)\ro = AdamW(m.parameters())\rrun(o)\r",
    ),
    "mixed line ends stay with their lines": (
        "m = M()\r\no = AdamW(m.parameters())\nfully_shard(m)\r\nrun(o)\n",
        "m = M()\r\nfully_shard(m)\r\no = AdamW(m.parameters())\nrun(o)\n",
    ),
    "tabs": (
        "def f():\n\tm = M()\n\to = AdamW(m.parameters())\n\tfor b in m.bs:\n\t\tfully_shard(b)\n\tfully_shard(m)\n",
        "def f():\n\tm = M()\n\tfor b in m.bs:\n\t\tfully_shard(b)\n\tfully_shard(m)\n\to = AdamW(m.parameters())\n",
    ),
    "no last newline": (
        "def f():\n    o = AdamW(m.parameters())\n    fully_shard(m)",
        "def f():\n    fully_shard(m)\n    o = AdamW(m.parameters())",
    ),
    "no last newline, CRLF, a comment behind": (
        "o = AdamW(m.parameters())\r\nfully_shard(m)  # last",
        "fully_shard(m)  # last\r\no = AdamW(m.parameters())",
    ),
    "form feed and odd spaces": (
        "s = 'a\x0cb\x1c\u2028c'\n\x0c\no = AdamW(m.parameters())\nfully_shard(m)\nx = '\u2028'\n",
        "s = 'a\x0cb\x1c\u2028c'\n\x0c\nfully_shard(m)\no = AdamW(m.parameters())\nx = '\u2028'\n",
    ),
    "several rows, by brackets and by backslash": (
        "o = \\\n  AdamW(m.parameters())\ns = LR(\n    o,\n  1)\nfully_shard(m)\nrun(o)\n",
        "fully_shard(m)\no = \\\n  AdamW(m.parameters())\ns = LR(\n    o,\n  1)\nrun(o)\n",
    ),
    "the scheduler comes along, what stands between stays": (
        "m = M()\n\no = AdamW(m.parameters())\nprint('hi')\n\n# warm up\ns = LR(o)\nseed = 1\nfully_shard(m)\n",
        "m = M()\n\nprint('hi')\n\nseed = 1\nfully_shard(m)\no = AdamW(m.parameters())\n# warm up\ns = LR(o)\n",
    ),
    "the chain is followed": (
        "o = AdamW(m.parameters())\ns = LR(o)\nq = Both(s)\nif warm:\n    q.warm()\nfully_shard(m)\nrun(o)\n",
        "fully_shard(m)\no = AdamW(m.parameters())\ns = LR(o)\nq = Both(s)\nif warm:\n    q.warm()\nrun(o)\n",
    ),
    "a blank row between what is moved stays there, one of two gaps goes": (
        "m = M()\n\no = AdamW(m.parameters())\n\ns = LR(o)\n\nfully_shard(m)\n\nrun(o)\n",
        "m = M()\n\nfully_shard(m)\no = AdamW(m.parameters())\n\ns = LR(o)\n\nrun(o)\n",
    ),
    "no gap opens a block": (
        "def f(m):\n    o = AdamW(m.parameters())\n\n    fully_shard(m)\n    return o\n",
        "def f(m):\n    fully_shard(m)\n    o = AdamW(m.parameters())\n    return o\n",
    ),
    "the model is rebound by the anchor": (
        "o = AdamW(m.parameters())\nif big:\n    m = fully_shard(m)\nrun(m, o)\n",
        "if big:\n    m = fully_shard(m)\no = AdamW(m.parameters())\nrun(m, o)\n",
    ),
    "attributes": (
        "class T:\n    def f(self):\n        self.o = AdamW(self.m.parameters())\n        self.s = LR(self.o, self.n)\n"
        "        self.m = fully_shard(self.m)\n",
        "class T:\n    def f(self):\n        self.m = fully_shard(self.m)\n"
        "        self.o = AdamW(self.m.parameters())\n"
        "        self.s = LR(self.o, self.n)\n",
    ),
    "a method that does not read it may run in between": (
        "class T:\n  def f(self):\n    self.o = AdamW(self.m.parameters())\n    self.log()\n    fully_shard(self.m)\n"
        "  def log(self):\n    print(self.name)\n",
        "class T:\n  def f(self):\n    self.log()\n    fully_shard(self.m)\n    self.o = AdamW(self.m.parameters())\n"
        "  def log(self):\n    print(self.name)\n",
    ),
    "another function's variable of the same name": (
        "def g():\n    o = 1\n    return o\ndef f(m):\n    o = AdamW(m.parameters())\n    g()\n"
        "    fully_shard(m)\n    return o\n",
        "def g():\n    o = 1\n    return o\ndef f(m):\n    g()\n    fully_shard(m)\n"
        "    o = AdamW(m.parameters())\n    return o\n",
    ),
    "a function from elsewhere runs in between": (
        "self.o = AdamW(m.parameters())\nlog(1)\nx = dist.rank()\nfully_shard(m)\n",
        "log(1)\nx = dist.rank()\nfully_shard(m)\nself.o = AdamW(m.parameters())\n",
    ),
    "a raise under a condition between": (
        "o = AdamW(m.parameters())\nif bad:\n    raise ValueError\nfully_shard(m)\n",
        "if bad:\n    raise ValueError\nfully_shard(m)\no = AdamW(m.parameters())\n",
    ),
    "a loop of its own may break between": (
        "o = AdamW(m.parameters())\nfor x in y:\n    if x:\n        break\nfully_shard(m)\n",
        "for x in y:\n    if x:\n        break\nfully_shard(m)\no = AdamW(m.parameters())\n",
    ),
}


@pytest.mark.parametrize("name", MOVES)
def test_move(name: str) -> None:
    text, expected = MOVES[name]
    source = Source(PATH, text)
    statement = next(
        Site(source, node)
        for node in nodes(source.tree)
        if isinstance(node, cst.Call) and source.tree.code_for_node(node).startswith("AdamW")
    )
    anchor = next(
        Site(source, node)
        for node in reversed([*nodes(source.tree)])
        if isinstance(node, cst.Call) and source.tree.code_for_node(node).startswith("fully_shard")
    )
    statements = can_move_after(statement, anchor)
    assert statements is not None
    assert fixed(text, Fix("move", (MoveAfter(statements, anchor),))) == expected


def test_move_behind_a_whole_loop() -> None:
    text = (
        "def f(m):\n    o = AdamW(m.parameters())\n    for b in m.bs:\n        fully_shard(b)\n"
        "        # all of them\n\n"
        "    # train\n    run(o)\n"
    )
    assert moved(text, anchor="fully_shard(b)") == (
        "def f(m):\n    for b in m.bs:\n        fully_shard(b)\n        # all of them\n"
        "    o = AdamW(m.parameters())\n\n"
        "    # train\n    run(o)\n"
    )


REFUSED = {
    "a method of the model that a wrapper hides": "o = AdamW(m.groups())\nm = fully_shard(m)\n",
    "a list that is chosen grows between": "o = AdamW(groups)\n(groups if x else rest).append(1)\nfully_shard(m)\n",
    "an item of a list grows between": "o = AdamW(groups)\ngroups[0]['params'].append(1)\nfully_shard(m)\n",
    "a method of the same class reads what another sets": "class T:\n  def f(self):\n    self.a(AdamW)\n"
    "    fully_shard(self.m, self.o)\n  def a(self, k):\n    self.o = AdamW(self.m)\n",
    "two on one line": "o = AdamW(m.parameters()); x = 1\nfully_shard(m)\n",
    "behind a colon": "if x: o = AdamW(m.parameters())\nfully_shard(m)\n",
    "a nested block": "if x:\n    o = AdamW(m.parameters())\nfully_shard(m)\n",
    "alone in its block": "with x:\n    o = AdamW(m.parameters())\nfully_shard(m)\n",
    "the head of a block": "for p in AdamW(m.parameters()):\n    pass\nfully_shard(m)\n",
    "the arms of one if": "if x:\n    o = AdamW(m.parameters())\nelif y:\n    fully_shard(m)\n",
    "another function": "o = AdamW(m.parameters())\ndef f():\n    fully_shard(m)\n",
    "the same statement": "o = AdamW(m.parameters(), fully_shard(m))\n",
    "the anchor stands first": "fully_shard(m)\no = AdamW(m.parameters())\n",
    "the anchor reads it": "o = AdamW(m.parameters())\nwith_it(o, fully_shard(m))\n",
    "the anchor rebinds an argument": "o = AdamW(m.parameters(), lr)\nlr = fully_shard(m)\n",
    "the model is bound anew between": "o = AdamW(m.parameters())\nm = M()\nfully_shard(m)\n",
    "an argument is bound anew between": "lr = 1\no = AdamW(m.parameters(), lr=lr)\nlr = lr * 2\nfully_shard(m)\n",
    "an item is set between": "o = AdamW(m.parameters(), c['lr'])\nc['lr'] = 1\nfully_shard(m)\n",
    "an attribute is set between": "o = AdamW(build(m, c))\nc.lr = 1\nfully_shard(m)\n",
    "a list grows between": "o = AdamW(groups)\ngroups.append(m.parameters())\nfully_shard(m)\n",
    "the flag it reads is set between": "o = AdamW([p for p in m.parameters() if p.requires_grad])\n"
    "for p in m.a.parameters():\n    p.requires_grad = False\nfully_shard(m)\n",
    "the flag it reads is set in place": "o = AdamW([p for p in m.parameters() if p.requires_grad])\n"
    "m.a.requires_grad_(False)\nfully_shard(m)\n",
    "the optimizer is bound anew between": "o = AdamW(m.parameters())\no = SGD(k)\nfully_shard(m)\n",
    "a return between": "def f():\n    o = AdamW(m.parameters())\n    if x:\n        return\n    fully_shard(m)\n",
    "a yield between": "def f():\n    o = AdamW(m.parameters())\n    yield 1\n    fully_shard(m)\n",
    "a continue between": "for x in y:\n    o = AdamW(m.parameters())\n    if x: continue\n    fully_shard(m)\n",
    "a raise between": "def f():\n    o = AdamW(m.parameters())\n    raise E\n    fully_shard(m)\n",
    "the anchor returns": "def f():\n    o = AdamW(m.parameters())\n    return fully_shard(m)\n",
    "what reads it makes what the anchor needs": "o = AdamW(m.parameters())\nmesh = g(o)\nfully_shard(m, mesh)\n",
    "what reads it rebinds the model": "o = AdamW(m.parameters())\nm, o = prepare(m, o)\nfully_shard(m)\n",
    "a checkpoint is loaded into both": "o = AdamW(m.parameters())\nload(m, o)\nfully_shard(m)\n",
    "the optimizer's state is loaded": "o = AdamW(m.parameters())\no.load_state_dict(c)\nfully_shard(m)\n",
    "a loop trains in between": "o = AdamW(m.parameters())\nfor x in y:\n    o.step()\nfully_shard(m)\n",
    "a function reads the global": "o = AdamW(m.parameters())\ng()\nfully_shard(m)\ndef g():\n    h()\n"
    "def h():\n    o.step()\n",
    "a method reads the attribute": "class T:\n  def f(self):\n    self.o = AdamW(m.parameters())\n    self.g()\n"
    "    fully_shard(m)\n  def g(self):\n    self.o.step()\n",
    "an inherited method may read the attribute": "class T(B):\n  def f(self):\n    self.o = AdamW(m.parameters())\n"
    "    self.g()\n    fully_shard(m)\n",
    "a method sets what it reads": "class T:\n  def f(self):\n    self.o = AdamW(m.parameters(), self.lr)\n"
    "    self.g()\n    fully_shard(m)\n  def g(self):\n    self.lr = 1\n",
    "the object is handed on": "class T:\n  def f(self):\n    self.o = AdamW(m.parameters())\n    g(self)\n"
    "    fully_shard(m)\n",
    "nothing is bound": "AdamW(m.parameters())\nfully_shard(m)\n",
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_move(name: str) -> None:
    source = Source(PATH, REFUSED[name])
    calls = [node for node in nodes(source.tree) if isinstance(node, cst.Call)]
    statement = next(c for c in calls if source.tree.code_for_node(c).startswith("AdamW"))
    anchor = next(c for c in calls if source.tree.code_for_node(c).startswith("fully_shard"))
    assert can_move_after(Site(source, statement), Site(source, anchor)) is None


def test_move_behind_a_call_that_shards_elsewhere() -> None:
    """The anchor may be the call, in the optimizer's own block, of the function that shards."""
    text = (
        "class T:\n    def __init__(self, m):\n        self.m = m\n        self.o = AdamW(self.m.parameters())\n"
        "        self.wrap()\n    def wrap(self):\n        self.m = fully_shard(self.m)\n"
    )
    line = "        self.o = AdamW(self.m.parameters())\n"
    expected = text.replace(line, "").replace("        self.wrap()\n", "        self.wrap()\n" + line)
    assert moved(text, "AdamW(self.m.parameters())", "self.wrap()") == expected
    reads = text + "        print(self.o)\n"
    assert moved(reads, "AdamW(self.m.parameters())", "self.wrap()") is None


METHODS = """\
class T:
    def f(self):
        self.make()
        self.log()
        self.wrap()
    def make(self):
        self.o = AdamW(self.m.parameters(), self.lr)
    def log(self):
        print(self.name)
    def wrap(self):
        self.m = fully_shard(self.m)
"""


def test_move_of_a_method_call() -> None:
    """What `self.make()` does is in the file: the attributes that it sets are what others must not read before."""
    line = "        self.make()\n"
    expected = METHODS.replace(line, "").replace("        self.wrap()\n", "        self.wrap()\n" + line)
    assert moved(METHODS, "self.make()", "self.wrap()") == expected
    for old, new in [("self.name", "self.o"), ("print(self.name)", "self.lr = 1"), ("(self.m)", "(self.m, self.o)")]:
        assert moved(METHODS.replace(old, new), "self.make()", "self.wrap()") is None
    elsewhere = METHODS.replace("    def make(self):\n        self.o = AdamW(self.m.parameters(), self.lr)\n", "")
    assert moved(elsewhere, "self.make()", "self.wrap()") is None


def test_move_of_the_loop_or_test_around() -> None:
    text = "for p in AdamW(m):\n    (a if p else b).append(p)\no = g(a)\nfully_shard(m)\nrun(o)\n"
    source = Source(PATH, text)
    around = movable_around(site(source, "AdamW(m)"), site(source, "fully_shard(m)"))
    statements = can_move_after(around, site(source, "fully_shard(m)"))
    assert statements is not None
    assert fixed(text, Fix("move", (MoveAfter(statements, site(source, "fully_shard(m)")),))) == (
        "fully_shard(m)\nfor p in AdamW(m):\n    (a if p else b).append(p)\no = g(a)\nrun(o)\n"
    )
    source = Source(PATH, "o = AdamW(m)\nfully_shard(m)\n")
    assert movable_around(site(source, "AdamW(m)"), site(source, "fully_shard(m)")) == site(source, "AdamW(m)")


def test_no_move_between_files() -> None:
    a, b = Source(PATH, "o = AdamW()\n"), Source(PATH.with_name("b.py"), "fully_shard(m)\n")
    assert can_move_after(site(a, "AdamW()"), site(b, "fully_shard(m)")) is None
    assert locate(Fix("move", (MoveAfter((site(a, "AdamW()"),), site(b, "fully_shard(m)")),))) is None


def test_move_into_another_block_is_indented_like_it_but_strings_are_not() -> None:
    text = 'o = A(\n    """\n x\n""",\n    1)\nif x:\n\t  fully_shard(m)\n'

    def edits(source: Source) -> tuple[Edit, ...]:
        home = Site(source, source.tree.body[0])
        inner = site(source, "fully_shard(m)")
        # Its own block holds the `if`, so that is the anchor; text is only re-indented from an inner block outwards.
        return (MoveAfter((home,), inner),)

    assert edited(text, edits) == 'if x:\n\t  fully_shard(m)\no = A(\n    """\n x\n""",\n    1)\n'
    inner = 'if x:\n    a\n    o = A("""\n    b\n""",\n        1)\nfully_shard(m)\n'
    result = edited(inner, lambda s: (MoveAfter((site(s, "o"),), site(s, "fully_shard(m)")),))
    assert result == 'if x:\n    a\nfully_shard(m)\no = A("""\n    b\n""",\n    1)\n'


def test_move_that_would_empty_a_block_is_refused() -> None:
    text = "if x:\n    o = A()\nfully_shard(m)\n"
    assert edited(text, lambda s: (MoveAfter((site(s, "A()"),), site(s, "fully_shard(m)")),)) is None


def test_move_behind_what_is_moved_is_refused() -> None:
    text = "class A:\n    def f(self):\n        fully_shard(m)\nx = 1\n"
    anchor = "fully_shard(m)"
    assert edited(text, lambda s: (MoveAfter((Site(s, s.tree.body[0]),), site(s, anchor)),)) is None
    assert edited(text, lambda s: (MoveAfter((site(s, "x = 1"),), site(s, "x = 1")),)) is None


def test_a_decorated_definition_moves_whole() -> None:
    text = "x = 1\n# what\n@dec\n# between\n@other(\n  1)\ndef f():\n    pass\n    # foot\n\ny = 2\nz = 3\n"
    expected = "x = 1\n\ny = 2\n# what\n@dec\n# between\n@other(\n  1)\ndef f():\n    pass\n    # foot\nz = 3\n"
    assert edited(text, lambda s: (MoveAfter((Site(s, s.tree.body[1]),), site(s, "y = 2")),)) == expected


# The other edits.


def test_replace() -> None:
    text = "x = (f(a, b = ( 1 ) ,c=d))  # é\r\n"
    assert edited(text, lambda s: (Replace(site(s, "(f(a, b = ( 1 ) ,c=d))"), "g(\n)"),)) == "x = (g(\r\n))  # é\r\n"
    text = "é = '💥'; x = f(1)\n"
    assert edited(text, lambda s: (Replace(site(s, "1"), "2"),)) == "é = '💥'; x = f(2)\n"
    call = "f(  # why\n    1)"
    assert edited(f"x = {call}\n", lambda s: (Replace(site(s, call), "g()"),)) is None
    assert edited(f"x = {call}\n", lambda s: (Replace(site(s, call), "g()  # why"),)) == "x = g()  # why\n"


def test_insert() -> None:
    text = "def f():\n\t# why\n\ta()  # a\n\tb()"
    after = edited(text, lambda s: (InsertAfter(site(s, "b()"), "if x:\n\ty()\n"),))
    assert after == "def f():\n\t# why\n\ta()  # a\n\tb()\n\tif x:\n\t\ty()"
    assert edited(text, lambda s: (InsertAfter(site(s, "a()"), "c()"),)) == text.replace("\tb()", "\tc()\n\tb()")
    assert edited(text, lambda s: (InsertBefore(site(s, "a()"), "c()"),)) == text.replace("\t# why", "\tc()\n\t# why")
    assert edited("a(); b()\n", lambda s: (InsertAfter(site(s, "b()"), "c()"),)) == "a(); b()\nc()\n"
    assert edited("a(); b()\n", lambda s: (InsertAfter(site(s, "a()"), "c()"),)) is None
    assert edited("a(); b()\n", lambda s: (InsertBefore(site(s, "b()"), "c()"),)) is None
    assert edited("if x: a()\n", lambda s: (InsertAfter(site(s, "a()"), "c()"),)) is None
    assert edited("if x: a()\n", lambda s: (InsertAfter(site(s, "x"), "c()"),)) == "if x: a()\nc()\n"


def test_insert_in_place_of_another_statement_takes_its_comments() -> None:
    text = "a()\n# why\nb(  # how\n    1,\n)  # when\n"
    want = "# why\n# how\nc(1)  # when\na()\n"
    assert edited(text, lambda s: _instead(s, "c(1)")) == want
    want = "# why\nb(  # how\n    1,\n)  # when\na()\n"
    assert edited(text, lambda s: _instead(s, "b(  # how\n    1,\n)")) == want


def _instead(source: Source, text: str) -> tuple[InsertBefore, RemoveStatement]:
    old = Site(source, source.tree.body[1])
    return InsertBefore(site(source, "a()"), text, of=(old,)), RemoveStatement(old)


def test_remove() -> None:
    assert edited("a()\n\n# b\nb()\n\nc()\n", lambda s: (RemoveStatement(site(s, "b()")),)) == "a()\n\nc()\n"
    assert edited("a()\nb()\nc()\n", lambda s: (RemoveStatement(site(s, "b()")),)) == "a()\nc()\n"
    only = "if x:\r\n    # b\r\n    b()  # c"
    assert edited(only, lambda s: (RemoveStatement(site(s, "b()")),)) == "if x:\r\n    pass"
    assert edited("a(); b()\n", lambda s: (RemoveStatement(site(s, "b()")),)) is None
    last = "def f():\n    a()\n\n    b()\n\n\ndef g(): pass\n"
    assert edited(last, lambda s: (RemoveStatement(site(s, "b()")),)) == "def f():\n    a()\n\n\ndef g(): pass\n"


@pytest.mark.parametrize(
    ("text", "expression", "before", "after", "expected"),
    [
        ("x = f(a)  # é\n", "a", "list(", ")", "x = f(list(a))  # é\n"),
        ("x = p.sum().item()\n", "p.sum()", "", ".full_tensor()", "x = p.sum().full_tensor().item()\n"),
        ("x = (a + b).item()\n", "(a + b)", "", ".full_tensor()", "x = (a + b).full_tensor().item()\n"),
        ("x = float(a + b)\n", "a + b", "", ".full_tensor()", "x = float((a + b).full_tensor())\n"),
        ("x = f(((\r\n  a +  # c\r\n  b\r\n ) ))\r\n", "((\n  a +  # c\n  b\n ) )", "g(", ")",
         "x = f(g(((\r\n  a +  # c\r\n  b\r\n ) )))\r\n"),
    ],
)  # fmt: skip
def test_wrap(text: str, expression: str, before: str, after: str, expected: str) -> None:
    inside = expression.replace("\n", "\r\n") if "\r\n" in text else expression
    assert edited(text, lambda s: (Wrap(site(s, inside), before, after),)) == expected


ROWS = "f(\n    m,  # the model\n    # old\n    b=1,  # one\n    c=2,\n)\n"
CALLS: dict[str, tuple[str, Callable[[Site], Edit], str | None]] = {
    "another function": ("x = a.b(c, d=1)\n", lambda c: ChangeCall(c, function="g"), "x = g(c, d=1)\n"),
    "rename": ("f(m, b = 1)\n", lambda c: ChangeCall(c, rename={"b": "z"}), "f(m, z = 1)\n"),
    "rename to one that is there": ("f(m, b=1, z=2)\n", lambda c: ChangeCall(c, rename={"b": "z"}), None),
    "rename to one that goes": (
        "f(m, b=1, z=2)\n", lambda c: ChangeCall(c, rename={"b": "z"}, drop=("z",)), "f(m, z=1)\n",
    ),
    "rename with a new value": (
        "f(m, b=(1))\n", lambda c: ChangeCall(c, rename={"b": "z"}, put={"z": "g()"}), "f(m, z=g())\n",
    ),
    "not there": ("f(m)\n", lambda c: ChangeCall(c, rename={"b": "z"}), None),
    "drop the first": ("f(b=1, c=2)\n", lambda c: ChangeCall(c, drop=("b",)), "f(c=2)\n"),
    "drop two in the middle": ("f(m, b=1, c=2, d=3)\n", lambda c: ChangeCall(c, drop=("b", "c")), "f(m, d=3)\n"),
    "drop two apart": ("f(b=1, m=m, c=2)\n", lambda c: ChangeCall(c, drop=("b", "c")), "f(m=m)\n"),
    "drop the last, a comma stays": ("f(m, b=1,)\n", lambda c: ChangeCall(c, drop=("b",)), "f(m,)\n"),
    "drop all": ("f(b=1, c=2, )\n", lambda c: ChangeCall(c, drop=("b", "c")), "f()\n"),
    "drop on rows of their own": (
        ROWS, lambda c: ChangeCall(c, drop=("b",)), "f(\n    m,  # the model\n    c=2,\n)\n",
    ),
    "drop the last row": (
        ROWS.replace("c=2,", "c=2"), lambda c: ChangeCall(c, drop=("c",)),
        "f(\n    m,  # the model\n    # old\n    b=1,  # one\n)\n",
    ),
    "drop on a continued row": ("f(m,\n  b=1, c=2)\n", lambda c: ChangeCall(c, drop=("b",)), "f(m, c=2)\n"),
    "drop would eat a comment": ("f(m,  # the model\n  b=1, c=2)\n", lambda c: ChangeCall(c, drop=("b",)), None),
    "add": ("f(m)\n", lambda c: ChangeCall(c, put={"b": "1", "c": "2"}), "f(m, b=1, c=2)\n"),
    "add to nothing": ("f()\n", lambda c: ChangeCall(c, put={"b": "1"}), "f(b=1)\n"),
    "add where all go": ("f( z=0 )\n", lambda c: ChangeCall(c, drop=("z",), put={"b": "1"}), "f( b=1 )\n"),
    "add a row": (
        ROWS, lambda c: ChangeCall(c, drop=("c",), put={"d": "3"}),
        "f(\n    m,  # the model\n    # old\n    b=1,  # one\n    d=3,\n)\n",
    ),
    "add a row without a last comma": (
        "f(\r\n\tm,\r\n\tb=(1)  # one\r\n)", lambda c: ChangeCall(c, put={"d": "3"}),
        "f(\r\n\tm,\r\n\tb=(1),  # one\r\n\td=3\r\n)",
    ),
    "add behind stars": ("f(*a, b=1)\n", lambda c: ChangeCall(c, put={"d": "3"}), "f(*a, b=1, d=3)\n"),
    "add where ** may hold it": ("f(m, **k)\n", lambda c: ChangeCall(c, put={"d": "3"}), None),
    "add to a generator": ("f(x for x in y)\n", lambda c: ChangeCall(c, put={"d": "3"}), None),
    "a value where ** is": ("f(m, d=1, **k)\n", lambda c: ChangeCall(c, put={"d": "3"}), "f(m, d=3, **k)\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_change_call(name: str) -> None:
    text, edit, expected = CALLS[name]

    def edits(source: Source) -> tuple[Edit, ...]:
        return (edit(Site(source, next(node for node in nodes(source.tree) if isinstance(node, cst.Call)))),)

    assert edited(text, edits) == expected


def test_parts_of_a_call() -> None:
    source = Source(PATH, "a.b(c, (d), e=f, **g)\nh(*i, j)\n")
    first, second = (Site(source, node) for node in nodes(source.tree) if isinstance(node, cst.Call))
    for found, said in [
        (argument(first, "x", 0), "c"),
        (argument(first, "x", 1), "(d)"),
        (argument(first, "e", 0), "f"),
        (function_of(first), "a.b"),
        (receiver_of(first), "a"),
    ]:
        assert found is not None and text_of(found) == said
    assert argument(first, "x", 2) is None and argument(first, "x", 9) is None
    assert argument(second, "x", 1) is None and receiver_of(second) is None
    assert keywords(first) == ("e",)


def test_rewrite() -> None:
    text = "if x:\r\n\t# why\r\n\tfor a in b:\r\n\t\tf(a)\r\n\tg()"
    after = edited(
        text, lambda s: (Rewrite(Site(s, next(n for n in nodes(s.tree) if isinstance(n, cst.For))), "h(\n    b)\nk()"),)
    )
    assert after == "if x:\r\n\t# why\r\n\th(\r\n\t\tb)\r\n\tk()\r\n\tg()"
    assert edited("f(1)  # c\n", lambda s: (Rewrite(site(s, "f(1)"), "h()\ng()"),)) == "h()\ng()  # c\n"
    text = "for a in b:  # one\n    # two\n    f(a, '#')  # three\n    # four\nx()\n"
    after = edited(text, lambda s: (Rewrite(Site(s, s.tree.body[0]), "g()\nf(1)\nf(2)"),))
    assert after == "# one\n# two\n# four\ng()\nf(1)  # three\nf(2)\nx()\n"
    assert edited("f(1); g()\n", lambda s: (Rewrite(site(s, "f(1)"), "h()"),)) is None
    assert edited("x\nf(1)", lambda s: (Rewrite(site(s, "f(1)"), "h()"),)) == "x\nh()"


def test_guard() -> None:
    text = 'def f():\n  # why\n  g(\n    1,\n\n    """\n a""")  # c\n  h()\n'
    expected = 'def f():\n  # why\n  if x:\n    g(\n      1,\n\n      """\n a""")  # c\n  h()\n'
    assert edited(
        text, lambda s: (Guard(Site(s, next(n for n in nodes(s.tree) if isinstance(n, cst.Call))), "x"),)
    ) == (expected)
    assert edited("f(1)", lambda s: (Guard(site(s, "f(1)"), "x"), Replace(site(s, "1"), "2"))) == "if x:\n    f(2)"
    assert edited("f(1); g()\n", lambda s: (Guard(site(s, "f(1)"), "x"),)) is None


CLIP = "torch.nn.utils", "clip_grad_norm_"
SPELLED = {
    "by the package": ("import torch\nat()\n", "torch.nn.utils.clip_grad_norm_", 0),
    "by what is nearest": ("import torch\nfrom torch import nn\nat()\n", "nn.utils.clip_grad_norm_", 0),
    "under another name": ("from torch.nn.utils import clip_grad_norm_ as clip\nat()\n", "clip", 0),
    "not there": ("import os\nat()\n", "clip_grad_norm_", 1),
    "there under try only": ("try:\n    import torch\nexcept E:\n    pass\nat()\n", "clip_grad_norm_", 1),
    "hidden by a variable": ("import torch\ndef f(torch):\n    at()\n", "clip_grad_norm_", 1),
}


@pytest.mark.parametrize("name", SPELLED)
def test_spelled(name: str) -> None:
    text, said, imports = SPELLED[name]
    found = spelled(site(Source(PATH, text), "at()"), *CLIP)
    assert found is not None and (found[0], len(found[1])) == (said, imports)


def test_spelled_in_module() -> None:
    source = Source(PATH, "x = 1\nat()\n")
    wanted = "os.environ", (EnsureImport(source, "os", ""),)
    assert spelled_in_module(site(source, "at()"), "os", "environ") == wanted
    text = "from os import environ as env\nat()\n"
    assert spelled_in_module(site(Source(PATH, text), "at()"), "os", "environ") == ("env", ())
    text = "def f(os):\n    at()\n"
    assert spelled_in_module(site(Source(PATH, text), "at()"), "os", "environ") is None


def test_spelled_by_what_is_loaded() -> None:
    module = "torch.distributed.fsdp"
    source = Source(PATH, "import torch\nat()\n")
    wanted = "FSDPModule", (EnsureImport(source, module, "FSDPModule"),)
    assert spelled(site(source, "at()"), module, "FSDPModule") == wanted
    text = f"import {module}\nat()\n"
    assert spelled(site(Source(PATH, text), "at()"), module, "FSDPModule") == (f"{module}.FSDPModule", ())
    text = f"import {module} as F\nat()\n"
    assert spelled(site(Source(PATH, text), "at()"), module, "FSDPModule") == ("F.FSDPModule", ())
    text = "def f(FSDPModule):\n    at()\n"
    assert spelled(site(Source(PATH, text), "at()"), module, "FSDPModule") is None


def test_edits_of_one_fix_may_not_overlap() -> None:
    text = "x = f(1)\n"
    assert edited(text, lambda s: (Replace(site(s, "f(1)"), "g(1)"), Replace(site(s, "1"), "2"))) is None


SHARD = "torch.distributed.fsdp", "fully_shard"
IMPORTS = {
    "there already": ("from torch.distributed.fsdp import fully_shard\n", None),
    "there under try": (
        "try:\n    from torch.distributed.fsdp import fully_shard\nexcept ImportError:\n    pass\n",
        None,
    ),
    "there by star": ("from torch.distributed.fsdp import *\n", None),
    "into the names": (
        "from torch.distributed.fsdp import MixedPrecisionPolicy, register\n",
        "from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register\n",
    ),
    "behind the names": (
        "from torch.distributed.fsdp import FSDPModule as F  # c\n",
        "from torch.distributed.fsdp import FSDPModule as F, fully_shard  # c\n",
    ),
    "one name a row": (
        "from torch.distributed.fsdp import (\n    FSDPModule,  # c\n    register,\n)\n",
        "from torch.distributed.fsdp import (\n    FSDPModule,  # c\n    fully_shard,\n    register,\n)\n",
    ),
    "last of one name a row": (
        "from torch.distributed.fsdp import (\r\n\tFSDPModule,\r\n)\r\n",
        "from torch.distributed.fsdp import (\r\n\tFSDPModule,\r\n\tfully_shard,\r\n)\r\n",
    ),
    "among torch's": (
        "import os\n\nimport torch\nimport torch.nn as nn\nfrom torch.utils import data\nfrom yaml import load\n"
        "\nimport mine\n",
        "import os\n\nimport torch\nimport torch.nn as nn\nfrom torch.distributed.fsdp import fully_shard\n"
        "from torch.utils import data\nfrom yaml import load\n\nimport mine\n",
    ),
    "behind the last import": (
        "import os\n\nx = 1\n",
        "import os\nfrom torch.distributed.fsdp import fully_shard\n\nx = 1\n",
    ),
    "behind __future__": (
        '"""Doc."""\n\nfrom __future__ import annotations\n\nx = 1\n',
        '"""Doc."""\n\nfrom __future__ import annotations\n\nfrom torch.distributed.fsdp import fully_shard\n\nx = 1\n',
    ),
    "behind the docstring": (
        '"""Doc."""\nx = 1\n',
        '"""Doc."""\n\nfrom torch.distributed.fsdp import fully_shard\nx = 1\n',
    ),
    "behind the head comments": (
        "#!/usr/bin/python\n# -*- coding: latin-1 -*-\nx = 1\n",
        "#!/usr/bin/python\n# -*- coding: latin-1 -*-\n\nfrom torch.distributed.fsdp import fully_shard\n\nx = 1\n",
    ),
    "only for type checkers": (
        "import torch\nif TYPE_CHECKING:\n    from torch.distributed.fsdp import fully_shard\n",
        "import torch\nfrom torch.distributed.fsdp import fully_shard\nif TYPE_CHECKING:\n"
        "    from torch.distributed.fsdp import fully_shard\n",
    ),
}


PLAIN_IMPORTS = {
    "there already": ("import os, sys\n", None),
    "there under another name": ("import os as o\n", "import os as o\nimport os\n"),
    "in order": (
        "import argparse\nimport sys\n\nimport torch\n",
        "import argparse\nimport os\nimport sys\n\nimport torch\n",
    ),
    "before from": (
        "from __future__ import annotations\n\nfrom math import pi\n\nimport torch\n",
        "from __future__ import annotations\n\nimport os\nfrom math import pi\n\nimport torch\n",
    ),
    "nothing there": ("x = 1\n", "import os\n\nx = 1\n"),
    "only others": (
        '"""Doc."""\n\nimport torch\nfrom torch import nn\n\nfrom here import x\n',
        '"""Doc."""\n\nimport os\n\nimport torch\nfrom torch import nn\n\nfrom here import x\n',
    ),
    "below others": ("import torch\n\nimport sys\n", "import torch\n\nimport os\nimport sys\n"),
}


@pytest.mark.parametrize("name", PLAIN_IMPORTS)
def test_ensure_plain_import(name: str) -> None:
    text, expected = PLAIN_IMPORTS[name]
    assert edited(text, lambda s: (EnsureImport(s, "os", ""),)) == expected
    assert edited("os = 1\nf(1)\n", lambda s: (Replace(site(s, "1"), "2"), EnsureImport(s, "os", ""))) is None


@pytest.mark.parametrize("name", IMPORTS)
def test_ensure_import(name: str) -> None:
    text, expected = IMPORTS[name]
    assert edited(text, lambda s: (EnsureImport(s, *SHARD),)) == expected


RENAMES = {
    "alone": ("from a._b import c  # c\n", "from m import c  # c\n"),
    "still in order": ("from a._b import c\nfrom z import y\n", "from m import c\nfrom z import y\n"),
    "moves": (
        "import os\nfrom a._b import (\n    c,\n)  # c\nfrom b import d\nfrom z import y\n",
        "import os\nfrom b import d\nfrom m import (\n    c,\n)  # c\nfrom z import y\n",
    ),
    "moves to the end": ("from a._b import c\r\nfrom b import d", "from b import d\r\nfrom m import c"),
    "was in no order": ("from z import y\nfrom a._b import c\n", "from z import y\nfrom m import c\n"),
    "in a function": ("def f():\n    from a._b import c\n    from b import d\n",
                      "def f():\n    from m import c\n    from b import d\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", RENAMES)
def test_rename_module(name: str) -> None:
    text, expected = RENAMES[name]

    def edits(source: Source) -> tuple[Edit, ...]:
        found = [node for node in nodes(source.tree) if isinstance(node, cst.ImportFrom)]
        old = next(node for node in found if "a._b" in source.tree.code_for_node(node))
        return (RenameModule(Site(source, old), "m"),)

    assert edited(text, edits) == expected


def test_names_of_one_module_share_a_statement() -> None:
    def edits(source: Source) -> tuple[Edit, ...]:
        return tuple(EnsureImport(source, SHARD[0], name) for name in ("register", "FSDPModule", "fully_shard"))

    assert edited("import torch\n", edits) == (
        "import torch\nfrom torch.distributed.fsdp import FSDPModule, fully_shard, register\n"
    )
    assert edited("from torch.distributed.fsdp import a, fully_shard, z\n", edits) == (
        "from torch.distributed.fsdp import FSDPModule, a, fully_shard, register, z\n"
    )
    assert edited("from torch.distributed.fsdp import (\n    b,\n)\n", edits) == (
        "from torch.distributed.fsdp import (\n    FSDPModule,\n    b,\n    fully_shard,\n    register,\n)\n"
    )


def test_a_taken_name_is_not_imported() -> None:
    text = "import torch\ndef fully_shard(m): pass\nf(1)\n"
    assert edited(text, lambda s: (Replace(site(s, "1"), "2"), EnsureImport(s, *SHARD))) is None


# Blocks and names.


def test_blocks() -> None:
    source = Source(PATH, "a = f(1)\nfor x in y:\n    if z: g(2)\n    elif w:\n        h(3)\nb = k(4)\n")
    first, loop, last = (Site(source, node) for node in source.tree.body)
    assert statement_of(site(source, "f(1)")) == first
    assert source.tree.code_for_node(statement_of(site(source, "g(2)")).node).startswith("if z")
    assert siblings(site(source, "1")) == (first, loop, last)
    assert block_of(first).node is source.tree
    assert common_block(site(source, "1"), site(source, "h(3)")) == (first, loop)
    assert common_block(site(source, "g(2)"), site(source, "h(3)")) is None
    assert between(first, last) == (loop,)
    with pytest.raises(ValueError):
        statement_of(Site(source, source.tree))


def test_names() -> None:
    code = "a.b = f(c.d, key=[x.e for x in g]); h['i'] = lambda j: j + k; l.append(1)\n"
    node = cst.parse_module(code)
    assert names_used(node) == {"f", "a", "c", "c.d", "g", "h", "k", "l", "l.append"}
    assert names_bound(node) == {"a.b", "h", "l"}
    node = cst.parse_module("def f(a, b=c):\n    d = a + e\n    return d\nfor g, *h in i: pass\nimport j.k as m, n.o\n")
    assert names_used(node) == {"c", "e", "i"}
    assert names_bound(node) == {"f", "g", "h", "m", "n"}


# Choosing and settling.


def at(row: int, column: int, end_column: int, path: str = "a.py") -> Place:
    return Place(path, row, column, row, end_column)


def fix_of(*edits: TextEdit, applicability: Applicability = Applicability.SAFE) -> LocatedFix:
    return LocatedFix(applicability, "mend", edits)


def test_choose_takes_no_two_that_meet_in_any_order() -> None:
    first = fix_of(TextEdit(at(1, 1, 5), "x"), TextEdit(at(9, 1, 1), "x"))
    touching = fix_of(TextEdit(at(1, 5, 6), "y"))
    waiting = fix_of(TextEdit(at(3, 1, 2), "y"), TextEdit(at(9, 1, 1), "y"))
    free = fix_of(TextEdit(at(3, 1, 2), "z"))
    elsewhere = fix_of(TextEdit(at(1, 1, 5, "b.py"), "x"))
    for order in itertools.permutations([first, touching, waiting, free, elsewhere, free]):
        assert choose(order, unsafe=False) == [first, free, elsewhere]


def test_choose_by_applicability() -> None:
    safe, unsafe, shown = (
        fix_of(TextEdit(at(row, 1, 2), "x"), applicability=kind) for row, kind in enumerate(Applicability, 1)
    )
    assert choose([safe, unsafe, shown], unsafe=False) == [safe]
    assert choose([safe, unsafe, shown], unsafe=True) == [safe, unsafe]


def test_edit_text() -> None:
    assert edit_text("ab\r\ncd", [TextEdit(Place("a.py", 1, 2, 2, 2), "-"), TextEdit(at(1, 1, 1), ">")]) == ">a-d"
    assert edit_text("", [TextEdit(at(1, 1, 1), "x")]) == "x"
    with pytest.raises(ValueError):
        edit_text("abc", [TextEdit(at(1, 1, 3), ""), TextEdit(at(1, 2, 3), "")])


def calls_named(table: Mapping[str, str], seen: list[int] | None = None) -> Callable[[Mapping[Path, str]], Report]:
    """An analysis that finds each call of a name in the table and offers to call another in its place."""

    def analyse(texts: Mapping[Path, str]) -> Report:
        if seen is not None:
            seen.append(1)
        findings = []
        for path, text in texts.items():
            source = Source(path, text)
            for node in nodes(source.tree):
                if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value in table:
                    name, span = node.func.value, source.span(node.func)
                    place = Place(str(path), span.row, span.column, span.end_row, span.end_column)
                    fix = fix_of(TextEdit(place, table[name])) if table[name] else None
                    finding = LocatedFinding(
                        place, "T1", f"no-{name}", Severity.ERROR, f"calls {name}", "", "", (), fix
                    )
                    findings.append(finding)
        return Report(tuple(sorted(findings, key=lambda f: f.sort_key)), (), Coverage(1, 1, 0, 0))

    return analyse


def settled(text: str, table: Mapping[str, str], rounds: int = 10) -> tuple[str, Settled]:
    result = settle({PATH: text}, calls_named(table), unsafe=False, rounds=rounds)
    return result.texts[PATH], result


def test_settle_mends_in_rounds() -> None:
    text, result = settled("bad(bad(1))\nbad(2)\nother(3)\n", {"bad": "good"})
    assert text == "good(good(1))\ngood(2)\nother(3)\n"
    assert (result.fixed, result.errors, result.report.findings) == (3, (), ())
    again = settle(result.texts, calls_named({"bad": "good"}), unsafe=False)
    assert again.texts == result.texts and again.fixed == 0


def test_settle_undoes_what_breaks_and_keeps_the_rest() -> None:
    table = {"bad": "good", "broken": "1 +* ", "still": "still  ", "worse": "dire", "dire": ""}
    text, result = settled("bad(1)\nbroken(2)\nstill(3)\nbad(4)\nworse(5)\nbad(6)\n", table)
    assert text == "good(1)\nbroken(2)\nstill(3)\ngood(4)\nworse(5)\ngood(6)\n"
    assert result.fixed == 3
    broken, *others = sorted(result.errors)
    assert broken.startswith(f"{PATH}:2:1: no-broken: the fix was undone: {PATH} is not valid Python")
    assert others == [
        f"{PATH}:3:1: no-still: the fix was undone: the finding is still there",
        f"{PATH}:5:1: no-worse: the fix was undone: it brought T1 in {PATH}: calls dire",
    ]
    assert [finding.name for finding in result.report.findings] == ["no-broken", "no-still", "no-worse"]


def test_settle_mends_what_a_fix_lays_bare_along_with_it() -> None:
    """A finding that only shows once another is mended is no fault of that fix, if it can be mended too."""
    text, result = settled("bad(1)\nworse(2)\n", {"bad": "hidden", "hidden": "good", "worse": "dire", "dire": ""})
    assert text == "good(1)\nworse(2)\n"
    assert [finding.name for finding in result.applied] == ["no-bad", "no-hidden"]
    assert result.errors == (f"{PATH}:2:1: no-worse: the fix was undone: it brought T1 in {PATH}: calls dire",)
    endless = {f"f{number}": f"f{number + 1}" for number in range(9)} | {"f9": ""}
    assert settled("f0(1)\n", endless)[0] == "f0(1)\n"


def test_settle_counts_findings_not_lines() -> None:
    """A fix that mends one place and makes the same mistake at another has not mended it."""
    text, result = settled("bad(1)\n", {"bad": "x; bad"})
    assert text == "bad(1)\n" and result.fixed == 0 and len(result.errors) == 1


def test_settle_says_when_rounds_run_out() -> None:
    text, result = settled("bad(bad(bad(1)))\n", {"bad": "good"}, rounds=0)
    assert text == "bad(bad(bad(1)))\n"
    assert result.errors == (
        f"fixes do not come to an end: {PATH}:1:1: no-bad, {PATH}:1:5: no-bad, {PATH}:1:9: no-bad",
    )


def test_settle_reports_a_rule_that_crashes_on_the_fixed_text() -> None:
    inner = calls_named({"bad": "good"})

    def analyse(texts: Mapping[Path, str]) -> Report:
        report = inner(texts)
        return report if report.findings else Report((), ("rule x crashed",), report.coverage)

    result = settle({PATH: "bad(1)\n"}, analyse, unsafe=False)
    assert result.texts[PATH] == "bad(1)\n"
    assert result.errors == (f"{PATH}:1:1: no-bad: the fix was undone: rule x crashed",)


def test_settle_looks_again_once_a_round() -> None:
    seen: list[int] = []
    settle({PATH: "bad(1)\n" * 50}, calls_named({"bad": "good"}, seen), unsafe=False)
    assert len(seen) == 2


# Writing.


@pytest.mark.parametrize(
    ("old", "text", "new"),
    [
        (b"\xef\xbb\xbfx = 1\r\n", "x = 'é'\r\n", "\ufeffx = 'é'\r\n".encode()),
        (b"# -*- coding: latin-1 -*-\nx = '\xe9'", "# -*- coding: latin-1 -*-\ny = 'é'",
         b"# -*- coding: latin-1 -*-\ny = '\xe9'"),
        (b"x = 1\r\ny = 2\n", "x = 1\r\ny = 3\n", b"x = 1\r\ny = 3\n"),
    ],
)  # fmt: skip
def test_write_keeps_encoding_and_mode(tmp_path: Path, old: bytes, text: str, new: bytes) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(old)
    file.chmod(0o751)
    write(file, text, inside=tmp_path, was=decode(old))
    assert file.read_bytes() == new
    assert stat.S_IMODE(file.stat().st_mode) == 0o751
    assert decode(new) == text
    assert os.listdir(tmp_path) == ["a.py"]


def test_write_refuses_what_cannot_be_encoded_or_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    old = b"# coding: latin-1\nx = '\xe9'\n"
    file.write_bytes(old)
    with pytest.raises(NotWritten, match="could not be written"):
        write(file, "# coding: latin-1\nx = '\u20ac'\n", inside=tmp_path)
    with pytest.raises(NotWritten, match="another program"):
        write(file, "# coding: latin-1\n", inside=tmp_path, was="x = 2\n")
    with pytest.raises(NotWritten, match="could not be written"):
        write(tmp_path / "gone.py", "", inside=tmp_path)
    with pytest.raises(NotWritten, match="not a file"):
        write(tmp_path, "", inside=tmp_path)
    assert file.read_bytes() == old
    assert os.listdir(tmp_path) == ["a.py"]


def test_write_follows_links_inside_the_project_only(tmp_path: Path) -> None:
    project, outside = tmp_path / "project", tmp_path / "outside.py"
    (project / "in").mkdir(parents=True)
    real = project / "in" / "real.py"
    for file in (real, outside):
        file.write_text("old\n")
    (project / "near.py").symlink_to(real)
    (project / "far.py").symlink_to(outside)
    write(project / "near.py", "new\n", inside=project)
    assert real.read_text() == "new\n" and (project / "near.py").is_symlink()
    with pytest.raises(NotWritten, match="out of the project"):
        write(project / "far.py", "new\n", inside=project)
    assert outside.read_text() == "old\n"


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """The size limit makes the system refuse the write half-way, as a full disk does."""
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    script = """
import resource, signal, sys
from pathlib import Path
from fsdp_lint.fix.writing import NotWritten, write
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    write(Path(sys.argv[1]), "y = 2\\n" * 10000, inside=Path(sys.argv[1]).parent)
except NotWritten as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script, file], capture_output=True, text=True, check=True)
    assert done.stdout == "could not be written: File too large\n"
    assert file.read_text() == "x = 1\n"
    assert os.listdir(tmp_path) == ["a.py"]


def test_a_killed_process_leaves_the_old_file(tmp_path: Path) -> None:
    """Killed by the system in the middle of writing: the file is the old one, to the last byte."""
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    script = """
import sys
from pathlib import Path
from fsdp_lint.fix.writing import write
write(Path(sys.argv[1]), "y = 2\\n" * 10000, inside=Path(sys.argv[1]).parent)
"""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    # Python ignores SIGXFSZ at start, so the script takes the default back.
    script = "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_DFL)" + script
    done = subprocess.run([sys.executable, "-c", script, file], preexec_fn=limit)
    assert done.returncode < 0
    assert file.read_text() == "x = 1\n"


def test_nothing_here_loads_libcst_before_it_is_used() -> None:
    script = "import sys, fsdp_lint.fix.locate, fsdp_lint.fix.apply; sys.exit('libcst' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0
