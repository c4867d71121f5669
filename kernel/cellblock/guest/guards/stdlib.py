"""Changes allowed modules of the library, so that they read, run and open only what cells may.

Each row of the table in ``docs/language.md`` is a function here. If a module uses ``getattr``,
``eval`` or ``exec``, a guarded version is put among the module's globals, where it is found before
the builtin. Otherwise a function of the module is replaced. The interpreter's own types are not
changed.
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


#: Attributes that contextlib may read and set: a subclass of redirect_stdout chooses a name.
_STREAMS = {name: name for name in ("__doc__", "stderr", "stdout")}

_bases_of, _flags_of = (type.__dict__[name].__get__ for name in ("__mro__", "__flags__"))


def harden(current: RulesInForce, guarded: dict[str, object]) -> None:
    """Harden the library for the rules. Called once, in the zygote.

    ``guarded`` are the builtins of user code. Modules that a zygote need not import are hardened
    when a cell imports them (``guest.replacements``).
    """
    rules = current.rules

    def run(text: str, names: dict[str, Any], local: dict[str, Any]) -> None:
        """Run text that the library makes or gets, by the rules of cells."""
        for finding in analyse(text := text_of(text), current.rules):
            raise violation_of(finding, current.rules)
        # The globals may be of another module: a class itself says which module it is from.
        if names.get("__builtins__") is not guarded:
            names = {"__name__": names.get("__name__"), "__builtins__": guarded}
        exec(rewriting.compiled(ast.parse(text), "<string>"), names, local)

    replacements: dict[ModuleType, dict[str, object]] = {
        contextlib: {
            "getattr": lambda of, name, *default: getattr(of, _STREAMS[name], *default),
            "setattr": lambda of, name, value: setattr(of, _STREAMS[name], value),
        },
        copy: {"setattr": guarded_setattr},
        cProfile: {"exec": run},
        dataclasses: {"getattr": library_getattr, "exec": run},
        enum: {"getattr": _getattr_of_enum},
        functools: {"getattr": library_getattr, "setattr": guarded_setattr},
        reprlib: {"getattr": library_getattr},  # the name is computed from a type's name
        string: {"getattr": guarded_getattr},
        # For hints, Python 3.12 imports the module that an ImportError names. Give it loaded ones.
        traceback: {"__import__": lambda name: sys.modules[text_of(name)]},
    }
    if sys.version_info >= (3, 14):
        replacements[functools]["setattr"] = _setattr_of_wraps
        _pattern = string.Template.pattern  # reading it sets attributes, which is impossible later
    if not rules.raw_modules:  # raw packages can open files anyhow
        remedy = "Log to the default stream, or to an io.StringIO."
        replacements[logging] = {"FileHandler": refused_file("logging.FileHandler", remedy)}
        replacements[pstats] = {"open": refused_file("open", "Print the statistics.")}
        replacements[cProfile] |= replacements[pstats]
    for module, names in replacements.items():
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
        # Classes of IPython and the guest are still changed until the zygote is prepared. They are
        # frozen later (``audit_hook.arming``).
        freeze_loaded(sys.stdlib_module_names)
        alias = types.GenericAlias
        for kind in (super, typing.ForwardRef, alias, *alias.__subclasses__()):
            forbid_subclasses(kind)


# --- attributes -------------------------------------------------------------------------------


def _getattr_of_enum(obj: Any, name: str, *default: Any) -> Any:
    """Serve as ``getattr`` of the module ``enum``."""
    name = text_of(name)  # a subclass of str could claim to equal another name
    if name != "__reduce_ex__":
        return library_getattr(obj, name, *default)
    # ``enum`` reads it from a data type and compares it, to see which class defines it. The id of
    # a method is enough for that.
    method = getattr(obj, name, *default)
    methods = {types.FunctionType, types.MethodDescriptorType, types.BuiltinFunctionType}
    return id(method) if type(method) in methods else method


def _setattr_of_wraps(obj: Any, name: str, value: Any) -> None:
    """Serve as ``setattr`` of functools, which from 3.14 on also copies ``__annotate__``."""
    is_annotate = type(name) is str and name == "__annotate__"
    is_plain = is_annotate and not issubclass(type(obj), type | ModuleType)
    (setattr if is_plain else guarded_setattr)(obj, name, value)


def _harden_dictionaries() -> None:
    """Check the dictionaries of objects that logging and cached_property use.

    A logging style passes a record's dictionary to a template, which may be a cell's.
    """
    for style in ("PercentStyle", "StrFormatStyle", "StringTemplateStyle"):
        kind = vars(logging)[style]
        type.__setattr__(kind, "_format", of_whole(vars(kind)["_format"]))
    type.__setattr__(functools.cached_property, "__get__", get_cached)


def _harden_enums() -> None:
    """Keep EnumType from looking up names and passing on dictionaries that cells may not have."""
    kind: Any = enum.EnumType
    make = kind.__new__
    add = vars(kind).get("_add_member_")

    def made(meta: type, *args: Any, **kwargs: Any) -> Any:
        # EnumType copies the dictionary of what the next metaclass's __new__ returns into a
        # namespace that a cell has. So there must be no such __new__ of a cell.
        after = _bases_of(meta)[_bases_of(meta).index(kind) + 1 :]
        if any("__new__" in vars(base) and not _flags_of(base) & IMMUTABLE for base in after):
            raise TypeError("EnumType before a metaclass that has a __new__ of its own")
        return make(meta, *args, **kwargs)

    kind.__new__ = made
    if add is not None:  # Python 3.13
        kind._add_member_ = lambda cls, name, member: add(cls, _check_field(name), member)


def _harden_formats() -> None:
    """Check templates of cells that the library formats: UserString's and logging's."""
    text: Any = collections.UserString
    text.format = lambda self, /, *args, **kws: read(self.data, "format")(*args, **kws)
    text.format_map = lambda self, mapping: read(self.data, "format_map")(mapping)

    def format_record(self: Any, record: Any) -> Any:
        return read(self._fmt, "format")(**{**(self._defaults or {}), **record.__dict__})

    type.__setattr__(vars(logging)["StrFormatStyle"], "_format", format_record)


def _harden_copies() -> None:
    """Make ``copy`` return the library's methods as they are, and check states of objects."""
    parts = vars(copy)
    deep = parts["_deepcopy_dispatch"]
    reconstruct = parts["_reconstruct"]
    deep_method = deep[types.MethodType]
    deep[types.MethodType] = lambda m, memo: deep_method(m, memo) if is_own(m) else m
    # A look-up in these tables compares classes by a metaclass's ``__eq__``, which may be a cell's.
    # So the tables must not contain the type of code objects.
    if sys.version_info >= (3, 14):
        parts["_copy_atomic_types"].remove(CodeType)
        parts["_atomic_types"].remove(CodeType)
    else:
        del parts["_copy_dispatch"][CodeType], deep[CodeType]

    def _reconstruct(x: Any, memo: Any, func: Any, args: Any, *state: Any, **kwargs: Any) -> Any:
        if func is getattr:  # it would read a method or descriptor by a name that a cell chooses
            return x
        check_state(state[0] if state else None)
        return reconstruct(x, memo, func, args, *state, **kwargs)

    parts["_reconstruct"] = _reconstruct


