"""Edits on a tree: statements replaced, removed and put before others, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

Statements = Sequence[cst.BaseStatement]


class Edits(cst.CSTTransformer):
    """Replacements by node. A statement may be replaced by several or, with none, goes away."""

    def __init__(self) -> None:
        super().__init__()
        self.expressions: dict[cst.CSTNode, cst.CSTNode] = {}
        self.statements: dict[cst.CSTNode, Statements] = {}

    def replace(self, old: cst.CSTNode, new: cst.CSTNode) -> Edits:
        """Puts one node in the place of another."""
        self.expressions[old] = new
        return self

    def put(self, old: cst.CSTNode, new: Statements) -> Edits:
        """Puts statements in the place of one."""
        self.statements[old] = new
        return self

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        """Applies the edit of a node, if it has one."""
        if original_node in self.statements:
            new = self.statements[original_node]
            return cst.FlattenSentinel(new) if new else cst.RemoveFromParent()  # type: ignore[arg-type]
        if original_node in self.expressions:
            return self.expressions[original_node]  # type: ignore[return-value]
        if isinstance(updated_node, cst.IndentedBlock) and not updated_node.body:
            return updated_node.with_changes(body=[parse("pass")])
        return updated_node


def parse(text: str) -> cst.BaseStatement:
    """One statement from its text."""
    return cst.parse_statement(text)


def before(first: cst.BaseStatement, moved: Statements) -> Statements:
    """Statements put before another; the white space and comments above that one stay on top."""
    return [*moved, first]
