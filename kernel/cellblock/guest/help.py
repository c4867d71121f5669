"""``help(obj)`` as text in the cell: signatures and documentation, no pager, no source file.

pydoc's own imports what a text names, lists folders of packages and reads source files for their
comments, by names that a cell can choose. This says less, out of what a cell may read itself.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cellblock.guest.guards.access import guarded_getattr, namespace_of_module, with_name
from cellblock.guest.violations import NameViolation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Members that are listed.
_MOST = 500


def show_help(*of: Any) -> None:
    """Print what there is to say of an object.

    Raises NameViolation without one, and for a text, which would be imported.
    """
    if len(of) != 1 or isinstance(of[0], str):
        why, remedy = "reads and imports what a text names", "Pass the object: help(len)."
        raise NameViolation("builtin-not-allowed", "help", why, remedy)
    sys.stdout.write("\n".join([*_about(of[0]), ""]))


with_name(show_help, "help")


def _about(obj: Any) -> Iterator[str]:
    if isinstance(obj, ModuleType):
        kind, members = "module", namespace_of_module(obj)
    elif isinstance(obj, type):
        kind, members = "class", type.__dict__["__dict__"].__get__(obj)
    elif callable(obj) and hasattr(obj, "__name__"):
        kind, members = "function", {}
    else:  # of a value its class is told, as pydoc does
        yield from _about(type(obj))
        return
    yield f"Help on {kind} {_name(obj)}:"
    yield ""
    yield _name(obj) + _signature(obj)
    yield from _indented(_documentation(obj))
    yield from _members(members)


def _members(members: Mapping[str, Any]) -> Iterator[str]:
    shown = [name for name in members if type(name) is str and not name.startswith("_")]
    for name in shown[:_MOST]:
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
    with suppress(TypeError, ValueError):  # it has none
        return str(inspect.signature(obj))
    return "(...)"
