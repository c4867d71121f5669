"""Which cells can be run a second time and do exactly what they did the first.

Asked of cells that follow each other so closely that there is no idle time for a snapshot between
them: from the snapshot before, those are run again, unheard. So only a cell counts in which nothing
can run but the interpreter itself. What a name of an earlier cell's stands for is not known here:
it may be bound, passed on and compared by identity, and nothing else, since every operator, loop,
subscript, attribute and format of it may be a method of the cell's own, with a clock or a file in
it. For the same reason nothing is called: ``len`` and ``print`` are what an earlier cell has made
of them, and so are decorators, base classes and annotations that subscribe.

Values are *plain* when they are made in this very cell, of constants and containers of them.

Not asked: what a name was bound to before. It may be let go of by binding it anew, and its
``__del__`` then runs; it may in any cell, whenever the collector comes.
"""

from __future__ import annotations

import ast
from typing import Final

from cellblock.analysis.findings import word_set
from cellblock.analysis.transform import parse

#: Characters beyond which nobody looks.
_LONGEST: Final = 2_000
#: Of the standard library, which the guest finds first: to import them does nothing else.
_IMPORTS: Final = word_set("""
    abc array base64 bisect calendar cmath collections collections.abc copy csv dataclasses datetime
    decimal enum fractions functools hashlib heapq html io itertools json math numbers operator
    pprint random re statistics string struct textwrap time types typing unicodedata zlib
""")
#: Expressions whose value is plain if all of these parts are.
_OPERANDS: Final[dict[type[ast.expr], tuple[str, ...]]] = {
    ast.BinOp: ("left", "right"),
    ast.Compare: ("left", "comparators"),
    ast.Constant: (),
    ast.Dict: ("keys", "values"),
    ast.FormattedValue: ("value", "format_spec"),
    ast.JoinedStr: ("values",),
    ast.Set: ("elts",),
    ast.Slice: ("lower", "upper", "step"),
    ast.Subscript: ("value", "slice"),
    ast.UnaryOp: ("operand",),
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class _UnsureError(Exception):
    """Something may run that is not known."""


def can_run_again(source: str) -> bool:
    """Say whether ``source``, transformed, does the same when it is run again. Pure."""
    if len(source) > _LONGEST:
        return False
    try:
        _Scope().run(parse(source).body)
    except (_UnsureError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


class _Scope:
    """Follows statements in their order. ``_plain`` are names that stand for plain values now.

    Raises _UnsureError, whatever it is asked, for what it does not know.
    """

    def __init__(self, plain: frozenset[str] = frozenset(), *, of_class: bool = False) -> None:
        self._plain, self._of_class = set(plain), of_class

    # --- statements ---------------------------------------------------------------------------

    def run(self, body: list[ast.stmt]) -> None:
        """Go through statements."""
        for statement in body:
            self._step(statement)

    def _step(self, node: ast.stmt) -> None:
        match node:
            case ast.Pass():
                return
            case ast.Expr(value=value):
                self._demand([value])  # it may be shown
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    self._assign(target, value)
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                self._demand([value])
                self._require(name in self._plain)
            case ast.If(test=test, body=body, orelse=orelse):
                self._demand([test])
                self._branch(body, orelse)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._bind(target, plain=False)
            case _:
                self._declare(node)

    def _declare(self, node: ast.stmt) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._define(node)
            case ast.ClassDef():
                self._define_class(node)
            case _:
                raise _UnsureError

    def _branch(self, *bodies: list[ast.stmt]) -> None:
        """Go through each; plain is what is so whichever was taken."""
        before, after = frozenset(self._plain), list[set[str]]()
        for body in bodies:
            self._plain = set(before)
            self.run(body)
            after.append(self._plain)
        self._plain = set.intersection(*after)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        """Bind; what is taken apart must be plain, or be written out."""
        if isinstance(target, ast.Name):
            self._bind(target, plain=self._is_plain(value))
            return
        written_out = isinstance(value, ast.Tuple | ast.List) and not any(
            isinstance(element, ast.Starred) for element in value.elts
        )
        plain = self._is_plain(value)
        self._require(plain or written_out)
        self._bind_all(target, plain=plain)

    def _bind_all(self, target: ast.expr, *, plain: bool) -> None:
        self._require(isinstance(target, ast.Tuple | ast.List))
        assert isinstance(target, ast.Tuple | ast.List)  # noqa: S101 - for the type checker
        for element in target.elts:
            inner = element.value if isinstance(element, ast.Starred) else element
            if plain and not isinstance(inner, ast.Name):
                self._bind_all(inner, plain=plain)
            else:
                self._bind(inner, plain=plain)

    def _bind(self, target: ast.expr, *, plain: bool) -> None:
        """Bind a name: of anything else the setter is unknown.

        A class tells what it holds that it does (``__set_name__``).
        """
        if not isinstance(target, ast.Name) or (self._of_class and not plain):
            raise _UnsureError
        (self._plain.add if plain else self._plain.discard)(target.id)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        names = [alias.name for alias in node.names]
        modules = [node.module] if isinstance(node, ast.ImportFrom) else names
        self._require(not self._of_class and not getattr(node, "level", 0) and "*" not in names)
        self._require(_IMPORTS.issuperset(modules))
        for alias in node.names:
            self._plain.discard(alias.asname or alias.name.partition(".")[0])

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._require(not node.decorator_list and not getattr(node, "type_params", None))
        self._look_at_arguments(node)
        if node.returns is not None:
            self._is_plain(node.returns)
        self._plain.discard(node.name)

    def _look_at_arguments(self, node: _Function) -> None:
        """Look at what runs now of a function: defaults and annotations."""
        of = node.args
        every = [*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg]
        annotations = [arg.annotation for arg in every if arg is not None]
        for part in (*of.defaults, *of.kw_defaults, *annotations):
            if part is not None:
                self._is_plain(part)

    def _define_class(self, node: ast.ClassDef) -> None:
        self._require(not (node.bases or node.keywords or node.decorator_list or self._of_class))
        self._require(not getattr(node, "type_params", None))
        _Scope(frozenset(self._plain), of_class=True).run(node.body)
        self._plain.discard(node.name)

    # --- expressions --------------------------------------------------------------------------

    def _is_plain(self, node: ast.expr) -> bool:
        """Say whether a value is plain; others are harmless as long as they are only passed on."""
        match node:
            case ast.Name(id=name):
                plain = name in self._plain
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                plain = self._are_plain(elements)
            case ast.BoolOp(values=[*conditions, last]):
                self._demand(conditions)
                plain = self._is_plain(last)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._demand([test])
                plain = self._are_plain([body, orelse])
            case ast.Lambda():
                self._look_at_arguments(node)
                plain = False
            case ast.Compare(left=left, ops=ops, comparators=others) if _by_identity(ops):
                self._are_plain([left, *others])
                plain = True
            case _:
                self._demand(_operands(node))
                plain = True
        return plain

    def _are_plain(self, elements: list[ast.expr]) -> bool:
        """Say whether all are; each is looked at, since each is evaluated."""
        plain = True
        for element in elements:
            if isinstance(element, ast.Starred):
                self._demand([element.value])
            elif not self._is_plain(element):
                plain = False
        return plain

    def _demand(self, nodes: list[ast.expr]) -> None:
        """Accept plain values only: they are operated on."""
        for node in nodes:
            self._require(self._is_plain(node))

    @staticmethod
    def _require(holds: bool) -> None:
        if not holds:
            raise _UnsureError


def _by_identity(ops: list[ast.cmpop]) -> bool:
    return all(isinstance(op, ast.Is | ast.IsNot) for op in ops)


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return what an expression makes a plain value of, if it is plain itself."""
    if (fields := _OPERANDS.get(type(node))) is None:
        raise _UnsureError
    found = list[ast.expr]()
    for field in fields:
        value = getattr(node, field)
        found += value if isinstance(value, list) else [value]
    return [one.value if isinstance(one, ast.Starred) else one for one in found if one is not None]
