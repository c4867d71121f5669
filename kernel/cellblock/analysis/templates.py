"""Templates: reads cells that name one, and checks that a template's file only has definitions.

A template is a file of definitions with a function ``run(state)``. A cell says ``%%template NAME``
and gives the state as JSON: data for that function, never part of any source.

Loading a template must not run the file's own code. Such code would run if something called it: a
call, a decorator, the hooks of a base class, an operator, or an attribute of an object that the
file made. So tables list the callables, decorators and base classes that are allowed, by where
their names were imported from. No class of the file may be a base. A class may only define special
methods of instances, and the file makes no instances of its own classes while it is loaded, except
the members of its enumerations. Those define no special methods, and their attributes are only read
in functions.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NoReturn

from cellblock.analysis.analyser import analyse
from cellblock.analysis.findings import NO_RULES, Report, word_set
from cellblock.analysis.transform import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cellblock.analysis.findings import Finding, Rules

ENTRY: Final = "run"
#: The first line that is not blank, and the blank lines before it.
_CELL: Final = re.compile(r"((?:[ \t\r]*\n)*)%%template(?!\w)([^\n]*)(?:\n|\Z)")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """A cell that names a template.

    ``said`` is the text after ``%%template``; ``name`` is the same, or empty if that isn't a name.
    ``line`` is the number of that line, from 1; ``body`` is the text after it.
    """

    name: str
    said: str
    body: str
    line: int


def template_call(raw: str) -> TemplateCall | None:
    """Return the parts of a cell that begins with ``%%template``; None for any other cell."""
    match = _CELL.match(raw)
    if match is None:
        return None
    name_text = match[2].strip(" \t\r")
    name = name_text if _NAME.fullmatch(name_text) else ""
    return TemplateCall(name, name_text, raw[match.end() :], match[1].count("\n") + 1)


def is_name(text: str) -> bool:
    """Return whether a template may have this name: lower-case letters, digits, ``-``, ``_``."""
    return _NAME.fullmatch(text) is not None


# --- a template's file ------------------------------------------------------------------------


def analyse_template(source: str, rules: Rules) -> tuple[Finding, ...]:
    """Return the findings of ``analyse`` in a template, and those of ``definitions``.

    Never raises.
    """
    findings = analyse(source, rules)
    try:
        parse(source)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return findings  # it can't run, or ``analyse`` has refused it
    return tuple(sorted([*findings, *definitions(source)]))


def entry(source: str) -> tuple[Finding, ...]:
    """Return the findings about a template's ``run(state)``, if it lacks one. Never raises."""
    report = Report(source, NO_RULES)
    tree = read(report)
    if tree is None:
        return ()  # ``definitions`` has a finding about that
    starts = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == ENTRY
    ]
    if not starts:
        why = "is missing: a template needs a function of that name at its top level"
        report.add_at("template-definitions", (1, 0, 1), f"{ENTRY}(state)", why=why)
    for node in starts:
        if not _takes_one(node.args):
            why = "must take one positional argument, the state"
            report.add("template-definitions", node, ENTRY, why=why)
    return tuple(report.findings)


def _takes_one(arguments: ast.arguments) -> bool:
    """Return whether a function can be called with one positional argument."""
    places = len(arguments.posonlyargs) + len(arguments.args)
    named = all(default is not None for default in arguments.kw_defaults)
    return named and places > 0 and places - len(arguments.defaults) <= 1


# --- the state: JSON, read strictly, so that two readers can't read two states in one text --------
#
# No duplicate keys, no NaN or Infinity, no number that changes on the wire, no text that is not
# Unicode; bounded in size, depth and number of values.

#: The most characters of a state, values in it, and nested containers.
MAX_CHARACTERS: Final = 1 << 20
MAX_VALUES: Final = 50_000
MAX_DEPTH: Final = 32
#: The range of integers on the wire: 64 bits, signed or unsigned.
_MIN_INT, _MAX_INT = -(2**63), 2**64
_MAX_DIGITS: Final = 20
#: Brackets and commas, and strings, so that brackets in those don't count. A string without an end
#: takes the rest of the text.
_MARKS: Final = re.compile(
    r"""
    "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)
    | [\[\]{},]
    """,
    re.DOTALL | re.VERBOSE,
)


