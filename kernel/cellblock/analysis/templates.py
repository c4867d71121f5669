"""Templates: what a cell that names one says, and what a template's file may do (requirement 1.13).

A template is a file of definitions with a function ``run(state)``. A cell says ``%%template NAME``
and gives the state as JSON: data for that function, never part of any source.

Loading a template has no effect. A library's code runs while a file is loaded; its own does where
something calls it: a call, a decorator, a base class's hooks, an operator or an attribute of an
object that it made. So what may be called, decorate or be a base is in tables, by where a name was
imported from; a class defines no method that is called before there is an instance; and no instance
of the file's own comes to be, but members of its enumerations. Those define no special method, and
what is read of them is read in functions.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections import Counter, defaultdict
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


# --- what a template's file may call, decorate with, derive from and bind while it is loaded ------
#
# Data, by where a name was imported from: ``definitions`` judges by it. A row belongs here if it
# calls nothing of what it is given, and no method of a class that is being made.


#: What may be called, and why.
MAKERS: Final = frozenset(
    (
        "builtins.frozenset",  # a constant
        "collections.namedtuple",  # a class
        "dataclasses.dataclass",  # a class
        "dataclasses.field",  # part of a class
        "decimal.Decimal",  # a constant
        "enum.auto",  # part of an enumeration
        "fractions.Fraction",  # a constant
        "functools.lru_cache",  # a function that remembers
        "re.compile",  # a constant
    )
)
#: Of these, what makes a class, and so what a class can be made from.
CLASS_MAKERS: Final = frozenset(("collections.namedtuple",))
#: What may decorate: none of it calls what it is given.
DECORATORS: Final = word_set("""
    abc.abstractmethod builtins.classmethod builtins.property builtins.staticmethod
    contextlib.asynccontextmanager contextlib.contextmanager dataclasses.dataclass enum.unique
    functools.cache functools.cached_property functools.lru_cache functools.singledispatch
    functools.total_ordering typing.final typing.overload typing.override
    typing.runtime_checkable
""")
#: Of these one at most: a class method of a property is called where the class is asked for it.
DESCRIPTORS: Final = word_set("""
    builtins.classmethod builtins.property builtins.staticmethod functools.cached_property
""")
ENUMS: Final = frozenset(("enum.Enum", "enum.Flag", "enum.IntEnum", "enum.IntFlag", "enum.StrEnum"))
#: What a class may be made from: none of it calls a method of the new class.
BASES: Final = ENUMS.union(
    word_set("""
        abc.ABC collections.Counter collections.OrderedDict collections.UserDict
        collections.UserList collections.UserString collections.defaultdict collections.deque
        collections.namedtuple contextlib.AbstractAsyncContextManager
        contextlib.AbstractContextManager contextlib.ContextDecorator typing.Generic
        typing.NamedTuple typing.Protocol typing.TypedDict
    """),
    (
        f"builtins.{name}"
        for name in word_set("""
        ArithmeticError AssertionError AttributeError BaseException Exception ExceptionGroup
        ImportError IndexError KeyError LookupError NameError NotImplementedError OSError
        OverflowError PermissionError RuntimeError StopAsyncIteration StopIteration TimeoutError
        TypeError UserWarning ValueError Warning ZeroDivisionError
        bytearray bytes complex dict float frozenset int list object set str tuple
        """)
    ),
    (
        f"collections.abc.{name}"
        for name in word_set("""
        AsyncGenerator AsyncIterable AsyncIterator Awaitable Callable Collection Container
        Coroutine Generator Hashable ItemsView Iterable Iterator KeysView Mapping MappingView
        MutableMapping MutableSequence MutableSet Reversible Sequence Set Sized ValuesView
        """)
    ),
)
#: Special names that a class may bind: methods of its instances, and what describes it.
SPECIAL: Final = word_set("""
    __abs__ __add__ __aenter__ __aexit__ __aiter__ __and__ __anext__ __await__ __bool__
    __bytes__ __call__ __ceil__ __complex__ __contains__ __copy__ __deepcopy__ __delattr__
    __delete__ __delitem__ __dir__ __divmod__ __doc__ __enter__ __eq__ __exit__ __float__
    __floor__ __floordiv__ __format__ __ge__ __get__ __getattr__ __getattribute__ __getitem__
    __gt__ __hash__ __iadd__ __iand__ __ifloordiv__ __ilshift__ __imatmul__ __imod__ __imul__
    __index__ __init__ __int__ __invert__ __ior__ __ipow__ __irshift__ __isub__ __iter__
    __itruediv__ __ixor__ __le__ __len__ __length_hint__ __lshift__ __lt__ __match_args__
    __matmul__ __missing__ __mod__ __mul__ __ne__ __neg__ __new__ __next__ __or__ __pos__
    __post_init__ __pow__ __radd__ __rand__ __rdivmod__ __reduce__ __reduce_ex__ __repr__
    __reversed__ __rfloordiv__ __rlshift__ __rmatmul__ __rmod__ __rmul__ __ror__ __round__
    __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__ __set__ __setattr__
    __setitem__ __sizeof__ __slots__ __str__ __sub__ __truediv__ __trunc__ __xor__
