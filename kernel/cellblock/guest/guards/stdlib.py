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
import importlib
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
from types import CodeType, ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from cellblock.analysis import analyse
from cellblock.analysis.attributes import COMMON, is_free
from cellblock.analysis.names import SHELL_OBJECT
from cellblock.guest import loop, output, rewriting
from cellblock.guest.audit_exempt import run_exempt
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
    refused_attribute,
    refused_builtin,
)
from cellblock.guest.guards.freezing import freeze_loaded
from cellblock.guest.violations import OperationViolation, violation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.analysis import Rules
    from cellblock.guest.runner import RulesInForce


_IN_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.MethodWrapperType)
_FIELDS = (types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType)


def harden(current: RulesInForce, guarded: dict[str, object]) -> None:
    """Harden the library for the rules; ``guarded`` are the builtins of user code. Call once.

    What a zygote need not load is hardened when a cell imports it: ``prepare``.
    """
    rules = current.rules
    _PREPARE["timeit"] = lambda module: _judge_timed(module, current, guarded)
    if not rules.raw_modules:  # whose own files these open, too
        _PREPARE.update(_IN_MEMORY)
    for module in (dataclasses, functools, pprint):
        vars(module)["getattr"] = library_getattr
    for module in (copy, functools):
        vars(module)["setattr"] = guarded_setattr
    if sys.version_info >= (3, 14):
        vars(functools)["setattr"] = _setattr_of_wraps
        _pattern = string.Template.pattern  # sets attributes of the class, which is frozen below
    vars(enum)["getattr"] = _getattr_of_enum
    vars(string)["getattr"] = guarded_getattr
    vars(contextlib)["getattr"] = lambda o, name, *default: getattr(o, _stream(o, name), *default)
    vars(contextlib)["setattr"] = lambda o, name, value: setattr(o, _stream(o, name), value)
    vars(cProfile)["exec"] = _exec_profiled
    vars(traceback)["__import__"] = _import_loaded
    _harden_dataclasses(guarded)
    _harden_hints(rules, guarded)
    _harden_formats()
    _harden_copies()
    _harden_paths()
    output.harden_printers()
    if not rules.raw_modules:  # packages do what they like, and these too
        _harden_dispatch()
        _harden_references()
        output.harden_displays()
        refused = refused_builtin("open", "would read or write a file", "Print the statistics.")
        vars(pstats)["open"] = vars(cProfile)["open"] = refused
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


def _setattr_of_wraps(obj: Any, name: str, value: Any) -> None:
    """Write what ``wraps`` copies since 3.14, too: ``__annotate__`` is a plain function."""
    is_annotate = type(name) is str and name == "__annotate__"
    is_plain = is_annotate and not issubclass(type(obj), type | ModuleType)
    (setattr if is_plain else guarded_setattr)(obj, name, value)


@functools.lru_cache(maxsize=64)
def _stand_in(_method: int) -> object:
    return object()


def _stream(obj: Any, name: str) -> str:
    """Refuse ``_stream = "modules"``: a subclass of ``redirect_stdout`` chooses the name."""
    is_stream = type(name) is str and name in {"stdout", "stderr", "stdin"}
    if issubclass(type(obj), ModuleType) and not is_stream:
        raise refusal(str(name))
    return name


def _harden_formats() -> None:
    """Check templates that the library formats as it is told to."""
    text: Any = collections.UserString
    text.format = lambda self, /, *args, **kws: read(self.data, "format")(*args, **kws)
    text.format_map = lambda self, mapping: read(self.data, "format_map")(mapping)

    def format_record(self: Any, record: Any) -> Any:
        return read(self._fmt, "format")(**{**(self._defaults or {}), **record.__dict__})

    type.__setattr__(vars(logging)["StrFormatStyle"], "_format", format_record)


def _harden_copies() -> None:
    """Copy as what they are: methods of the library's, and what the interpreter makes.

    Put together again they would be read by the real ``getattr``, by a name that they say.
    """
    parts, kinds = vars(copy), (*_IN_C, *_FIELDS, types.MethodType)
    deep, reconstruct = parts["_deepcopy_dispatch"], parts["_reconstruct"]
    deep_method = deep[types.MethodType]
    # A class's metaclass is asked whether it is one of the table's: none holds the type of code.
    if sys.version_info >= (3, 14):
        for atomic in (parts["_copy_atomic_types"], parts["_atomic_types"]):
            atomic.update(kinds)
            atomic.remove(CodeType)
        parts["_atomic_types"].remove(types.MethodType)
    else:
        for table in (parts["_copy_dispatch"], deep):
            table.update(dict.fromkeys(kinds, lambda made, *_memo: made))
            del table[CodeType]
    deep[types.MethodType] = lambda m, memo: deep_method(m, memo) if is_own(m) else m

    def _reconstruct(x: Any, memo: Any, func: Any, args: Any, *state: Any, **kwargs: Any) -> Any:
        check_state(state[0] if state else None)
        return reconstruct(x, memo, func, args, *state, **kwargs)

    vars(copy)["_reconstruct"] = _reconstruct


