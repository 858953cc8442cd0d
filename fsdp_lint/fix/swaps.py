"""The text of a pair, turned around."""

from __future__ import annotations

from fsdp_lint.fix.arguments import text_of
from fsdp_lint.source.file import Site


def swapped(site: Site) -> str | None:
    """The text of a tuple or list of two with its items exchanged; None for anything else."""
    import libcst as cst

    node = site.node
    if not isinstance(node, cst.Tuple | cst.List) or len(node.elements) != 2:
        return None
    if any(isinstance(element, cst.StarredElement) for element in node.elements):
        return None
    first, second = (text_of(Site(site.source, element.value)) for element in node.elements)
    return f"[{second}, {first}]" if isinstance(node, cst.List) else f"({second}, {first})"
