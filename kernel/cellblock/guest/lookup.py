"""What completion may look up in mode safe: values that are there, by names that code may use.

IPython 9 runs whole statements of the code before the cursor to learn what they would make: it
builds classes, subscripts types and reads the real builtins, all as trusted code. Nobody has
checked that code: ``C[exec].<Tab>`` handed ``exec`` to a cell's ``__class_getitem__``. Here one
expression of names, attributes, subscripts and literals is looked up, under the cell's rules.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from IPython.core import completer, guarded_eval
from IPython.core.guarded_eval import EVALUATION_POLICIES, GuardRejection

from cellblock.analysis import analyse_expression

if TYPE_CHECKING:
    from cellblock.analysis import Rules
    from cellblock.guest.shell import GuestShell

_POLICY: Any = EVALUATION_POLICIES["limited"]
#: Displays complete as an empty one of their kind does.
_EMPTY: dict[type[ast.expr], type] = {
    ast.Dict: dict,
    ast.DictComp: dict,
    ast.JoinedStr: str,
    ast.List: list,
    ast.ListComp: list,
    ast.Set: set,
    ast.SetComp: set,
}


def narrow(shell: GuestShell, rules: Rules) -> None:
    """Have IPython's completer look up instead of evaluate, from now on and process-wide.

    Doing it again changes nothing.
    """

    def evaluate(code: str, context: Any) -> Any:
        if context.in_subscript:
            return _keys(code)
        return look_up(code, shell.user_ns, rules)

    for module in (guarded_eval, completer):  # in some versions the completer has its own name
        if hasattr(module, "guarded_eval"):
            setattr(module, "guarded_eval", evaluate)  # noqa: B010 - a module is typed without it
    if not rules.raw_modules:
        # Nothing that a cell may say takes a path.
        shell.Completer.disable_matchers = ["IPCompleter.file_matcher"]


def look_up(code: str, namespace: dict[str, Any], rules: Rules) -> Any:
    """Return the value of ``code``, one expression, without running any of it.

    Raises:
        SyntaxError: not Python; IPython then tries what is left without its first characters.
        GuardRejection: more than a look-up, or something that a cell may not say.
        NameError: no such name.

    """
    body = ast.parse(code).body
    if len(body) != 1 or not isinstance(body[0], ast.Expr) or analyse_expression(code, rules):
        raise GuardRejection("not a look-up")
    return _value(body[0].value, namespace)


def _value(node: ast.expr, namespace: dict[str, Any]) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.Name(id=name):
            return _named(name, namespace)
        case ast.Attribute(value=inner, attr=name):
            return _attribute(_value(inner, namespace), name, namespace)
        case ast.Subscript(value=inner, slice=key):
            return _item(_value(inner, namespace), _key(key))
        case _ if type(node) in _EMPTY:
            return _EMPTY[type(node)]()
    raise GuardRejection("not a look-up")


def _keys(code: str) -> Any:
    """Return the keys before the cursor's in a subscript, as in ``table.loc[:, "na``."""
    subscript = ast.parse(f"_[{code}]", mode="eval").body if code else None
    return _key(subscript.slice) if isinstance(subscript, ast.Subscript) else ()


def _key(node: ast.expr) -> Any:
    match node:
        case ast.Tuple(elts=parts):
            return tuple(map(_key, parts))
        case ast.Slice(lower=None, upper=None, step=None):
            return slice(None)
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise GuardRejection("a key that is no literal") from None


def _named(name: str, namespace: dict[str, Any]) -> Any:
    for names in (namespace, namespace["__builtins__"]):
        if name in names:
            return names[name]
    raise NameError(name)


def _attribute(owner: Any, name: str, namespace: dict[str, Any]) -> Any:
    if not _POLICY.can_get_attr(owner, name):
        raise GuardRejection("it would run a property")
    return namespace["__builtins__"]["getattr"](owner, name)


def _item(owner: Any, key: Any) -> Any:
    # Of a type it would run __class_getitem__, of a form of typing its own code.
    if isinstance(owner, type) or not _POLICY.can_get_item(owner, key):
        raise GuardRejection("it would run __getitem__")
    return owner[key]
