"""What a cell's tree becomes before it is compiled, where Python has no function to replace.

- ``x.__dict__`` and the other settled names are read by ``access.read``, and ``x.format`` is asked
  of what ``template`` returns.
- ``from a import b`` and ``import a.b as c`` take what the importer returns: the interpreter's own
  instruction falls back to ``sys.modules``, which holds the real ones.
- ``case C(x, y)`` reads whatever ``C.__match_args__`` names just then, so it is asked of a stand-in
  for ``C`` whose names were checked (``pattern``).
- ``getattr(x, "name")`` with a free name is the interpreter's own, where ``getattr`` is ours: half
  of the cost. So is ``getattr(x, name)``, once that name was judged.

What is put in is called by names that no source can spell, and always looked up among the globals:
a class has whatever namespace ``__prepare__`` returned, and a look into a module's takes time.
"""

from __future__ import annotations

import ast
import contextlib
import itertools
from functools import lru_cache
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
#: How names begin that hold something for a statement, each with a number of its own.
_OWN, _numbers = "_<", itertools.count()
_FUNCTIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda})
_SCOPES = frozenset({ast.ClassDef, ast.Interactive, ast.Module})
_FORMATS = frozenset({"format", "format_map"})
#: Fields of nodes that hold one.
_ANNOTATIONS = frozenset({"annotation", "returns"})


def rewrite(tree: ast.AST, *, text: bool = False) -> ast.AST:
    """Rewrite ``tree``, a module, an expression or an interactive statement, in its place.

    ``text``: an earlier cell imported ``annotations`` from ``__future__``. Below that import the
    compiler keeps annotations as text, which is judged when it is evaluated; so they stay as they
    are written. Above it they are evaluated, since a cell's statements are compiled one by one.

    Raises:
        AttributeViolation: it reads what is refused, or changes what is settled in a way that
            nobody can judge.

    """
    found = list(_walk(tree, text=text))
    changed: dict[Any, set[str]] = {}
    for owner, place, node, scope in reversed(found):  # children before what they are in
        change = _REWRITES.get(type(node))
        made = None if change is None else change(node, type(scope) is ast.ClassDef)
        if made is not None:
            _locate(made, node)
            _put(owner, place, made)
            if scope is not None:
                names = changed.setdefault(scope, {*CALLED, TAKE})
                if isinstance(made, ast.stmt):
                    parts = (part for part in ast.walk(made) if type(part) is ast.Name)
                    names.update(part.id for part in parts if part.id.startswith(_OWN))
    for node, names in changed.items():
        after = sum(1 for _ in itertools.takewhile(_stays_first, node.body))
        node.body.insert(after, ast.copy_location(ast.Global(sorted(names)), node.body[0]))
    for _, _, node, _ in found:
        if (
            type(node) is ast.Attribute
            and node.attr in OF_FUNCTIONS
            and type(node.ctx) is not ast.Load
        ):
            raise refusal(node.attr)
    return tree


#: Where statements keep what ``whole`` puts beside them.
_BESIDE = "looked_up"


def separable(tree: Any) -> Any:
    """Let a rewritten module's statements be compiled one by one, as IPython does.

    What the rewriting looks up as globals it declares once; ``whole`` declares it for each.
    """
    if not isinstance(tree.body, list):  # one expression
        return tree
    ours = [node for node in tree.body if type(node) is ast.Global and TAKE in node.names]
    for node in ours:
        tree.body.remove(node)
        for statement in tree.body:
            setattr(statement, _BESIDE, node)
    return tree


def whole(tree: Any) -> Any:
    """Put into a module, of one statement or more, what ``separable`` took out."""
    body = getattr(tree, "body", None)
    if isinstance(body, list) and body and (names := getattr(body[-1], _BESIDE, None)) is not None:
        after = sum(1 for _ in itertools.takewhile(_stays_first, body))
        if after < len(body):
            body.insert(after, names)
    return tree


