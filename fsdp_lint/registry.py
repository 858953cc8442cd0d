"""The rules that are installed, found through the entry points of the group `fsdp_lint.rules`."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
import pkgutil
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType

from fsdp_lint.rule import Rule
from fsdp_lint.selectors import covers, weight
from fsdp_lint.settings import Settings

GROUP = "fsdp_lint.rules"
_PAGES = "https://github.com/fsdp-lint/fsdp-lint/blob/main/docs/rules"


class RegistryError(Exception):
    """The rules cannot be had as asked for; the message is one line."""


@dataclass(frozen=True)
class RegisteredRule:
    """A rule with its name and its page: the name and the docstring of the module that defines it."""

    name: str
    rule: Rule
    doc: str

    @property
    def summary(self) -> str:
        """The first line of the page."""
        return self.doc.split("\n", 1)[0].strip()

    @property
    def help(self) -> str:
        """What to do, in the first sentence of the page's section."""
        return first_sentence(section(self.doc, "How to mend it"))

    @property
    def url(self) -> str:
        """Where the page is published."""
        return f"{_PAGES}/{self.name}.md"


def section(doc: str, title: str) -> str:
    """The text under a `## title` of a page; empty if there is none."""
    found = re.search(rf"^## {re.escape(title)}\s*$(.*?)(?=^## |\Z)", doc, re.MULTILINE | re.DOTALL)
    return found[1].strip() if found else ""


def first_sentence(text: str) -> str:
    """Up to the first full stop that ends a word outside backticks; else the first paragraph."""
    paragraph = " ".join(re.split(r"\n\s*\n|\n\s*```", text)[0].split())
    found = re.match(r"(?:`[^`]*`|(?<=e\.g)\.|(?<=i\.e)\.|[^`.]|\.(?=\S))*\.(?=\s|$)", paragraph)
    return found[0] if found else paragraph


def rules() -> tuple[RegisteredRule, ...]:
    """All installed rules, by code. Raises RegistryError if there are none, or if one cannot be used."""
    found: dict[str, RegisteredRule] = {}
    for each in _registered():
        for other in found.values():
            if each.rule.code == other.rule.code or each.name == other.name:
                raise RegistryError(
                    f"two rules are called {each.rule.code} ({each.name}) or {other.name}: remove one pack"
                )
        found[each.name] = each
    if not found:
        raise RegistryError("no rules are installed: a bare checkout has none, run `pip install .` in it first")
    return tuple(sorted(found.values(), key=lambda each: each.rule.code))


def _registered() -> Iterator[RegisteredRule]:
    # A set: a checkout that is installed editable can be seen twice, by its metadata in both places.
    packs = {(entry.name, entry.value) for entry in importlib.metadata.entry_points(group=GROUP)}
    for name, package in sorted(packs):
        for module in _modules(name, package):
            rule = getattr(module, "RULE", None)
            short = module.__name__.rpartition(".")[2]
            if not isinstance(rule, Rule):
                raise RegistryError(f"rule pack `{name}`: {module.__name__} defines no RULE")
            yield RegisteredRule(short.replace("_", "-"), rule, inspect.cleandoc(module.__doc__ or ""))


def _modules(name: str, package: str) -> Iterator[ModuleType]:
    current = package
    try:
        pack = importlib.import_module(package)
        for info in pkgutil.iter_modules(pack.__path__):
            if not info.name.startswith("_"):
                current = f"{package}.{info.name}"
                yield importlib.import_module(current)
    except Exception as error:  # whatever a third party's module raises
        said = " ".join(str(error).split())
        raise RegistryError(
            f"rule pack `{name}`: {current} cannot be imported: {type(error).__name__}: {said}"
        ) from error


def find(known: Sequence[RegisteredRule], word: str) -> RegisteredRule:
    """The rule with this code or name. Raises RegistryError that names the nearest."""
    for each in known:
        if word.strip().lower() in (each.name.lower(), each.rule.code.lower()):
            return each
    raise RegistryError(f"unknown rule {word!r}; {_nearest(known, word)}")


def select(known: Sequence[RegisteredRule], settings: Settings) -> tuple[RegisteredRule, ...]:
    """The rules to run. Whichever selector means a rule most closely decides; where two do, `ignore` wins."""
    _check(known, "select", settings.select)
    _check(known, "extend-select", settings.extend_select)
    _check(known, "ignore", settings.ignore)
    for pattern, selectors in settings.per_file_ignores:
        _check(known, f"per-file-ignores.{pattern}", selectors)
    return tuple(each for each in known if _enabled(each, settings))


def _enabled(each: RegisteredRule, settings: Settings) -> bool:
    def closest(selectors: Iterable[str]) -> int:
        return max((weight(selector, each.rule.code, each.name) for selector in selectors), default=0)

    wanted = closest((*settings.select, *settings.extend_select))
    unwanted = closest(settings.ignore)
    if wanted == unwanted == 0:
        return not settings.select and each.rule.on_by_default
    return wanted > unwanted


def _check(known: Sequence[RegisteredRule], where: str, selectors: Iterable[str]) -> None:
    for selector in selectors:
        if not any(covers(selector, each.rule.code, each.name) for each in known):
            raise RegistryError(f"unknown rule {selector!r} in `{where}`; {_nearest(known, selector)}")


def _nearest(known: Sequence[RegisteredRule], word: str) -> str:
    names = {each.name: each.name for each in known} | {each.rule.code.lower(): each.rule.code for each in known}
    near = difflib.get_close_matches(word.strip().lower(), names, n=1, cutoff=0.5)
    return f"did you mean {names[near[0]]!r}?" if near else "`fsdp-lint rules` lists them all"
