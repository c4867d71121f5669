"""Serves what the allowed modules read, evaluate or open on a cell's behalf.

A row of the table in ``docs/language.md`` is a function here. Where a module finds ``getattr``,
``eval`` or ``exec`` among its own globals before the builtins, a guarded one is put there; else its
function is replaced. Nothing is replaced in the interpreter's own types.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import copy
import cProfile
import dataclasses
import enum
import functools
import inspect
import logging
import operator
import pathlib
import pprint
import pstats
import string
import sys
import traceback
import types
import typing
import weakref
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from cellblock.analysis.attributes import COMMON, is_free
from cellblock.analysis.names import SHELL_OBJECT
from cellblock.guest import loop, rewriting
from cellblock.guest.guards.access import (
    REAL_BUILTINS,
    check_state,
    guarded_getattr,
    guarded_setattr,
    is_own,
    is_real_module,
    library_getattr,
    namespace_of_module,
    read,
    refusal,
    with_name,
)
from cellblock.guest.guards.errors import OperationViolation
from cellblock.guest.guards.freezing import freeze, freeze_loaded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.analysis import Rules


def harden(rules: Rules, guarded: dict[str, object]) -> None:
    """Harden the library for ``rules``; ``guarded`` are the builtins of user code. Call once."""
    for module in (dataclasses, functools, pprint):
        vars(module)["getattr"] = library_getattr
    for module in (copy, functools):
        vars(module)["setattr"] = guarded_setattr
    vars(enum)["getattr"] = _getattr_of_enum
    vars(string)["getattr"] = guarded_getattr
    vars(contextlib).update(getattr=_getattr_of_streams, setattr=_setattr_of_streams)
    vars(cProfile)["exec"] = _exec_profiled
    vars(traceback)["__import__"] = _import_loaded
    _harden_dataclasses(guarded)
    _harden_hints(rules, guarded)
    _harden_formats()
    _harden_copies()
    _harden_paths()
    _harden_printers()
    if not rules.raw_modules:  # packages do what they like, and these too
        _harden_dispatch()
        _harden_references()
        _keep_from_files()
        loop.harden_loops()
        # IPython's classes and ours are written to until all is prepared.
        freeze_loaded(sys.stdlib_module_names)


# --- attributes -------------------------------------------------------------------------------


def _getattr_of_enum(obj: Any, name: str, *default: Any) -> Any:
    if name != "__reduce_ex__":
        return library_getattr(obj, name, *default)
    # Asked of an enumeration's data type, and compared, to see who wrote it.
    found = getattr(obj, name, *default)
    in_c = type(found) in {types.MethodDescriptorType, types.BuiltinFunctionType}
    return _stand_in(id(found)) if in_c or type(found) is types.FunctionType else found


@functools.lru_cache(maxsize=64)
def _stand_in(_method: int) -> object:
    return object()


def _getattr_of_streams(obj: Any, name: str, *default: Any) -> Any:
    return getattr(obj, _stream(obj, name), *default)


def _setattr_of_streams(obj: Any, name: str, value: Any) -> None:
    setattr(obj, _stream(obj, name), value)


def _stream(obj: Any, name: str) -> str:
    """Refuse ``_stream = "modules"``: a subclass of ``redirect_stdout`` chooses the name."""
    is_stream = type(name) is str and name in {"stdout", "stderr", "stdin"}
    if issubclass(type(obj), ModuleType) and not is_stream:
        raise refusal(str(name))
    return name


def _harden_formats() -> None:
    """Check templates that the library formats as it is told to."""
    user_string: Any = collections.UserString
    user_string.format = lambda self, /, *args, **kws: read(self.data, "format")(*args, **kws)
    user_string.format_map = lambda self, mapping: read(self.data, "format_map")(mapping)

    def _format(self: Any, record: Any) -> Any:
        return read(self._fmt, "format")(**{**(self._defaults or {}), **record.__dict__})

    setattr(vars(logging)["StrFormatStyle"], "_format", _format)  # noqa: B010 - typed as private


def _harden_copies() -> None:
    """Copy as what they are: methods of the library's, and what the interpreter makes.

    Put together again they would be read by the real ``getattr``, by a name that they say.
    """
    shallow, deep = vars(copy)["_copy_dispatch"], vars(copy)["_deepcopy_dispatch"]
    deep_method = deep[types.MethodType]
    for kind in (
        types.BuiltinFunctionType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.MethodDescriptorType,
        types.MethodType,
        types.MethodWrapperType,
        types.WrapperDescriptorType,
    ):
        shallow[kind] = deep[kind] = lambda made, *_memo: made
    deep[types.MethodType] = lambda m, memo: deep_method(m, memo) if is_own(m) else m
    # A class's metaclass is asked whether it is one of the table's.
    del shallow[CodeType], deep[CodeType]
    reconstruct = vars(copy)["_reconstruct"]

    def _reconstruct(x: Any, memo: Any, func: Any, args: Any, *state: Any, **kwargs: Any) -> Any:
        check_state(state[0] if state else None)
        return reconstruct(x, memo, func, args, *state, **kwargs)

    vars(copy)["_reconstruct"] = _reconstruct


def _harden_dispatch() -> None:
    """Refuse ``singledispatch`` over classes that compare as they like.

    It looks through all subclasses of the registered classes, and compares each with what the
    metaclass of the argument's class says: that one would be handed every class of the process.
    """
    compose, methods = vars(functools)["_compose_mro"], ("__eq__", "__hash__", "__getattribute__")
    plain = {name: getattr(type, name) for name in methods}

    def compose_mro(cls: Any, registered: Any) -> Any:
        for meta in map(type, {id(k): k for k in (*type.mro(cls), *registered)}.values()):
            own = {n for k in type.mro(meta) if k not in {type, object} for n in vars(k)}
            if "__mro__" in own or any(getattr(meta, n) is not v for n, v in plain.items()):
                raise TypeError("singledispatch() over a class that compares as it likes")
        return compose(cls, registered)

    vars(functools)["_compose_mro"] = compose_mro


def _harden_references() -> None:
    """Refuse ``WeakMethod`` of the library's methods: it hands out what they are bound to."""
    new = weakref.WeakMethod.__new__

    def __new__(cls: Any, method: Any, callback: Any = None) -> Any:  # noqa: N807 - its name
        if not is_own(method):
            raise refusal("__self__")
        return new(cls, method, callback)

    setattr(weakref.WeakMethod, "__new__", __new__)  # noqa: B010 - typed as fixed


