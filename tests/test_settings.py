"""What users may set, and how wrong settings are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsdp_lint.settings import SettingsError, keys, load, torch_range

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def pyproject(folder: Path, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(text)


def refusal(root: Path) -> str:
    with pytest.raises(SettingsError) as caught:
        load(root)
    message = str(caught.value)
    assert "\n" not in message and "pyproject.toml" in message
    return message


def test_nothing_need_be_set(root: Path) -> None:
    settings = load(root)
    assert (settings.root, settings.select, settings.exclude, settings.torch) == (root, (), (), None)
    assert settings.gpu_memory == 80


def test_every_key_is_read(root: Path) -> None:
    pyproject(
        root,
        """
        [tool.fsdp-lint]
        select = ["FSDP1"]
        ignore = ["optimizer-before-shard"]
        extend-select = ["FSDP901"]
        exclude = ["third_party"]
        roots = ["src"]
        torch = ">=2.6,<2.10"
        gpu-memory = 40
        [tool.fsdp-lint.per-file-ignores]
        "tests/*" = ["FSDP101", "FSDP2"]
        """,
    )
    settings = load(root)
    assert settings.select == ("FSDP1",)
    assert settings.ignore == ("optimizer-before-shard",)
    assert settings.extend_select == ("FSDP901",)
    assert settings.exclude == ("third_party",)
    assert settings.roots == ("src",)
    assert settings.torch == ">=2.6,<2.10"
    assert settings.gpu_memory == 40.0
    assert settings.per_file_ignores == (("tests/*", ("FSDP101", "FSDP2")),)


def test_the_nearest_configuration_counts(root: Path) -> None:
    pyproject(root, '[tool.fsdp-lint]\nselect = ["FSDP1"]')
    pyproject(root / "a", "[project]\nname = 'a'")
    (root / "a" / "x.py").touch()
    assert load(root / "a" / "x.py").select == ("FSDP1",)
    assert load(root / "a" / "x.py").root == root
    (root / "a" / "fsdp-lint.toml").write_text('select = ["FSDP2"]')
    assert load(root / "a" / "x.py").select == ("FSDP2",)
    assert load(root / "a" / "x.py").root == root / "a"


def test_fsdp_lint_toml_wins_in_one_folder(root: Path) -> None:
    pyproject(root, '[tool.fsdp-lint]\nselect = ["FSDP1"]')
    (root / "fsdp-lint.toml").write_text('ignore = ["FSDP2"]')
    assert (load(root).select, load(root).ignore) == ((), ("FSDP2",))


def test_nothing_is_taken_from_beyond_the_git_root(root: Path) -> None:
    pyproject(root, '[tool.fsdp-lint]\nselect = ["FSDP1"]')
    (root / "clone" / ".git").mkdir(parents=True)
    assert load(root / "clone").select == ()
    assert load(root / "clone").root == root / "clone"


def test_a_file_that_is_named_counts_alone(root: Path) -> None:
    pyproject(root, '[tool.fsdp-lint]\nselect = ["FSDP1"]')
    other = root.parent / "elsewhere.toml"
    other.write_text("gpu-memory = 24.5")
    settings = load(root, other)
    assert (settings.select, settings.gpu_memory, settings.root) == ((), 24.5, root)
    with pytest.raises(SettingsError, match=r"gone\.toml: cannot be read: no such file"):
        load(root, root / "gone.toml")


def test_the_command_line_has_the_last_word(root: Path) -> None:
    pyproject(root, '[tool.fsdp-lint]\nselect = ["FSDP1"]\nignore = ["FSDP101"]\nextend-select = ["FSDP9"]')
    added = load(root, ignore=("FSDP102",), extend_select=("FSDP2",))
    assert (added.select, added.ignore) == (("FSDP1",), ("FSDP101", "FSDP102"))
    assert added.extend_select == ("FSDP9", "FSDP2")
    anew = load(root, select=("FSDP101",))
    assert (anew.select, anew.ignore, anew.extend_select) == (("FSDP101",), (), ())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("selct = []", "unknown key `selct`; did you mean `select`?"),
        ("gpu_memory = 3", "did you mean `gpu-memory`?"),
        ("zzz = 3", "unknown key `zzz`; the keys are select, "),
        ('select = "FSDP1"', "`select` must be a list of strings"),
        ("select = [1]", "`select` must be a list of strings"),
        ("gpu-memory = 0", "`gpu-memory` must be a number of GiB above 0"),
        ("gpu-memory = nan", "`gpu-memory` must be"),
        ("gpu-memory = true", "`gpu-memory` must be"),
        ('torch = "newest"', '`torch` must be a version ("2.9") or a range (">=2.6,<2.10"): \'newest\' is neither'),
        ("torch = 2.9", "`torch` must be a version"),
        ("per-file-ignores = []", "`per-file-ignores` must be a table"),
        ("per-file-ignores = {a = 'b'}", "`per-file-ignores` must be a table"),
        ("select = [", "is not valid TOML"),
    ],
)
def test_what_cannot_be_used_is_named(root: Path, line: str, said: str) -> None:
    pyproject(root, f"[tool.fsdp-lint]\n{line}\n")
    assert said in refusal(root)


def test_the_section_must_be_a_table(root: Path) -> None:
    pyproject(root, "[tool]\nfsdp-lint = 3")
    assert "must be a table" in refusal(root)


def test_per_file_ignores(root: Path) -> None:
    pyproject(root, '[tool.fsdp-lint.per-file-ignores]\n"tests/" = ["FSDP1"]\n"*_old.py" = ["root-not-sharded"]')
    settings = load(root)
    order, top = ("FSDP101", "optimizer-before-shard"), ("FSDP202", "root-not-sharded")
    assert settings.ignores_in(root / "tests" / "a" / "x.py", *order)
    assert not settings.ignores_in(root / "tests" / "x.py", *top)
    assert settings.ignores_in(root / "src" / "x_old.py", *top)
    assert not settings.ignores_in(root / "src" / "x.py", *order)
    assert not settings.ignores_in(root.parent / "tests" / "x.py", *order)


@pytest.mark.parametrize(
    ("said", "inside", "outside"),
    [
        ("2.9", "2.9.1", "2.10.0"),
        ("2.9.1", "2.9.1", "2.9.0"),
        (">=2.6", "2.13.0", "2.5.1"),
        ("~=2.6", "2.7", "3.0"),
        ("2.13.0", "2.13.0+cpu", "2.13.1"),
    ],
)
def test_torch_as_set(root: Path, said: str, inside: str, outside: str) -> None:
    pyproject(root, f'[tool.fsdp-lint]\ntorch = "{said}"\n[project]\ndependencies = ["torch==1.0"]')
    bounds = torch_range(load(root))
    assert bounds is not None and inside in bounds and outside not in bounds


DECLARED = {
    "pyproject.toml, dependencies": (
        "pyproject.toml",
        '[project]\ndependencies = ["numpy>=1", "Torch>=2.6; python_version>\'3\'"]',
    ),
    "pyproject.toml, extras": ("pyproject.toml", '[project.optional-dependencies]\ngpu = ["torch[opt]>=2.6"]'),
    "pyproject.toml, groups": (
        "pyproject.toml",
        '[dependency-groups]\na = [{include-group = "b"}]\nb = ["torch>=2.6"]',
    ),
    "poetry": ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2.6"'),
    "poetry, a group": ("pyproject.toml", '[tool.poetry.group.gpu.dependencies]\ntorch = {version = ">=2.6"}'),
    "requirements": ("requirements.txt", "-r other.txt\nnumpy\ntorch>=2.6  # newest\n"),
    "requirements of a kind": ("requirements-gpu.txt", "--extra-index-url x\ntorch >= 2.6\n"),
    "requirements in a folder": ("requirements/base.txt", "torch>=2.6 --hash=sha256:0"),
    "setup.cfg": ("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    torch>=2.6\n"),
    "setup.cfg, extras": ("setup.cfg", "[options.extras_require]\ngpu = torch>=2.6\n"),
    "setup.py": ("setup.py", "setup(install_requires=['numpy', 'torchvision>=0.1', \"torch>=2.6\"])"),
}


@pytest.mark.parametrize("kind", DECLARED)
def test_torch_as_the_project_declares_it(root: Path, kind: str) -> None:
    name, text = DECLARED[kind]
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_text(text)
    bounds = torch_range(load(root))
    assert bounds is not None and "2.9.0" in bounds and "2.5.1" not in bounds


def test_torch_without_a_bound_is_the_newest(root: Path) -> None:
    assert torch_range(load(root)) is None
    pyproject(root, '[project]\ndependencies = ["torch", "torchvision>=0.2"]')
    (root / "requirements.txt").write_text("pytorch-lightning>=2\nnot a requirement !\n")
    (root / "setup.cfg").write_text("no section")
    assert torch_range(load(root)) is None


def test_the_readme_lists_every_key() -> None:
    text = README.read_text(encoding="utf-8")
    for key, field in keys().items():
        assert f"| `{key}` | {field.metadata['doc']} |" in text
