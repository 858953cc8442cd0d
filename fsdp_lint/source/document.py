"""A file of settings, YAML or JSON: what it says, and where each of its keys stands."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fsdp_lint.source.file import Site, Source, Span

if TYPE_CHECKING:
    import libcst as cst

Keys = tuple[str, ...]


class Document(Source):
    """Settings that were read. In its tree each key is a statement of its own, on the row where it stands: so a finding
    in settings has a place, and comments that take it back, as one in a program has."""

    @functools.cached_property
    def value(self) -> Any:
        """What the file says, in plain data; None where it cannot be read, has several parts, or is a template."""
        return self._read[0]

    def site(self, *keys: str) -> Site | None:
        """The key that these keys lead to; None where it does not stand there (it may come from an anchor)."""
        return Site(self, self._nodes[keys]) if keys in self._nodes else None

    def span(self, node: cst.CSTNode) -> Span:
        """Where a key stands, for its node and for the statement around it."""
        return self._spans[node]

    @functools.cached_property
    def tree(self) -> cst.Module:
        """One statement for each key, in order."""
        import libcst as cst

        statements = [cst.SimpleStatementLine([cst.Expr(node)]) for node in self._nodes.values()]
        for statement, span in zip(statements, self._read[1].values(), strict=True):
            self._spans[statement] = span
        return cst.Module(body=statements)

    @functools.cached_property
    def _nodes(self) -> dict[Keys, cst.Name]:
        import libcst as cst

        return {keys: cst.Name(keys[-1]) for keys in self._read[1]}

    @functools.cached_property
    def _spans(self) -> dict[cst.CSTNode, Span]:
        return {self._nodes[keys]: span for keys, span in self._read[1].items()}

    @functools.cached_property
    def _read(self) -> tuple[Any, dict[Keys, Span]]:
        import yaml

        # JSON may be indented by tabs, which YAML does not take.
        text = self.text.replace("\t", " ") if self.path.suffix == ".json" else self.text
        try:
            loader = yaml.SafeLoader(text)
            node = loader.get_single_node()
            return (loader.construct_document(node) if node is not None else None), dict(_keys(node, ()))
        except (yaml.YAMLError, ValueError, TypeError, RecursionError):
            return None, {}


def _keys(node: Any, above: Keys) -> Iterator[tuple[Keys, Span]]:
    """The keys of mappings in mappings, and their places."""
    for key, value in node.value if getattr(node, "id", "") == "mapping" else ():
        if key.id == "scalar":
            start, end = key.start_mark, key.end_mark
            yield (*above, key.value), Span(start.line + 1, start.column + 1, end.line + 1, end.column + 1)
            yield from _keys(value, (*above, key.value))