def _harden_dispatch() -> None:
    """Refuse ``singledispatch`` over classes that compare as they like.

    It compares all subclasses of the registered classes with what the metaclass of the argument's
    class says: that one would be handed every class of the process.
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
    reference: Any = weakref.WeakMethod
    new = reference.__new__

    def new_of_own(cls: Any, method: Any, callback: Any = None) -> Any:
        if not is_own(method):
            raise refusal("__self__")
        return new(cls, method, callback)

    reference.__new__ = new_of_own


# --- text that is run -------------------------------------------------------------------------


def _exec_profiled(code: Any, space: dict[str, Any], local: Any) -> None:
    """Have ``%prun`` run what a cell would have run, where a cell would."""
    if rewriting.READ not in space.get("__builtins__", ()):
        raise refusal("runctx")
    if isinstance(code, str):
        code = rewriting.compiled(ast.parse(code), "<prun>")
    exec(code, space, local)


def _import_loaded(name: str) -> ModuleType:
    """Return a loaded module: Python 3.12 imports the one that an ImportError names, for hints."""
    if type(name) is not str or name not in sys.modules:  # no word of a cell's own name type
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
        exec(rewriting.compiled(ast.parse(source), "<string>"), names, local)

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
        return eval(code, {**names, "__builtins__": guarded}, local)

    def _eval_type(t: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(t, reference) and type(t) is not reference:
            raise TypeError("a ForwardRef by name alone")  # it would be handed the namespaces
        return evaluate(t, *args, **kwargs)

    def refuse_subclass(_cls: type, /, **_keys: object) -> None:
        raise TypeError("Cannot subclass special typing classes")

    space.update(eval=eval_, _eval_type=_eval_type)
    vars(inspect)["eval"] = eval_
    if sys.version_info >= (3, 14):
        # Of an annotation's own code, which has been judged, with names that stand for values.
        function = functools.partial(run_exempt, types.FunctionType)
        stands_in = SimpleNamespace(**(vars(types) | {"FunctionType": function}))
        vars(sys.modules["annotationlib"]).update(eval=eval_, types=stands_in)
        reference.evaluate = _evaluation(eval_)
    # A reference holds code; no cell derives from it, and it is copied as what it is.
    if not rules.raw_modules:
        final.__init_subclass__ = classmethod(refuse_subclass)
    reference.__copy__ = reference.__deepcopy__ = lambda self, *_memo: self
    reference.__getstate__ = refused_attribute("__getstate__")


def _evaluation(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``ForwardRef.evaluate`` of Python 3.14, whose own one reads names past ``eval``."""
    forms = sys.modules["annotationlib"].Format

    def evaluate_reference(self: Any, **given: Any) -> Any:
        form, owner = given.get("format", forms.VALUE), given.get("owner") or self.__owner__
        if form == forms.STRING:
            return self.__forward_arg__
        names, local = given.get("globals"), dict(given.get("locals") or ())
        if names is None:
            module = self.__forward_module__ or getattr(owner, "__module__", None)
            held = sys.modules.get(module) if type(module) is str else None
            names = self.__globals__ if held is None else vars(held)
        params: Any = given.get("type_params") or getattr(owner, "__type_params__", ())
        for param in params:
            local.setdefault(param.__name__, param)
        cells = self.__cell__
        if isinstance(cells, types.CellType):
            cells = {self.__forward_arg__: cells}
        for name, cell in (cells or {}).items():
            with contextlib.suppress(ValueError):
                local.setdefault(name, cell.cell_contents)
        try:
            return evaluate(self.__forward_code__, names, {**local, **(self.__extra_names__ or {})})
        except NameError:
            if form == forms.FORWARDREF:
                return self
            raise

    return evaluate_reference


def _check_code(code: CodeType) -> None:
    for name in code.co_names:
        if name == SHELL_OBJECT or not is_free(name):
            raise refusal(name)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _check_code(constant)


