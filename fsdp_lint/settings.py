"""What a user may set, read from `[tool.fsdp-lint]` or fsdp-lint.toml; a wrong key or value is an error."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsdp_lint.selectors import covers

# What only some runs need is imported where it is used: `packaging` alone takes a third of the start.
if TYPE_CHECKING:
    from packaging.specifiers import SpecifierSet


class SettingsError(Exception):
    """The settings cannot be used; the message is one line: where, what, and what to do."""


def _key(doc: str, default: Any) -> Any:
    """A field that users may set; `doc` is its line in the README."""
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True)
class Settings:
    """All that changes what a run finds. The fields with a doc are the keys of the configuration, `_` written `-`."""

    root: Path
    select: tuple[str, ...] = _key("rules to run: codes, families (`FSDP1`) or names; empty: those on by default", ())
    ignore: tuple[str, ...] = _key("rules not to run; the closer of `select` and `ignore` wins, `ignore` if equal", ())
    extend_select: tuple[str, ...] = _key("rules to run besides", ())
    exclude: tuple[str, ...] = _key("files and folders not to look into, patterns as in .gitignore", ())
    roots: tuple[str, ...] = _key("folders in which imports are looked for, besides the usual ones", ())
    torch: str | None = _key("the torch you run: a version or a range; default: your project's own declaration", None)
    gpu_memory: float = _key("memory of one GPU in GiB; default: 80", 80.0)
    shard_functions: tuple[str, ...] = _key("your functions that shard a module: `name`, `name(model)`, `name(1)`", ())
    optimizer_factories: tuple[str, ...] = _key("your functions that build an optimizer from a model or parameters", ())
    rank_guards: tuple[str, ...] = _key("your functions and properties that are true on one rank only", ())
    collectives: tuple[str, ...] = _key("your functions that all ranks must call together", ())
    saves: tuple[str, ...] = _key("your functions that write a file: `name(content, path)`; default: the first two", ())
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = _key("table: pattern as in .gitignore = rules", ())

    @property
    def names_rules(self) -> bool:
        """Whether rules are named somewhere, rightly or wrongly."""
        return bool(self.select or self.ignore or self.extend_select or self.per_file_ignores)

    def declarations(self) -> Mapping[str, tuple[str, ...]]:
        """The user's own functions by what they are."""
        return {key: getattr(self, key.replace("-", "_")) for key in _DECLARING}

    def ignores_in(self, path: Path, code: str, name: str) -> bool:
        """Whether the per-file ignores take this rule back in this file."""
        if not path.is_relative_to(self.root):
            return False
        relative = path.relative_to(self.root).as_posix()
        return any(
            any(covers(selector, code, name) for selector in selectors) and _patterns(pattern).match_file(relative)
            for pattern, selectors in self.per_file_ignores
        )


@functools.lru_cache
def _patterns(pattern: str) -> Any:
    import pathspec

    return pathspec.GitIgnoreSpec.from_lines([pattern])


def keys() -> Mapping[str, dataclasses.Field[Any]]:
    """The keys of the configuration, as users write them."""
    return {each.name.replace("_", "-"): each for each in dataclasses.fields(Settings) if "doc" in each.metadata}


def load(start: Path, config: Path | None = None, **overrides: tuple[str, ...]) -> Settings:
    """The settings for a run that begins at `start`: those of the nearest folder with a configuration, or of `config`.

    Patterns are relative to the folder of the configuration, or to the project's root if it is named by `config`.
    `overrides` come from the command line. A `select` there starts anew: what the configuration selects and ignores
    is left out. `ignore` and `extend_select` are added to the configuration's. Raises SettingsError.
    """
    folder = Path(os.path.abspath(start))
    folder = folder if folder.is_dir() else folder.parent
    path, table = (config, _table_of(config)) if config is not None else _nearest(folder)
    root = path.parent if path is not None and config is None else _bare_root(folder)
    values = {key.replace("-", "_"): _value(key, value, path) for key, value in table.items()}
    if overrides.get("select"):
        values |= {"select": overrides["select"], "ignore": (), "extend_select": ()}
    for name in ("ignore", "extend_select"):
        values[name] = (*values.get(name, ()), *overrides.get(name, ()))
    return Settings(root=root, **values)


