"""Which reads of a builtin's name are of something that the cell itself binds.

``def eval(x, env)``, a field ``open: float``, ``for open, close in rows``: a name that a cell binds
is not the builtin. Python decides it by scope, and so does this:

- In a function, a lambda or a comprehension, a name that is bound there, or in one around it, is
  never the builtin: it is unbound at worst.
- At the cell's top level, and in a class's body, an unbound name is looked up among the builtins. A
  read there is the cell's own where the name was bound on every way to it, by an earlier cell or
  this one. A loop counts as entered.
- A function that reads a name of the top level runs later, and may be written first (mutual
  recursion). That read is the cell's own where the cell binds the name at its top level at all.

So a read that is passed here may find the builtin after all: a function that is called too early, a
loop that is never entered, a ``del`` of another cell's. It finds the guarded one, which refuses
when it is called (``guest.guards``; with packages ``open`` is the real one, as they have it too).
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
#: What may leave a block, so that what follows it there is not on the way to what comes after.
_LEAVES: Final = (ast.Raise, ast.Return, ast.Break, ast.Continue)


class _Scope:
    """A function or comprehension, or the top level or a class: there ``function`` is False.

    ``bound`` are the names bound on every way to the place that is looked at, of a function all
    that it binds. ``deferred``: its body runs later, if at all.
    """

    def __init__(
        self,
        outer: _Scope | None,
        bound: Iterable[str],
        *,
        function: bool = False,
        deferred: bool = False,
    ) -> None:
        self.outer, self.function, self.deferred = outer, function, deferred
        self.bound = set(bound)
        #: Names that are declared to be of the top level.
        self.declared = set[str]()


def own_reads(tree: ast.AST, wanted: frozenset[str], before: frozenset[str]) -> set[int]:
    """Return the ids of the nodes in ``tree`` that read a name of ``wanted`` that cells bind.

    ``before`` are names that earlier cells bound. Raises RecursionError for source that is nested
    too deeply.
    """
    walker = _Walker(tree, wanted, before)
    if isinstance(tree, ast.Module):
        walker.block(tree.body, walker.top)
    else:
        walker.visit(tree, walker.top)
    return walker.own


def bound_at_top(tree: ast.AST, wanted: frozenset[str]) -> set[str]:
    """Return the names of ``wanted`` that a cell may leave bound for those after it."""
    return _Walker(tree, wanted, frozenset()).of_cell


class _Walker:
    """Goes through a cell in the order in which it runs."""

    def __init__(self, tree: ast.AST, wanted: frozenset[str], before: frozenset[str]) -> None:
        self._wanted = wanted
        self.own = set[int]()
        self.top = _Scope(None, before)
        #: What the cell binds at its top level anywhere, by ``global`` in a function included.
        bound = self._bound_in(ast.iter_child_nodes(tree))
        self.of_cell = bound | self._declared_and_bound(tree) | before

    # --- what a scope binds -------------------------------------------------------------------

    def _bound_in(self, nodes: Iterable[ast.AST]) -> set[str]:
        """Return the names of interest that these nodes bind in the scope they are in."""
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
        return found & self._wanted

    def _declared_and_bound(self, tree: ast.AST) -> set[str]:
        found = set[str]()
        for node in ast.walk(tree):
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef)) and not isinstance(node, ast.Lambda):
                found |= _declared(node.body, ast.Global) & self._bound_in(node.body)
        return found

    # --- reads --------------------------------------------------------------------------------

    def _is_own(self, name: str, scope: _Scope) -> bool:
        """Return whether a read of ``name`` in ``scope`` finds what the cell binds."""
        if name in scope.declared:
            return name in self.of_cell
        if name in scope.bound:
            return True
        deferred = scope.deferred
        around = scope.outer
        while around is not None and around.outer is not None:
            # Functions do not see the names of a class around them.
            if around.function and name in around.bound and name not in around.declared:
                return True
            if name in around.declared:
                break
            deferred = deferred or around.deferred
            around = around.outer
        return name in (self.of_cell if deferred else self.top.bound)

    # --- in the order in which a cell runs ----------------------------------------------------

    def block(self, body: Sequence[ast.stmt], scope: _Scope) -> None:
        """Go through statements one after another."""
        for statement in body:
            self.visit(statement, scope)

    def _branches(self, bodies: Iterable[Sequence[ast.stmt]], scope: _Scope) -> None:
        """Go through statements of which one block runs: after it holds what each of them binds.

        A block that is left by ``raise`` or ``return`` does not lead to what comes after it.
        """
        before, after = set(scope.bound), list[set[str]]()
        for body in bodies:
            scope.bound = set(before)
            self.block(body, scope)
            if not (body and isinstance(body[-1], _LEAVES)):
                after.append(scope.bound)
        scope.bound = set.intersection(*after) if after else before

    def visit(self, node: ast.AST, scope: _Scope) -> None:  # noqa: C901, PLR0912 - a row for each kind of node
        """Judge the reads in ``node`` and note what it binds."""
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                if name in self._wanted and self._is_own(name, scope):
                    self.own.add(id(node))
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._function(node, scope)
            case ast.ClassDef():
                self._class(node, scope)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node, scope)
            case ast.Assign(value=value) | ast.AugAssign(value=value) | ast.AnnAssign(value=value):
                if value is not None:
                    self.visit(value, scope)
                if isinstance(node, ast.AnnAssign):
                    self.visit(node.annotation, scope)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(node, ast.AnnAssign) and value is None:
                        continue  # binds nothing
                    self.visit(target, scope)
            case ast.NamedExpr(target=target, value=value):
                self.visit(value, scope)
                self.visit(target, scope)
            case ast.For() | ast.AsyncFor():
                self.visit(node.iter, scope)
                scope.bound -= _unbound_in(node.body)  # by the time that it runs again
                self.visit(node.target, scope)
                self.block(node.body, scope)
                self.block(node.orelse, scope)
            case ast.While():
                scope.bound -= _unbound_in(node.body)
                self.visit(node.test, scope)
                self.block(node.body, scope)
                self.block(node.orelse, scope)
            case ast.If(test=test, body=body, orelse=orelse):
                self.visit(test, scope)
                self._branches((body, orelse), scope)
            case ast.IfExp(test=test, body=yes, orelse=no):
                self._perhaps(test, ([yes], [no]), scope)
            case ast.BoolOp(values=[first, *others]):
                self._perhaps(first, (others,), scope)
            case ast.Try() | ast.TryStar():
                self._try(node, scope)
            case ast.Match(subject=subject, cases=cases):
                self.visit(subject, scope)
                self._cases(cases, scope)
            case _:
                for child in ast.iter_child_nodes(node):
                    self.visit(child, scope)
                self._note(node, scope)
                return
        self._note(node, scope)

    def _note(self, node: ast.AST, scope: _Scope) -> None:
        """Note the names that a node binds or deletes by itself."""
        if scope.function:
            return  # all of them are known
        for name in self._wanted.intersection(_names_bound_by(node)):
            (self.top if name in scope.declared else scope).bound.add(name)
        match node:
            case ast.Name(id=name, ctx=ast.Del()):
                scope.bound.discard(name)
            case ast.Global(names=names):
                scope.declared.update(names)

    def _perhaps(
        self, first: ast.expr, others: Iterable[Sequence[ast.expr]], scope: _Scope
    ) -> None:
        """Go through parts of an expression of which only the first is evaluated in any case."""
        self.visit(first, scope)
        before = set(scope.bound)
        for parts in others:
            for part in parts:
                self.visit(part, scope)
            scope.bound = set(before)

    def _try(self, node: ast.Try | ast.TryStar, scope: _Scope) -> None:
        # What a part may unbind counts as unbound wherever that part may have failed.
        before = scope.bound - _unbound_in(node.body)
        self.block(node.body, scope)
        self.block(node.orelse, scope)
        after = [set(scope.bound)]
        for handler in node.handlers:
            scope.bound = set(before)
            if handler.type is not None:
                self.visit(handler.type, scope)
            scope.bound |= {handler.name} if handler.name else set()
            self.block(handler.body, scope)
            scope.bound -= {handler.name} if handler.name else set()  # it is deleted then
            if not (handler.body and isinstance(handler.body[-1], _LEAVES)):
                after.append(set(scope.bound))
        scope.bound = before - _unbound_in([*node.orelse, *node.handlers])
        self.block(node.finalbody, scope)
        scope.bound |= set.intersection(*after) - _unbound_in(node.finalbody)

    def _cases(self, cases: Sequence[ast.match_case], scope: _Scope) -> None:
        before, after = set(scope.bound), [set(scope.bound)]
        for case in cases:
            scope.bound = set(before)
            self.visit(case.pattern, scope)
            if case.guard is not None:
                self.visit(case.guard, scope)
            self.block(case.body, scope)
            after.append(scope.bound)
        last = cases[-1]
        always = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        if always and last.guard is None:
            del after[0]
        scope.bound = set.intersection(*after)

    def _function(self, node: Function, scope: _Scope) -> None:
        for child in _evaluated_outside(node):
            self.visit(child, scope)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        parameters = node.args
        named = [
            *parameters.posonlyargs,
            *parameters.args,
            *parameters.kwonlyargs,
            *filter(None, (parameters.vararg, parameters.kwarg)),
        ]
        inner = _Scope(scope, {each.arg for each in named}, function=True, deferred=True)
        if not isinstance(node, ast.Lambda):
            inner.declared = _declared(node.body, ast.Global)
            inner.bound |= self._bound_in(body) - _declared(node.body, ast.Global | ast.Nonlocal)
        for statement in body:
            self.visit(statement, inner)

    def _class(self, node: ast.ClassDef, scope: _Scope) -> None:
        for child in _evaluated_outside(node):
            self.visit(child, scope)
        self.block(node.body, _Scope(scope, ()))

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: _Scope
    ) -> None:
        first = node.generators[0]
        self.visit(first.iter, scope)
        targets = [generator.target for generator in node.generators]
        later = isinstance(node, ast.GeneratorExp)
        inner = _Scope(scope, self._bound_in(targets), function=True, deferred=later)
        for child in ast.iter_child_nodes(node):
            if child is not first:
                self.visit(child, inner)
        for child in (first.target, *first.ifs):
            self.visit(child, inner)


def _evaluated_outside(node: Function | ast.ClassDef) -> list[ast.expr]:
    """Return what of a function or class is evaluated in the scope that it is in."""
    if isinstance(node, ast.ClassDef):
        return [*node.decorator_list, *node.bases, *(each.value for each in node.keywords)]
    found = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
    if isinstance(node, ast.Lambda):
        return found
    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    named += filter(None, (node.args.vararg, node.args.kwarg))
    notes = [each.annotation for each in named] + [node.returns]
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


def _unbound_in(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that ``del`` or the end of a handler may unbind anywhere in these nodes."""
    found = set[str]()
    for node in nodes:
        for part in ast.walk(node):
            match part:
                case ast.Name(id=name, ctx=ast.Del()) | ast.ExceptHandler(name=str(name)):
                    found.add(name)
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