# --- text that is run -------------------------------------------------------------------------


def _exec_profiled(code: Any, space: dict[str, Any], local: Any) -> None:
    """Have ``%prun`` run what a cell would have run, where a cell would."""
    if rewriting.READ not in space.get("__builtins__", ()):
        raise refusal("runctx")
    if isinstance(code, str):
        tree: Any = rewriting.rewrite(ast.parse(code))
        code = compile(tree, "<prun>", "exec", dont_inherit=True)
    exec(code, space, local)  # noqa: S102 - checked as a magic's argument


def _import_loaded(name: str, *_: Any) -> ModuleType:
    """Return a module that is there, for the suggestions of a traceback.

    An ``ImportError`` says which, and Python 3.12 imports it to see what it holds.
    """
    if type(name) is not str or name not in sys.modules:
        raise ImportError(name)
    return sys.modules[name]


def _harden_dataclasses(guarded: dict[str, object]) -> None:
    """Take names alone as fields: methods are generated out of them, and run as a cell's."""
    space = vars(dataclasses)
    get_field, is_type = space["_get_field"], space["_is_type"]

    def _get_field(cls: Any, name: Any, *args: Any) -> Any:
        if type(name) is not str or not name.isidentifier():
            raise TypeError(f"Field names must be valid identifiers: {name!r}")
        if not (is_free(name) or name in COMMON):
            raise refusal(name)
        return get_field(cls, name, *args)

    def exec_(source: str, names: dict[str, Any], local: dict[str, Any]) -> None:
        if names.get("__builtins__") is not guarded:  # a class says what module it is from
            names = {"__name__": names.get("__name__"), "__builtins__": guarded}
        # This file's own future import would turn the annotations into text.
        tree: Any = rewriting.rewrite(ast.parse(source))
        exec(compile(tree, "<string>", "exec", dont_inherit=True), names, local)  # noqa: S102

    def _is_type(note: str, cls: type, module: ModuleType, kind: Any, judge: Any) -> bool:
        """Take a facade for its module in ``"dataclasses.InitVar[int]"``."""
        if is_type(note, cls, module, kind, judge):
            return True
        first, _, rest = note.partition(".")
        shown = namespace_of_module(sys.modules[cls.__module__]).get(first.strip())
        if type(shown) is not ModuleType or shown.__name__ != module.__name__:
            return False
        return bool(judge(namespace_of_module(shown).get(rest.partition("[")[0].strip()), module))

    space.update(_get_field=_get_field, exec=exec_, _is_type=_is_type)


