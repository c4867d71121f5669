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
import pstats
import reprlib
import string
import sys
import traceback
import types
import typing
from types import CodeType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from cellblock.analysis import analyse
from cellblock.analysis.names import COMMON, SHELL_OBJECT, is_free
from cellblock.guest import loop, output, rewriting
from cellblock.guest.guards.access import (
    IMMUTABLE,
    REAL_BUILTINS,
    check_state,
    forbid_subclasses,
    freeze_loaded,
    guarded_getattr,
    guarded_setattr,
    is_own,
    is_real_module,
    library_getattr,
    namespace_of_module,
    of_whole,
    read,
    refusal,
    text_of,
)
from cellblock.guest.replacements import (
    evaluation,
    get_cached,
    harden_displays,
    refused_file,
)
from cellblock.guest.violations import run_exempt, violation_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cellblock.analysis import Rules
    from cellblock.guest.runner import RulesInForce


#: What contextlib reads and writes by name: a subclass of redirect_stdout chooses one.
_STREAMS = {name: name for name in ("__doc__", "stderr", "stdout")}

_bases_of, _flags_of = (type.__dict__[name].__get__ for name in ("__mro__", "__flags__"))


def harden(current: RulesInForce, guarded: dict[str, object]) -> None:
    """Harden the library for the rules; ``guarded`` are the builtins of user code. Call once.

    What a zygote need not load is hardened when a cell imports it: ``guest.replacements``.
    """
    rules = current.rules

    def run(text: str, names: dict[str, Any], local: dict[str, Any]) -> None:
        """Do as ``exec`` does, as a cell's: for text that the library makes or is told."""
        for finding in analyse(text := text_of(text), current.rules):
            raise violation_of(finding, current.rules)
        if names.get("__builtins__") is not guarded:  # a class says what module it is from
            names = {"__name__": names.get("__name__"), "__builtins__": guarded}
        exec(rewriting.compiled(ast.parse(text), "<string>"), names, local)

    found: dict[ModuleType, dict[str, object]] = {
        contextlib: {
            "getattr": lambda of, name, *default: getattr(of, _STREAMS[name], *default),
            "setattr": lambda of, name, value: setattr(of, _STREAMS[name], value),
        },
        copy: {"setattr": guarded_setattr},
        cProfile: {"exec": run},
        dataclasses: {"getattr": library_getattr, "exec": run},
        enum: {"getattr": _getattr_of_enum},
        functools: {"getattr": library_getattr, "setattr": guarded_setattr},
        reprlib: {"getattr": library_getattr},  # of a name that says what a prefix makes of it
        string: {"getattr": guarded_getattr},
        # Python 3.12 imports what an ImportError names, for hints; what is loaded will do.
        traceback: {"__import__": lambda name: sys.modules[text_of(name)]},
    }
    if sys.version_info >= (3, 14):
        found[functools]["setattr"] = _setattr_of_wraps
        _pattern = string.Template.pattern  # sets attributes of the class, which is frozen below
    if not rules.raw_modules:  # packages do what they like, and these too
        remedy = "Log to the default stream, or to an io.StringIO."
        found[logging] = {"FileHandler": refused_file("logging.FileHandler", remedy)}
        found[pstats] = {"open": refused_file("open", "Print the statistics.")}
        found[cProfile] |= found[pstats]
    for module, names in found.items():
        vars(module).update(names)
    _harden_dataclasses()
    _harden_hints(rules, guarded)
    _harden_formats()
    _harden_copies()
    _harden_paths()
    _harden_dictionaries()
    output.harden_printers()
    if not rules.raw_modules:
        _harden_dispatch()
        _harden_enums()
        harden_displays()
        loop.harden_loops()
        # IPython's classes and ours are written to until all is prepared.
        freeze_loaded(sys.stdlib_module_names)
        alias = types.GenericAlias
        for kind in (super, typing.ForwardRef, alias, *alias.__subclasses__()):
            forbid_subclasses(kind)


# --- attributes -------------------------------------------------------------------------------


def _getattr_of_enum(obj: Any, name: str, *default: Any) -> Any:
    name = text_of(name)  # which a subclass may say that it equals
    if name != "__reduce_ex__":
        return library_getattr(obj, name, *default)
    # Asked of an enumeration's data type, and compared, to see who wrote it.
    found = getattr(obj, name, *default)
    methods = {types.FunctionType, types.MethodDescriptorType, types.BuiltinFunctionType}
    return id(found) if type(found) in methods else found