def compiled(tree: ast.AST, name: str, mode: str = "exec") -> CodeType:
    """Rewrite ``tree`` and compile it for the file ``name``. Raises as ``rewrite`` does."""
    made: Any = rewrite(tree)
    # This file's own future import would turn the annotations into text.
    code: CodeType = compile(made, name, mode, dont_inherit=True)
    return code


def _keeps_text(node: ast.AST) -> bool:
    return is_future(node) and any(alias.name == "annotations" for alias in node.names)


def is_future(node: ast.AST) -> TypeGuard[ast.ImportFrom]:
    """Whether a statement has to begin what is compiled; in a cell it may stand anywhere."""
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _stays_first(node: ast.stmt) -> bool:
    return is_future(node) or (isinstance(node, ast.Expr) and type(node.value) is ast.Constant)


def _locate(made: ast.AST, node: ast.AST) -> None:
    """Give new nodes the position of ``node``."""
    stack = [made]
    while stack:
        new = stack.pop()
        if not hasattr(new, "lineno"):
            ast.copy_location(new, node)
            stack.extend(ast.iter_child_nodes(new))


def _walk(tree: ast.AST, *, text: bool) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield (parent, place, node, scope) of every node, parents first, without recursion.

    A place is a field, or a field and an index. The scope is the class or module in whose own body
    the node is, None in a function. Annotations that the compiler keeps as text are left out: all
    if ``text``, else those below the future import, which only the top level may have.
    """
    stack: list[tuple[Any, Any, Any, Any]] = [(None, None, tree, None)]
    while stack:
        entry = stack.pop()
        yield entry
        owner, _, node, scope = entry
        if owner is tree and _keeps_text(node):
            text = True
        kind, below = type(node), []
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
                    (node, (field, index), each, inner)
                    for index, each in enumerate(value)
                    if isinstance(each, ast.AST)
                ]
        stack.extend(reversed(below))


def _put(owner: Any, place: Any, node: ast.AST) -> None:
    if type(place) is tuple:
        getattr(owner, place[0])[place[1]] = node
    else:
        setattr(owner, place, node)


# --- small trees ------------------------------------------------------------------------------


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _call(name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(_name(name), list(args), [])


def _bind(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)


def _forget(bound: Sequence[ast.Assign]) -> ast.Delete:
    return ast.Delete([ast.Name(name.id, ast.Del()) for b in bound for name in b.targets])  # type: ignore[attr-defined]


def _together(body: Sequence[ast.stmt]) -> ast.stmt:
    """Return one statement that does as several; the compiler drops the condition."""
    return ast.If(ast.Constant(value=True), list(body), [])


# --- what is rewritten: each takes a node and returns what stands in its place, or None ---------


def _attribute(node: ast.Attribute, _in_class: bool) -> ast.expr | None:
    name, of = node.attr, node.value
    if not attribute_allowed(name):
        raise refusal(name)  # as the source check says, which comes first
    if name not in SETTLED or type(node.ctx) is not ast.Load:
        return None
    if name not in _FORMATS:
        return _call(READ, of, ast.Constant(name))
    if type(of) is ast.Constant and type(of.value) is str:
        with contextlib.suppress(AttributeViolation):
            check_template(of.value)
            return None  # a harmless one
    return ast.Attribute(_call(TEMPLATE, of), name, ast.Load())


def _called(node: ast.Call, _in_class: bool) -> ast.expr | None:
    """Make ``getattr(x, "name")`` the interpreter's own where the name is free."""
    called, args = node.func, node.args
    if type(called) is not ast.Name or called.id not in _BY_NAME or not args[1:]:
        return None
    name = args[1]
    ours, real = _BY_NAME[called.id]
    is_ours = ast.Compare(called, [ast.Is()], [_name(ours)])
    if type(name) is ast.Constant:
        if type(name.value) is not str or not is_free(name.value) or type(args[0]) is ast.Starred:
            return None
        node.func = ast.IfExp(is_ours, _name(real), called)
        _locate(node.func, called)
        return node
    # Evaluated twice, so only what does nothing when it is. What is read is the text that was
    # judged, whatever the name says it is equal to.
    if not all(type(arg) in {ast.Name, ast.Constant} for arg in args) or node.keywords:
        return None
    is_free_name = ast.Compare(name, [ast.In()], [_name(FREE)])
    judged = ast.Subscript(_name(JUDGED), name, ast.Load())
    fast = ast.Call(_name(real), [args[0], judged, *args[2:]], [])
    return ast.IfExp(ast.BoolOp(ast.And(), [is_ours, is_free_name]), fast, node)


