"""Hardens the few library modules that read attributes or run text on their callers' behalf.

They find ``getattr``, ``eval`` or ``exec`` among their own globals before the builtins, so a
guarded one is put there. Everything else about them stays as it is.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import importlib
import linecache
import operator
import os
import pathlib
import string
import sys
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cellblock.guest.guards import evaluation, trust
from cellblock.guest.guards.access import check_name, library_getattr, refusal
from cellblock.guest.guards.immutable import freeze
from cellblock.guest.guards.violations import OperationViolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.analysis import Rules

_STREAMS = frozenset({"stdout", "stderr", "stdin"})
_PATH_FUNCTIONS = (
    "altsep basename commonpath curdir dirname extsep isabs join normcase normpath "
    "pardir pathsep sep split splitdrive splitext splitroot"
)
#: Holds os.scandir and os.path.lexists (3.13).
_GLOBBER = "_globber"


def harden(rules: Rules, guarded: dict[str, object], roots: tuple[str, ...]) -> None:
    """Harden the library for ``rules``; ``guarded`` are the builtins of user code. Call once."""
    for module in (functools, dataclasses, enum):
        vars(module)["getattr"] = library_getattr
    vars(string)["getattr"] = _formatter_getattr
    vars(contextlib).update(getattr=_stream_getattr, setattr=_stream_setattr)
    evaluation.harden(rules, guarded)
    freeze(type(os.environ))  # a pretty printer's table shows the class
    _bound_linecache(roots)
    _keep_enumerations_at_home()
    _keep_tracebacks_from_importing()
    _copy_printers()
    _hide_path_modules()
    _replace_accessors()
    if not rules.raw_modules:
        _keep_display_from_reading()
        _keep_profiles_in_memory()


def _formatter_getattr(obj: Any, name: str) -> Any:
    return getattr(obj, check_name(name))


def _stream_getattr(obj: Any, name: str, *default: Any) -> Any:
    _check_stream(obj, name)
    return getattr(obj, name, *default)


def _stream_setattr(obj: Any, name: str, value: Any) -> None:
    _check_stream(obj, name)
    setattr(obj, name, value)


def _check_stream(obj: Any, name: str) -> None:
    """Refuse ``_stream = "modules"``: a subclass of ``redirect_stdout`` chooses the name."""
    if issubclass(type(obj), ModuleType) and (type(name) is not str or name not in _STREAMS):
        raise refusal(str(name))


def _bound_linecache(roots: tuple[str, ...]) -> None:
    """Let tracebacks quote the library's source and nothing else.

    ``SyntaxError("", ("/home/me/.netrc", 1, 1, ""))`` and warnings name any file they like.
    """
    real = linecache.updatecache

    def updatecache(filename: str, module_globals: Any = None) -> list[str]:
        if type(filename) is not str or not is_source(filename, roots):
            return []
        return real(filename, module_globals)

    linecache.updatecache = updatecache


def is_source(path: str, roots: tuple[str, ...]) -> bool:
    """Whether ``path`` is a Python file of the installation."""
    return path.endswith(".py") and (path + "/").startswith(roots) and "/../" not in path


def _hide_path_modules() -> None:
    """Give user code the pure functions where a path class holds posixpath or ntpath itself."""
    is_pathlib = trust.from_files("pathlib", "pathlib._local", "pathlib._abc", "pathlib.types")
    flavours = (getattr(pathlib, name, None) for name in ("_PosixFlavour", "_WindowsFlavour"))
    pure = (*pathlib.PurePosixPath.__mro__, pathlib.PureWindowsPath)
    for kind in (*flavours, *pure):
        if kind is None or kind is object:
            continue
        for attribute in ("pathmod", "_flavour", "parser"):
            value = kind.__dict__.get(attribute)
            if isinstance(value, ModuleType):
                setattr(kind, attribute, _hidden(value, _pure_part(value), is_pathlib))
        globber = kind.__dict__.get(_GLOBBER)
        if globber is not None:
            setattr(kind, _GLOBBER, _hidden(globber, None, is_pathlib))


def _replace_accessors() -> None:
    """Give pure paths properties of plain functions: ``PurePath.drive.fget`` was an attrgetter.

    Its class, which ``type()`` tells, makes accessors for any name.
    """
    for name, value in list(pathlib.PurePath.__dict__.items()):
        getter = getattr(value, "fget", None)
        if isinstance(getter, operator.attrgetter):
            setattr(pathlib.PurePath, name, property(_plain(getter), doc=value.__doc__))


def _plain(getter: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def get(self: Any) -> Any:
        return getter(self)

    return get


def _pure_part(module: ModuleType) -> ModuleType:
    """Return a module with the functions of ``module`` that only look at text."""
    shown = ModuleType(module.__name__)
    for name in _PATH_FUNCTIONS.split():
        if hasattr(module, name):
            setattr(shown, name, getattr(module, name))
    return shown


def _hidden(value: Any, shown: Any, is_owner: Callable[[int], bool]) -> Any:
    """Return a descriptor that shows ``value`` to its owner and ``shown`` to everyone else."""

    def get(_self: object, _obj: object, _owner: object = None) -> Any:
        return value if is_owner(1) else shown

    return type("hidden", (), {"__slots__": (), "__get__": get})()


def _keep_display_from_reading() -> None:
    """Make IPython's display classes take data only: no file, no URL, no look at what exists."""
    display = sys.modules.get("IPython.core.display")
    if display is None:
        return
    vars(display)["_safe_exists"] = lambda _path: False
    real = display.DisplayObject.reload

    def reload(self: Any) -> None:
        if self.filename is not None or self.url is not None:
            why = "would read a file or a URL"
            remedy = "Pass the data itself."
            raise OperationViolation("module-name-not-allowed", type(self).__name__, why, remedy)
        real(self)

    display.DisplayObject.reload = reload