def _harmless(space: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a namespace without what no cell may hold: none of a library's, no real module."""
    if isinstance(space, dict):
        held = dict.get(space, "__builtins__")
        is_real = (vars(held) if type(held) is ModuleType else held) is REAL_BUILTINS
        if is_real or dict.get(space, "__spec__") is not None:  # a loaded module's own
            return {}
    if type(space) is dict and any(map(is_real_module, space.values())):
        return {name: value for name, value in space.items() if not is_real_module(value)}
    return space


# --- files and modules ------------------------------------------------------------------------


def _harden_paths() -> None:
    """Give pure paths properties of which no part reads any attribute (3.11), and no module."""
    if "ntpath" in vars(pathlib.PureWindowsPath):  # 3.14 imports it there
        type.__delattr__(pathlib.PureWindowsPath, "ntpath")
    for name, value in list(vars(pathlib.PurePath).items()):
        if isinstance(getter := getattr(value, "fget", None), operator.attrgetter):

            def plain(self: Any, get: Any = getter) -> Any:
                return get(self)

            setattr(pathlib.PurePath, name, property(plain, doc=value.__doc__))


# --- modules that cells import: in memory, and text that is judged --------------------------------

#: What to do with a module of the library before a cell is shown it.
_PREPARE: dict[str, Callable[[ModuleType], None]] = {}


def prepare(module: ModuleType) -> None:
    """Harden ``module`` when it is first shown to a cell. What it defines is not frozen yet."""
    if action := _PREPARE.pop(module.__name__, None):
        action(module)


def _judge_timed(module: ModuleType, current: RulesInForce, guarded: dict[str, object]) -> None:
    """Have ``timeit`` run text as a cell's, among the cell's names."""

    def compile_(source: Any, name: str, mode: str) -> CodeType:
        text = str.__str__(source)
        rules = current.rules.granting(["__main__"], ())
        if findings := analyse(text, rules):
            raise violation_of(findings[0])
        return rewriting.compiled(_WithoutMain().visit(ast.parse(text, name)), name, mode)

    def exec_(code: CodeType, names: Mapping[str, Any], local: dict[str, Any]) -> None:
        exec(code, {**names, "__builtins__": guarded}, local)

    def globals_() -> dict[str, Any]:
        return namespace_of_module(sys.modules["__main__"])

    vars(module).update(compile=compile_, exec=exec_, _globals=globals_)


class _WithoutMain(ast.NodeTransformer):
    """Drops ``from __main__ import f``, whose names are there already."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.copy_location(ast.Pass(), node) if node.module == "__main__" else node


class _Part:
    """Stands in for a module of which another one may use some names only."""

    def __init__(self, module: ModuleType, *names: str, **others: object) -> None:
        self.__dict__.update({name: getattr(module, name) for name in names}, **others)
        self._name = module.__name__

    def __getattr__(self, name: str) -> Any:
        raise _refused_file(f"{self._name}.{name}")


def _refused_file(what: str) -> OperationViolation:
    why, remedy = "would look at or change files", "Pass an io.BytesIO or an io.StringIO."
    return OperationViolation("operation-not-allowed", what, why, remedy)


def _open(*_args: object, **_kwargs: object) -> None:
    raise _refused_file("open")


def _zip_in_memory(module: ModuleType) -> None:
    own = vars(module)
    names = "altsep basename commonpath dirname join normpath sep split splitdrive splitext".split()
    path = _Part(own["os"].path, *names)
    constants = ("PathLike", "altsep", "curdir", "fspath", "pardir", "sep")
    streams = [name for name in own["io"].__all__ if name not in {"FileIO", "open_code"}]
    own["os"] = _Part(own["os"], *constants, path=path)
    own["io"] = _Part(own["io"], *streams, "text_encoding", open=_open)
    own["shutil"] = _Part(own["shutil"], "copyfileobj")
    own["open"] = _open
    is_zipfile = own["is_zipfile"]

    def is_zip(filename: Any) -> Any:  # the library's takes a refusal for a file that is not there
        return is_zipfile(filename) if hasattr(filename, "read") else _open()

    own["is_zipfile"] = is_zip


def _dom_in_memory(module: ModuleType) -> None:
    builder: Any = sys.modules["xml.dom.xmlbuilder"]
    # A builder fetches what it is told to, by any protocol.
    vars(builder)["DOMBuilder"] = vars(builder)["DOMEntityResolver"] = _open
    vars(importlib.import_module("xml.dom.expatbuilder"))["open"] = _open
    vars(module)["_do_pulldom_parse"] = _open  # what a buffer size or a parser leads to


_IN_MEMORY: dict[str, Callable[[ModuleType], None]] = {
    "gzip": lambda module: vars(module).update(builtins=types.SimpleNamespace(open=_open)),
    "xml.dom.minidom": _dom_in_memory,
    "xml.etree.ElementTree": lambda module: vars(module).update(open=_open),
    "zipfile": _zip_in_memory,
}
