"""Templates: what a cell that names one says, and what a template's file may do.

A template is a file of definitions with a function ``run(state)``. A cell says ``%%template NAME``
and gives the state as JSON: data for that function, never part of any source.

Loading a template has no effect. A library's code runs while a file is loaded; its own does where
something calls it: a call, a decorator, a base class's hooks, an operator or an attribute of an
object that it made. So what may be called, decorate or be a base is in tables, by where a name was
imported from; no class of the file is a base; the special methods that a class may define are those
of instances; and no instance of the file's own comes to be, but members of its enumerations. Those
define no special method, and what is read of them is read in functions.
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
#: The first line that is not blank; what comes before it holds blanks alone.
_CELL: Final = re.compile(r"((?:[ \t\r]*\n)*)%%template(?!\w)([^\n]*)(?:\n|\Z)")
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class TemplateCall:
    """A cell that names a template. ``name`` is empty where what stands there is no name.

    ``line`` is the number, from 1, of the line that names it; ``body`` is what comes after that.
    """

    name: str
    said: str
    body: str
    line: int


def template_call(raw: str) -> TemplateCall | None:
    """Return what a cell says that begins with ``%%template``; None for any other."""
    found = _CELL.match(raw)
    if found is None:
        return None
    said = found[2].strip(" \t\r")
    name = said if _NAME.fullmatch(said) else ""
    return TemplateCall(name, said, raw[found.end() :], found[1].count("\n") + 1)


def is_name(text: str) -> bool:
    """Whether a template may have this name: letters, digits, ``-`` and ``_``, all small."""
    return _NAME.fullmatch(text) is not None


# --- a template's file ------------------------------------------------------------------------


def analyse_template(source: str, rules: Rules) -> tuple[Finding, ...]:
    """Return every finding in ``source``, as ``analyse`` does, and what is no definition.

    Never raises.
    """
    found = analyse(source, rules)
    try:
        parse(source)
    except (SyntaxError, RecursionError, MemoryError, ValueError):
        return found  # it does not run, or ``analyse`` has refused it
    return tuple(sorted([*found, *definitions(source)]))


def entry(source: str) -> tuple[Finding, ...]:
    """Return why ``source`` can't be started: it has no ``run(state)``. Never raises."""
    report = Report(source, NO_RULES)
    tree = read(report)
    if tree is None:
        return ()  # told by ``definitions``
    starts = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == ENTRY
    ]
    if not starts:
        why = "is missing: a template is started by a function of that name at its top level"
        report.add_at("template-definitions", (1, 0, 1), f"{ENTRY}(state)", why=why)
    for node in starts:
        if not _takes_one(node.args):
            why = "has to take one argument, the state, by its place"
            report.add("template-definitions", node, ENTRY, why=why)
    return tuple(report.findings)


def _takes_one(of: ast.arguments) -> bool:
    places = len(of.posonlyargs) + len(of.args)
    named = all(default is not None for default in of.kw_defaults)
    return named and places > 0 and places - len(of.defaults) <= 1


# --- the state: JSON, read strictly, so that no two readers see two states in one text ------------
#
# No key twice, no NaN or Infinity, no number that crosses the wire as another, no text that is
# not Unicode; bounded in size, depth and number of values.

#: Characters of a state, values in it, and containers within each other.
MAX_CHARACTERS: Final = 1 << 20
MAX_VALUES: Final = 50_000
MAX_DEPTH: Final = 32
#: Of whole numbers on the wire: 64 bits, with a sign or without.
_MIN_INT, _MAX_INT = -(2**63), 2**64
_MAX_DIGITS: Final = 20
#: Texts, so that nothing in them is taken for a mark, and marks. One without an end takes all.
_MARKS: Final = re.compile(
    r"""
    "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)
    | [\[\]{},]
    """,
    re.DOTALL | re.VERBOSE,
)


class StateError(ValueError):
    """A text that is no state; ``line`` and ``column`` of it, from 1, as far as they are known."""

    def __init__(self, message: str, line: int = 1, column: int = 1) -> None:
        self.message, self.line, self.column = message, line, column
        super().__init__(message)


def read_state(text: str) -> Any:
    """Return the data that ``text`` stands for; nothing but blanks is ``{}``.

    Raises:
        StateError: it is not JSON, ambiguous, or beyond the bounds.

    """
    if not text.strip(" \t\r\n"):
        return {}
    if len(text) > MAX_CHARACTERS:
        raise StateError(f"it has {len(text):,} characters; {MAX_CHARACTERS:,} are read")
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
        json.dumps(state, ensure_ascii=False).encode()  # escapes can stand for half a character
    except json.JSONDecodeError as exc:
        raise StateError(f"it is not JSON: {exc.msg}", exc.lineno, exc.colno) from None
    except UnicodeEncodeError:
        raise StateError("a text in it is not Unicode: half of a surrogate pair") from None
    except RecursionError:
        raise StateError(f"it is nested deeper than {MAX_DEPTH}") from None
    return state


def _check_shape(text: str) -> None:
    """Raise StateError for too many values, or too deep, before any of it is built."""
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
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise StateError(f"the key {twice[:60]!r} stands in one object twice")
    return found


