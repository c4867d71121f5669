"""What the names of a file stand for, and what of its statements is evaluated when they run.

Bodies of functions are not: they are for whoever calls them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PARAMETERS: Final = ("ParamSpec", "TypeVar", "TypeVarTuple")  # of types, from 3.12 on
DEFINES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Names:
    """What the names of a file stand for, in whatever order its statements come."""

    def __init__(self, tree: ast.Module, *, lazy: bool) -> None:
        #: Where each binding of a name has it from: empty where that is the file itself.
        self._bound: dict[str, list[str]] = defaultdict(list)
        self.defined: set[str] = set()
        for name, origin, node in bindings(tree.body, lazy=lazy, inner=True):
            self._bound[name].append(origin)
            if isinstance(node, DEFINES):
                self.defined.add(name)

    def origin(self, node: ast.expr) -> str:
        """Return where a name or a dotted one comes from; empty for the file's own, and others."""
        top, dot, rest = dotted(node).partition(".")
        found = self._bound.get(top)
        if found is None:
            # A star may bring a name that hides a builtin.
            return f"builtins.{top}" if top and not dot and "*" not in self._bound else ""
        return found[0] + dot + rest if len(set(found)) == 1 and found[0] else ""

    def is_own(self, name: str) -> bool:
        """Say whether the file binds a name, otherwise than by importing it."""
        return "" in self._bound.get(name, ())

    def is_single(self, name: str) -> bool:
        """Say whether a name has one binding."""
        return len(self._bound.get(name, ())) == 1


def bindings(
    body: Iterable[ast.stmt], *, lazy: bool, inner: bool = False
) -> Iterator[tuple[str, str, ast.stmt | ast.expr | ast.alias]]:
    """Yield each name that is bound while ``body`` runs: its name, origin and place.

    ``inner``: and those in the bodies of its classes.
    """
    for top in body:
        for node in at_once(top, lazy=lazy):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                yield node.id, "", node
            elif type(node).__name__ in _PARAMETERS:
                yield vars(node)["name"], "", top
            elif isinstance(node, ast.Import | ast.ImportFrom):
                yield from ((*_imported(node, alias), alias) for alias in node.names)
            elif isinstance(node, DEFINES):
                yield node.name, "", node
                if inner and isinstance(node, ast.ClassDef):
                    yield from bindings(node.body, lazy=lazy, inner=True)


def _imported(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> tuple[str, str]:
    if isinstance(node, ast.Import):
        top = alias.name.partition(".")[0]
        return (alias.asname, alias.name) if alias.asname else (top, top)
    origin = f"{node.module}.{alias.name}" if node.module and not node.level else ""
    return alias.asname or alias.name, origin


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` as it is written; empty for what is no such name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def at_once(top: ast.stmt, *, lazy: bool) -> Iterator[ast.AST]:
    """Yield the nodes that are evaluated when ``top`` is run, but for a class's body.

    ``lazy``: annotations are not.
    """
    stack: list[ast.AST] = [top]
    while stack:
        node = stack.pop()
        yield node
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                stack += [node.args, *node.decorator_list, *_parameters(node)]
                stack += [] if lazy or node.returns is None else [node.returns]
            case ast.Lambda():
                stack.append(node.args)
            case ast.ClassDef():
                stack += [*node.decorator_list, *node.bases, *node.keywords, *_parameters(node)]
            case ast.arg() if lazy:
                pass
            case ast.AnnAssign() if lazy:
                stack += [node.target] if node.value is None else [node.target, node.value]
            case _:
                stack += ast.iter_child_nodes(node)


def _parameters(node: ast.stmt) -> list[ast.AST]:
    """Return the parameters of types: a bound is evaluated by whoever asks for it."""
    return list(getattr(node, "type_params", ()))


def is_lazy(tree: ast.Module) -> bool:
    """Say whether annotations are kept as text."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )
