"""``getattr`` and its family, by the rule that the source check applies to a dot.

A name is *free*, *refused*, or *settled* (``analysis.names``): whether a cell may have a settled
attribute is decided for each object when it is read (``read``). A cell never gets a function that
reads any name; it gets a version that checks the name.

Classes of the library can't be changed (``freeze_loaded``). A method that user code puts into one
would be called by the library: ``collections.abc.Mapping.get = f`` gets ``os.environ`` sooner or
later. The interpreter has a flag for types that must not change (C API:
Py_TPFLAGS_IMMUTABLETYPE), which is set on each class of the standard library, IPython and the
guest.
"""

from __future__ import annotations

import ctypes
import sys
import types
from _string import formatter_field_name_split, formatter_parser
from functools import lru_cache
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from cellblock.analysis.findings import RULES
from cellblock.analysis.names import (
    COMMON,
    OF_FUNCTIONS,
    REFUSED_BUILTINS,
    SETTLED,
    attribute_allowed,
    is_free,
    remedy_for,
    why_refused,
)
from cellblock.guest.violations import (
    AttributeViolation,
    NameViolation,
    PolicyViolation,
    run_exempt,
)

if TYPE_CHECKING:
    from collections.abc import Callable


_RULE = RULES["attribute-not-allowed"]
#: Refused names that give a stand-in which raises when it is called, so that honest code such as
#: ``[getattr(x, n) for n in dir(x)]`` works.
_INERT = frozenset({"__getstate__", "__reduce__", "__reduce_ex__"})
#: Most names that are remembered as judged, since a cell can make any number.
_MOST = 4_096
_NESTING = 4
_NONE, _NOT_THERE = object(), object()

REAL_BUILTINS = vars(__import__("builtins"))
_getattr, _setattr, _delattr, _hasattr, _exact = getattr, setattr, delattr, hasattr, str.__str__
_namespaces: Any = types.SimpleNamespace
_builtins_of = types.FunctionType.__dict__["__builtins__"].__get__
_function_of = types.MethodType.__dict__["__func__"].__get__
namespace_of_module: Callable[[ModuleType], dict[str, Any]]
namespace_of_module = ModuleType.__dict__["__dict__"].__get__  # type: ignore[index]


def refusal(name: str) -> AttributeViolation:
    """Return the violation for the attribute ``name``, to be raised."""
    why, remedy = why_refused(name) or _RULE.why, remedy_for(name) or _RULE.remedy
    return AttributeViolation(_RULE.id, name, why, remedy)


def text_of(name: Any) -> str:
    """Return ``name`` as an exact str. A subclass could give another text each time."""
    if not issubclass(type(name), str):
        raise TypeError(f"attribute name must be string, not '{type(name).__name__}'")
    return _exact(name)


def check_name(name: Any) -> str:
    """Return ``name`` as an exact str. Raises AttributeViolation if the name is refused."""
    exact = text_of(name)
    if not attribute_allowed(exact):
        raise refusal(exact)
    return exact


#: Free names, by themselves: the value is the exact str that was judged. And the same as a set,
#: which is faster to ask.
judged_names: dict[str, str] = {}
free_names: set[str] = set()


def _judged(name: Any) -> str:
    """Return ``name`` as an exact str, and remember it if it is free."""
    exact = text_of(name)
    if len(judged_names) < _MOST and is_free(exact):
        judged_names[exact] = exact
        free_names.add(exact)
    return exact


# --- functions that cells call ----------------------------------------------------------------


def guarded_getattr(obj: Any, name: str, default: Any = _NONE, /) -> Any:
    """Do as ``getattr`` does, for allowed names."""
    try:
        free = judged_names[name]
    except KeyError:
        return _get(obj, _judged(name), default)
    return _getattr(obj, free) if default is _NONE else _getattr(obj, free, default)


def _get(obj: Any, name: str, default: Any) -> Any:
    """Do as ``getattr`` does, for a name that is not known to be free."""
    if name in _INERT and _hasattr(obj, name):
        return refusing(name, refusal(name))
    try:
        return read(obj, check_name(name))
    except AttributeError:
        if default is _NONE:
            raise
        return default


def guarded_hasattr(obj: Any, name: str, /) -> bool:
    """Do as ``hasattr`` does; return False for a refused attribute."""
    try:
        free = judged_names[name]
    except KeyError:
        return _get(obj, _judged(name), _NOT_THERE) is not _NOT_THERE
    return _hasattr(obj, free)


def guarded_setattr(obj: Any, name: str, value: Any, /) -> None:
    """Do as ``setattr`` does, for allowed names."""
    _setattr(obj, judged_names.get(name) or _check_change(obj, name), value)


def guarded_delattr(obj: Any, name: str, /) -> None:
    """Do as ``delattr`` does, for allowed names."""
    _delattr(obj, _check_change(obj, name))


def guarded_vars(*objects: Any) -> Any:
    """Do as ``vars`` does with an object. Raises NameViolation without one."""
    if not objects:
        why, remedy = REFUSED_BUILTINS["locals"]
        raise NameViolation("builtin-not-allowed", "vars()", why, remedy)
    (obj,) = objects
    if not _hasattr(obj, "__dict__"):
        raise TypeError("vars() argument must have __dict__ attribute")
    return read(obj, "__dict__")


def _check_change(obj: Any, name: str) -> str:
    """Return a name that may be set or deleted, as an exact str. Raises AttributeViolation."""
    exact = check_name(name)
    if exact in OF_FUNCTIONS and not is_own(obj):
        raise refusal(exact)
    return exact


def library_getattr(obj: Any, name: str, default: Any = _NONE, /) -> Any:
    """Do as ``getattr`` does, for library modules that take names from users.

    These modules may read any attribute that isn't refused, so also dunders that cells may not
    read. Whether they may read a name in ``SETTLED`` depends on the object, as for cells.
    """
    exact = text_of(name)
    if exact in SETTLED or why_refused(exact):
        return guarded_getattr(obj, exact, default)
    return _getattr(obj, exact) if default is _NONE else _getattr(obj, exact, default)


def refused_builtin(name: str, why: str, remedy: str) -> Callable[..., Any]:
    """Return the replacement of a refused builtin, which raises the reason when it is called."""
    refused = refusing(name, NameViolation("builtin-not-allowed", name, why, remedy))
    refused.__doc__ = f"Not allowed here: {why}."
    return refused


def refusing(name: str, violation: PolicyViolation) -> Callable[..., Any]:
    """Return a function called ``name`` that raises ``violation`` when it is called."""

    def refused(*_args: object, **_kwargs: object) -> None:
        raise type(violation)(violation.rule, violation.subject, violation.why, violation.remedy)

    return with_name(refused, name)


