"""The project as names: what a file says, what a name stands for, and where runs begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_lint.project.index import CallLine, FileIndex, Import, index_file
from fsdp_lint.project.resolve import Definition, Project
from fsdp_lint.project.roots import Plan, Root, leftovers, life, plan
from fsdp_lint.source.text import Unreadable

WORDS = frozenset({"shard"})


def write(folder: Path, files: dict[str, str]) -> None:
    """The files of a project."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def project(folder: Path, files: dict[str, str], *roots: str) -> Project:
    """A project; the library `lib` is known."""
    write(folder, files)
    return Project(folder, [folder / root for root in roots], lambda data: None, lambda name: name.startswith("lib."))


def planned(folder: Path, files: dict[str, str], *reported: str) -> tuple[Project, Plan]:
    """What is run in a project in which `shard` is the word, for the sake of some files or of all."""
    made = project(folder, files)
    paths = sorted(folder.rglob("*.py"))
    seeds = [path for path in paths if "shard" in path.read_text()]
    wanted = frozenset(folder / name for name in reported or files)
    return made, plan(made, seeds, paths, WORDS, wanted)


def roots(folder: Path, files: dict[str, str]) -> list[tuple[str, str, str]]:
    """Kind, file and name of each root."""
    _, result = planned(folder, files)
    return [(root.kind, root.path.relative_to(folder).as_posix(), root.name) for root in result.roots]


# index ----------------------------------------------------------------------------------------------------------------


def index(text: str) -> FileIndex:
    """The index of one file."""
    return index_file(Path("a.py"), text)


@pytest.mark.parametrize(
    ("line", "name", "target"),
    [
        ("import os", "os", Import("os", None, 0)),
        ("import os.path", "os", Import("os", None, 0)),
        ("import os.path as p", "p", Import("os.path", None, 0)),
        ("from os import path", "path", Import("os", "path", 0)),
        ("from os import path as p", "p", Import("os", "path", 0)),
        ("from . import a", "a", Import("", "a", 1)),
        ("from ..b.c import a", "a", Import("b.c", "a", 2)),
        ("if x:\n    from b import a", "a", Import("b", "a", 0)),
        ("try:\n    from b import a\nexcept ImportError:\n    pass", "a", Import("b", "a", 0)),
        ("with x:\n    from b import a", "a", Import("b", "a", 0)),
        ("for i in x:\n    pass\nelse:\n    from b import a", "a", Import("b", "a", 0)),
    ],
)
def test_imports(line: str, name: str, target: Import) -> None:
    assert index(line).imports == {name: [target]}


def test_both_arms_of_a_guarded_import_are_kept_in_order() -> None:
    found = index("try:\n    from new import a\nexcept ImportError:\n    from old import a\n")
    assert found.imports == {"a": [Import("new", "a", 0), Import("old", "a", 0)]}
    assert [(line.row, line.module, line.guarded) for line in found.import_lines] == [
        (2, "new", True),
        (4, "old", True),
    ]


def test_imports_inside_functions_are_apart() -> None:
    found = index("def f():\n    from b import a\n    import c.d as e\n")
    assert found.imports == {}
    assert found.inner_imports == {"a": [Import("b", "a", 0)], "e": [Import("c.d", None, 0)]}


def test_star_imports_are_apart() -> None:
    found = index("from .a import *\nfrom b import *\n")
    assert found.stars == [Import("a", "*", 1), Import("b", "*", 0)]
    assert found.imports == {}


def test_functions_methods_and_nested_ones_by_qualified_name() -> None:
    found = index(
        "def f():\n"
        "    def inner(): ...\n"
        "class A(Base, x.Other):\n"
        "    def m(self): ...\n"
        "    class B:\n"
        "        async def n(self): ...\n"
        "if x:\n"
        "    def g(): ...\n"
    )
    assert {(info.qualname, info.cls, info.nested) for info in found.functions.values()} == {
        ("f", None, False),
        ("f.<locals>.inner", None, True),
        ("A.m", "A", False),
        ("A.B.n", "A.B", False),
        ("g", None, False),
    }
    assert {(info.qualname, info.bases, info.methods) for info in found.classes.values()} == {
        ("A", ("Base", "x.Other"), ("m",)),
        ("A.B", (), ("n",)),
    }


