"""What a cell does with names, told from its source alone.

`Bindings` says which it would bind, and which it reads: for cells that come after a refused one.
Only roughly: what ``exec`` or ``import *`` binds is not seen, and a name that a function reads
counts where the function is defined.

`can_run_again` says whether it can be run a second time and does exactly what it did the first.
Asked of cells that follow each other so closely that there is no idle time for a snapshot between
them: from the snapshot before, those are run again, unheard (ADR 0088). So only a cell counts in
which nothing can run but the interpreter itself: assignments, imports from a short list, and
functions that are defined. All else has a snapshot of its own.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from cellblock.analysis.findings import word_set
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


# --- whether a cell can be run again --------------------------------------------------------------
#
# What a name of an earlier cell's stands for is not known here: it may be bound, passed on and
# compared by identity, and nothing else, since every operator, subscript, attribute and format of
# it may be a method of the cell's own, with a clock or a file in it. For the same reason nothing is
# called: ``len`` and ``print`` are what an earlier cell has made of them, and so are decorators and
# annotations that subscribe. A value is *plain* if this very cell makes it, of constants and
# containers of them: it may be operated on.
#
# Not asked: what a name was bound to before. It may be let go of by binding it anew, and its
# ``__del__`` then runs; it may in any cell, whenever the collector comes.

_UNSURE: Final = "something may run that is not known"
#: Characters beyond which nobody looks.
_MAX_CHARACTERS: Final = 2_000
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


def can_run_again(source: str) -> bool:
    """Whether ``source``, transformed, does the same when it is run again."""
    if len(source) > _MAX_CHARACTERS:
        return False
    plain = set[str]()
    try:
        for statement in parse(source).body:
            _check(statement, plain)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _check(node: ast.stmt, plain: set[str]) -> None:
    """Note in ``plain`` which names stand for plain values behind a statement.

    Raises ValueError for one in which something may run that is not known.
    """
    match node:
        case ast.Pass():
            pass
        case ast.Expr(value=value):
            _require_plain([value], plain)  # it may be shown
        case ast.Assign(targets=targets, value=value):
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if not all(isinstance(target, ast.Name) for target in targets):
                raise ValueError(_UNSURE)  # of anything else the setter is unknown
            (plain.update if _is_plain(value, plain) else plain.difference_update)(names)
        case ast.AugAssign(target=ast.Name(id=name), value=value) if name in plain:
            _require_plain([value], plain)
        case ast.Import(names=names) | ast.ImportFrom(names=names, level=0):
            modules = {node.module} if isinstance(node, ast.ImportFrom) else {n.name for n in names}
            if not modules <= _IMPORTS or names[0].name == "*":
                raise ValueError(_UNSURE)
            plain.difference_update(one.asname or one.name.partition(".")[0] for one in names)
        case ast.FunctionDef(decorator_list=[]) | ast.AsyncFunctionDef(decorator_list=[]):
            for part in _evaluated(node):
                _is_plain(part, plain)
            plain.discard(node.name)
        case _:
            raise ValueError(_UNSURE)


def _evaluated(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.expr]:
    """Return what is evaluated of a function when it is defined: defaults and annotations."""
    if getattr(node, "type_params", None):
        raise ValueError(_UNSURE)
    of = node.args
    every = [*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg]
    annotations = [arg.annotation for arg in every if arg is not None]
    parts = [*of.defaults, *of.kw_defaults, *annotations, node.returns]
    return [part for part in parts if part is not None]


def _is_plain(node: ast.expr, plain: set[str]) -> bool:
    """Whether a value is plain; others are harmless as long as they are only passed on."""
    match node:
        case ast.Name(id=name):
            return name in plain
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            _require_plain([one.value for one in elements if isinstance(one, ast.Starred)], plain)
            found = [_is_plain(one, plain) for one in elements if not isinstance(one, ast.Starred)]
            return all(found)  # each is looked at, since each is evaluated
        case ast.Compare(left=left, ops=ops, comparators=others) if all(
            isinstance(op, ast.Is | ast.IsNot) for op in ops
        ):
            for one in (left, *others):
                _is_plain(one, plain)
        case _ if type(node) in _OPERANDS:
            parts = [getattr(node, field) for field in _OPERANDS[type(node)]]
            listed = [part if isinstance(part, list) else [part] for part in parts]
            _require_plain([one for part in listed for one in part if one is not None], plain)
        case _:
            raise ValueError(_UNSURE)
    return True


def _require_plain(nodes: list[ast.expr], plain: set[str]) -> None:
    """Raise ValueError for a value that is not plain: it would be operated on."""
    for node in nodes:
        if not _is_plain(node.value if isinstance(node, ast.Starred) else node, plain):
            raise ValueError(_UNSURE)
