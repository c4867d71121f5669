"""Rewrites the syntax tree of a cell for the guards, where Python has no function to replace.

``shell.CellCompiler`` calls ``rewrite`` for all code of cells, under the language layer. Becomes:

- ``x.__dict__`` and the other *settled* names: a call of ``access.read``. ``x.format`` is read from
  what ``template`` returns.
- ``from a import b`` and ``import a.b as c``: a call of the guarded importer. The interpreter's own
  instruction falls back to ``sys.modules``, which has the real modules.
- ``case C(x, y)``: ``C`` is replaced by a stand-in whose names were checked (``pattern``), since
  matching reads whatever attributes ``C.__match_args__`` names at that moment.
- ``getattr(x, "name")`` with a free name: the real ``getattr`` if ``getattr`` is the guarded one,
  which halves the cost. ``getattr(x, name)``, too, once that name was judged.

The functions that are put in have names that no source can spell (``CALLED``). They are declared
global everywhere: a class body has whatever namespace ``__prepare__`` returned, and looking into a
module's namespace first takes time.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeGuard

from cellblock.analysis.names import COMMON, OF_FUNCTIONS, SETTLED, attribute_allowed, is_free
from cellblock.guest.guards import access
from cellblock.guest.guards.access import (
    HEAP,
    IMMUTABLE,
    check_template,
    freeze,
    read,
    refusal,
    text_of,
)
from cellblock.guest.violations import AttributeViolation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import CodeType

READ, WRITE, TEMPLATE, TAKE, PATTERN = "<read>", "<write>", "<template>", "<take>", "<pattern>"
GETATTR, HASATTR, SETATTR = "<getattr>", "<hasattr>", "<setattr>"
REAL_GETATTR, REAL_HASATTR, REAL_SETATTR = "<real getattr>", "<real hasattr>", "<real setattr>"
FREE, JUDGED = "<free>", "<judged>"
_BY_NAME = {
    "getattr": (GETATTR, REAL_GETATTR),
    "hasattr": (HASATTR, REAL_HASATTR),
    "setattr": (SETATTR, REAL_SETATTR),
}
#: How names of helper variables begin; each gets a number of its own.
_OWN, _numbers = "_<", itertools.count()
_FUNCTIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda})
_SCOPES = frozenset({ast.ClassDef, ast.Interactive, ast.Module})
_FORMATS = frozenset({"format", "format_map"})
#: Fields of nodes that hold an annotation.
_ANNOTATIONS = frozenset({"annotation", "returns"})


def rewrite(tree: ast.AST, *, text: bool = False) -> ast.AST:
    """Rewrite ``tree``, a module, an expression or an interactive statement, in place.

    ``text`` says that an earlier cell imported ``annotations`` from ``__future__``. Below that
    import the compiler keeps annotations as text, which is judged when it is evaluated. So these
    are not rewritten. Above the import annotations are evaluated, since the statements of a cell
    are compiled one by one.

    Raises:
        AttributeViolation: the code reads a refused attribute, or changes a settled one in a way
            that can't be judged.

    """
    nodes = list(_walk(tree, text=text))
    # By class or module: the names that must be declared global in its body.
    changed: dict[Any, set[str]] = {}
    for owner, field, node, scope in reversed(nodes):  # children before their parents
        rewriter = _REWRITES.get(type(node))
        replacement = None if rewriter is None else rewriter(node, type(scope) is ast.ClassDef)
        if replacement is not None:
            _locate(replacement, node)
            _put(owner, field, replacement)
            if scope is not None:
                names = changed.setdefault(scope, {*CALLED, TAKE})
                if isinstance(replacement, ast.stmt):
                    parts = (
                        name_node
                        for name_node in ast.walk(replacement)
                        if type(name_node) is ast.Name
                    )
                    names.update(
                        name_node.id for name_node in parts if name_node.id.startswith(_OWN)
                    )
    for node, names in changed.items():
        after = sum(1 for _ in itertools.takewhile(_stays_first, node.body))
        node.body.insert(after, ast.copy_location(ast.Global(sorted(names)), node.body[0]))
    # What is left of changes to attributes of functions is in a form that ``_assign`` can't judge.
    for _, _, node, _ in nodes:
        if (
            type(node) is ast.Attribute
            and node.attr in OF_FUNCTIONS
            and type(node.ctx) is not ast.Load
        ):
            raise refusal(node.attr)
    return tree


#: Attribute of a statement that keeps the declaration which ``whole`` puts before it.
_BESIDE = "looked_up"


def separable(tree: Any) -> Any:
    """Make the statements of a rewritten module compilable one by one, as IPython compiles them.

    The rewriting declares names global once for the module. This takes the declaration out and
    attaches it to each statement, before which ``whole`` puts it.
    """
    if not isinstance(tree, ast.Module | ast.Interactive):  # an expression has no declaration
        return tree
    declarations = [node for node in tree.body if type(node) is ast.Global and TAKE in node.names]
    for node in declarations:
        tree.body.remove(node)
        for statement in tree.body:
            setattr(statement, _BESIDE, node)
    return tree


def whole(tree: Any) -> Any:
    """Put the declaration that ``separable`` took out into a module of one or more statements."""
    body = getattr(tree, "body", None)
    if isinstance(body, list) and body and (names := getattr(body[-1], _BESIDE, None)) is not None:
        after = sum(1 for _ in itertools.takewhile(_stays_first, body))
        if after < len(body):
            body.insert(after, names)
    return tree


def compiled(tree: ast.AST, name: str, mode: str = "exec") -> CodeType:
    """Rewrite ``tree`` and compile it for the file ``name``. Raises as ``rewrite`` does."""
    rewritten: Any = rewrite(tree)
    # Without dont_inherit, this file's own future import would turn annotations into text.
    code: CodeType = compile(rewritten, name, mode, dont_inherit=True)
    return code


def _keeps_text(node: ast.AST) -> bool:
    return is_future(node) and any(alias.name == "annotations" for alias in node.names)


def is_future(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    """Return whether a statement is a future import.

    It must be the first statement that is compiled, but in a cell it may be anywhere.
    """
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _stays_first(node: ast.stmt) -> bool:
    return is_future(node) or (isinstance(node, ast.Expr) and type(node.value) is ast.Constant)


def _locate(new_tree: ast.AST, node: ast.AST) -> None:
    """Give new nodes the position of ``node``."""
    stack = [new_tree]
    while stack:
        new_node = stack.pop()
        if not hasattr(new_node, "lineno"):
            ast.copy_location(new_node, node)
            stack.extend(ast.iter_child_nodes(new_node))


def _walk(tree: ast.AST, *, text: bool) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield (parent, place, node, scope) of each node, parents first, without recursion.

    The place is a field of the parent, or a field and an index. The scope is the class or module
    whose own body contains the node, None in a function. Annotations that the compiler keeps as
    text are left out: all if ``text``, else those below the future import, which only the top level
    may have.
    """
    stack: list[tuple[Any, Any, Any, Any]] = [(None, None, tree, None)]
    while stack:
        entry = stack.pop()
        yield entry
        owner, _, node, scope = entry
        if owner is tree and _keeps_text(node):
            text = True
        kind = type(node)
        below = []
        for field in node._fields:
            if text and field in _ANNOTATIONS:
                continue
            value = getattr(node, field, None)
            inner = scope
            if field == "body":
                inner = node if kind in _SCOPES else None if kind in _FUNCTIONS else scope
            if isinstance(value, ast.AST):
                below.append((node, field, value, inner))
            elif type(value) is list:
                below += [
                    (node, (field, index), item, inner)
                    for index, item in enumerate(value)
                    if isinstance(item, ast.AST)
                ]
        stack.extend(reversed(below))