""")


# --- what the names of a file stand for, and what of its statements is evaluated when they run ----
#
# Bodies of functions are not: they are for whoever calls them.

_PARAMETERS: Final = ("ParamSpec", "TypeVar", "TypeVarTuple")  # of types, from 3.12 on
DEFINES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Names:
    """What the names of a file stand for, in whatever order its statements come."""

    def __init__(self, tree: ast.Module, *, lazy: bool) -> None:
        #: Where each binding of a name has it from: empty where that is the file itself.
        self._bound: dict[str, list[str]] = defaultdict(list)
        self.defined: set[str] = set()
        for name, origin, node in bindings(tree.body, lazy=lazy, inner=True):
            self._bound[name].append(origin)
            if isinstance(node, DEFINES):
                self.defined.add(name)

    def origin(self, node: ast.expr) -> str:
        """Return where a name or a dotted one comes from; empty for the file's own, and others."""
        top, dot, rest = dotted(node).partition(".")
        found = self._bound.get(top)
        if found is None:
            # A star may bring a name that hides a builtin.
            return f"builtins.{top}" if top and not dot and "*" not in self._bound else ""
        return found[0] + dot + rest if len(set(found)) == 1 and found[0] else ""

    def is_own(self, name: str) -> bool:
        """Whether the file binds a name, otherwise than by importing it."""
        return "" in self._bound.get(name, ())

    def is_single(self, name: str) -> bool:
        """Whether a name has one binding."""
        return len(self._bound.get(name, ())) == 1


def bindings(
    body: Iterable[ast.stmt], *, lazy: bool, inner: bool = False
) -> Iterator[tuple[str, str, ast.stmt | ast.expr | ast.alias]]:
    """Yield each name that is bound while ``body`` runs: its name, origin and place.

    ``inner``: and those in the bodies of its classes.
    """
    for top in body:
        for node in at_once(top, lazy=lazy):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
                yield node.id, "", node
            elif type(node).__name__ in _PARAMETERS:
                yield vars(node)["name"], "", top
            elif isinstance(node, ast.Import | ast.ImportFrom):
                yield from ((*_imported(node, alias), alias) for alias in node.names)
            elif isinstance(node, DEFINES):
                yield node.name, "", node
                if inner and isinstance(node, ast.ClassDef):
                    yield from bindings(node.body, lazy=lazy, inner=True)


