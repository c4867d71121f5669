"""getattr and its family by the rule that the source check applies to a dot."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from cellblock.analysis import attribute_allowed
from cellblock.analysis.attributes import remedy_for, why_refused
from cellblock.analysis.rules import RULES
from cellblock.guest.guards import trust
from cellblock.guest.guards.violations import AttributeViolation, NameViolation

if TYPE_CHECKING:
    from collections.abc import Callable

_RULE = RULES["attribute-not-allowed"]
#: ``[getattr(x, n) for n in dir(x)]`` is honest: these give a stand-in that can't be called.
_INERT = frozenset({"__getattribute__", "__reduce__", "__reduce_ex__"})

_getattr, _setattr, _delattr, _hasattr = getattr, setattr, delattr, hasattr
_exact = str.__str__


def refusal(name: str) -> AttributeViolation:
    """Return the violation for the attribute ``name``, to be raised."""
    why, remedy = why_refused(name) or _RULE.why, remedy_for(name) or _RULE.remedy
    return AttributeViolation(_RULE.id, name, why, remedy)


def check_name(name: Any) -> str:
    """Return ``name`` as an exact str.

    Raises:
        AttributeViolation: the policy refuses it.
        TypeError: not a str.

    """
    if type(name) is not str:
        name = _exact(name)  # a subclass could answer differently when asked again
    if not attribute_allowed(name):
        raise refusal(name)
    return str(name)


def _stand_in(name: str) -> Callable[..., Any]:
    def refused(*_args: object, **_kwargs: object) -> None:
        raise refusal(name)

    refused.__name__ = refused.__qualname__ = name
    return refused


def guarded_getattr(obj: Any, name: str, /, *default: Any) -> Any:
    """Do as ``getattr`` does, for allowed names."""
    if type(name) is not str:
        name = _exact(name)
    if attribute_allowed(name):
        return _getattr(obj, name, *default)
    if name in _INERT:
        return _stand_in(name)
    if default:
        return default[0]
    raise refusal(name)


def guarded_hasattr(obj: Any, name: str, /) -> bool:
    """Do as ``hasattr`` does; a refused attribute is not there."""
    if type(name) is not str:
        name = _exact(name)
    return (attribute_allowed(name) or name in _INERT) and _hasattr(obj, name)


def guarded_setattr(obj: Any, name: str, value: Any, /) -> None:
    """Do as ``setattr`` does, for allowed names."""
    _setattr(obj, check_name(name), value)


def guarded_delattr(obj: Any, name: str, /) -> None:
    """Do as ``delattr`` does, for allowed names."""
    _delattr(obj, check_name(name))


def library_getattr(obj: Any, name: str, /, *default: Any) -> Any:
    """``getattr`` for library modules that take names from users: refuses the dangerous ones.

    Laxer than for users, since the library's own dunders pass here as well.
    """
    if type(name) is not str:
        name = _exact(name)
    if why_refused(name) and name not in _INERT:
        if default:
            return default[0]
        raise refusal(name)
    return _getattr(obj, name, *default)


def refused_builtin(name: str, why: str, remedy: str) -> Callable[..., Any]:
    """Return what stands in a builtin's place: whoever calls it learns why not."""

    def refused(*_args: object, **_kwargs: object) -> None:
        raise NameViolation("builtin-not-allowed", name, why, remedy)

    refused.__name__ = refused.__qualname__ = name
    refused.__doc__ = f"Not allowed here: {why}."
    return refused


def open_for_packages(refused: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``open`` for C code of raw packages, which takes it from the builtins of the cell.

    ``ndarray.tofile`` does. Whoever names it in the text is ``refused``; a file is the OS layer's.
    """
    _, _, says = trust.operators()
    real = builtins.open

    def open(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - this is its name
        return refused() if says(1, ("open",)) else real(*args, **kwargs)

    open.__doc__ = refused.__doc__
    return open


for _function, _name in (
    (guarded_getattr, "getattr"),
    (guarded_hasattr, "hasattr"),
    (guarded_setattr, "setattr"),
    (guarded_delattr, "delattr"),
):
    _function.__name__ = _function.__qualname__ = _name
