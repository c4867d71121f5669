"""Source to findings: the decision of the language layer, pure and without side effects."""

from __future__ import annotations

import ast
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cellblock.analysis import attributes, imports, magics, names
from cellblock.analysis.findings import Finding, Report
from cellblock.analysis.transform import (
    leading_blank_lines,
    parse,
    parse_expression,
    transform_as_ipython,
)
from cellblock.analysis.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cellblock.analysis.policy import Rules

_CHECKS: Mapping[type, Callable[[Any, Report], bool | None]] = MappingProxyType(
    {
        ast.AsyncFunctionDef: names.check_definition,
        ast.Attribute: attributes.check_attribute,
        ast.Call: magics.check_call,
        ast.ClassDef: names.check_definition,
        ast.ExceptHandler: names.check_handler,
        ast.FunctionDef: names.check_definition,
        ast.Global: names.check_scope,
        ast.Import: imports.check_import,
        ast.ImportFrom: imports.check_import_from,
        ast.MatchAs: names.check_capture,
        ast.MatchClass: attributes.check_class_pattern,
        ast.MatchMapping: names.check_rest,
        ast.MatchStar: names.check_capture,
        ast.Name: names.check_name,
        ast.Nonlocal: names.check_scope,
        ast.arg: names.check_argument,
    }
)

_NESTING_LIMIT = 5


def analyse(source: str, rules: Rules) -> tuple[Finding, ...]:
    """Return every finding in ``source``, in order of position. Never raises.

    Source that is not Python has no findings: it can't run, and the guest reports the error.
    """
    if not rules.language:
        return ()
    return tuple(_analyse(source, rules, 0, 0))


def analyse_expression(source: str, rules: Rules) -> tuple[Finding, ...]:
    """Return every finding in one expression, as ``eval`` would read it. Never raises."""
    if not rules.language:
        return ()
    return tuple(_analyse(source.lstrip(" \t"), rules, 0, 0, read=parse_expression))


def _analyse(
    source: str,
    rules: Rules,
    shift: int,
    depth: int,
    read: Callable[[str], ast.AST] = parse,
) -> Sequence[Finding]:
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
    walk(tree, report, _CHECKS)
    names.settle_pending(report)
    imports.settle_uses(report)
    return sorted(report.findings)


def _refuse_unread(report: Report, error: BaseException) -> None:
    why = ""
    if isinstance(error, ValueError):
        why = f"holds what cannot be read as source ({error})"
    report.add_at("source-too-complex", (1, 0, 1), report.line(1).strip(), why=why)
