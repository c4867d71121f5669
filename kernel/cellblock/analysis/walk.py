"""Walks a tree without recursion: depth is the writer's choice, the stack is ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from cellblock.analysis.nodes import CHILDREN

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Mapping

    from cellblock.analysis.findings import Positioned, Report


def walk(
    tree: ast.AST, report: Report, checks: Mapping[type, Callable[[Any, Report], bool | None]]
) -> None:
    """Run the check of every node's type, parents first; refuse nodes that nobody has judged.

    A check that returns True has dealt with the node's children too.
    """
    stack: list[Any] = [tree]
    children, pop, push, extend = CHILDREN, stack.pop, stack.append, stack.extend
    while stack:
        node = pop()
        if node is None:  # a Dict's ** key, a keyword without default
            continue
        kind = type(node)
        check = checks.get(kind)
        if check is not None and check(node, report):
            continue
        fields = children.get(kind)
        if fields is None:
            _unknown(node, report)
            continue
        for name in fields:
            value = getattr(node, name)
            if type(value) is list:
                extend(value)
            elif value is not None:
                push(value)


def _unknown(node: ast.AST, report: Report) -> None:
    name = type(node).__name__
    if hasattr(node, "lineno"):
        report.add("node-not-allowed", cast("Positioned", node), name)
    else:  # operators have no position of their own
        report.add_at("node-not-allowed", (1, 0, 1), name)
