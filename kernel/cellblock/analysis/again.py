"""Which cells can be run a second time and do exactly what they did the first.

Asked of cells that follow each other so closely that there is no idle time for a snapshot between
them: from the snapshot before, those are run again. Only what has no say in time, chance, input
or the outside counts: assignments, definitions, arithmetic, imports and a few builtins. Anything
that calls what it can't know is no such cell.
"""

from __future__ import annotations

import ast
from typing import Final

#: Characters beyond which nobody looks.
_LONGEST: Final = 2_000
#: Builtins whose result follows from their arguments, and print.
_KNOWN: Final = frozenset(
    """
    abs bool bytes chr complex dict divmod enumerate float frozenset int isinstance len list max
    min ord pow print range repr reversed round set sorted str sum tuple type zip
    """.split()  # noqa: SIM905 - a table reads better
)
_ALLOWED: Final = (
    ast.Module, ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.If, ast.Pass, ast.Delete,
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.alias,
    ast.Constant, ast.Name, ast.Attribute, ast.Subscript, ast.Slice, ast.Starred, ast.List,
    ast.Tuple, ast.Dict, ast.Set, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp,
    ast.JoinedStr, ast.FormattedValue, ast.Lambda, ast.Call, ast.keyword, ast.arguments, ast.arg,
    ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def can_run_again(source: str) -> bool:
    """Say whether ``source``, transformed, does the same when it is run again. Pure."""
    if len(source) > _LONGEST:
        return False
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if not isinstance(node, _ALLOWED) or not _calls_what_is_known(node):
            return False
        waiting += _run(node)
    return True


def _calls_what_is_known(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return True
    return isinstance(node.func, ast.Name) and node.func.id in _KNOWN


def _run(node: ast.AST) -> list[ast.AST]:
    """Return the parts of ``node`` that run when it does: a definition's body does not."""
    if not isinstance(node, _DEFINITIONS):
        return list(ast.iter_child_nodes(node))
    defaults = [default for default in node.args.kw_defaults if default is not None]
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return [*decorators, *node.args.defaults, *defaults]