def _harden_dispatch() -> None:
    """Refuse ``singledispatch`` over a class with a cell's metaclass: it would get all classes."""
    compose = vars(functools)["_compose_mro"]

    def compose_mro(cls: Any, registered: Any) -> Any:
        if not all(_flags_of(type(kind)) & IMMUTABLE for kind in (*_bases_of(cls), *registered)):
            raise TypeError("singledispatch() over a class with a metaclass of its own")
        return compose(cls, registered)

    vars(functools)["_compose_mro"] = compose_mro


# --- text that the library runs ---------------------------------------------------------------


def _harden_dataclasses() -> None:
    """Check the names of fields, from which dataclasses generates methods that set them."""
    space = vars(dataclasses)
    get_field = space["_get_field"]
    is_type = space["_is_type"]

    def _get_field(cls: Any, name: Any, *args: Any) -> Any:
        return get_field(cls, _check_field(name), *args)

    def _dataclass_setstate(self: Any, state: Any) -> None:
        for field, value in zip(dataclasses.fields(self), state, strict=False):
            object.__setattr__(self, _check_field(field.name), value)

    def _is_type(note: str, cls: type, module: ModuleType, kind: Any, judge: Any) -> bool:
        """Recognise a type in ``"dataclasses.InitVar[int]"`` if the cell has a facade there."""
        names = namespace_of_module(sys.modules.get(cls.__module__, module))
        facade = names.get(note.partition(".")[0].strip())
        if type(facade) is ModuleType and facade.__name__ == module.__name__:
            return bool(is_type(note, cls, facade, kind, lambda found, _: judge(found, module)))
        return bool(is_type(note, cls, module, kind, judge))

    space.update(_get_field=_get_field, _is_type=_is_type)
    space["_dataclass_setstate"] = _dataclass_setstate