def _imported(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> tuple[str, str]:
    if isinstance(node, ast.Import):
        top = alias.name.partition(".")[0]
        return (alias.asname, alias.name) if alias.asname else (top, top)
    origin = f"{node.module}.{alias.name}" if node.module and not node.level else ""
    return alias.asname or alias.name, origin


def dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` as it is written; empty for what is no such name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def at_once(top: ast.stmt, *, lazy: bool) -> Iterator[ast.AST]:
    """Yield the nodes that are evaluated when ``top`` is run, but for a class's body.

    ``lazy``: annotations are not.
    """
    stack: list[ast.AST] = [top]
    while stack:
        node = stack.pop()
        yield node
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                stack += [node.args, *node.decorator_list, *_parameters(node)]
                stack += [] if lazy or node.returns is None else [node.returns]
            case ast.Lambda():
                stack.append(node.args)
            case ast.ClassDef():
                stack += [*node.decorator_list, *node.bases, *node.keywords, *_parameters(node)]
            case ast.arg() if lazy:
                pass
            case ast.AnnAssign() if lazy:
                stack += [node.target] if node.value is None else [node.target, node.value]
            case _:
                stack += ast.iter_child_nodes(node)


def _parameters(node: ast.stmt) -> list[ast.AST]:
    """Return the parameters of types: a bound is evaluated by whoever asks for it."""
    return list(getattr(node, "type_params", ()))


_RULE: Final = "template-definitions"
_PROPERTY: Final = ast.Name("property", ast.Load())
_ACCESSORS: Final = frozenset(("deleter", "getter", "setter"))
_CALLED: Final = "would be called when the template is loaded"
_MAY_RUN: Final = "may run code of this file when the template is loaded"


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
        #: Whether annotations are kept as text.
        self._lazy = any(
            isinstance(node, ast.ImportFrom)
            and node.module == "__future__"
            and any(alias.name == "annotations" for alias in node.names)
            for node in tree.body
        )
        self._names, self._report = Names(tree, lazy=self._lazy), report
        #: Own classes so far, and whether each is an enumeration.
        self._classes: dict[str, bool] = {}
        #: Nodes that are refused, by their ids: once.
        self._reported: set[int] = set()

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
                case _ if type(node).__name__ != "TypeAlias":
                    self._refuse(node)
                    continue
            self._judge_expressions(node, body)

    def _judge_expressions(self, top: ast.stmt, body: list[ast.stmt]) -> None:
        """Refuse what could run the file's own code while ``top`` is run."""
        fine = {id(node) for node in getattr(top, "decorator_list", ()) if _accesses(node, body)}
        for node in at_once(top, lazy=self._lazy):
            match node:
                case _ if id(node) in self._reported:
                    continue
                case ast.Call() if self._names.origin(node.func) not in MAKERS:
                    self._report.add(_RULE, node, f"{dotted(node.func) or 'this'}()")
                case ast.Await() | ast.Yield() | ast.YieldFrom():
                    self._refuse(node)
                case ast.Attribute() if id(node) not in fine and not self._may_read(node):
                    self._refuse(node, _MAY_RUN)
                case ast.Subscript() if _root(node) in self._names.defined:
                    self._refuse(node, _MAY_RUN)

    def _may_read(self, node: ast.Attribute) -> bool:
        """Whether an attribute is a library's, or what a class of the file's own holds."""
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
            special = name.startswith("__") and name.endswith("__") and name not in SPECIAL
            # An enumeration calls more of what is special.
            if special or (is_enum and name.startswith("_") and name != "__doc__"):
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
        self._reported.add(id(node))
        line, start, end = self._report.span(node)
        said = self._report.line(line)[start:end]
        self._report.add_at(_RULE, (line, start, end), said, why=why)


def _accesses(node: ast.expr, body: Iterable[ast.stmt]) -> bool:
    """Whether a decorator is ``x.setter`` of a property ``x`` that ``body`` defines before."""
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
            and (
                place is first
                or any(getattr(one, "attr", "") in _ACCESSORS for one in place.decorator_list)
            )
            for place in bound
        )
    )


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


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