def with_name(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Give ``function`` the name of what it replaces, and return it."""
    function.__name__ = function.__qualname__ = name
    return function


for _guarded in (guarded_getattr, guarded_hasattr, guarded_setattr, guarded_delattr, guarded_vars):
    with_name(_guarded, _guarded.__name__.removeprefix("guarded_"))


# --- settled names: each function below decides about one, given its object and value ----------


def read(obj: Any, name: str) -> Any:
    """Return ``obj.name``. The name is not refused.

    Raises AttributeViolation if no cell may have this value.
    """
    value = _getattr(obj, name) if name != "obj" else _read_where_kept(obj, name)
    settle = _SETTLERS.get(name)
    return value if settle is None else settle(obj, name, value)


def is_own(function: Any) -> bool:
    """Return whether a cell made this function or method: its builtins are not the real ones."""
    if type(function) is types.MethodType:
        function = _function_of(function)
    return type(function) is types.FunctionType and _builtins_of(function) is not REAL_BUILTINS


def is_real_module(value: Any) -> bool:
    """Return whether ``value`` is an imported module, not a facade: those have no ``__spec__``."""
    is_module = issubclass(type(value), ModuleType)
    return is_module and namespace_of_module(value).get("__spec__") is not None


def _namespace(obj: Any, name: str, value: Any) -> Any:
    """Settle ``__dict__``: leave out values that no cell may have, and refuse a real module's."""
    if is_real_module(obj):
        raise refusal(name)
    if type(value) is MappingProxyType:
        return MappingProxyType({k: v for k, v in value.items() if _is_shown(k, v)})
    if type(value) is not dict or all(_is_shown(k, v, COMMON) for k, v in value.items()):
        return value
    return {k: v for k, v in value.items() if _is_shown(k, v, COMMON)}


def _is_shown(name: Any, value: Any, common: frozenset[str] = frozenset()) -> bool:
    if type(name) is not str or is_free(name):
        return True
    return not is_real_module(value) if name in common else name in SETTLED and is_own(value)


def dictionary(obj: Any) -> Any:
    """Return ``obj.__dict__`` itself.

    Raises AttributeViolation if it has a value that no cell may have.
    """
    space = _getattr(obj, "__dict__")
    if _namespace(obj, "__dict__", space) is not space:
        raise refusal("__dict__")
    return space


def of_whole(function: Callable[..., Any], position: int = 1) -> Callable[..., Any]:
    """Wrap a function that passes on the dictionary of its argument number ``position``.

    The function gets a namespace with the judged contents instead of the object, which could give
    another dictionary when asked again.
    """

    def checked(*args: Any, **kwargs: Any) -> Any:
        argument = args[position]
        kind = _namespaces
        if type(argument) is not kind and issubclass(type(argument), kind):
            # Of the same name, since that is shown.
            kind = type(type(argument).__name__, (kind,), {})
        return function(
            *args[:position], kind(**dictionary(argument)), *args[position + 1 :], **kwargs
        )

    return with_name(checked, function.__name__)


def _part(obj: Any, name: str, value: Any) -> Any:
    """Settle attributes of functions: allow a cell's own, and the object of a bound builtin."""
    in_c = name in {"__self__", "__func__"} and type(obj) in _BOUND_IN_C
    if is_own(obj) or (in_c and not is_real_module(value)):
        return value
    raise refusal(name)


_BOUND_IN_C = (types.BuiltinFunctionType, types.MethodWrapperType, classmethod, staticmethod)


def _by_name(_obj: Any, method: str, value: Any) -> Any:
    """Settle ``__getattribute__`` and the like: a cell's own, or a version that checks the name."""
    if is_own(value):
        return value
    bound: tuple[Any, ...] = (value.__self__,) if type(value) in _BOUND else ()

    def checked(*args: Any) -> Any:
        obj, name, *rest = (*bound, *args)
        name = check_name(name) if method in _READERS else _check_change(obj, name)
        if name == "obj" and method in _READERS:
            attribute = _stored_attribute(obj, name)
        else:
            attribute = value(*args[: 1 - len(bound)], name, *rest)
        settle = _SETTLERS.get(name) if method in _READERS else None
        return attribute if settle is None else settle(obj, name, attribute)

    return with_name(checked, method)


_READERS = ("__getattr__", "__getattribute__")
_BOUND = (types.MethodWrapperType, types.MethodType, types.BuiltinFunctionType)


def _unless_module(_obj: Any, name: str, value: Any) -> Any:
    """Settle ``parser`` and ``obj``, which may be modules: ``parser`` of a pure path is one."""
    if type(value) is types.MemberDescriptorType and value.__objclass__.__flags__ & IMMUTABLE:
        raise refusal(name)  # a library's descriptor reads the attribute of any object
    return None if is_real_module(value) else value


def _read_where_kept(obj: Any, name: str) -> Any:
    """Return ``obj.name`` from where it is stored, or from a cell's own ``__getattr__``.

    Used for the name ``obj``. The ``obj`` of an AttributeError is the object that lacked an
    attribute, which may be anything that the library came across while it formatted a template of
    the cell (``"{0.f.__globals__.x}"`` leads to a namespace). Proxies, methods and aliases would
    read the attribute of another object, and so hand this one out, too.
    """
    get, ask = (_own_method(type(obj), hook) for hook in ("__getattribute__", "__getattr__"))
    try:
        return (get or _stored_attribute)(obj, name)
    except AttributeError:
        if ask is None:
            raise
    return ask(obj, name)


def _own_method(kind: type, name: str) -> Callable[..., Any] | None:
    """Return the method of a class by this name if it is a cell's own function."""
    spaces = (_names_of(base) for base in _classes_of(kind))
    method = next((space[name] for space in spaces if name in space), None)
    return method if type(method) is types.FunctionType and is_own(method) else None


def _stored_attribute(obj: Any, name: str) -> Any:
    """Return ``obj.name`` if the object or its class stores it; None for an AttributeError.

    Raises AttributeError if it would be another object's attribute, or computed by a library.
    """
    kind, get = type(obj), object.__getattribute__
    if kind is super:
        kind, get = _class_of_super(obj) or kind, super.__getattribute__
    elif issubclass(kind, type):
        get = type.__getattribute__
    return None if issubclass(kind, AttributeError) else get(obj, name)


_names_of = type.__dict__["__dict__"].__get__
_classes_of = type.__dict__["__mro__"].__get__
_class_of_super = super.__dict__["__self_class__"].__get__


def check_state(state: Any) -> Any:
    """Return the pickling state of an object (PEP 307). Raises if a cell may not have all of it."""
    for state_part in state if type(state) is tuple else (state,):
        for key, value in state_part.items() if type(state_part) is dict else ():
            name = _exact(key) if issubclass(type(key), str) else ""
            if not is_free(name) and (name not in COMMON or is_real_module(value)):
                raise refusal(name)
    return state


def _template(_obj: Any, name: str, value: Any) -> Any:
    """Settle ``format`` and ``format_map``: allow texts that read free names only."""
    if type(value) is types.MethodDescriptorType and value.__objclass__ is str:
        return lambda self, /, *args, **kwargs: read(self, name)(*args, **kwargs)
    if type(value) is types.BuiltinFunctionType and issubclass(type(value.__self__), str):
        check_template(_exact(value.__self__))
    return value


@lru_cache(maxsize=512)
def check_template(template: str, depth: int = 0) -> None:
    """Check that a template reads only free attributes, also in nested format specs.

    Raises AttributeViolation.
    """
    if "." not in template:
        return
    try:
        for _, field, spec, _ in formatter_parser(template):
            for is_attribute, name in formatter_field_name_split(field)[1] if field else ():
                if is_attribute and not is_free(name):
                    raise refusal(name)
            if spec and "{" in spec and depth < _NESTING:
                check_template(spec, depth + 1)
    except ValueError:
        return  # not a template, as str.format itself will say


_SETTLERS: dict[str, Callable[[Any, str, Any], Any]] = {
    "__dict__": _namespace,
    **dict.fromkeys(OF_FUNCTIONS, _part),
    **dict.fromkeys((*_READERS, "__setattr__", "__delattr__"), _by_name),
    "obj": _unless_module,
    "parser": _unless_module,
    "format": _template,
    "format_map": _template,
}


#: Py_TPFLAGS_IMMUTABLETYPE; HEAPTYPE: made by a class statement or type(); BASETYPE: may be derived
#: from.
IMMUTABLE, HEAP, _BASE = 1 << 8, 1 << 9, 1 << 10
#: Offset of tp_flags in PyTypeObject on 64-bit builds. Checked against ``__flags__`` before use.
_OFFSET = 168
LIBRARY = frozenset({"IPython", *sys.stdlib_module_names})
#: Classes that set attributes of their own while they work. Only cells use the second.
_CHANGING = frozenset({"weakref.finalize", "difflib.HtmlDiff"})
_subclasses: Callable[[type], list[type]] = type.__dict__["__subclasses__"]


def freeze_loaded(packages: frozenset[str] = LIBRARY) -> None:
    """Freeze all existing classes of ``packages``, including those that functions have made."""
    stack: list[type] = [object]
    seen_ids = {id(object)}
    while stack:
        kind = stack.pop()
        for subclass in _subclasses(kind):
            if id(subclass) not in seen_ids:
                seen_ids.add(id(subclass))
                stack.append(subclass)
        module = kind.__module__
        if type(module) is str and module.partition(".")[0] in packages:
            freeze(kind)


def freeze(kind: type) -> None:
    """Make a class refuse changes of its attributes, unless it must change them itself."""
    changes = f"{kind.__module__}.{kind.__name__}" in _CHANGING
    if kind.__flags__ & (HEAP | IMMUTABLE) == HEAP and not changes:
        _set_flags(kind, kind.__flags__ | IMMUTABLE)


def forbid_subclasses(kind: type) -> None:
    """Forbid classes that derive from ``kind``, whose instances answer for another object.

    An instance of a subclass could store something under a name that is otherwise read from the
    other object (``rewriting.pattern``).
    """
    _set_flags(kind, kind.__flags__ & ~_BASE)


def _set_flags(kind: type, flags: int) -> None:
    field = run_exempt(ctypes.c_ulong.from_address, id(kind) + _OFFSET)
    if field.value == kind.__flags__:
        field.value = flags