def _put(owner: Any, field: Any, node: ast.AST) -> None:
    if type(field) is tuple:
        getattr(owner, field[0])[field[1]] = node
    else:
        setattr(owner, field, node)


# --- small trees ------------------------------------------------------------------------------


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(_name(name), list(args), [])


def _bind(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _delete_helpers(bound: Sequence[ast.Assign]) -> ast.Delete:
    """Return a statement that deletes helper variables."""
    return ast.Delete([ast.Name(name.id, ast.Del()) for b in bound for name in b.targets])  # type: ignore[attr-defined]


def _as_one_statement(body: Sequence[ast.stmt]) -> ast.stmt:
    """Return one statement with the effect of several: ``if True:``, which the compiler drops."""
    return ast.If(ast.Constant(value=True), list(body), [])


# --- rewriting: each function takes a node, and returns the node that replaces it, or None -------


def _attribute(node: ast.Attribute, _in_class: bool) -> ast.expr | None:
    """Rewrite the reading of a settled attribute."""
    name = node.attr
    owner = node.value
    if not attribute_allowed(name):
        raise refusal(name)  # the source check, which comes first, says the same
    if name not in SETTLED or type(node.ctx) is not ast.Load:
        return None
    if name not in _FORMATS:
        return _call(READ, owner, ast.Constant(name))
    if type(owner) is ast.Constant and type(owner.value) is str:
        with contextlib.suppress(AttributeViolation):
            check_template(owner.value)
            return None  # a harmless template
    return ast.Attribute(_call(TEMPLATE, owner), name, ast.Load())


def _called(node: ast.Call, _in_class: bool) -> ast.expr | None:
    """Make ``getattr(x, "name")`` call the real ``getattr`` if the name is free.

    ``getattr`` may be a variable of the cell's own, so the new code first asks whether it is the
    guarded one. Likewise ``hasattr`` and ``setattr``.
    """
    called, args = node.func, node.args
    if type(called) is not ast.Name or called.id not in _BY_NAME or not args[1:]:
        return None
    name = args[1]
    stand_in, real = _BY_NAME[called.id]
    is_ours = ast.Compare(called, [ast.Is()], [_name(stand_in)])
    if type(name) is ast.Constant:
        if type(name.value) is not str or not is_free(name.value) or type(args[0]) is ast.Starred:
            return None
        node.func = ast.IfExp(is_ours, _name(real), called)
        _locate(node.func, called)
        return node
    # The arguments appear twice in the new code, so only names and constants are accepted, whose
    # evaluation has no effect. The attribute that is read is the text that was judged
    # (``JUDGED[name]``), even if ``name`` is an object that claims to be equal to it.
    if not all(type(arg) in {ast.Name, ast.Constant} for arg in args) or node.keywords:
        return None
    is_free_name = ast.Compare(name, [ast.In()], [_name(FREE)])
    judged = ast.Subscript(_name(JUDGED), name, ast.Load())
    fast = ast.Call(_name(real), [args[0], judged, *args[2:]], [])
    return ast.IfExp(ast.BoolOp(ast.And(), [is_ours, is_free_name]), fast, node)


def _assign(node: ast.Assign, _in_class: bool) -> ast.stmt | None:
    """Rewrite ``f.__defaults__ = …`` to a call that checks whether the function is a cell's."""
    target = node.targets[0]
    if len(node.targets) > 1 or type(target) is not ast.Attribute:
        return None
    if target.attr not in OF_FUNCTIONS:
        return None
    target.ctx = ast.Load()
    return ast.Expr(_call(WRITE, target.value, ast.Constant(target.attr), node.value))


def _augmented(node: ast.AugAssign, _in_class: bool) -> ast.stmt | None:
    """Rewrite ``x.obj += 1`` so that ``x.obj`` is read by ``access.read``.

    The value is held in a helper variable, on which ``+=`` works, in place or not.
    """
    target = node.target
    if type(target) is not ast.Attribute or target.attr not in SETTLED:
        return None
    if target.attr not in COMMON:
        raise refusal(target.attr)
    number = next(_numbers)
    owner_name = f"{_OWN}owner {number}>"
    value_name = f"{_OWN}value {number}>"
    owner = _bind(owner_name, target.value)
    value = _bind(value_name, _call(READ, _name(owner_name), ast.Constant(target.attr)))
    node.target = ast.copy_location(ast.Name(value_name, ast.Store()), target)
    write = ast.Assign(
        [ast.Attribute(_name(owner_name), target.attr, ast.Store())], _name(value_name)
    )
    return _as_one_statement([owner, value, node, write, _delete_helpers([owner, value])])


def _import(node: ast.Import, _in_class: bool) -> ast.stmt | None:
    """Rewrite ``import a.b as c``. Other imports call the guarded ``__import__`` anyhow."""
    statements: list[ast.stmt] = []
    for alias in node.names:
        package, _, last = alias.name.rpartition(".")
        has_member = alias.asname and package
        statements.append(
            _assign_members(package, [ast.alias(last, alias.asname)])
            if has_member
            else ast.Import([alias])
        )
    return _as_one_statement(statements) if any(type(s) is ast.Assign for s in statements) else None


def _import_from(node: ast.ImportFrom, _in_class: bool) -> ast.stmt | None:
    """Rewrite ``from a import b``."""
    module = node.module
    if node.level or module is None or module == "__future__" or node.names[0].name == "*":
        return None
    return _assign_members(module, node.names)


def _assign_members(module: str, names: Sequence[ast.alias]) -> ast.Assign:
    """Return an assignment of the members of a module that the importer returns."""
    bound: list[ast.expr] = [ast.Name(name.asname or name.name, ast.Store()) for name in names]
    members = ast.Tuple([ast.Constant(name.name) for name in names], ast.Load())
    return ast.Assign([ast.Tuple(bound, ast.Store())], _call(TAKE, ast.Constant(module), members))


def _match(node: ast.Match, in_class: bool) -> ast.stmt | None:
    """Replace classes in patterns by stand-ins, if the patterns read attributes.

    The stand-ins, and the subject, are held in helper variables.
    """
    stand_ins: list[ast.Assign] = []
    for case in node.cases:
        for subpattern in ast.walk(case.pattern):
            if type(subpattern) is ast.MatchValue:
                # A call here was made of a settled name (children come first). Patterns can't
                # contain calls.
                for call in _calls(subpattern.value):
                    constants = (arg for arg in call.args if type(arg) is ast.Constant)
                    raise refusal("".join(str(arg.value) for arg in constants))
            elif type(subpattern) is ast.MatchClass:
                common = tuple(sorted(COMMON.intersection(subpattern.kwd_attrs)))
                if subpattern.patterns or common or _calls(subpattern.cls):
                    name = f"{_OWN}pattern {next(_numbers)}>"
                    # The class is passed as a lambda, so that an error in evaluating it is raised
                    # where it is matched. Not in a class body, whose names a lambda can't see.
                    nothing = ast.arguments([], [], None, [], [], None, [])
                    class_ = subpattern.cls if in_class else ast.Lambda(nothing, subpattern.cls)
                    is_class = ast.Constant(in_class)
                    count = ast.Constant(len(subpattern.patterns))
                    named = ast.Tuple([ast.Constant(item) for item in common], ast.Load())
                    stand_ins.append(_bind(name, _call(PATTERN, class_, is_class, count, named)))
                    subpattern.cls = ast.copy_location(_name(name), subpattern.cls)
    if not stand_ins:
        return None
    # The subject is evaluated first, since it may bind names that the patterns use.
    subject = _bind(f"{_OWN}subject {next(_numbers)}>", node.subject)
    node.subject = ast.copy_location(_name(subject.targets[0].id), node.subject)  # type: ignore[attr-defined]
    bound = [subject, *stand_ins]
    unbound = ast.Assign([target for item in bound for target in item.targets], ast.Constant(None))
    return _as_one_statement(
        [subject, ast.Try([*stand_ins, node], [], [], [unbound, _delete_helpers(bound)])]
    )


def _calls(node: ast.expr) -> list[ast.Call]:
    return [part for part in ast.walk(node) if isinstance(part, ast.Call)]


_REWRITES: dict[type, Any] = {
    ast.Assign: _assign,
    ast.Attribute: _attribute,
    ast.AugAssign: _augmented,
    ast.Call: _called,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Match: _match,
}


# --- functions that rewritten code calls -------------------------------------------------------


class _Templates:
    """Wraps ``x`` of ``x.format`` if it is not exactly a ``str``, so that ``format`` is guarded."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return read(self._owner, name)


def template(owner: Any) -> Any:
    """Return the object from which ``format`` of a cell's ``x.format`` is read.

    It is ``x`` itself if that is a harmless ``str``. Raises AttributeViolation if ``x`` is a
    template that would read a refused attribute.
    """
    if type(owner) is str:
        if "." in owner:
            check_template(owner)
        return owner
    return _Templates(owner)


class _StandIn(type):
    """The metaclass of stand-ins: instances of a class count as instances of its stand-in.

    For ``case C(x, y)`` the interpreter asks whether the subject is a ``C``, and reads the
    attributes that ``C.__match_args__`` names. A metaclass can answer both, with any names for any
    object. A stand-in has read these names once, and they were checked. It can't be changed.
    """

    #: Returns the class.
    _of: Any
    #: The attributes that the pattern reads and that are in ``COMMON``. If there are any, only
    #: real instances match, and an instance whose library class defines one of them is refused.
    _common: tuple[str, ...] = ()

    def __instancecheck__(cls, instance: object) -> bool:
        kind = cls._of()
        if not cls._common:
            return isinstance(instance, kind)
        classes = _classes_of(type(instance))
        if not any(base is kind for base in classes):
            return False
        for name in cls._common:
            if not all(_leaves_to_cells(base, name) for base in classes):
                raise refusal(name)
        return True


def _leaves_to_cells(kind: type, name: str) -> bool:
    """Return whether a class is a cell's, or does not define the attribute ``name``."""
    if kind.__flags__ & (HEAP | IMMUTABLE) == HEAP:
        return True
    space = _names_of(kind)
    forwards = "__getattr__" in space or type(space.get("__getattribute__")) is FunctionType
    return name not in space and not forwards


def pattern(class_or_getter: Any, is_class: bool, count: int, common: tuple[str, ...]) -> Any:
    """Return the stand-in for a class, or the class itself if that makes no difference.

    ``class_or_getter`` is the class if ``is_class``, else a function that returns it. That is
    called once, so that the class that is checked is the class that is matched; if it raises,
    matching raises the same. The pattern reads the first ``count`` names of ``__match_args__``, and
    the attributes ``common`` by name.

    Raises:
        AttributeViolation: matching would read an attribute that is not free.
        TypeError: ``__match_args__`` is not a tuple of names.

    """
    try:
        kind = class_or_getter if is_class else class_or_getter()
    except Exception as error:
        return _frozen("class", (), {"__match_args__": (), "_of": staticmethod(_raising(error))})
    if not isinstance(kind, type) or (type(kind) is type and not kind.__flags__ & HEAP):
        if common:
            raise refusal(common[0])
        # Not a class, which the interpreter itself reports, or a builtin one, which can't change.
        return kind
    names = getattr(
        kind, "__match_args__", () if not kind.__flags__ & _TPFLAGS_MATCH_SELF else None
    )
    if names is not None and type(names) is not tuple:
        raise TypeError(f"__match_args__ must be a tuple (got {type(names).__name__})")
    used = (names or ())[:count]
    for name in used:
        if type(name) is not str or not (is_free(name) or name in COMMON):
            raise refusal(text_of(name))
    # Checked again at each match. By then, what says that an object is an instance may have changed
    # the class.
    common += tuple(name for name in used if name in COMMON)
    return _stand_in(kind, None if names is None else used, common)


def _raising(error: Exception) -> Any:
    def of() -> None:
        raise error

    return of


@lru_cache(maxsize=256)
def _stand_in(kind: type, names: tuple[str, ...] | None, common: tuple[str, ...]) -> type:
    space: dict[str, Any] = {"_of": staticmethod(lambda: kind), "_common": common}
    if names is None:  # a positional pattern binds the subject itself, as for int
        return _frozen(_name_of(kind), (int,), space)
    return _frozen(_name_of(kind), (), {**space, "__match_args__": names})


def _frozen(name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
    """Make a stand-in that no cell can change."""
    stand_in = _StandIn(name, bases, space)
    freeze(stand_in)
    return stand_in


_name_of = type.__dict__["__name__"].__get__
_names_of = type.__dict__["__dict__"].__get__
_classes_of = type.__dict__["__mro__"].__get__
#: ``_Py_TPFLAGS_MATCH_SELF`` of CPython: ``C(x)`` in a pattern matches the value itself.
_TPFLAGS_MATCH_SELF = 1 << 22

#: Names and functions that the builtins of user code have, beside the importer's ``take``.
CALLED: dict[str, object] = {
    GETATTR: access.guarded_getattr,
    HASATTR: access.guarded_hasattr,
    SETATTR: access.guarded_setattr,
    REAL_GETATTR: getattr,
    REAL_HASATTR: hasattr,
    REAL_SETATTR: setattr,
    FREE: access.free_names,
    JUDGED: access.judged_names,
    READ: read,
    WRITE: access.guarded_setattr,
    TEMPLATE: template,
    PATTERN: pattern,
}
