"""What is in the user's namespace, and its values, with no code of the user's run.

Attributes of a class are looked up where CPython keeps them, and read only by descriptors that are
written in C, or by properties of an installed library.
"""

from __future__ import annotations

import sys
import sysconfig
from types import (
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest.output import encodable
from cellblock.wire import arrays, messages

if TYPE_CHECKING:
    from cellblock.guest.shell import GuestShell

#: Variables that are listed, and characters of a name, a type and a shape.
_MOST: Final = 1_000
_LONGEST: Final = 200
_LIBRARIES: Final = tuple(
    f"{folder}/" for folder in {sysconfig.get_path(name) for name in ("purelib", "platlib")}
)
_NAME, _MRO, _DICT = (type.__dict__[name] for name in ("__name__", "__mro__", "__dict__"))
_IN_C: Final = (GetSetDescriptorType, MemberDescriptorType)
#: ``__sizeof__`` of builtin types, of which none runs code of an element's.
_SIZED: Final = (MethodDescriptorType, WrapperDescriptorType)
_CONTAINERS: Final = frozenset({str, bytes, bytearray, list, tuple, dict, set, frozenset, range})


def list_variables(shell: GuestShell, number: int) -> messages.Variables:
    """Return the user's variables by name, as an answer to the request ``number``."""
    hidden: dict[str, Any] = shell.user_ns_hidden
    found = {
        name: value
        for name, value in list(shell.user_ns.items())
        if type(name) is str
        and not name.startswith("_")
        and not (name in hidden and hidden[name] is value)
    }
    names = sorted(found)
    listed = tuple(_variable(name, found[name]) for name in names[:_MOST])
    return messages.Variables(id=number, variables=listed, more=len(names) - len(listed))


def get_variable(shell: GuestShell, request: messages.GetVariable) -> messages.VariableValue:
    """Return the value of a variable: data, an array or a table, by exact types."""
    try:
        value = arrays.encode(shell.user_ns[request.name])
    except KeyError:
        why = "there is no such variable"
    except Exception as exc:  # whatever a library says of a table
        why = f"{_NAME.__get__(type(exc))}: {exc}"
    else:
        return messages.VariableValue(id=request.id, value=value)
    return messages.VariableValue(id=request.id, why=encodable(why[:_LONGEST]))


def _variable(name: str, value: Any) -> messages.Variable:
    kind = type(value)
    return messages.Variable(
        name=encodable(name[:_LONGEST]),
        type=encodable(_NAME.__get__(kind)[:_LONGEST]),
        shape=_shape(kind, value),
        size=_size(kind, value),
    )


def _shape(kind: type, value: Any) -> str:
    """Return the length of a container, the shape of an array or table; else nothing."""
    if kind in _CONTAINERS:
        return str(len(value))
    shape = _read(kind, value, "shape")
    if isinstance(shape, tuple) and all(type(one) is int for one in shape):
        return " by ".join(map(str, shape))[:_LONGEST]
    return ""


def _size(kind: type, value: Any) -> int:
    """Return the bytes of an object itself, without what it refers to; 0 where it is not known."""
    size = _read(kind, value, "nbytes")
    if size is None and isinstance(_attribute(kind, "__sizeof__"), _SIZED):
        size = sys.getsizeof(value)
    return size if type(size) is int and 0 <= size < 2**53 else 0


def _attribute(kind: type, name: str) -> Any:
    """Return what a class has by that name, its own or inherited, itself."""
    for one in _MRO.__get__(kind):
        own = _DICT.__get__(one)
        if name in own:
            return own[name]
    return None


def _read(kind: type, value: Any, name: str) -> Any:
    """Return an attribute if reading it runs no code of the user's, else None."""
    found = _attribute(kind, name)
    if isinstance(found, _IN_C):
        return found.__get__(value, kind)
    getter = found.fget if type(found) is property else None
    if type(getter) is FunctionType and getter.__code__.co_filename.startswith(_LIBRARIES):
        return getter(value)
    return None
