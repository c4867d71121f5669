"""Replacements for parts of the standard library and IPython, under the language layer.

``gzip``, ``zipfile`` and ``xml.etree.ElementTree`` get their own ``open``, ``os`` and ``shutil``,
which open and look at nothing, so that they work in memory only. A zygote need not import these
modules, so ``guards.facades`` calls ``keep_in_memory`` when a cell imports one.

``help(obj)`` prints signatures and documentation into the cell, without pager and source files.
pydoc's own would import what a text names, list folders of packages, and read source files for
their comments, by names that a cell can choose. This one says less, and only what a cell may read
itself.

Displays take data only (``harden_displays``). ``get_cached`` and ``evaluation`` replace methods of
the standard library that would pass the guards by.
"""

from __future__ import annotations

import builtins
import inspect
import io
import os
import shutil
import sys
from contextlib import nullcontext, suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

from IPython.core import display
from IPython.lib.display import Audio

from cellblock.analysis.allowlist import MODULES
from cellblock.guest.guards.access import (
    dictionary,
    guarded_getattr,
    namespace_of_module,
    refusing,
    with_name,
)
from cellblock.guest.violations import AttributeViolation, NameViolation, OperationViolation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping


def refused_file(function_name: str, remedy: str = "Pass an io.BytesIO or an io.StringIO.") -> Any:
    """Return a replacement for a function, which raises that it looks at files."""
    why = "would look at or change files"
    return refusing(
        function_name, OperationViolation("operation-not-allowed", function_name, why, remedy)
    )


class _InMemory:
    """Stands in for a module, with the given names of it only. Others raise when called.

    ``more`` are further attributes.
    """

    def __init__(self, module: ModuleType, names: Iterable[str], **more: object) -> None:
        self.__dict__.update({n: getattr(module, n) for n in names if hasattr(module, n)}, **more)
        self._name = module.__name__

    def __getattr__(self, name: str) -> Any:
        return refused_file(f"{self._name}.{name}")


def keep_in_memory(module: ModuleType) -> None:
    """Give one of these three modules no function that opens or looks at files."""
    if module.__name__ not in {"gzip", "xml.etree.ElementTree", "zipfile"}:
        return
    namespace = vars(module)
    path = _InMemory(os.path, MODULES["os.path"] or ())
    streams = {*io.__all__, "text_encoding"} - {"FileIO", "open", "open_code"}
    parts = {
        "builtins": _InMemory(builtins, ()),
        "io": _InMemory(io, streams),
        "os": _InMemory(os, MODULES["os"] or (), path=path),
        "shutil": _InMemory(shutil, ("copyfileobj",)),
    }
    used = {name: stand_in for name, stand_in in parts.items() if name in namespace}
    namespace.update(used, open=refused_file("open"))


def harden_displays() -> None:
    """Make display objects of IPython take data only, no file and no URL."""

    def reload(self: Any) -> None:
        if self.filename is not None or self.url is not None:
            subject = type(self).__name__
            why = "would read or write a file or a URL"
            raise OperationViolation("operation-not-allowed", subject, why, "Pass the data itself.")

    display_object: Any = display.DisplayObject
    display_object.reload = reload
    vars(display)["_safe_exists"] = lambda _path: False

    def reload_audio(self: Any) -> None:
        reload(self)
        self.mimetype = "audio/wav"

    def without_numpy(*_args: object) -> Any:
        raise ImportError("numpy")  # native code, which a policy without raw packages never loads

    audio: Any = Audio
    audio.reload = reload_audio
    type.__setattr__(Audio, "_validate_and_normalize_with_numpy", without_numpy)


def get_cached(self: Any, instance: Any, _owner: Any = None) -> Any:
    """Replace ``functools.cached_property.__get__``: read the object's dictionary once, guarded."""
    if instance is None:
        return self
    if self.attrname is None:
        raise TypeError("Cannot use cached_property instance without calling __set_name__ on it.")
    try:
        cache = dictionary(instance)
    except AttributeViolation:
        raise
    except AttributeError:
        problem = f"No '__dict__' attribute on {type(instance).__name__!r} instance"
        raise TypeError(f"{problem} to cache {self.attrname!r} property.") from None
    with getattr(self, "lock", nullcontext()):  # before Python 3.12
        if self.attrname not in cache:
            cache[self.attrname] = self.func(instance)
        return cache[self.attrname]


def evaluation(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement for ``ForwardRef.evaluate`` of Python 3.14.

    The original looks names up by itself. This calls ``evaluate``, the ``eval`` of cells.
    """
    forms = sys.modules["annotationlib"].Format

    def evaluate_reference(self: Any, **options: Any) -> Any:
        if options.get("format") == forms.STRING:
            return self.__forward_arg__
        params = {param.__name__: param for param in options.get("type_params") or ()}
        local = {**params, **(options.get("locals") or {}), **(self.__extra_names__ or {})}
        return evaluate(self.__forward_code__, options.get("globals") or self.__globals__, local)

    return evaluate_reference


#: Most members that ``help`` lists.
_MOST = 500


def show_help(*objects: Any) -> None:
    """Print the documentation of an object.

    Raises NameViolation without an object, and for a text, which ``help`` would import.
    """
    if len(objects) != 1 or isinstance(objects[0], str):
        why = "reads and imports what a text names"
        remedy = "Pass the object: help(len)."
        raise NameViolation("builtin-not-allowed", "help", why, remedy)
    sys.stdout.write("\n".join([*_help_lines(objects[0]), ""]))


with_name(show_help, "help")


def _help_lines(obj: Any) -> Iterator[str]:
    if isinstance(obj, ModuleType):
        kind = "module"
        members = namespace_of_module(obj)
    elif isinstance(obj, type):
        kind = "class"
        members = type.__dict__["__dict__"].__get__(obj)
    elif callable(obj) and hasattr(obj, "__name__"):
        kind = "function"
        members = {}
    else:  # for a value, describe its class, as pydoc does
        yield from _help_lines(type(obj))
        return
    yield f"Help on {kind} {_name(obj)}:"
    yield ""
    yield _name(obj) + _signature(obj)
    yield from _indented(_documentation(obj))
    yield from _members(members)


def _members(members: Mapping[str, Any]) -> Iterator[str]:
    public = [name for name in members if type(name) is str and not name.startswith("_")]
    for name in public[:_MOST]:
        value = members[name]
        yield ""
        yield f"    {name}{_signature(value)}"
        if callable(value) or isinstance(value, property):
            yield from _indented(_documentation(value).partition("\n\n")[0], " " * 8)


def _indented(text: str, indent: str = "    ") -> Iterator[str]:
    for line in text.splitlines():
        yield f"{indent}{line}".rstrip()


def _name(obj: Any) -> str:
    name = guarded_getattr(obj, "__name__", "")
    return name if type(name) is str else ""


def _documentation(obj: Any) -> str:
    text = guarded_getattr(obj, "__doc__", None)
    return inspect.cleandoc(text) if type(text) is str else ""


def _signature(obj: Any) -> str:
    if not callable(obj):
        return ""
    with suppress(TypeError, ValueError):  # it has no signature
        return str(inspect.signature(obj))
    return "(...)"