def test_mentions_are_names_and_attributes() -> None:
    found = index("def f(a: T = d):\n    from m import x as y\n    return b.c(e)\ntop.level(1)\n")
    function = found.functions["f"]
    assert {"b", "e", "x", "T", "d"} <= function.mentions
    assert function.attributes == {"c"}
    assert (found.body_mentions, found.body_attributes) == ({"top"}, {"level"})


def test_calls_with_place_and_function() -> None:
    found = index("a.b(1)\nclass C:\n    def m(self):\n        return c(d())\n")
    assert set(found.calls) == {
        CallLine(1, 1, "a.b", ""),
        CallLine(4, 16, "c", "C.m"),
        CallLine(4, 18, "d", "C.m"),
    }


def test_names_of_changed_objects_are_not_assigned() -> None:
    text = 'import os\nimport torch\nos.environ["A"] = "1"\ntorch.backends.cudnn.benchmark = x[i] = True\n'
    assert index(text).assigned == set()


def test_assigned_names() -> None:
    assert index("a, (b, c) = 1, (2, 3)\nd: int = 4\ne += 1\nif x:\n    f = 1\n").assigned == {
        "a",
        "b",
        "c",
        "d",
        "e",
        "f",
    }


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", '"""Only text."""'])
def test_empty_files_are_fine(text: str) -> None:
    assert index(text) == FileIndex(Path("a.py"))


@pytest.mark.parametrize(
    ("text", "where"), [("a = (", "line 1"), ("\nif:\n", "line 2"), ("print 'x'", "line 1"), ("\0", "not valid Python")]
)
def test_what_is_no_python_is_unreadable(text: str, where: str) -> None:
    with pytest.raises(Unreadable, match=where):
        index(text)


def test_warnings_of_the_parser_are_silent(recwarn: pytest.WarningsRecorder) -> None:
    index("a = '\\d'\nassert (1, 2)\n")
    assert not recwarn.list


# names ----------------------------------------------------------------------------------------------------------------

DEFINES = "def f(): ...\nclass C: ...\nv = 1\n"


@pytest.mark.parametrize(
    ("importer", "line", "defining"),
    [
        ("a.py", "from b import f", "b.py"),
        ("a.py", "from p import f", "p/__init__.py"),
        ("a.py", "from p.b import f", "p/b.py"),
        ("p/a.py", "from .b import f", "p/b.py"),
        ("p/a.py", "from . import f", "p/__init__.py"),
        ("p/q/a.py", "from ..b import f", "p/b.py"),
        ("p/q/a.py", "from p.b import f", "p/b.py"),
        ("p/__init__.py", "from .b import f", "p/b.py"),
        ("scripts/a.py", "from helpers import f", "scripts/helpers.py"),
        ("scripts/a.py", "from p.b import f", "p/b.py"),
        ("a.py", "from n.b import f", "n/b.py"),
        ("tools/a.py", "from p.b import f", "src/p/b.py"),
    ],
)
def test_where_imports_are_looked_for(importer: str, line: str, defining: str, tmp_path: Path) -> None:
    packages = {"p/__init__.py": "", "p/q/__init__.py": ""}
    made = project(tmp_path, {**packages, defining: DEFINES, importer: line})
    assert made.lookup(tmp_path / importer, "f") == Definition("function", "f", tmp_path / defining)


def test_configured_roots_come_before_the_project(tmp_path: Path) -> None:
    made = project(tmp_path, {"a/x.py": "from m import f", "m.py": DEFINES, "code/m.py": DEFINES}, "code")
    assert made.lookup(tmp_path / "a/x.py", "f") == Definition("function", "f", tmp_path / "code/m.py")


def test_what_a_name_can_be(tmp_path: Path) -> None:
    made = project(
        tmp_path, {"a.py": "import b\nimport other\nfrom b import f, C, v\nfrom lib import s\n", "b.py": DEFINES}
    )
    at, b = tmp_path / "a.py", tmp_path / "b.py"
    assert made.lookup(at, "f") == Definition("function", "f", b)
    assert made.lookup(at, "C") == Definition("class", "C", b)
    assert made.lookup(at, "v") == Definition("variable", "v", b)
    assert made.lookup(at, "b") == Definition("file", "b", b)
    assert made.lookup(at, "s") == Definition("external", "lib.s")
    assert made.lookup(at, "other") == Definition("external", "other")
    assert made.lookup(at, "nothing") is None


def test_through_packages_that_give_names_on(tmp_path: Path) -> None:
    made = project(
        tmp_path,
        {
            "a.py": "from p import f, star\nimport p\n",
            "p/__init__.py": "from .q import f\nfrom .r import *\n",
            "p/q/__init__.py": "from .deep import g as f\n",
            "p/q/deep.py": "def g(): ...\n",
            "p/r.py": "def star(): ...\n",
        },
    )
    assert made.lookup(tmp_path / "a.py", "f") == Definition("function", "g", tmp_path / "p/q/deep.py")
    assert made.lookup(tmp_path / "a.py", "star") == Definition("function", "star", tmp_path / "p/r.py")
    assert made.lookup(tmp_path / "p/__init__.py", "q") == Definition("file", "q", tmp_path / "p/q/__init__.py")


def test_the_known_arm_of_a_guarded_import_counts(tmp_path: Path) -> None:
    text = "try:\n    from new import s\nexcept ImportError:\n    from lib import s\n"
    made = project(tmp_path, {"a.py": text, "b.py": "try:\n    from lib import s\nexcept ImportError:\n    s = None\n"})
    assert made.lookup(tmp_path / "a.py", "s") == Definition("external", "lib.s")
    assert made.lookup(tmp_path / "b.py", "s") == Definition("external", "lib.s")


def test_star_import_of_a_known_library(tmp_path: Path) -> None:
    made = project(tmp_path, {"a.py": "from lib import *\n"})
    assert made.lookup(tmp_path / "a.py", "s") == Definition("external", "lib.s")


@pytest.mark.parametrize(
    "files",
    [
        {"a.py": "from b import f\n", "b.py": "from a import f\n"},
        {"a.py": "from b import *\n", "b.py": "from a import *\n"},
        {"a.py": "from a import f\n"},
        {"a.py": "from a import *\n"},
    ],
)
def test_imports_in_a_circle_end(files: dict[str, str], tmp_path: Path) -> None:
    found = project(tmp_path, files).lookup(tmp_path / "a.py", "f")
    assert found is None or found.kind == "external"


def test_a_circle_does_not_hide_what_is_there(tmp_path: Path) -> None:
    made = project(tmp_path, {"a.py": "from b import *\n", "b.py": "from a import *\ndef f(): ...\n"})
    assert made.lookup(tmp_path / "a.py", "f") == Definition("function", "f", tmp_path / "b.py")


def test_a_library_is_not_a_file_of_the_same_name(tmp_path: Path) -> None:
    made = project(tmp_path, {"a.py": "import torch\nfrom torch.nn import x\n", "torch.py": "x = 1\n"})
    assert made.lookup(tmp_path / "a.py", "torch") == Definition("external", "torch")
    assert made.lookup(tmp_path / "a.py", "x") == Definition("external", "torch.nn.x")


def test_relative_import_out_of_the_project(tmp_path: Path) -> None:
    made = project(tmp_path, {"a.py": "from ...far import f\n"})
    assert made.lookup(tmp_path / "a.py", "f") is None


def test_a_file_that_cannot_be_read_is_an_error_and_nothing_else(tmp_path: Path) -> None:
    made = project(
        tmp_path, {"a.py": "from b import f\nfrom c import g\n", "b.py": "def f(:\n", "c.py": "def g(): ...\n"}
    )
    assert made.lookup(tmp_path / "a.py", "g") == Definition("function", "g", tmp_path / "c.py")
    made.lookup(tmp_path / "a.py", "f")
    assert list(made.errors) == [tmp_path / "b.py"]
    assert made.source(tmp_path / "b.py") is None


def test_refused_bytes_are_not_parsed(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "x = 1\n"})
    made = Project(tmp_path, [], lambda data: "too much", lambda name: False)
    assert made.index(tmp_path / "a.py") is None
    assert made.errors == {tmp_path / "a.py": "too much"}


def test_texts_stand_in_for_files(tmp_path: Path) -> None:
    write(tmp_path, {"a.py": "def old(): ...\n"})
    made = Project(tmp_path, [], lambda data: None, lambda name: False, {tmp_path / "a.py": "def new(): ...\n"})
    assert made.lookup(tmp_path / "a.py", "old") is None
    assert made.lookup(tmp_path / "a.py", "new") == Definition("function", "new", tmp_path / "a.py")


# roots ----------------------------------------------------------------------------------------------------------------


def test_a_script_is_a_root_and_what_it_calls_is_not(tmp_path: Path) -> None:
    text = "def main():\n    shard(1)\nif __name__ == '__main__':\n    main()\n"
    assert roots(tmp_path, {"a.py": text}) == [("script", "a.py", "")]


@pytest.mark.parametrize("line", ["model.apply(a)", "run(with_=a)"])
def test_a_script_that_hands_a_function_over_is_a_root(line: str, tmp_path: Path) -> None:
    text = f"from lib import model, run\ndef a(x):\n    shard(x)\n{line}\n"
    assert roots(tmp_path, {"a.py": text}) == [("script", "a.py", "")]


def test_functions_that_nobody_mentions_are_roots(tmp_path: Path) -> None:
    text = "def a():\n    helper()\ndef b():\n    shard(1)\ndef helper():\n    shard(2)\ndef cold():\n    print(1)\n"
    assert roots(tmp_path, {"a.py": text}) == [("function", "a.py", "a"), ("function", "a.py", "b")]


def test_a_function_that_calls_only_itself_is_a_root(tmp_path: Path) -> None:
    assert roots(tmp_path, {"a.py": "def a(n):\n    shard(n)\n    a(n - 1)\n"}) == [("function", "a.py", "a")]


def test_a_class_that_nobody_makes_is_a_root(tmp_path: Path) -> None:
    text = "class A:\n    def run(self):\n        shard(self)\nclass B(A): ...\nclass C:\n    def run(self): ...\n"
    assert roots(tmp_path, {"a.py": text}) == []
    assert roots(tmp_path, {"a.py": text.replace("class B(A): ...\n", "")}) == [("class", "a.py", "A")]


def test_whoever_makes_an_heir_of_what_reaches_the_words_is_a_root(tmp_path: Path) -> None:
    files = {
        "base.py": "class Base:\n    def prepare(self):\n        shard(self)\n",
        "kinds.py": "import base\nclass Middle(base.Base):\n    pass\nclass Kind(Middle):\n    def other(self): ...\n",
        "top.py": "from kinds import Kind\ndef train():\n    Kind().start()\n",
        "else.py": "from kinds import Nothing\ndef train_not():\n    Nothing()\n",
    }
    assert roots(tmp_path, files) == [("function", "top.py", "train")]


def test_who_asks_a_table_that_others_fill_is_a_root(tmp_path: Path) -> None:
    files = {
        "table.py": "KINDS = {}\ndef kind(f):\n    KINDS[f.__name__] = f\n    return f\n"
        "def build(name):\n    return KINDS[name]\n",
        "wraps.py": "from table import kind\n@kind\ndef wraps(m):\n    shard(m)\n",
        "top.py": "import wraps\nfrom table import build\ndef train(m):\n    build('wraps')(m)\n",
    }
    assert ("function", "top.py", "train") in roots(tmp_path, files)


def test_an_ordinary_name_counts_where_its_module_is_named(tmp_path: Path) -> None:
    files = {
        "pkg/parallel.py": "def apply(m):\n    shard(m)\n",
        "pkg/other.py": "def apply(m): ...\n",
        "top.py": "from pkg import parallel\ndef train(m):\n    parallel.apply(m)\n",
        "long.py": "import pkg.parallel\ndef train(m):\n    pkg.parallel.apply(m)\n",
        "cold.py": "from pkg import other\ndef train(m):\n    other.apply(m)\n    m.apply(print)\n",
    }
    assert roots(tmp_path, files) == [("function", "long.py", "train"), ("function", "top.py", "train")]


def test_the_life_of_a_class_begins_with_what_reaches_the_words() -> None:
    path = Path("a.py")
    found = index_file(
        path,
        "class A:\n"
        "    def __init__(self):\n        self.early()\n"
        "    def early(self): ...\n"
        "    def cold(self): ...\n"
        "    def hot(self):\n        shard(self)\n",
    )
    assert life(found, "A", {(path, "A.hot")}) == ("hot", "cold")


def test_callers_in_other_files_are_found_upwards(tmp_path: Path) -> None:
    files = {
        "deep.py": "def wrap(m):\n    shard(m)\n",
        "middle.py": "from deep import wrap\ndef prepare(m):\n    wrap(m)\n",
        "top.py": "import middle\ndef train(m):\n    middle.prepare(m)\n",
        "other.py": "def wrap_not(m): ...\ndef prepared(): ...\n",
    }
    made, result = planned(tmp_path, files)
    assert [path.name for path in result.files] == ["deep.py", "middle.py", "top.py"]
    assert [(root.path.name, root.name) for root in result.roots] == [("top.py", "train")]
    assert made.errors == {}


def test_only_roots_that_can_pass_through_a_reported_file_are_run(tmp_path: Path) -> None:
    files = {
        "deep.py": "def wrap(m):\n    shard(m)\n",
        "top.py": "from deep import wrap\ndef train(m):\n    wrap(m)\n",
        "apart.py": "def other(m):\n    shard(m)\n",
    }
    for reported, names in {"deep.py": ["train"], "top.py": ["train"], "apart.py": ["other"]}.items():
        _, result = planned(tmp_path, files, reported)
        assert [root.name for root in result.roots] == names


def test_callers_by_imports_inside_functions(tmp_path: Path) -> None:
    files = {
        "deep.py": "def wrap(m):\n    shard(m)\n",
        "top.py": "def train(m):\n    from deep import wrap\n    wrap(m)\n",
    }
    assert roots(tmp_path, files) == [("function", "top.py", "train")]


def test_a_name_that_stands_for_something_else_is_no_call(tmp_path: Path) -> None:
    files = {
        "deep.py": "def wrap(m):\n    shard(m)\n",
        "top.py": "from textwrap import wrap\nimport deep\ndef train(m):\n    wrap(m)\n",
    }
    _, result = planned(tmp_path, files)
    assert (tmp_path / "top.py", "train") not in result.hot


def test_what_no_run_entered_is_run_at_the_end(tmp_path: Path) -> None:
    text = (
        "def a():\n    shard(1)\n"
        "def b():\n    shard(2)\n"
        "class C:\n    def __init__(self): ...\n    def m(self):\n        shard(3)\n"
        "print(a, b, C)\n"
    )
    made, result = planned(tmp_path, {"a.py": text})
    path = tmp_path / "a.py"
    found = made.index(path)
    assert found is not None
    assert leftovers(result, {path: found}, {(path, "a")}) == [
        Root("function", path, "b"),
        Root("class", path, "C", ("m",)),
    ]


def test_callers_through_a_package_that_gives_names_on(tmp_path: Path) -> None:
    files = {
        "p/__init__.py": "from .deep import wrap\n",
        "p/deep.py": "def wrap(m):\n    shard(m)\n",
        "top.py": "from p import wrap\ndef train(m):\n    wrap(m)\n",
    }
    assert roots(tmp_path, files) == [("function", "top.py", "train")]


@pytest.mark.parametrize(("place", "line"), [("p/run.py", "from . import wrap"), ("p/q/run.py", "from .. import wrap")])
def test_callers_inside_the_package_that_gives_names_on(tmp_path: Path, place: str, line: str) -> None:
    files = {
        "p/__init__.py": "from .sharding import wrap\n",
        "p/sharding.py": "def wrap(m):\n    shard(m)\n",
        "p/q/__init__.py": "",
        place: f"{line}\ndef train(m):\n    wrap(m)\n",
    }
    assert roots(tmp_path, files) == [("function", place, "train")]


def test_the_word_under_another_name(tmp_path: Path) -> None:
    assert roots(tmp_path, {"a.py": "from lib import shard as s\ndef f(m):\n    s(m)\n"}) == [("function", "a.py", "f")]
