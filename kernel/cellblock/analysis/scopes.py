"""Which reads of a builtin's name are of something that the cell itself binds.

``def eval(x, env)``, a field ``open: float``, ``for open, close in rows``: a name that a cell binds
is not the builtin. Python decides it by scope, and so does this: a read is the cell's own if a
scope that it can see binds the name, anywhere. That is the function, lambda, comprehension or class
that the read is in, a function around that, or the cell's top level, where earlier cells' names are
too, and those that a function binds by ``global``.

Nothing here asks in which order statements run, or whether they do. So a read that is passed may
find the builtin after all: above the binding, in a branch that did not bind it, after a ``del``. It
finds the guarded one, which refuses when it is called (``guest.guards``; with packages ``open`` is
the real one, as they have it too).
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
    """The top level (without ``outer``), a class, or a function, lambda or comprehension.

    ``declared`` are names that it says are of the top level.
    """

    bound: frozenset[str]
    outer: _Scope | None = None
    declared: frozenset[str] = frozenset()
    is_class: bool = False

    def finds(self, name: str) -> bool:
        """Return whether a read of ``name`` here finds what a cell binds."""
        scope, is_global = self, False
        while scope.outer is not None:
            is_global = is_global or name in scope.declared
            # Functions do not see the names of a class around them.
            is_seen = scope is self or not scope.is_class
            if is_seen and not is_global and name in scope.bound:
                return True
            scope = scope.outer
        return name in scope.bound


def own_reads(tree: ast.AST, wanted: frozenset[str], before: frozenset[str]) -> set[int]:
    """Return the ids of the nodes in ``tree`` that read a name of ``wanted`` that cells bind.

    ``before`` are names that earlier cells bound.
    """
    own = set[int]()
    stack: list[tuple[ast.AST, _Scope]] = [(tree, _Scope(bound_at_top(tree, wanted) | before))]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, ast.Name):
            if node.id in wanted and scope.finds(node.id):
                own.add(id(node))
        elif isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            stack += ((each, scope) for each in _evaluated_outside(node))
            inner = _scope_of(node, scope, wanted)
            stack += ((each, inner) for each in _body(node))
        elif isinstance(node, _COMPREHENSIONS):
            first = node.generators[0]
            targets = [generator.target for generator in node.generators]
            inner = _Scope(_bound_in(targets, wanted), scope)
            stack.append((first.iter, scope))
            stack += ((each, inner) for each in (first.target, *first.ifs))
            stack += ((each, inner) for each in ast.iter_child_nodes(node) if each is not first)
        else:
            stack += ((each, scope) for each in ast.iter_child_nodes(node))
    return own


def bound_at_top(tree: ast.AST, wanted: frozenset[str]) -> frozenset[str]:
    """Return the names of ``wanted`` that a cell binds at its top level, or by ``global``.

    It may leave them bound for the cells after it.
    """
    found = set(_bound_in(ast.iter_child_nodes(tree), wanted))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found |= _declared(node.body, ast.Global) & _bound_in(node.body, wanted)
    return frozenset(found)


def _scope_of(node: Function | ast.ClassDef, outer: _Scope, wanted: frozenset[str]) -> _Scope:
    body = _body(node)
    elsewhere = _declared(body, ast.Global | ast.Nonlocal)
    bound = _bound_in(body, wanted) - elsewhere
    if not isinstance(node, ast.ClassDef):
        bound |= {each.arg for each in _parameters(node)}
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


def _bound_in(nodes: Iterable[ast.AST], wanted: frozenset[str]) -> frozenset[str]:
    """Return the names of ``wanted`` that these nodes bind in the scope that they are in."""
    found = set[str]()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        found.update(_names_bound_by(node))
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            stack += _evaluated_outside(node)
        elif isinstance(node, _COMPREHENSIONS):
            stack += _walrus_targets(node)
            stack.append(node.generators[0].iter)
        else:
            stack += ast.iter_child_nodes(node)
    return wanted & found


def _evaluated_outside(node: Function | ast.ClassDef) -> list[ast.expr]:
    """Return what of a function or class is evaluated in the scope that it is in."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(each.value for each in node.keywords)]
    found = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    if isinstance(node, ast.Lambda):
        return found
    notes = [each.annotation for each in _parameters(node)] + [node.returns]
    return [*node.decorator_list, *found, *filter(None, notes)]


def _walrus_targets(node: ast.AST) -> list[ast.expr]:
    """Return the targets of ``:=`` in a comprehension, which are bound around it."""
    return [part.target for part in ast.walk(node) if isinstance(part, ast.NamedExpr)]


def _declared(body: Iterable[ast.AST], kind: type | object) -> set[str]:
    """Return the names that ``global`` or ``nonlocal`` declares in a function's own scope."""
    found = set[str]()
    stack = list(body)
    while stack:
        node = stack.pop()
        if isinstance(node, kind):  # type: ignore[arg-type]
            found.update(node.names)  # type: ignore[attr-defined]
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            stack += ast.iter_child_nodes(node)
    return found


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