def _nearest(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    """The nearest configuration at or above the folder, not beyond the git root. fsdp-lint.toml wins in one folder."""
    for above in (folder, *folder.parents):
        for path in (above / "fsdp-lint.toml", above / "pyproject.toml"):
            if path.is_file():
                table = _table_of(path, required=False)
                if table is not None:
                    return path, table
        if (above / ".git").exists():
            break
    return None, {}


def _bare_root(folder: Path) -> Path:
    """Where no configuration marks the root."""
    for above in (folder, *folder.parents):
        if any((above / name).exists() for name in ("fsdp-lint.toml", "pyproject.toml", ".git")):
            return above
    return folder


def _table_of(path: Path, required: bool = True) -> Any:
    """The configuration in a file; None if there is none and none is required."""
    content = _toml(path)
    if path.name != "pyproject.toml":
        return content
    tool = content.get("tool")
    table = tool.get("fsdp-lint") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise SettingsError(f"{path}: [tool.fsdp-lint] must be a table")
    return {} if table is None and required else table


def _toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is not valid TOML: {error}") from None


def _value(key: str, value: Any, path: Path | None) -> Any:
    """The value of a key in the form that Settings keeps."""
    kind = _KINDS.get(key)
    if kind is None:
        import difflib

        near = difflib.get_close_matches(key.replace("_", "-"), _KINDS, n=1, cutoff=0.5)
        hint = f"did you mean `{near[0]}`?" if near else f"the keys are {', '.join(_KINDS)}"
        raise SettingsError(f"{path}: unknown key `{key}`; {hint}")
    wanted, read = kind
    try:
        return read(value)
    except ValueError as error:
        said = str(error)
        raise SettingsError(f"{path}: `{key}` must be {wanted}{f': {said}' if said else ''}") from None


def _strings(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError
    return tuple(value)


def _globs(value: Any) -> tuple[str, ...]:
    for pattern in _strings(value):
        _checked(pattern)
    return tuple(value)


def _checked(pattern: str) -> str:
    """The pattern. Raises ValueError where it is none."""
    try:
        _patterns(pattern)
    except Exception:
        raise ValueError(f"{pattern!r} is no pattern") from None
    return pattern


def _gib(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError
    return float(value)


def _torch(value: Any) -> str:
    from packaging.specifiers import InvalidSpecifier
    from packaging.version import InvalidVersion

    if not isinstance(value, str):
        raise ValueError
    try:
        _range(value)
    except (InvalidSpecifier, InvalidVersion):
        raise ValueError(f"{value!r} is neither") from None
    return value


def _table(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, dict):
        raise ValueError
    return tuple((_checked(pattern), _strings(selectors)) for pattern, selectors in value.items())


_DECLARATION = re.compile(r"[A-Za-z_][\w.]*(\(\s*\w+(\s*,\s*\w+)*\s*\))?")
_DECLARING = ("shard-functions", "optimizer-factories", "rank-guards", "collectives", "saves")


def _functions(value: Any) -> tuple[str, ...]:
    for text in _strings(value):
        if _DECLARATION.fullmatch(text) is None:
            raise ValueError(f"{text!r} is none")
    return tuple(value)


_LIST = ("a list of strings", _strings)
_KINDS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "select": _LIST,
    "ignore": _LIST,
    "extend-select": _LIST,
    "exclude": ("a list of patterns as in .gitignore", _globs),
    "roots": _LIST,
    **dict.fromkeys(
        _DECLARING, ('a list of functions ("name", "package.name(argument)", "name(0, path)")', _functions)
    ),
    "torch": ('a version ("2.9") or a range (">=2.6,<2.10")', _torch),
    "gpu-memory": ("a number of GiB above 0", _gib),
    "per-file-ignores": ("a table of pattern = list of strings", _table),
}


def _range(text: str) -> SpecifierSet:
    """A bare version means itself and its patches: 2.9 is ==2.9.*, 2.9.1 is ==2.9.1."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    try:
        bare = Version(text)
    except InvalidVersion:
        return SpecifierSet(text)
    return SpecifierSet(
        f"=={text}.*" if len(bare.release) < 3 and str(bare) == bare.base_version else f"=={bare.public}"
    )


def torch_range(settings: Settings) -> SpecifierSet | None:
    """The versions of torch that the user runs: as set, else as the project declares it; None: no bound is known.

    The first place that bounds torch counts: pyproject.toml, requirements files, setup.cfg, setup.py.
    """
    return _range(settings.torch) if settings.torch is not None else declared_range(settings.root, "torch")


def declared_range(root: Path, library: str) -> SpecifierSet | None:
    """The versions of a library that a project declares; None: no bound is known. The first place that bounds it
    counts."""
    for name, specifiers in _declared(root):
        if re.sub(r"[-_.]+", "-", name).lower() == library and str(specifiers):
            return specifiers
    return None


def declaring(root: Path) -> list[Path]:
    """The files in which a project may declare its torch, as far as they exist."""
    named = [root / name for name in ("pyproject.toml", "setup.cfg", "setup.py")]
    return [path for path in named if path.is_file()] + _requirement_files(root)


def _requirement_files(root: Path) -> list[Path]:
    return sorted({*root.glob("requirements*.txt"), *root.glob("requirements/*.txt")})


def _declared(root: Path) -> Iterator[tuple[str, SpecifierSet]]:
    """What the project says that it needs. A file that cannot be read says nothing: it is not ours."""
    if (root / "pyproject.toml").is_file():
        try:
            content = _toml(root / "pyproject.toml")
        except SettingsError:
            content = {}
        yield from _requirements(_strings_in(content.get("project"), "dependencies", "optional-dependencies"))
        yield from _requirements(_strings_in(content, "dependency-groups"))
        yield from _poetry(content)
    for path in _requirement_files(root):
        yield from _requirements(_text(path).splitlines())
    yield from _requirements(_setup_cfg(_text(root / "setup.cfg")))
    # setup.py is a program; its requirements are string literals nearly always.
    yield from _requirements(
        re.findall(r"""["']((?:torch|transformers)\s*[<>=!~][^"'\n]*)["']""", _text(root / "setup.py"))
    )


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    except OSError:
        return ""


def _requirements(lines: list[str]) -> Iterator[tuple[str, SpecifierSet]]:
    from packaging.requirements import InvalidRequirement, Requirement

    for line in lines:
        try:
            requirement = Requirement(re.split(r"\s#|\s--|^#", line.strip())[0].rstrip("\\ "))
        except InvalidRequirement:
            continue
        yield requirement.name, requirement.specifier


def _strings_in(value: Any, *only: str) -> list[str]:
    """All strings in a nest of tables and lists, at the top of the keys `only`."""
    if isinstance(value, str):
        return [] if only else [value]
    if isinstance(value, dict):
        return [text for key in only or value for text in _strings_in(value.get(key))]
    if isinstance(value, list) and not only:
        return [text for each in value for text in _strings_in(each)]
    return []


def _setup_cfg(text: str) -> list[str]:
    import configparser

    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    lines = parser.get("options", "install_requires", fallback="").splitlines()
    if parser.has_section("options.extras_require"):
        lines += [line for _, value in parser.items("options.extras_require") for line in value.splitlines()]
    return lines


def _poetry(content: Mapping[str, Any]) -> Iterator[tuple[str, SpecifierSet]]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    tool = content.get("tool")
    poetry = tool.get("poetry") if isinstance(tool, dict) else None
    if not isinstance(poetry, dict):
        return
    groups = poetry.get("group")
    tables = [poetry.get("dependencies")]
    tables += (
        [group.get("dependencies") for group in groups.values() if isinstance(group, dict)]
        if isinstance(groups, dict)
        else []
    )
    for table in tables:
        for name, said in table.items() if isinstance(table, dict) else ():
            version = said.get("version") if isinstance(said, dict) else said
            if isinstance(version, str):
                try:
                    yield name, SpecifierSet(",".join(_from_poetry(part.strip()) for part in version.split(",")))
                except (InvalidSpecifier, InvalidVersion):
                    continue


def _from_poetry(part: str) -> str:
    """Poetry's ^2.9 is >=2.9,<3 and its ~2.9 is >=2.9,<2.10."""
    from packaging.version import Version

    if part in ("", "*"):
        return ""
    if part[0] not in "^~" or part.startswith("~="):
        return part if part[0] in "<>=!~" else f"=={part}"
    low = Version(part[1:])
    kept = low.release[:1] if part[0] == "^" or len(low.release) == 1 else low.release[:2]
    return f">={low},<{'.'.join(map(str, (*kept[:-1], kept[-1] + 1)))}"