def _keep_enumerations_at_home() -> None:
    """Let only a module that is being imported make an enumeration of a module's globals.

    ``_convert_`` takes the module's name: a class pattern reads it by a computed name.
    """
    real: Any = enum.EnumType.__dict__["_convert_"]
    is_body = trust.module_body()

    def _convert_(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_body(1):
            raise refusal("_convert_")
        return real(cls, *args, **kwargs)

    enum.EnumType._convert_ = _convert_  # type: ignore[attr-defined]


def _keep_tracebacks_from_importing() -> None:
    """Have the suggestions for an ``ImportError`` look at modules that are there already.

    The error says which module (``name``), and Python 3.12 imports it to see what it holds.
    """
    loaded = sys.modules

    def __import__(name: str, *_: Any) -> ModuleType:  # noqa: A001, N807 - this is its name
        if type(name) is not str or name not in loaded:
            raise ImportError(name)
        return loaded[name]

    vars(traceback)["__import__"] = __import__


def _copy_printers() -> None:
    """Give ``_repr_pretty_`` a printer whose tables are copies: the shell's own outlive a cell."""
    pretty = sys.modules.get("IPython.lib.pretty")
    if pretty is None:
        return
    printer = pretty.RepresentationPrinter
    real = printer.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - its name
        real(self, *args, **kwargs)
        for table in ("singleton_pprinters", "type_pprinters", "deferred_pprinters"):
            setattr(self, table, dict(getattr(self, table)))

    printer.__init__ = __init__
    freeze(printer)


def _keep_profiles_in_memory() -> None:
    """Keep what ``%prun -r`` returns, and its class, from reading and writing files."""

    def refused(*_args: object, **_kwargs: object) -> None:
        why, remedy = "would read or write a file", "Print the statistics."
        raise OperationViolation("operation-not-allowed", "Stats", why, remedy)

    for name in ("pstats", "cProfile"):
        vars(importlib.import_module(name))["open"] = refused
