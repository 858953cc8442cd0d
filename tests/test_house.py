"""The house: which room may import which, and what the light commands may load. The table is that of the design."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fsdp_lint"
RULES = ROOT / "rules"

# Room: own rooms that it may import, and packages from outside. Every room may import itself and the standard library.
TABLE: dict[str, tuple[set[str], set[str]]] = {
    "__init__": (set(), set()),
    "findings": (set(), set()),
    "selectors": (set(), set()),
    "settings": ({"selectors"}, {"packaging", "pathspec", "tomllib", "tomli"}),
    "source": ({"selectors"}, {"libcst", "pathspec", "yaml"}),
    "project": ({"source"}, {"libcst"}),
    "trace": ({"project", "source"}, {"libcst", "packaging"}),
    "fix": ({"trace", "source", "findings"}, {"libcst"}),
    "rule": ({"trace", "fix", "source", "findings"}, set()),
    "rules": ({"rule", "trace", "fix"}, set()),
    "registry": ({"rule", "selectors", "settings"}, set()),
    "outcomes": ({"findings", "project"}, set()),
    "analysis": ({"source", "project", "trace", "findings", "outcomes"}, {"packaging"}),
    "locate": ({"source", "trace", "fix", "rule", "registry", "findings"}, set()),
    "cache": (set(), set()),
    "basis": ({"settings"}, set()),
    "engine": (
        {"analysis", "basis", "cache", "outcomes", "locate", "project", "source", "trace", "fix"}
        | {"registry", "settings", "findings"},
        set(),
    ),
    "report": ({"findings"}, {"click"}),
    "examples": (set(), {"tomllib", "tomli"}),
    "records": (set(), set()),
    "releases": (set(), set()),
    "docs": ({"registry", "findings", "examples", "records", "releases"}, set()),
    "verify": ({"engine", "settings", "findings", "examples", "records"}, {"torch", "matplotlib"}),
    "cli": (
        {
            "__init__",
            "cache",
            "engine",
            "registry",
            "docs",
            "examples",
            "records",
            "report",
            "settings",
            "findings",
            "source",
            "fix",
            "verify",
        },
        {"click"},
    ),
    "__main__": ({"cli"}, set()),
}
# Inside `trace` the lower may not import the higher; rooms that are not named here may stand anywhere between.
TRACE = ["values", "events", "trace", "models", "state", "calls", "interpret"]

# Inside `verify` only the instrument knows torch, and it knows nothing but what it is told and what it measures.
INSTRUMENT = {"instrument", "measures", "plan", "overlay", "kept", "progress"}

FILES = sorted(PACKAGE.rglob("*.py")) + sorted(path for path in RULES.glob("*.py") if path.name != "__init__.py")


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(path: Path) -> str:
    if path.is_relative_to(RULES):
        return "rules"
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path, types_too: bool = True) -> Iterator[str]:
    """The modules that a file imports, wherever it does so; without those for its annotations, if so wished."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not types_too:
        tree.body = [
            node for node in tree.body if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{named(path)}: imports are absolute here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own(module: str) -> str | None:
    """The room that an imported module of ours belongs to; names of the package itself belong to __init__."""
    parts = module.split(".")
    if parts[0] == "fsdp_lint_rules":
        return "rules"
    if parts[0] != "fsdp_lint":
        return None
    here = PACKAGE / parts[1] if len(parts) > 1 else PACKAGE
    return parts[1] if len(parts) > 1 and (here.is_dir() or here.with_suffix(".py").is_file()) else "__init__"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_rooms_import_only_what_the_table_allows(path: Path) -> None:
    here = room(path)
    rooms, outside = TABLE[here]
    for module in imports(path):
        target = own(module)
        if target is not None:
            itself = target == here and here != "rules"
            assert itself or target in rooms, f"{here} must not import {module}"
        else:
            top = module.split(".")[0]
            assert top in sys.stdlib_module_names or top in outside, f"{here} must not import {module}"
        assert not module.startswith(("libcst.matchers", "libcst.codemod")), "they add 0.3 s to every start"


@pytest.mark.parametrize("path", [path for path in FILES if room(path) == "report"], ids=named)
def test_only_the_text_report_knows_a_terminal(path: Path) -> None:
    assert path.stem == "text" or not any(module.startswith("click") for module in imports(path))


@pytest.mark.parametrize("path", [path for path in FILES if room(path) == "trace"], ids=named)
def test_inside_trace_the_lower_does_not_import_the_higher(path: Path) -> None:
    here = path.relative_to(PACKAGE / "trace").parts[0].removesuffix(".py")
    for module in imports(path, types_too=False):
        if module.startswith("fsdp_lint.trace."):
            target = module.split(".")[2]
            if here in TRACE and target in TRACE:
                assert TRACE.index(target) <= TRACE.index(here), f"{here} must not import {module}"


@pytest.mark.parametrize("path", [path for path in FILES if room(path) == "verify"], ids=named)
def test_only_the_instrument_knows_torch(path: Path) -> None:
    inside = path.relative_to(PACKAGE / "verify").parts[0].removesuffix(".py")
    for module in imports(path):
        if inside != "instrument":
            assert not module.startswith("torch"), "torch is loaded by the instrument, when a program runs"
            assert not module.startswith("fsdp_lint.verify.instrument"), "it is reached through runner.instrument()"
        elif module.startswith("fsdp_lint."):
            assert module.split(".")[1] == "verify" and module.split(".")[2] in INSTRUMENT, f"not {module}"


@pytest.mark.parametrize("path", [path for path in FILES if room(path) == "verify"], ids=named)
def test_only_the_pictures_know_matplotlib(path: Path) -> None:
    for module in imports(path):
        assert path.stem == "pictures" or not module.startswith("matplotlib"), "it is loaded for --html only"


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_module_says_what_it_is_for_and_has_a_name_of_its_own(path: Path) -> None:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert doc, "its first line says what the room is for"
    assert path.stem not in ("utils", "util", "common", "helpers", "misc")


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], ["rules"], ["explain", "FSDP101"], ["."], ["--output-format", "json", "."]],
    ids=" ".join,
)
def test_light_commands_load_neither_torch_nor_libcst(arguments: list[str], tmp_path: Path) -> None:
    """`.` is a folder of files that do not speak of FSDP."""
    (tmp_path / "plain.py").write_text("import os\nprint(os.name)\n")
    program = (
        "import sys\n"
        "from fsdp_lint.cli import main\n"
        "assert not {'torch', 'libcst'} & {*sys.modules}\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    loaded = {'torch', 'libcst'} & {*sys.modules}\n"
        "    print('loaded:', *sorted(loaded), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "loaded:\n")