def _assign(node: ast.Assign, _in_class: bool) -> ast.stmt | None:
    """Change ``f.__defaults__`` by what looks whose function it is."""
    target = node.targets[0]
    if len(node.targets) > 1 or type(target) is not ast.Attribute:
        return None
    if target.attr not in OF_FUNCTIONS:
        return None
    target.ctx = ast.Load()
    return ast.Expr(_call(WRITE, target.value, ast.Constant(target.attr), node.value))


def _augmented(node: ast.AugAssign, _in_class: bool) -> ast.stmt | None:
    """Change ``x.obj += 1`` by what reads ``x.obj``, in place where that is what ``+=`` does."""
    target = node.target
    if type(target) is not ast.Attribute or target.attr not in SETTLED:
        return None
    if target.attr not in COMMON:
        raise refusal(target.attr)
    number = next(_numbers)
    of, was = f"{_OWN}owner {number}>", f"{_OWN}value {number}>"
    owner = _bind(of, target.value)
    value = _bind(was, _call(READ, _name(of), ast.Constant(target.attr)))
    node.target = ast.copy_location(ast.Name(was, ast.Store()), target)
    write = ast.Assign([ast.Attribute(_name(of), target.attr, ast.Store())], _name(was))
    return _together([owner, value, node, write, _forget([owner, value])])


def _import(node: ast.Import, _in_class: bool) -> ast.stmt | None:
    made: list[ast.stmt] = []
    for alias in node.names:
        package, _, last = alias.name.rpartition(".")
        taken = alias.asname and package
        made.append(
            _taken(package, [ast.alias(last, alias.asname)]) if taken else ast.Import([alias])
        )
    return _together(made) if any(type(one) is ast.Assign for one in made) else None


def _import_from(node: ast.ImportFrom, _in_class: bool) -> ast.stmt | None:
    module = node.module
    if node.level or module is None or module == "__future__" or node.names[0].name == "*":
        return None
    return _taken(module, node.names)


def _taken(module: str, names: Sequence[ast.alias]) -> ast.Assign:
    bound: list[ast.expr] = [ast.Name(name.asname or name.name, ast.Store()) for name in names]
    asked = ast.Tuple([ast.Constant(name.name) for name in names], ast.Load())
    return ast.Assign([ast.Tuple(bound, ast.Store())], _call(TAKE, ast.Constant(module), asked))


def _match(node: ast.Match, in_class: bool) -> ast.stmt | None:
    """Replace the classes of positional patterns by stand-ins."""
    made: list[ast.Assign] = []
    for case in node.cases:
        for part in ast.walk(case.pattern):
            if type(part) is ast.MatchValue:
                for called in _calls(part.value):  # made of a settled name; a pattern can't hold it
                    constants = (arg for arg in called.args if type(arg) is ast.Constant)
                    raise refusal("".join(str(arg.value) for arg in constants))
            elif type(part) is ast.MatchClass:
                common = not COMMON.isdisjoint(part.kwd_attrs)
                if part.patterns or common or _calls(part.cls):
                    name = f"{_OWN}pattern {next(_numbers)}>"
                    # In a class's body a lambda would not see the names of that.
                    nothing = ast.arguments([], [], None, [], [], None, [])
                    asked = part.cls if in_class else ast.Lambda(nothing, part.cls)
                    flags = (ast.Constant(in_class), ast.Constant(common))
                    made.append(_bind(name, _call(PATTERN, asked, *flags)))
                    part.cls = ast.copy_location(_name(name), part.cls)
    if not made:
        return None
    # What a subject binds, a pattern may name.
    subject = _bind(f"{_OWN}subject {next(_numbers)}>", node.subject)
    node.subject = ast.copy_location(_name(subject.targets[0].id), node.subject)  # type: ignore[attr-defined]
    bound = [subject, *made]
    unbound = ast.Assign([target for one in bound for target in one.targets], ast.Constant(None))
    return _together([subject, ast.Try([*made, node], [], [], [unbound, _forget(bound)])])


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