def _harden_hints(rules: Rules, guarded: dict[str, object]) -> None:
    """Judge annotations that are text, and what they are evaluated in."""
    space = vars(typing)
    evaluate, final, reference = space["_eval_type"], space["_Final"], space["ForwardRef"]

    def eval_(code: Any, names: Mapping[str, Any] | None, local: Any = None) -> Any:
        if isinstance(code, str):
            code = compile(code, "<annotation>", "eval")
        _check_code(code)
        names, local = names or {}, {} if local is None else local
        if not rules.raw_modules:  # library annotations matter only where libraries come in
            names, local = _harmless(names), _harmless(local)
        return eval(code, {**names, "__builtins__": guarded}, local)  # noqa: S307 - see above

    def _eval_type(t: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(t, reference) and type(t) is not reference:
            raise TypeError("a ForwardRef by name alone")  # it would be handed the namespaces
        return evaluate(t, *args, **kwargs)

    def refuse_state(_self: Any) -> Any:
        raise refusal("__getstate__")

    def refuse_subclass(_cls: type, /, **_keys: object) -> None:
        raise TypeError("Cannot subclass special typing classes")

    space.update(eval=eval_, _eval_type=_eval_type)
    vars(inspect)["eval"] = eval_
    # A reference holds code; no cell derives from it, and it is copied as what it is.
    if not rules.raw_modules:
        final.__init_subclass__ = classmethod(refuse_subclass)
    reference.__copy__ = reference.__deepcopy__ = lambda self, *_memo: self
    reference.__getstate__ = refuse_state


def _check_code(code: CodeType) -> None:
    for name in code.co_names:
        if name == SHELL_OBJECT or not is_free(name):
            raise refusal(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _check_code(constant)


def _harmless(space: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a namespace without what no cell may hold: none of a library's, no real module."""
    if _is_library(space):
        return {}
    if type(space) is dict and any(map(is_real_module, space.values())):
        return {name: value for name, value in space.items() if not is_real_module(value)}
    return space


def _is_library(space: Any) -> bool:
    """Whether this is the namespace of a loaded module, not of user code."""
    if not isinstance(space, dict):
        return False
    holds = dict.get(space, "__builtins__")
    is_real = holds is REAL_BUILTINS or (type(holds) is ModuleType and vars(holds) is REAL_BUILTINS)
    return is_real or dict.get(space, "__spec__") is not None


# --- files and modules ------------------------------------------------------------------------


def _harden_paths() -> None:
    """Give pure paths properties of which no part reads any attribute (3.11)."""
    for name, value in list(vars(pathlib.PurePath).items()):
        getter = getattr(value, "fget", None)
        if isinstance(getter, operator.attrgetter):
            plain = with_name(lambda self, get=getter: get(self), name)
            setattr(pathlib.PurePath, name, property(plain, doc=value.__doc__))


def _harden_printers() -> None:
    """Give ``_repr_pretty_`` a printer whose tables are copies: the shell's own outlive a cell."""
    from IPython.lib.pretty import RepresentationPrinter  # noqa: PLC0415 - it is there by now

    printer: Any = RepresentationPrinter
    init = printer.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - its name
        init(self, *args, **kwargs)
        for table in ("singleton_pprinters", "type_pprinters", "deferred_pprinters"):
            setattr(self, table, dict(getattr(self, table)))

    printer.__init__ = __init__
    for kind in printer.__mro__:
        freeze(kind)


def _keep_from_files() -> None:
    """Make displays take data, and ``%prun`` what it measures: no file, no URL."""
    from IPython.core import display  # noqa: PLC0415 - as above

    shown: Any = display.DisplayObject

    def refuse(what: str, remedy: str) -> None:
        why = "would read or write a file or a URL"
        raise OperationViolation("operation-not-allowed", what, why, remedy)

    def _reload(self: Any) -> None:
        if self.filename is not None or self.url is not None:
            refuse(type(self).__name__, "Pass the data itself.")

    shown.reload = _reload
    vars(display)["_safe_exists"] = lambda _path: False
    for module in (pstats, cProfile):
        vars(module)["open"] = lambda *_a, **_k: refuse("Stats", "Print the statistics.")
