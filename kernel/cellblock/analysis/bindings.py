"""Which names a cell would bind, and which it reads: for cells that come after a refused one.

Told from the source alone, so only roughly: what ``exec`` or ``import *`` binds is not seen, and a
name that a function reads counts where the function is defined.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from cellblock.analysis.magics import code_of
from cellblock.analysis.transform import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Nodes with names of their own; what is in a class is its attribute.
_SCOPES: Final = (
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.DictComp,
    ast.FunctionDef,
    ast.GeneratorExp,
    ast.Lambda,
    ast.ListComp,
    ast.SetComp,
)
#: Statements in which values are read before names are bound.
_READ_FIRST: Final = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr)


class Bindings:
    """The names that a cell binds at its top level, and those that it reads before it does."""

    def __init__(self, source: str) -> None:
        self.bound, self.read = set[str](), set[str]()
        self._follow(source)

    def _follow(self, source: str) -> None:
        try:
            statements = parse(source).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for statement in statements:
            if (code := code_of(statement)) is not None:
                self._follow(code)
                continue
            bound, read = set(_bound(statement)), _read(statement)
            own = set[str]() if isinstance(statement, _READ_FIRST) else bound
            self.read |= read - self.bound - own
            self.bound |= bound


def _bound(statement: ast.stmt) -> Iterator[str]:
    nodes: list[ast.AST] = [statement]
    while nodes:
        node = nodes.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.alias(name=name, asname=alias) if name != "*":
                yield alias or name.partition(".")[0]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name
            case ast.MatchMapping(rest=str(name)):
                yield name
        if not isinstance(node, _SCOPES):
            nodes += ast.iter_child_nodes(node)


def _read(statement: ast.stmt) -> set[str]:
    read, local = set[str](), set[str]()
    nodes: list[tuple[ast.AST, bool]] = [(statement, False)]
    while nodes:
        node, inside = nodes.pop()
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                read.add(name)
            case ast.Name(id=name) | ast.arg(arg=name) if inside:
                local.add(name)
            case ast.AugAssign(target=ast.Name(id=name)):
                read.add(name)
        inside = inside or isinstance(node, _SCOPES)
        nodes += ((part, inside) for part in ast.iter_child_nodes(node))
    return read - local