class StateError(ValueError):
    """A text is not a state. ``line`` and ``column`` are the place, from 1, if it is known."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        self.message = message
        self.line = line
        self.column = column
        super().__init__(message)


def read_state(text: str) -> Any:
    """Return the data of a state's text; ``{}`` if it is blank.

    Raises:
        StateError: it is not JSON, ambiguous, or beyond the bounds.

    """
    if not text.strip(" \t\r\n"):
        return {}
    if len(text) > MAX_CHARACTERS:
        raise StateError(f"it has {len(text):,} characters; at most {MAX_CHARACTERS:,} are allowed")
    _check_shape(text)
    try:
        text.encode()
        state = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_number,
            parse_float=_float,
            parse_int=_int,
        )
        json.dumps(state, ensure_ascii=False).encode()  # finds lone surrogates from escapes
    except json.JSONDecodeError as exc:
        raise StateError(f"it is not JSON: {exc.msg}", exc.lineno, exc.colno) from None
    except UnicodeEncodeError:
        raise StateError("a text in it is not Unicode: half of a surrogate pair") from None
    except RecursionError:
        raise StateError(f"it is nested deeper than {MAX_DEPTH}") from None
    return state


def _check_shape(text: str) -> None:
    """Raise StateError for too many or too deeply nested values, before any is built."""
    depth = values = 0
    for mark in _MARKS.finditer(text):
        match mark[0]:
            case "[" | "{":
                depth, values = depth + 1, values + 1
                if depth > MAX_DEPTH:
                    line = text.count("\n", 0, mark.start()) + 1
                    raise StateError(f"it is nested deeper than {MAX_DEPTH}", line)
            case "]" | "}":
                depth -= 1
            case ",":
                values += 1
        if values > MAX_VALUES:
            raise StateError(f"it has more than {MAX_VALUES:,} values")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the dict of an object. Raises StateError for a duplicate key."""
    members = dict(pairs)
    if len(members) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise StateError(f"one object has the key {twice[:60]!r} twice")
    return members