def _setattr_of_wraps(obj: Any, name: str, value: Any) -> None:
    """Write what ``wraps`` copies since 3.14, too: ``__annotate__`` is a plain function."""
    is_annotate = type(name) is str and name == "__annotate__"
    is_plain = is_annotate and not issubclass(type(obj), type | ModuleType)
    (setattr if is_plain else guarded_setattr)(obj, name, value)


def _harden_dictionaries() -> None:
    """Check what objects these hand on the dictionary of, to a template of a cell's own, say."""
    for style in ("PercentStyle", "StrFormatStyle", "StringTemplateStyle"):
        kind = vars(logging)[style]
        type.__setattr__(kind, "_format", of_whole(vars(kind)["_format"]))
    type.__setattr__(functools.cached_property, "__get__", get_cached)


def _harden_enums() -> None:
    """Have EnumType look up no name, and hand on no dictionary, that cells may not have."""
    kind: Any = enum.EnumType
    make, add = kind.__new__, vars(kind).get("_add_member_")

    def made(meta: type, *args: Any, **kwargs: Any) -> Any:
        # What the next metaclass returns has its dictionary put into a namespace that it was given.
        after = _bases_of(meta)[_bases_of(meta).index(kind) + 1 :]
        if any("__new__" in vars(each) and not _flags_of(each) & IMMUTABLE for each in after):
            raise TypeError("EnumType before a metaclass that has a __new__ of its own")
        return make(meta, *args, **kwargs)

    kind.__new__ = made
    if add is not None:  # Python 3.13
        kind._add_member_ = lambda cls, name, member: add(cls, _check_field(name), member)


def _harden_formats() -> None:
    """Check templates that the library formats as it is told to."""
    text: Any = collections.UserString
    text.format = lambda self, /, *args, **kws: read(self.data, "format")(*args, **kws)
    text.format_map = lambda self, mapping: read(self.data, "format_map")(mapping)

    def format_record(self: Any, record: Any) -> Any:
        return read(self._fmt, "format")(**{**(self._defaults or {}), **record.__dict__})

    type.__setattr__(vars(logging)["StrFormatStyle"], "_format", format_record)


def _harden_copies() -> None:
    """Copy methods of the library's as what they are, and hand out no state of what is not free."""
    parts = vars(copy)
    deep, reconstruct = parts["_deepcopy_dispatch"], parts["_reconstruct"]
    deep_method = deep[types.MethodType]
    deep[types.MethodType] = lambda m, memo: deep_method(m, memo) if is_own(m) else m
    # A class's metaclass is asked whether it is one of the table's: none holds the type of code.
    if sys.version_info >= (3, 14):
        parts["_copy_atomic_types"].remove(CodeType)
        parts["_atomic_types"].remove(CodeType)
    else:
        del parts["_copy_dispatch"][CodeType], deep[CodeType]

    def _reconstruct(x: Any, memo: Any, func: Any, args: Any, *state: Any, **kwargs: Any) -> Any:
        if func is getattr:  # which would read a method, or a descriptor, by a name that it says
            return x
        check_state(state[0] if state else None)
        return reconstruct(x, memo, func, args, *state, **kwargs)

    parts["_reconstruct"] = _reconstruct


def _harden_dispatch() -> None:
    """Refuse ``singledispatch`` over a metaclass of a cell's: it would be handed every class."""
    compose = vars(functools)["_compose_mro"]

    def compose_mro(cls: Any, registered: Any) -> Any:
        if not all(_flags_of(type(kind)) & IMMUTABLE for kind in (*_bases_of(cls), *registered)):
            raise TypeError("singledispatch() over a class with a metaclass of its own")
        return compose(cls, registered)

    vars(functools)["_compose_mro"] = compose_mro


# --- text that is run -------------------------------------------------------------------------


