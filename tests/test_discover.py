"""Which files a run looks at."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from fsdp_lint.source.discover import discover, project_root, surroundings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def write(root: Path, *files: str, **ignores: str) -> None:
    """Empty files, and `sub="..."` for the .gitignore of a folder; `top` is the root's."""
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    for folder, text in ignores.items():
        (root / folder.replace("top", ".") / ".gitignore").write_text(text)


def found(root: Path, *paths: str, exclude: Sequence[str] = ()) -> list[str]:
    result = discover([root / path for path in paths or (".",)], root, exclude)
    assert result.errors == ()
    return [path.relative_to(root).as_posix() for path in result.files]


def test_python_files_sorted_once_and_absolute(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, "b.py", "a/c.py", "notes", "a/data")
    monkeypatch.chdir(root)
    result = discover([Path("."), Path("a"), Path("b.py"), Path("a/../b.py")], Path("."))
    assert result.files == (root / "a" / "c.py", root / "b.py")
    assert result.errors == ()


@pytest.mark.parametrize(
    "folder", [".venv", "venv", "node_modules", "build", "dist", "x.egg-info", ".tox", "__pycache__"]
)
def test_folders_of_others_are_skipped_unless_named(root: Path, folder: str) -> None:
    (root / "a" / folder / "lib").mkdir(parents=True)
    (root / "a" / folder / "lib" / "x.py").touch()
    assert found(root) == []
    assert found(root, f"a/{folder}") == [f"a/{folder}/lib/x.py"]
    assert found(root, f"a/{folder}/lib/x.py") == [f"a/{folder}/lib/x.py"]


def test_gitignore_of_each_folder(root: Path) -> None:
    write(root, "top.py", "local.py", "a_gen.py", "out/x.py", "sub/top.py", "sub/b_gen.py", "sub/local.py")
    write(root, top="out/\n/top.py\n*_gen.py\n", sub="!b_gen.py\nlocal.py\n")
    assert found(root) == ["local.py", "sub/b_gen.py", "sub/top.py"]
    assert found(root, "sub") == ["sub/b_gen.py", "sub/top.py"], "the folders above have their say"
    assert found(root, "out") == ["out/x.py"], "a folder that is named is meant"
    assert found(root, "a_gen.py") == ["a_gen.py"], "a file that is named is meant"


def test_exclude_is_relative_to_the_root(root: Path) -> None:
    write(root, "train.py", "examples/a.py", "examples/keep.py", "src/examples/b.py", "src/c_test.py")
    assert found(root, exclude=["/examples/*", "!keep.py", "*_test.py"]) == [
        "examples/keep.py",
        "src/examples/b.py",
        "train.py",
    ]
    assert found(root, "src", exclude=["examples"]) == ["src/c_test.py"]
    assert found(root, "examples/a.py", exclude=["examples"]) == ["examples/a.py"]
    assert found(root, "examples", exclude=["examples"]) == ["examples/a.py", "examples/keep.py"]


def test_a_missing_path_is_named_and_the_others_are_read(root: Path) -> None:
    write(root, "a.py")
    result = discover([root / "gone.py", root], root)
    assert result.files == (root / "a.py",)
    assert len(result.errors) == 1 and "gone.py: no such file or folder" in result.errors[0]


def test_a_loop_of_folders_is_named_and_the_others_are_read(root: Path) -> None:
    write(root, "a/b/x.py", "z.py")
    (root / "a" / "b" / "loop").symlink_to(root / "a")
    (root / "self").symlink_to("self")
    result = discover([root], root)
    assert result.files == (root / "a" / "b" / "x.py", root / "z.py")
    assert [error.split(": ")[0] for error in result.errors] == [str(root / "a/b/loop"), str(root / "self")]
    assert all("loop" in error and "\n" not in error for error in result.errors)


def test_folders_that_link_to_each_other_end(root: Path) -> None:
    write(root, "a/x.py", "b/y.py")
    (root / "a" / "to_b").symlink_to(root / "b")
    (root / "b" / "to_a").symlink_to(root / "a")
    assert {path.name for path in discover([root], root).files} == {"x.py", "y.py"}


def test_a_link_out_of_the_tree_is_followed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "x.py").touch()
    (root / "link").symlink_to(outside)
    assert found(root) == ["link/x.py"]


def test_what_is_no_regular_file_is_not_opened(root: Path) -> None:
    os.mkfifo(root / "pipe.py")
    assert found(root) == []
    assert "neither a file nor a folder" in discover([root / "pipe.py"], root).errors[0]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all")
def test_a_folder_that_may_not_be_read_is_named(root: Path) -> None:
    (root / "locked").mkdir(mode=0)
    assert "locked: permission denied" in discover([root], root).errors[0]


def test_a_project_is_looked_at_as_a_whole(root: Path) -> None:
    write(root, "a/x.py", "b/y.py", "b/z.py")
    assert discover(surroundings([root / "b" / "y.py"], root), root, ["z.py"]).files == (
        root / "a" / "x.py",
        root / "b" / "y.py",
    )


def test_without_a_project_only_what_lies_beside_is_looked_at(tmp_path: Path) -> None:
    write(tmp_path, "x.py", "beside.py", "other/y.py", "named/deep/z.py")
    assert {path.name for path in discover(surroundings([tmp_path / "x.py"], tmp_path), tmp_path).files} == {
        "x.py",
        "beside.py",
    }
    both = discover(surroundings([tmp_path / "x.py", tmp_path / "named"], tmp_path), tmp_path).files
    assert {path.name for path in both} == {"x.py", "beside.py", "z.py"}
    assert discover(surroundings([tmp_path / "gone" / "x.py"], tmp_path), tmp_path).files == ()


def test_project_root(root: Path) -> None:
    (root / "a" / "b" / "c").mkdir(parents=True)
    (root / "a" / "b" / "x.py").touch()
    assert project_root(root / "a" / "b" / "x.py") == root
    (root / "a" / "pyproject.toml").touch()
    assert project_root(root / "a" / "b" / "c") == root / "a"
    (root / "a" / "b" / "fsdp-lint.toml").touch()
    assert project_root(root / "a" / "b" / "x.py") == root / "a" / "b"


def test_project_root_without_any(tmp_path: Path) -> None:
    if not any((above / name).exists() for above in tmp_path.parents for name in (".git", "pyproject.toml")):
        assert project_root(tmp_path) == tmp_path
