"""Scopes: tells reads of a name that the cell itself binds from reads of a builtin of that name.

``def eval(x, env)``, a field ``open: float``, ``for open, close in rows``: here the names are not
those of builtins. As in Python, scopes decide. A read is the cell's own if a scope that it can see
binds the name anywhere: the function, lambda, comprehension or class that the read is in, a
function around that, or the cell's top level. The top level has the names of earlier cells, too,
and those that a function binds by ``global``.

The order of statements is not considered, nor whether they run. So a read that passes as the cell's
own may still find the builtin: before the binding, in a branch without it, or after a ``del``. It
then finds the guarded builtin, which refuses when it is called (``guest.guards``). Only ``open`` is
the real one under a policy with packages, since those have it, too.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class _Scope:
    """A scope: the top level (without ``outer``), a class, function, lambda or comprehension.

    ``bound`` are the names that it binds, ``declared`` those that it declares ``global``.
    """

    bound: frozenset[str]
    outer: _Scope | None = None
    declared: frozenset[str] = frozenset()
    is_class: bool = False

    def finds(self, name: str) -> bool:
        """Return whether a read of ``name`` in this scope finds a name that a cell binds."""
        scope, is_global = self, False
        while scope.outer is not None:
            is_global = is_global or name in scope.declared
            # Functions do not see the names of a class around them.
            is_seen = scope is self or not scope.is_class
            if is_seen and not is_global and name in scope.bound:
                return True
            scope = scope.outer
        return name in scope.bound


def own_reads(tree: ast.AST, names: frozenset[str], before: frozenset[str]) -> set[int]:
    """Return the ids of the nodes in ``tree`` that read one of ``names`` which cells bind.

    ``before`` are the names that earlier cells bound.
    """
    read_ids = set[int]()
    stack: list[tuple[ast.AST, _Scope]] = [(tree, _Scope(bound_at_top(tree, names) | before))]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, ast.Name):
            if node.id in names and scope.finds(node.id):
                read_ids.add(id(node))
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            stack += ((each, scope) for each in _evaluated_outside(node))
            inner = _scope_of(node, scope, names)
            stack += ((each, inner) for each in _body(node))
        elif isinstance(node, _COMPREHENSIONS):
            first = node.generators[0]
            targets = [generator.target for generator in node.generators]
            inner = _Scope(_bound_in(targets, names), scope)
            stack.append((first.iter, scope))
            stack += ((each, inner) for each in (first.target, *first.ifs))
            stack += ((each, inner) for each in ast.iter_child_nodes(node) if each is not first)
        else:
            stack += ((each, scope) for each in ast.iter_child_nodes(node))
    return read_ids


def bound_at_top(tree: ast.AST, names: frozenset[str]) -> frozenset[str]:
    """Return those of ``names`` that a cell binds at its top level, or by ``global``.

    They may still be bound for the cells after it.
    """
    bound = set(_bound_in(ast.iter_child_nodes(tree), names))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound |= _declared(node.body, ast.Global) & _bound_in(node.body, names)
    return frozenset(bound)


def _scope_of(node: Function | ast.ClassDef, outer: _Scope, names: frozenset[str]) -> _Scope:
    """Return the scope of a function's or class's body."""
    body = _body(node)
    elsewhere = _declared(body, ast.Global | ast.Nonlocal)
    bound = _bound_in(body, names) - elsewhere
    if not isinstance(node, ast.ClassDef):
        bound |= {parameter.arg for parameter in _parameters(node)}
    return _Scope(
        bound,
        outer,
        declared=frozenset(_declared(body, ast.Global)),
        is_class=isinstance(node, ast.ClassDef),
    )


def _body(node: Function | ast.ClassDef) -> list[ast.AST]:
    return [node.body] if isinstance(node, ast.Lambda) else list(node.body)


def _parameters(node: Function) -> Iterator[ast.arg]:
    yield from (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
    yield from filter(None, (node.args.vararg, node.args.kwarg))


def _bound_in(nodes: Iterable[ast.AST], names: frozenset[str]) -> frozenset[str]:
    """Return those of ``names`` that these nodes bind in the scope that they are in."""
    bound = set[str]()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        bound.update(_names_bound_by(node))
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            stack += _evaluated_outside(node)
        elif isinstance(node, _COMPREHENSIONS):
            stack += _walrus_targets(node)
            stack.append(node.generators[0].iter)
        else:
            stack += ast.iter_child_nodes(node)
    return names & bound


def _evaluated_outside(node: Function | ast.ClassDef) -> list[ast.expr]:
    """Return the parts of a function or class that are evaluated in the scope around it."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(each.value for each in node.keywords)]
    defaults = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    if isinstance(node, ast.Lambda):
        return defaults
    annotations = [each.annotation for each in _parameters(node)] + [node.returns]
    return [*node.decorator_list, *defaults, *filter(None, annotations)]


def _walrus_targets(node: ast.AST) -> list[ast.expr]:
    """Return the targets of ``:=`` in a comprehension, which the scope around it binds."""
    return [part.target for part in ast.walk(node) if isinstance(part, ast.NamedExpr)]


def _declared(body: Iterable[ast.AST], kind: type | object) -> set[str]:
    """Return the names that ``global`` or ``nonlocal`` declares in a function's own scope."""
    names = set[str]()
    stack = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, kind):  # type: ignore[arg-type]
            names.update(node.names)  # type: ignore[attr-defined]
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            stack += ast.iter_child_nodes(node)
    return names


def _names_bound_by(node: ast.AST) -> tuple[str, ...]:
    """Return the names that a node binds by itself, in the scope that it is in."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.MatchMapping(rest=str(name)):
            return (name,)
        case ast.alias(name=name, asname=alias):
            return (alias or name.partition(".")[0],)
        case (
            ast.FunctionDef(name=str(name))
            | ast.AsyncFunctionDef(name=str(name))
            | ast.ClassDef(name=str(name))
            | ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
        ):
            return (name,)
    return ()
