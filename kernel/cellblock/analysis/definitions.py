"""What a template's file may say outside of its functions: only what runs none of its own code.

Loading a template has no effect (requirement 1.13). A library's code runs while a file is loaded;
its own does where something calls it: a call, a decorator, a base class's hooks, an operator or an
attribute of an object that it made. So what may be called, decorate or be a base is in tables, by
where a name was imported from; a class defines no method that is called before there is an
instance; and no instance of the file's own comes to be, but members of its enumerations. Those
define no special method, and what is read of them is read in functions.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from cellblock.analysis.bindings import Names, at_once, bindings, dotted, is_lazy
from cellblock.analysis.definable import (
    BASES,
    CLASS_MAKERS,
    DECORATORS,
    DESCRIPTORS,
    ENUMS,
    MAKERS,
    SPECIAL,
)
from cellblock.analysis.findings import Report
from cellblock.analysis.policy import NO_RULES
from cellblock.analysis.transform import parse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.analysis.findings import Finding

_RULE: Final = "template-definitions"
_PROPERTY: Final = ast.Name("property", ast.Load())
_ACCESSORS: Final = frozenset(("deleter", "getter", "setter"))
_CALLED: Final = "would be called when the template is loaded"


def definitions(source: str) -> tuple[Finding, ...]:
    """Return what of ``source`` runs when it is loaded, outside of definitions. Never raises."""
    report = Report(source, NO_RULES)
    tree = read(report)
    if tree is not None:
        _Judge(tree, report).judge_body(tree.body)
    return tuple(sorted(report.findings))


def read(report: Report) -> ast.Module | None:
    """Return the tree of a source; None, with a finding, where there is none."""
    try:
        return parse(report.source)
    except SyntaxError as exc:
        line, why = exc.lineno or 1, f"is not Python: {exc.msg}"
    except (ValueError, RecursionError, MemoryError) as exc:
        line, why = 1, f"can't be read: {type(exc).__name__}"
    report.add_at(_RULE, (line, 0, 1), "this", why=why)
    return None


class _Judge:
    """Adds to ``report`` what of a file's statements may not stand outside of functions."""

    def __init__(self, tree: ast.Module, report: Report) -> None:
        self._lazy = is_lazy(tree)
        self._names, self._report = Names(tree, lazy=self._lazy), report
        #: Own classes so far, and whether each is an enumeration.
        self._classes: dict[str, bool] = {}
        #: Nodes that are refused, by their ids: once.
        self._told: set[int] = set()

    def judge_body(self, body: list[ast.stmt]) -> None:
        """Judge the statements of a file, or of a class."""
        for number, node in enumerate(body):
            match node:
                case ast.Expr(value=ast.Constant(value=str())) if number == 0:
                    continue
                case ast.Assign(targets=targets) if all(map(_is_plain, targets)):
                    pass
                case ast.AnnAssign(target=ast.Name()) | ast.Import() | ast.ImportFrom():
                    pass
                case ast.Pass():
                    pass
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    self._judge_decorators(node, body)
                case ast.ClassDef():
                    self._judge_decorators(node, body)
                    self._judge_class(node)
                case _ if type(node).__name__ == "TypeAlias":
                    pass
                case _:
                    self._refuse(node)
                    continue
            self._judge_expressions(node, body)

    def _judge_expressions(self, top: ast.stmt, body: list[ast.stmt]) -> None:
        """Refuse what could run the file's own code while ``top`` is run."""
        fine = {id(node) for node in getattr(top, "decorator_list", ()) if _accesses(node, body)}
        for node in at_once(top, lazy=self._lazy):
            match node:
                case _ if id(node) in self._told:
                    continue
                case ast.Call() if self._names.origin(node.func) not in MAKERS:
                    self._report.add(_RULE, node, f"{dotted(node.func) or 'this'}()")
                case ast.Await() | ast.Yield() | ast.YieldFrom():
                    self._refuse(node)
                case ast.Attribute() if id(node) not in fine and not self._may_read(node):
                    self._refuse(node, "may run code of this file when the template is loaded")
                case ast.Subscript() if _root(node) in self._names.defined:
                    self._refuse(node, "may run code of this file when the template is loaded")

    def _may_read(self, node: ast.Attribute) -> bool:
        """Say whether an attribute is a library's, or what a class of the file's own holds."""
        inner = node.value
        if isinstance(inner, ast.Name):
            own = self._names.is_own(inner.id)
            return not own or (inner.id in self._classes and self._names.is_single(inner.id))
        if isinstance(inner, ast.Attribute):
            top = dotted(inner).partition(".")[0]
            return bool(top) and not self._names.is_own(top)
        return isinstance(inner, ast.Call | ast.Constant)  # what a maker made

    # --- definitions ----------------------------------------------------------------------

    def _judge_decorators(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, body: list[ast.stmt]
    ) -> None:
        descriptors = 0
        for each in node.decorator_list:
            origin = self._names.origin(each.func if isinstance(each, ast.Call) else each)
            accesses = _accesses(each, body) and self._names.origin(_PROPERTY) in DESCRIPTORS
            descriptors += accesses or origin in DESCRIPTORS
            if descriptors > 1 or not (accesses or origin in DECORATORS):
                self._refuse(each, _CALLED)

    def _judge_class(self, node: ast.ClassDef) -> None:
        kinds = [self._kind(base) for base in node.bases]
        is_enum = "enum" in kinds
        for base, kind in zip(node.bases, kinds, strict=True):
            if not kind or (is_enum and kind == "own"):
                self._refuse(base, "is no base class that a template may have")
        for keyword in node.keywords:
            if keyword.arg in {None, "metaclass"}:
                self._refuse(keyword.value, "makes the class by code that may run this file's")
        for name, _, place in bindings(node.body, lazy=self._lazy):
            if not _may_bind(name, is_enum=is_enum):
                line, column, end = self._report.span(place)
                self._report.add_at(_RULE, (line, column, end), name, why=_CALLED)
        self.judge_body(node.body)
        self._classes[node.name] = is_enum

    def _kind(self, base: ast.expr) -> str:
        """Return what a base class is: enum, own or library; empty if it may be none."""
        if isinstance(base, ast.Name) and self._names.is_own(base.id):
            known = base.id in self._classes and self._names.is_single(base.id)
            return ("enum" if self._classes[base.id] else "own") if known else ""
        named = base.value if isinstance(base, ast.Subscript) else base
        origin = self._names.origin(base.func if isinstance(base, ast.Call) else named)
        if origin not in BASES or isinstance(base, ast.Call) != (origin in CLASS_MAKERS):
            return ""
        return "enum" if origin in ENUMS else "library"

    def _refuse(self, node: ast.stmt | ast.expr, why: str = "") -> None:
        self._told.add(id(node))
        line, start, end = self._report.span(node)
        said = self._report.line(line)[start:end]
        self._report.add_at(_RULE, (line, start, end), said, why=why)


def _may_bind(name: str, *, is_enum: bool) -> bool:
    """Say whether a class may bind a name: an enumeration calls more of what is special."""
    if is_enum:
        return not name.startswith("_") or name == "__doc__"
    return not (name.startswith("__") and name.endswith("__")) or name in SPECIAL


def _accesses(node: ast.expr, body: Iterable[ast.stmt]) -> bool:
    """Say whether a decorator is ``x.setter`` of a property ``x`` that ``body`` defines before."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name):
        return False
    name = node.value.id
    bound = [place for found, _, place in bindings(body, lazy=True) if found == name]
    first = bound[0] if bound else None
    return (
        node.attr in _ACCESSORS
        and isinstance(first, ast.FunctionDef)
        and [dotted(one) for one in first.decorator_list] == ["property"]
        and all(
            isinstance(place, ast.FunctionDef)
            and (place is first or any(map(_is_accessor, place.decorator_list)))
            for place in bound
        )
    )


def _is_accessor(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in _ACCESSORS


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _is_plain(target: ast.expr) -> bool:
    """Say whether assigning to ``target`` only binds names."""
    match target:
        case ast.Name():
            return True
        case ast.Starred(value=inner):
            return _is_plain(inner)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(_is_plain, parts))
    return False
