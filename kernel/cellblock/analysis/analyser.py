"""The analyser: makes findings of source, without side effects: the language layer's decision.

It walks the tree once. `_CHECKS` has the check of each type of node that needs one. A type of node
that is not in `_NODES` is refused, and so is a known one with a field that `_NODES` does not have.
If a new Python adds syntax: read its ``Parser/Python.asdl``, decide, add the row, and add a test
that allows and one that denies.
"""

from __future__ import annotations

import ast
import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from cellblock.analysis import imports, magics, names
from cellblock.analysis.findings import EXCERPT_LIMIT, LINE_END, Finding, Report
from cellblock.analysis.scopes import bound_at_top
from cellblock.analysis.transform import (
    leading_blank_lines,
    parse,
    parse_expression,
    transform_as_ipython,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from cellblock.analysis.findings import Finding, Positioned, Rules
    from cellblock.analysis.transform import Transformed


# --- the types of nodes that are known, with the fields that contain nodes ------------------------
#
# Fields after ``|`` contain plain data and are not walked.

_NODES = """
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
    rows: dict[type[ast.AST], tuple[str, ...]] = {}
    for row in _NODES.strip().splitlines():
        walked, _, plain = row.partition("|")
        name, *fields = walked.split()
        node = getattr(ast, name, None)
        # This Python lacks the type, or has a field that was not judged: then it isn't known.
        if node is None or set(node._fields) - {*fields, *plain.split()}:
            continue
        rows[node] = tuple(field for field in fields if field in node._fields)
    return rows


#: The fields of each known type of node that contain nodes or lists of nodes.
CHILDREN: Mapping[type[ast.AST], tuple[str, ...]] = MappingProxyType(_rows())


# --- the walk: without recursion, since the author of a cell chooses its depth --------------------


def walk(
    tree: ast.AST, report: Report, checks: Mapping[type, Callable[[Any, Report], bool | None]]
) -> None:
    """Run the check of each node's type, parents first, and refuse nodes of unknown types.

    If a check returns True, it has judged the node's children, too, and they are not walked.
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


_CHECKS: Mapping[type, Callable[[Any, Report], bool | None]] = MappingProxyType(
    {
        ast.AsyncFunctionDef: names.binds("name"),
        ast.Attribute: names.check_attribute,
        ast.Call: magics.check_call,
        ast.ClassDef: names.binds("name"),
        ast.ExceptHandler: names.binds("name"),
        ast.FunctionDef: names.binds("name"),
        ast.Global: names.check_scope,
        ast.Import: imports.check_import,
        ast.ImportFrom: imports.check_import_from,
        ast.MatchAs: names.binds("name"),
        ast.MatchClass: names.check_class_pattern,
        ast.MatchMapping: names.binds("rest"),
        ast.MatchStar: names.binds("name"),
        ast.Name: names.check_name,
        ast.Nonlocal: names.check_scope,
        ast.arg: names.binds("arg"),
    }
)

_NESTING_LIMIT = 5


def analyse(source: str, rules: Rules) -> tuple[Finding, ...]:
    """Return all findings in ``source``, in the order of their positions. Never raises.

    Source that is not Python has no findings: it can't run, and the guest reports the error. In a
    mode without the language layer, only magics that run unapproved code are looked for, and only
    under a policy with admission.
    """
    if not (rules.language or (rules.admission and "_magic" in source)):
        return ()
    return tuple(_analyse(source, rules, 0, 0))


def analyse_expression(source: str, rules: Rules) -> tuple[Finding, ...]:
    """Return all findings in an expression, read as ``eval`` reads it. Never raises."""
    if not rules.language:
        return ()
    return tuple(_analyse(source.lstrip(" \t"), rules, 0, 0, read=parse_expression))


def bound_builtins(source: str) -> frozenset[str]:
    """Return the names of refused builtins that a cell may bind for later cells.

    That includes code in a magic's argument or body. Never raises.
    """
    # A search for words costs less than the tree, and hardly any cell has one of these names.
    if not any(name in source for name in names.BINDABLE_BUILTINS):
        return frozenset()
    try:
        tree = parse(source)
        bound = bound_at_top(tree, names.BINDABLE_BUILTINS)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return frozenset()
    carried = map(magics.code_of, tree.body)
    return frozenset(bound).union(*(bound_builtins(code) for code in carried if code is not None))


def _analyse(
    source: str, rules: Rules, shift: int, depth: int, read: Callable[[str], ast.AST] = parse
) -> Sequence[Finding]:
    """Return the findings in source that begins ``shift`` lines into the cell.

    ``depth`` is how many magics it is within; ``read`` parses it.
    """

    def nested(text: str, rules: Rules, shift: int) -> Sequence[Finding]:
        try:
            source = transform_as_ipython(text)
        except ValueError as error:
            unread = Report(text, rules, shift=shift, nested=nested)
            _refuse_unread(unread, error)
            return unread.findings
        return _analyse(source, rules, shift + leading_blank_lines(text), depth + 1)

    report = Report(source, rules, shift=shift, nested=nested)
    try:
        tree = read(source)
    except SyntaxError:
        return ()
    except (RecursionError, MemoryError, ValueError) as error:
        _refuse_unread(report, error)
        return report.findings
    if depth > _NESTING_LIMIT:
        _refuse_unread(report, RecursionError("magics within magics"))
        return report.findings
    if not rules.language:
        for node in ast.walk(tree):
            if type(node) is ast.Call:
                magics.check_unapproved(node, report)
        return sorted(report.findings)
    walk(tree, report, _CHECKS)
    magics.settle_commands(tree, report)
    names.settle_pending(tree, report)
    imports.settle_uses(report)
    return sorted(report.findings)


def _refuse_unread(report: Report, error: BaseException) -> None:
    why = ""
    if isinstance(error, ValueError):
        why = f"holds what cannot be read as source ({error})"
    report.add_at("source-too-complex", (1, 0, 1), report.line(1).strip(), why=why)


# --- findings by the lines that were written, if IPython transformed them --------------


def as_written(findings: Sequence[Finding], raw: str, transformed: Transformed) -> list[Finding]:
    """Return findings with the lines of ``raw`` in place of those of the transformed source."""
    if not transformed.changed or not findings:
        return list(findings)
    before = LINE_END.split(raw)
    lines = list(_lines(before, LINE_END.split(transformed.source), transformed.line_offset))
    moved = []
    for finding in findings:
        # A cell magic's body is within one line of the transformed source, so a finding in it may
        # be beyond that.
        beyond = finding.line + transformed.line_offset
        number = lines[finding.line - 1] if finding.line <= len(lines) else beyond
        moved.append(_as_shown(finding, min(number, len(before)), before))
    return moved


def _lines(before: list[str], after: list[str], offset: int) -> Iterator[int]:
    """Yield, for each line of ``after``, the number of the line of ``before`` that it comes from.

    Lines are numbered from 1. IPython joins the lines of an escape that continues over several; all
    other lines stay.
    """
    same = _count(before) - offset == _count(after)
    index = offset
    for line in after:
        yield index + 1
        while (
            not same
            and index < len(before) - 1
            and before[index] != line
            and before[index][-1:] == "\\"
        ):
            index += 1
        index += 1


def _count(lines: list[str]) -> int:
    return len(lines) - (not lines[-1])


def _as_shown(finding: Finding, number: int, before: list[str]) -> Finding:
    """Return a finding at a line as it was written; at all of the line if that was transformed."""
    text = before[number - 1].replace("\t", " ")
    if text[finding.cut : finding.cut + EXCERPT_LIMIT] == finding.excerpt:
        return dataclasses.replace(finding, line=number)
    start = len(text) - len(text.lstrip())
    end = len(text.rstrip())
    return dataclasses.replace(
        finding,
        line=number,
        column=start,
        end_column=max(end, start + 1),
        excerpt=text[:EXCERPT_LIMIT],
        cut=0,
    )