# --- what is called at run time ----------------------------------------------------------------


class _Templates:
    """Whatever ``x.format`` is asked of and is no exact text."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        return read(self._of, name)


def template(of: Any) -> Any:
    """Return what to ask for ``format``, of a cell's ``x.format``: ``x`` where it is harmless."""
    if type(of) is str:
        if "." in of:
            check_template(of)
        return of
    return _Templates(of)


class _StandIn(type):
    """Whatever is one of a class's own is one of its stand-in's.

    For ``case C(x, y)`` the interpreter asks whether something is a ``C``, which a metaclass
    answers, and then reads the attributes that ``C.__match_args__`` names, which a metaclass
    answers too: any, of anything. A stand-in asks once, checks, and stays as it is.
    """

    _of: Any
    #: Whatever says that it is one, and is not, is none.
    _strict = False

    def __instancecheck__(cls, instance: object) -> bool:
        kind = cls._of()
        return issubclass(type(instance), kind) if cls._strict else isinstance(instance, kind)


def pattern(asked: Any, known: bool, common: bool) -> Any:
    """Return the stand-in for a class, or the class itself where that makes no difference.

    ``asked`` is the class where it is ``known``, else what returns it: what that raises, a match
    raises. ``common``: ``format`` and the like are read by name.

    Raises:
        AttributeViolation: matching would read what is not free.
        TypeError: what ``__match_args__`` has is no tuple of names.

    """
    try:
        kind = asked if known else asked()
    except Exception:
        return _frozen("class", (), {"__match_args__": (), "_of": staticmethod(asked)})
    if not isinstance(kind, type) or (type(kind) is type and not kind.__flags__ & HEAP):
        if common:
            raise refusal("format")
        return kind  # no class, as the interpreter says then, or one that does not change
    names = getattr(kind, "__match_args__", () if not kind.__flags__ & _MATCHES_ITSELF else None)
    if names is not None and type(names) is not tuple:
        raise TypeError(f"__match_args__ must be a tuple (got {type(names).__name__})")
    plain = type(kind) is type and all(k is object or _is_plain(k) for k in kind.__mro__)
    common = common or not COMMON.isdisjoint(map(text_of, names or ()))
    for name in names or ():
        if type(name) is not str or not (is_free(name) or (plain and name in COMMON)):
            raise refusal(text_of(name))
    if common and not plain:
        raise refusal("format")
    # What says that it is one may have changed the class's names by then.
    return _stand_in(kind, names, common)


def _is_plain(kind: type) -> bool:
    return type(kind) is type and kind.__flags__ & (HEAP | IMMUTABLE) == HEAP


@lru_cache(maxsize=256)
def _stand_in(kind: type, names: tuple[str, ...] | None, strict: bool) -> type:
    space: dict[str, Any] = {"_of": staticmethod(lambda: kind), "_strict": strict}
    if names is None:  # one that binds the subject, as int does
        return _frozen(_name_of(kind), (int,), space)
    return _frozen(_name_of(kind), (), {**space, "__match_args__": names})


def _frozen(name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
    made = _StandIn(name, bases, space)
    freeze(made)
    return made


_name_of = type.__dict__["__name__"].__get__
#: Py_TPFLAGS_MATCH_SELF.
_MATCHES_ITSELF = 1 << 22

#: What the builtins of user code have, beside an importer's ``take``.
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
