"""The AST node allowlist (requirement 1.6): every node type known, with the fields that hold nodes.

A node type that is not listed is refused, and so is a listed one that has grown a field nobody
has judged. When a new Python adds syntax: read its ``Parser/Python.asdl``, decide, add the row,
add an allow and a deny test. Fields named after ``|`` hold plain data and are not walked.
"""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


_TABLE = """
Add
And
AnnAssign        target annotation value | simple
Assert           test msg
Assign           targets value | type_comment
AsyncFor         target iter body orelse | type_comment
AsyncFunctionDef args body decorator_list returns type_params | name type_comment
AsyncWith        items body | type_comment
Attribute        value | attr ctx
AugAssign        target op value
Await            value
BinOp            left op right
BitAnd
BitOr
BitXor
BoolOp           op values
Break
Call             func args keywords
ClassDef         bases keywords body decorator_list type_params | name
Compare          left ops comparators
Constant         | value kind
Continue
Delete           targets
Dict             keys values
DictComp         key value generators
Div
Eq
ExceptHandler    type body | name
Expr             value
Expression       body
FloorDiv
For              target iter body orelse | type_comment
FormattedValue   value format_spec | conversion
FunctionDef      args body decorator_list returns type_params | name type_comment
GeneratorExp     elt generators
Global           | names
Gt
GtE
If               test body orelse
IfExp            test body orelse
Import           | names
ImportFrom       | module names level
In
Invert
Is
IsNot
JoinedStr        values
LShift
Lambda           args body
List             elts | ctx
ListComp         elt generators
Lt
LtE
MatMult
Match            subject cases
MatchAs          pattern | name
MatchClass       cls patterns kwd_patterns | kwd_attrs
MatchMapping     keys patterns | rest
MatchOr          patterns
MatchSequence    patterns
MatchSingleton   | value
MatchStar        | name
MatchValue       value
Mod
Module           body | type_ignores
Mult
Name             | id ctx
NamedExpr        target value
Nonlocal         | names
Not
NotEq
NotIn
Or
ParamSpec        default_value | name
Pass
Pow
RShift
Raise            exc cause
Return           value
Set              elts
SetComp          elt generators
Slice            lower upper step
Starred          value | ctx
Sub
Subscript        value slice | ctx
Try              body handlers orelse finalbody
TryStar          body handlers orelse finalbody
Tuple            elts | ctx
TypeAlias        name type_params value
TypeVar          bound default_value | name
TypeVarTuple     default_value | name
UAdd
USub
UnaryOp          op operand
While            test body orelse
With             items body | type_comment
Yield            value
YieldFrom        value
arg              annotation | arg type_comment
arguments        posonlyargs args vararg kwonlyargs kw_defaults kwarg defaults
comprehension    target iter ifs | is_async
keyword          value | arg
match_case       pattern guard body
withitem         context_expr optional_vars
"""


def _rows() -> dict[type[ast.AST], tuple[str, ...]]:
    known: dict[type[ast.AST], tuple[str, ...]] = {}
    for row in _TABLE.strip().splitlines():
        walked, _, plain = row.partition("|")
        name, *fields = walked.split()
        node = getattr(ast, name, None)
        # Absent in this Python, or grown: either way there is nothing here to vouch for.
        if node is None or set(node._fields) - {*fields, *plain.split()}:
            continue
        known[node] = tuple(field for field in fields if field in node._fields)
    return known


#: Node type to the fields that hold nodes or lists of nodes.
CHILDREN: Mapping[type[ast.AST], tuple[str, ...]] = MappingProxyType(_rows())