def _harden_dataclasses() -> None:
    """Check the names of fields: methods are generated out of them, and set them."""
    space = vars(dataclasses)
    get_field, is_type = space["_get_field"], space["_is_type"]

    def _get_field(cls: Any, name: Any, *args: Any) -> Any:
        return get_field(cls, _check_field(name), *args)

    def _dataclass_setstate(self: Any, state: Any) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=False):
            object.__setattr__(self, _check_field(field.name), value)

    def _is_type(note: str, cls: type, module: ModuleType, kind: Any, judge: Any) -> bool:
        """Take a facade for its module in ``"dataclasses.InitVar[int]"``."""
        names = namespace_of_module(sys.modules.get(cls.__module__, module))
        shown = names.get(note.partition(".")[0].strip())
        if type(shown) is ModuleType and shown.__name__ == module.__name__:
            return bool(is_type(note, cls, shown, kind, lambda found, _: judge(found, module)))
        return bool(is_type(note, cls, module, kind, judge))

    space.update(_get_field=_get_field, _is_type=_is_type)
    space["_dataclass_setstate"] = _dataclass_setstate


def _check_field(name: Any) -> str:
    """Return a field's name as an exact str. Raises AttributeViolation where it is not free."""
    exact = text_of(name)
    if not (is_free(exact) or exact in COMMON):
        raise refusal(exact)
    return exact


def _harden_hints(rules: Rules, guarded: dict[str, object]) -> None:
    """Judge annotations that are text, and what they are evaluated in."""
    space = vars(typing)
    evaluate, reference = space["_eval_type"], space["ForwardRef"]

    def eval_(code: Any, names: Mapping[str, Any] | None, local: Any = None) -> Any:
        if type(code) is not CodeType:  # bytes are source to eval(), too
            code = compile(text_of(code), "<annotation>", "eval")
        _check_code(code)
        names, local = names or {}, {} if local is None else local
        if not rules.raw_modules:  # library annotations matter only where libraries come in
            names, local = _harmless(names), _harmless(local)
        return eval(code, {**names, "__builtins__": guarded}, local)

    def _eval_type(t: Any, *args: Any, **kwargs: Any) -> Any:
        # One of a cell's own class may say that it is a ForwardRef, to be handed the namespaces.
        known = rules.raw_modules or _flags_of(type(t)) & IMMUTABLE
        return evaluate(t, *args, **kwargs) if known else t

    # What an alias says that it is called is looked up, when it is copied.
    public = {name: getattr(typing, name) for name in typing.__all__}
    space.update(eval=eval_, _eval_type=_eval_type, globals=lambda: public)
    vars(inspect)["eval"] = eval_
    if sys.version_info >= (3, 14):
        # Of an annotation's own code, which has been judged, with names that stand for values.
        function = functools.partial(run_exempt, types.FunctionType)
        stands_in = SimpleNamespace(**(vars(types) | {"FunctionType": function}))
        vars(sys.modules["annotationlib"]).update(eval=eval_, types=stands_in)
        reference.evaluate = evaluation(eval_)
    # A reference holds code, and is copied as what it is.
    reference.__copy__ = reference.__deepcopy__ = lambda self, *_memo: self


def _check_code(code: CodeType) -> None:
    for name in code.co_names:
        if name == SHELL_OBJECT or not is_free(name):
            raise refusal(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _check_code(constant)


def _harmless(space: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a namespace without what no cell may hold; nothing of a module's that is not a cell's.

    A class says itself which module it is from, and ``typing`` evaluates its annotations in
    whatever is loaded under that name.
    """
    if isinstance(space, dict):
        held = dict.get(space, "__builtins__")
        is_real = (vars(held) if type(held) is ModuleType else held) is REAL_BUILTINS
        if is_real or dict.get(space, "__spec__") is not None or _is_of_module(space):
            return {}
    if type(space) is not dict:
        return space
    return {name: value for name, value in space.items() if not is_real_module(value)}


def _is_of_module(space: dict[str, Any]) -> bool:
    """Return whether this is the namespace of a loaded module, the cells' own aside.

    By its identity: modules that nothing was loaded for have neither a spec nor builtins.
    """
    for name, module in tuple(sys.modules.items()):
        if issubclass(type(module), ModuleType) and namespace_of_module(module) is space:
            return name != "__main__"
    return False


# --- files and modules ------------------------------------------------------------------------


def _harden_paths() -> None:
    """Give pure paths properties of which no part reads any attribute (3.11), and no module."""
    if "ntpath" in vars(pathlib.PureWindowsPath):  # 3.14 imports it there
        type.__delattr__(pathlib.PureWindowsPath, "ntpath")
    for name, value in list(vars(pathlib.PurePath).items()):
        if isinstance(get := getattr(value, "fget", None), operator.attrgetter):
            plain = property(lambda self, get=get: get(self), doc=value.__doc__)  # type: ignore[misc]
            setattr(pathlib.PurePath, name, plain)