def _no_number(name: str) -> NoReturn:
    raise StateError(f"{name} is no JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise StateError(f"{digits[:_MAX_DIGITS]} is too large for a number")
    return value


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS + 1 or not _MIN_INT <= int(digits) < _MAX_INT:
        raise StateError(f"{digits[:_MAX_DIGITS]}… has more than 64 bits")
    return int(digits)


# --- what a template's file may do while it is loaded ---------------------------------------------
#
# Names by where they are imported from. A name may be here if it calls none of its arguments, and
# no method of a class that is being made.

#: The callables: each makes a constant, a class, or a part of one.
MAKERS: Final = word_set("""
    builtins.frozenset collections.namedtuple dataclasses.dataclass dataclasses.field
    decimal.Decimal enum.auto fractions.Fraction functools.lru_cache re.compile
""")
#: The decorators. Only one may be used, since combined they can call code: a class method that is
#: also a property is called when the class's attribute is read.
DECORATORS: Final = word_set("""
    abc.abstractmethod builtins.classmethod builtins.property builtins.staticmethod
    contextlib.asynccontextmanager contextlib.contextmanager dataclasses.dataclass enum.unique
    functools.cache functools.cached_property functools.lru_cache functools.total_ordering
    typing.final typing.overload typing.runtime_checkable
""")
ENUMS: Final = frozenset(("enum.Enum", "enum.Flag", "enum.IntEnum", "enum.IntFlag", "enum.StrEnum"))
#: The base classes.
BASES: Final = ENUMS | word_set("""
    abc.ABC builtins.Exception builtins.KeyError builtins.LookupError builtins.RuntimeError
    builtins.TypeError builtins.ValueError builtins.dict builtins.float builtins.int builtins.list
    builtins.object builtins.set builtins.str builtins.tuple typing.NamedTuple typing.Protocol
    typing.TypedDict
""")
#: The special names that a class may bind: methods of its instances, and descriptions.
SPECIAL: Final = word_set("""
    __add__ __bool__ __call__ __contains__ __doc__ __enter__ __eq__ __exit__ __float__ __format__
    __ge__ __getitem__ __gt__ __hash__ __init__ __int__ __iter__ __le__ __len__ __lt__ __mul__
    __ne__ __neg__ __next__ __post_init__ __radd__ __repr__ __rmul__ __setitem__ __slots__ __str__
    __sub__ __truediv__
""")

_RULE: Final = "template-definitions"
_CALLED: Final = "would be called when the template is loaded"
_MAY_RUN: Final = "may run code of this file when the template is loaded"
_PARAMETERS: Final = ("ParamSpec", "TypeVar", "TypeVarTuple")  # of types, from 3.12 on


def definitions(source: str) -> tuple[Finding, ...]:
    """Return findings about code of a template that would run when it is loaded. Never raises."""
    report = Report(source, NO_RULES)
    tree = read(report)
    if tree is not None:
        _Judge(tree, report).judge_body(tree.body)
    return tuple(sorted(report.findings))


def read(report: Report) -> ast.Module | None:
    """Return the tree of a report's source; None, after adding a finding, if it can't be parsed."""
    try:
        return parse(report.source)
    except SyntaxError as exc:
        line, why = exc.lineno or 1, f"is not Python: {exc.msg}"
    except (ValueError, RecursionError, MemoryError) as exc:
        line, why = 1, f"can't be read: {type(exc).__name__}"
    report.add_at(_RULE, (line, 0, 1), "this", why=why)
    return None


def _evaluated_at_once(top: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes that are evaluated when a statement runs, without a class's body."""
    stack: list[ast.AST] = [top]
    while stack:
        node = stack.pop()
        yield node
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                stack += [node.args, *node.decorator_list, *getattr(node, "type_params", ())]
                stack += [] if node.returns is None else [node.returns]
            case ast.Lambda():
                stack.append(node.args)
            case ast.ClassDef():
                stack += [*node.decorator_list, *node.bases, *node.keywords]
                stack += getattr(node, "type_params", ())
            case _:
                stack += ast.iter_child_nodes(node)


def _bindings(body: Iterable[ast.stmt]) -> Iterator[tuple[str, str, ast.stmt | ast.expr]]:
    """Yield each name that ``body`` binds when it runs, its origin if imported, and a node."""
    for top in body:
        for node in _evaluated_at_once(top):
            match node:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    yield name, "", node
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    yield node.name, "", node
                case ast.Import(names=aliases):
                    for alias in aliases:
                        first = alias.name.partition(".")[0]
                        yield alias.asname or first, alias.name if alias.asname else first, node
                case ast.ImportFrom(names=aliases, module=module, level=level):
                    for alias in aliases:
                        origin = "" if level else f"{module}.{alias.name}"
                        yield alias.asname or alias.name, origin, node
                case _ if type(node).__name__ in _PARAMETERS:
                    yield vars(node)["name"], "", top


def _dotted(node: ast.AST) -> str:
    """Return a name such as ``a.b.c`` as it is written; empty for any other expression."""
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return inner and f"{inner}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


class _Judge:
    """The judgement of a template's statements outside of functions, added to ``report``."""

    def __init__(self, tree: ast.Module, report: Report) -> None:
        self._report = report
        #: Where each binding of a name has it from, in whatever order statements come.
        self._bound: dict[str, list[str]] = {}
        bodies = [tree.body]
        for body in bodies:
            for name, origin, node in _bindings(body):
                self._bound.setdefault(name, []).append(origin)
                if isinstance(node, ast.ClassDef):
                    bodies.append(node.body)
        #: Own classes so far.
        self._classes = set[str]()

    def _origin(self, node: ast.AST) -> str:
        """Return where a name or a dotted one comes from; empty for the file's own, and others."""
        top, dot, attributes = _dotted(node).partition(".")
        origins = self._bound.get(top)
        if origins is None:  # a star may bring a name that hides a builtin
            return f"builtins.{top}" if top and not dot and "*" not in self._bound else ""
        return origins[0] + dot + attributes if origins[0] and len(set(origins)) == 1 else ""

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
                    self._judge_decorators(node)
                case ast.ClassDef():
                    self._judge_decorators(node)
                    self._judge_class(node)
                case _ if type(node).__name__ != "TypeAlias":
                    self._refuse(node)
                    continue
            for expression in _evaluated_at_once(node):
                self._judge_expression(expression)

    def _judge_expression(self, node: ast.AST) -> None:
        """Refuse an expression that could run the file's own code while it is loaded."""
        match node:
            case ast.Call() if self._origin(node.func) not in MAKERS:
                self._report.add(_RULE, node, f"{_dotted(node.func) or 'this'}()")
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                self._refuse(node)
            case ast.Attribute() if not self._may_read(node.value):
                self._refuse(node, _MAY_RUN)

    def _may_read(self, inner: ast.expr) -> bool:
        """Return whether reading an attribute of an expression can't run the file's own code.

        That is so for objects of libraries, and for classes of the file themselves.
        """
        if isinstance(inner, ast.Call | ast.Constant):
            return True  # calls of anything but MAKERS are refused by themselves
        top = _dotted(inner).partition(".")[0]
        bound = self._bound.get(top, [])
        if "" in bound:
            return isinstance(inner, ast.Name) and top in self._classes and len(bound) == 1
        return bool(top)

    def _judge_decorators(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        for number, decorator in enumerate(node.decorator_list):
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            if number or self._origin(function) not in DECORATORS:
                self._refuse(decorator, _CALLED)

    def _judge_class(self, node: ast.ClassDef) -> None:
        origins = set(map(self._origin, node.bases))
        for base in node.bases:
            if self._origin(base) not in BASES:
                self._refuse(base, "is not a base class that a template may have")
        for keyword in node.keywords:
            if keyword.arg in {None, "metaclass"}:
                self._refuse(keyword.value, "makes the class by code that may run this file's")
        is_enum = not origins.isdisjoint(ENUMS)
        for name, _, binding in _bindings(node.body):
            special = name.startswith("__") and name.endswith("__") and name not in SPECIAL
            # An enumeration also calls methods with one underscore.
            if special or (is_enum and name.startswith("_") and name != "__doc__"):
                self._report.add_at(_RULE, self._report.span(binding), name, why=_CALLED)
        self.judge_body(node.body)
        self._classes.add(node.name)

    def _refuse(self, node: ast.stmt | ast.expr, why: str = "") -> None:
        line, start, end = self._report.span(node)
        text = self._report.line(line)[start:end]
        self._report.add_at(_RULE, (line, start, end), text, why=why)


def _is_plain(target: ast.expr) -> bool:
    """Return whether an assignment to ``target`` only binds names."""
    match target:
        case ast.Name():
            return True
        case ast.Starred(value=inner):
            return _is_plain(inner)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(_is_plain, parts))
    return False