def _no_number(name: str) -> NoReturn:
    raise StateError(f"{name} is no JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise StateError(f"{digits[:_MAX_DIGITS]} is larger than any number here")
    return value


def _int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS + 1 or not _MIN_INT <= int(digits) < _MAX_INT:
        raise StateError(f"{digits[:_MAX_DIGITS]}… has more than 64 bits")
    return int(digits)


# --- what a template's file may do while it is loaded ---------------------------------------------
#
# By where a name was imported from. A row belongs here if it calls nothing of what it is given, and
# no method of a class that is being made.

#: What may be called: it makes a constant, a class, or part of one.
MAKERS: Final = word_set("""
    builtins.frozenset collections.namedtuple dataclasses.dataclass dataclasses.field
    decimal.Decimal enum.auto fractions.Fraction functools.lru_cache re.compile
""")
#: What may decorate, one at most: a class method of a property is called where a class is asked.
DECORATORS: Final = word_set("""
    abc.abstractmethod builtins.classmethod builtins.property builtins.staticmethod
    contextlib.asynccontextmanager contextlib.contextmanager dataclasses.dataclass enum.unique
    functools.cache functools.cached_property functools.lru_cache functools.total_ordering
    typing.final typing.overload typing.runtime_checkable
""")
ENUMS: Final = frozenset(("enum.Enum", "enum.Flag", "enum.IntEnum", "enum.IntFlag", "enum.StrEnum"))
#: What a class may be made from.
BASES: Final = ENUMS | word_set("""
    abc.ABC builtins.Exception builtins.KeyError builtins.LookupError builtins.RuntimeError
    builtins.TypeError builtins.ValueError builtins.dict builtins.float builtins.int builtins.list
    builtins.object builtins.set builtins.str builtins.tuple typing.NamedTuple typing.Protocol
    typing.TypedDict
""")
#: Special names that a class may bind: methods of its instances, and what describes it.
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


def _at_once(top: ast.stmt) -> Iterator[ast.AST]:
    """Yield the nodes that are evaluated when ``top`` is run, but for a class's body."""
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
    """Yield each name that is bound while ``body`` runs, where it is from, if from elsewhere."""
    for top in body:
        for node in _at_once(top):
            match node:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    yield name, "", node
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    yield node.name, "", node
                case ast.Import(names=aliases):
                    for one in aliases:
                        first = one.name.partition(".")[0]
                        yield one.asname or first, one.name if one.asname else first, node
                case ast.ImportFrom(names=aliases, module=module, level=level):
                    for one in aliases:
                        origin = "" if level else f"{module}.{one.name}"
                        yield one.asname or one.name, origin, node
                case _ if type(node).__name__ in _PARAMETERS:
                    yield vars(node)["name"], "", top


def _dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` as it is written; empty for what is no such name."""
    if isinstance(node, ast.Attribute):
        inner = _dotted(node.value)
        return inner and f"{inner}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


class _Judge:
    """Adds to ``report`` what of a file's statements may not stand outside of functions."""

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
        top, dot, rest = _dotted(node).partition(".")
        found = self._bound.get(top)
        if found is None:  # a star may bring a name that hides a builtin
            return f"builtins.{top}" if top and not dot and "*" not in self._bound else ""
        return found[0] + dot + rest if found[0] and len(set(found)) == 1 else ""

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
            for part in _at_once(node):
                self._judge_expression(part)

    def _judge_expression(self, node: ast.AST) -> None:
        """Refuse what could run the file's own code while a statement is run."""
        match node:
            case ast.Call() if self._origin(node.func) not in MAKERS:
                self._report.add(_RULE, node, f"{_dotted(node.func) or 'this'}()")
            case ast.Await() | ast.Yield() | ast.YieldFrom():
                self._refuse(node)
            case ast.Attribute() if not self._may_read(node.value):
                self._refuse(node, _MAY_RUN)

    def _may_read(self, inner: ast.expr) -> bool:
        """Whether attributes of this are a library's, or what a class of the file's own holds."""
        if isinstance(inner, ast.Call | ast.Constant):
            return True  # what a maker made
        top = _dotted(inner).partition(".")[0]
        bound = self._bound.get(top, [])
        if "" in bound:
            return isinstance(inner, ast.Name) and top in self._classes and len(bound) == 1
        return bool(top)

    def _judge_decorators(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    ) -> None:
        for number, each in enumerate(node.decorator_list):
            function = each.func if isinstance(each, ast.Call) else each
            if number or self._origin(function) not in DECORATORS:
                self._refuse(each, _CALLED)

    def _judge_class(self, node: ast.ClassDef) -> None:
        origins = set(map(self._origin, node.bases))
        for base in node.bases:
            if self._origin(base) not in BASES:
                self._refuse(base, "is no base class that a template may have")
        for keyword in node.keywords:
            if keyword.arg in {None, "metaclass"}:
                self._refuse(keyword.value, "makes the class by code that may run this file's")
        is_enum = not origins.isdisjoint(ENUMS)
        for name, _, place in _bindings(node.body):
            special = name.startswith("__") and name.endswith("__") and name not in SPECIAL
            # An enumeration calls more of what is special.
            if special or (is_enum and name.startswith("_") and name != "__doc__"):
                self._report.add_at(_RULE, self._report.span(place), name, why=_CALLED)
        self.judge_body(node.body)
        self._classes.add(node.name)

    def _refuse(self, node: ast.stmt | ast.expr, why: str = "") -> None:
        line, start, end = self._report.span(node)
        said = self._report.line(line)[start:end]
        self._report.add_at(_RULE, (line, start, end), said, why=why)


def _is_plain(target: ast.expr) -> bool:
    """Whether assigning to ``target`` only binds names."""
    match target:
        case ast.Name():
            return True
        case ast.Starred(value=inner):
            return _is_plain(inner)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(map(_is_plain, parts))
    return False