def _check_field(name: Any) -> str:
    """Return a field's name as an exact str. Raises AttributeViolation if it is not free."""
    exact = text_of(name)
    if not (is_free(exact) or exact in COMMON):
        raise refusal(exact)
    return exact


def _harden_hints(rules: Rules, guarded: dict[str, object]) -> None:
    """Judge annotations that are text, and the namespaces in which they are evaluated."""
    space = vars(typing)
    evaluate = space["_eval_type"]
    reference = space["ForwardRef"]

    def eval_(code: Any, names: Mapping[str, Any] | None, local: Any = None) -> Any:
        if type(code) is not CodeType:  # text, as eval() would also take bytes for source
            code = compile(text_of(code), "<annotation>", "eval")
        _check_code(code)
        names, local = names or {}, {} if local is None else local
        if not rules.raw_modules:  # raw libraries need namespaces as they are for annotations
            names, local = _harmless(names), _harmless(local)
        return eval(code, {**names, "__builtins__": guarded}, local)

    def _eval_type(t: Any, *args: Any, **kwargs: Any) -> Any:
        # An object of a cell's class may claim to be a ForwardRef, and would get the namespaces.
        is_harmless = rules.raw_modules or _flags_of(type(t)) & IMMUTABLE
        return evaluate(t, *args, **kwargs) if is_harmless else t

    # When an alias is copied, ``typing`` looks up the name that the alias gives for itself. It must
    # find public names only.
    public = {name: getattr(typing, name) for name in typing.__all__}
    space.update(eval=eval_, _eval_type=_eval_type, globals=lambda: public)
    vars(inspect)["eval"] = eval_
    if sys.version_info >= (3, 14):
        # annotationlib makes functions of an annotation's own code, which was judged. That must not
        # be a breach.
        function = functools.partial(run_exempt, types.FunctionType)
        stands_in = SimpleNamespace(**(vars(types) | {"FunctionType": function}))
        vars(sys.modules["annotationlib"]).update(eval=eval_, types=stands_in)
        reference.evaluate = evaluation(eval_)
    # A reference has a code object, so it must not be copied part by part.
    reference.__copy__ = reference.__deepcopy__ = lambda self, *_memo: self


def _check_code(code: CodeType) -> None:
    for name in code.co_names:
        if name == SHELL_OBJECT or not is_free(name):
            raise refusal(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _check_code(constant)


def _harmless(space: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a namespace without real modules, or an empty one if it is a library module's.

    ``typing`` evaluates a class's annotations in the namespace of the module that the class names
    as its own, and a cell can give a class the name of any module. A mapping that is not exactly a
    dict keeps its modules.
    """
    if isinstance(space, dict):
        held_builtins = dict.get(space, "__builtins__")
        is_real = (
            vars(held_builtins) if type(held_builtins) is ModuleType else held_builtins
        ) is REAL_BUILTINS
        if is_real or dict.get(space, "__spec__") is not None or _is_of_module(space):
            return {}
    if type(space) is not dict:
        return space
    return {name: value for name, value in space.items() if not is_real_module(value)}


def _is_of_module(space: dict[str, Any]) -> bool:
    """Return whether this is the namespace of a loaded module other than the cells' ``__main__``.

    Compared by identity, since a module that was not loaded from a file may have neither a spec nor
    builtins.
    """
    for name, module in tuple(sys.modules.items()):
        if issubclass(type(module), ModuleType) and namespace_of_module(module) is space:
            return name != "__main__"
    return False


# --- files and modules ------------------------------------------------------------------------


def _harden_paths() -> None:
    """Remove a module, and properties that contain an ``attrgetter`` (3.11), from pure paths."""
    if "ntpath" in vars(pathlib.PureWindowsPath):  # 3.14 imports it there
        type.__delattr__(pathlib.PureWindowsPath, "ntpath")
    for name, value in list(vars(pathlib.PurePath).items()):
        if isinstance(get := getattr(value, "fget", None), operator.attrgetter):
            plain = property(lambda self, get=get: get(self), doc=value.__doc__)  # type: ignore[misc]
            setattr(pathlib.PurePath, name, plain)
