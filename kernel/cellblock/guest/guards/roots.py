"""Closes the interpreter's own ways from an object to frames, code and namespaces, at the root.

Each dangerous attribute of a built-in type is replaced in the type itself by a property that asks
who wants to know. So it is closed however the name is spelt or computed, in C or in Python. The
process serves one policy and nothing else; see docs/adr/0010.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import types
import typing
from typing import TYPE_CHECKING, Any

from cellblock.analysis.attributes import attribute_allowed
from cellblock.guest.guards.access import guarded_getattr, refusal
from cellblock.guest.guards.trust import REAL_BUILTINS, namespace_of_module

if TYPE_CHECKING:
    from collections.abc import Callable

    Judge = Callable[..., bool]


async def _coroutine() -> None: ...
async def _asyncgen() -> Any:
    yield


_TRUSTED_ONLY: tuple[tuple[type, tuple[str, ...]], ...] = (
    (types.FunctionType, ("__globals__", "__builtins__", "__code__")),
    (types.GeneratorType, ("gi_frame", "gi_code", "gi_yieldfrom")),
    (types.CoroutineType, ("cr_frame", "cr_code", "cr_await", "cr_origin")),
    (types.AsyncGeneratorType, ("ag_frame", "ag_code", "ag_await")),
    (types.TracebackType, ("tb_frame",)),
    (type, ("__subclasses__",)),
    # Its slot is in object.__getstate__'s answer too.
    (typing.ForwardRef, ("__forward_code__",)),
)
_LIBRARY_ONLY: tuple[tuple[type, tuple[str, ...]], ...] = (
    (types.FrameType, ("f_back", "f_builtins", "f_code", "f_globals", "f_locals")),
    (types.CodeType, ("replace", "co_code", "_co_code_adaptive")),
)
#: Their ``__reduce__`` names ``getattr``.
_REDUCED = (
    types.BuiltinFunctionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.MethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
)


def close(is_trusted: Judge, is_library: Judge) -> None:
    """Replace the dangerous attributes of the built-in types. Call once."""
    own = _own_function(REAL_BUILTINS)
    for kind, names in _TRUSTED_ONLY:
        for name in names:
            _replace(kind, name, is_trusted, lambda _obj, _value: False)
    for kind, names in _LIBRARY_ONLY:
        for name in names:
            _replace(kind, name, is_library, lambda _obj, _value: False)
    for name in ("__closure__", "__defaults__", "__kwdefaults__"):
        _replace(types.FunctionType, name, is_trusted, lambda obj, _value: own(obj))
    _replace(types.BuiltinFunctionType, "__self__", is_trusted, lambda _o, v: not _is_module(v))
    function_of = types.MethodType.__dict__["__func__"].__get__
    for name in ("__self__", "__func__"):
        _replace(types.MethodType, name, is_library, lambda o, _v: own(function_of(o)))
    _replace(types.ModuleType, "__dict__", is_library, lambda obj, _value: not _is_real(obj))
    _hide_modules_in_errors(is_trusted)
    _replace_reductions()
    _replace_class_dict(is_trusted)


def namespace_of(kind: type) -> dict[str, Any]:
    """Return the writable namespace of a built-in type."""
    (found,) = gc.get_referents(kind.__dict__)
    return found  # type: ignore[no-any-return]


def modified(kind: type) -> None:
    """Tell the interpreter that ``kind`` changed (C API: PyType_Modified)."""
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _own_function(real: dict[str, Any]) -> Callable[[Any], bool]:
    """Return a test for functions that user code made: their builtins are not the real ones."""
    builtins_of = types.FunctionType.__dict__["__builtins__"].__get__
    function = types.FunctionType

    def own(obj: Any) -> bool:
        return type(obj) is function and builtins_of(obj) is not real

    return own


def _is_module(value: Any) -> bool:
    return issubclass(type(value), types.ModuleType) and _is_real(value)


def _is_real(module: Any) -> bool:
    """Whether this is a module that the import system loaded: facades have no spec."""
    return namespace_of_module(module).get("__spec__") is not None


def _replace(kind: type, name: str, admitted: Judge, allowed: Callable[[Any, Any], bool]) -> None:
    """Put a guarded property in the place of ``kind.name``.

    The asker reads it if it is ``admitted``, or if ``allowed(object, value)``. Writing follows the
    same rule, where the attribute can be written at all.
    """
    space = namespace_of(kind)
    original = space.get(name)
    if original is None:
        return
    get = original.__get__
    set_ = getattr(original, "__set__", None)

    def read(_self: object, obj: Any, _owner: object = None) -> Any:
        # On the class itself nothing is given away either: the descriptor is a key to all objects.
        # ``type`` is an instance of itself, and is asked as the class that it is.
        if obj is None or obj is kind:
            if admitted(1, name, kind):
                return original
            raise refusal(name)
        value = get(obj)
        if admitted(1, name, obj) or allowed(obj, value):
            return value
        raise refusal(name)

    def write(_self: object, obj: Any, value: Any) -> None:
        if not (admitted(1, name, obj) or (name != "__code__" and allowed(obj, value))):
            raise refusal(name)
        if set_ is None:
            raise AttributeError(f"attribute {name!r} is read-only")
        set_(obj, value)

    def remove(_self: object, _obj: Any) -> None:
        raise refusal(name)

    space[name] = _descriptor(read, write, remove)
    modified(kind)


def _descriptor(read: Any, write: Any, remove: Any) -> Any:
    """Return a data descriptor that keeps its functions in closures: it has no attributes."""
    space = {"__slots__": (), "__get__": read, "__set__": write, "__delete__": remove}
    return type("guarded", (), space)()


def _hide_modules_in_errors(is_trusted: Judge) -> None:
    """Let ``AttributeError.obj`` be anything but a module: a library's failed lookup leaks one.

    The interpreter itself writes the attribute, whoever runs.
    """
    space = namespace_of(AttributeError)
    original: Any = space["obj"]
    get = original.__get__

    def read(_self: object, error: Any, _owner: object = None) -> Any:
        if error is None:
            raise refusal("obj")
        value = get(error)
        return None if _is_module(value) and not is_trusted(1, "obj", error) else value

    def write(_self: object, error: Any, value: Any) -> None:
        original.__set__(error, value)

    def remove(_self: object, error: Any) -> None:
        original.__delete__(error)

    space["obj"] = _descriptor(read, write, remove)
    modified(AttributeError)


def _replace_reductions() -> None:
    """Have methods say that copying them takes the guarded ``getattr``.

    The interpreter takes the one of the frame that asks, and a library frame has the real one.
    """
    for kind in _REDUCED:
        space = namespace_of(kind)
        original = space.get("__reduce__")
        if original is not None:
            space["__reduce__"] = _reduction(original)
            modified(kind)


def _reduction(original: Any) -> Callable[[Any], Any]:
    real, guarded = getattr, guarded_getattr

    def __reduce__(self: Any) -> Any:  # noqa: N807 - its name
        answer = original(self)
        if type(answer) is tuple and answer[0] is real:
            return (guarded, *answer[1:])
        return answer

    return __reduce__


def _replace_class_dict(is_trusted: Judge) -> None:
    """Give user code the namespace of a class without what it could not name with a dot."""
    space = namespace_of(type)
    get = space["__dict__"].__get__
    proxy = types.MappingProxyType

    def read(_self: object, cls: Any, _owner: object = None) -> Any:
        if cls is None:
            raise refusal("__dict__")
        value = get(cls)
        if is_trusted(1):
            return value
        return proxy({k: v for k, v in value.items() if type(k) is not str or attribute_allowed(k)})

    def write(_self: object, _cls: Any, _value: Any) -> None:
        raise AttributeError("attribute '__dict__' of 'type' objects is not writable")

    space["__dict__"] = descriptor = _descriptor(read, write, write)
    modified(type)
    _mend_static_lookup(descriptor)


def _mend_static_lookup(descriptor: object) -> None:
    """Let ``inspect.getattr_static`` take our descriptor of a class's namespace for Python's own.

    It asks whether a metaclass put something else there, and then looks nothing up.
    """
    original, unshadowed = inspect._shadowed_dict, inspect._sentinel  # type: ignore[attr-defined]  # noqa: SLF001

    def shadowed(kind: type) -> Any:
        found = original(kind)
        return unshadowed if found is descriptor else found

    inspect._shadowed_dict = shadowed  # type: ignore[attr-defined]  # noqa: SLF001
