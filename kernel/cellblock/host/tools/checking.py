"""Functions that check their arguments by their type hints, in time that a hostile caller bears.

Pydantic tells of everything that does not fit: a megabyte that fits nowhere is a million errors,
seconds in C and a gigabyte. So a list, tuple or set is read up to the first item that does not
fit, in fields of a TypedDict or a dataclass, too. Not covered: dicts, ``*args``, fields of a
model or a dataclass of pydantic's, which is built before, and of a type within itself.
"""

from __future__ import annotations

import inspect
import types
import typing
from typing import TYPE_CHECKING, Annotated, Any, Final

import pydantic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

#: Schemas that know the option, and what in one is no schema but a user's.
_CONTAINERS: Final = frozenset({"frozenset", "list", "set", "tuple"})
_NO_SCHEMAS: Final = frozenset({"config", "default", "expected", "metadata", "serialization"})
#: Of these the keys are names, of fields or tags, whatever they are.
_NAMED: Final = frozenset({"choices", "fields"})
#: References of one hint that are replaced by what they refer to.
_MOST_REFERENCES: Final = 100


class _Hasty:
    """Stands in a type hint; what it stands for is read up to the first thing that is wrong."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        found: CoreSchema = _Reading(handler).hasty(handler(source))
        return found


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that raises ``pydantic.ValidationError`` for what does not fit.

    Raises what pydantic raises of hints that can't be used.
    """
    try:
        return pydantic.validate_call(_hurried(function))
    except Exception:  # noqa: BLE001 - hints that can't be wrapped, or not be used: it says which
        return pydantic.validate_call(function)


def _hurried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the same function with hints that say so; any other callable as it is."""
    if inspect.ismethod(function):
        return types.MethodType(_hurried(function.__func__), function.__self__)
    if not inspect.isfunction(function):
        return function
    own = _copied(function)
    hints = typing.get_type_hints(function, include_extras=True)
    own.__annotations__ = {
        name: hint if name == "return" else Annotated[hint, _Hasty()]
        for name, hint in hints.items()
    }
    return own


def _copied(function: types.FunctionType) -> types.FunctionType:
    """Return the same function, whose type hints may be others."""
    own = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    own.__kwdefaults__, own.__doc__ = function.__kwdefaults__, function.__doc__
    own.__module__, own.__qualname__ = function.__module__, function.__qualname__
    own.__dict__.update(function.__dict__)
    return own


class _Reading:
    """Makes a schema of a hint's, with the option set wherever it may be."""

    def __init__(self, handler: GetCoreSchemaHandler) -> None:
        self._handler, self._left = handler, _MOST_REFERENCES
        self._within: set[str] = set()

    def hasty(self, part: Any) -> Any:
        """Return a schema, or a part of one."""
        if isinstance(part, list | tuple):
            return type(part)(map(self.hasty, part))
        if not isinstance(part, dict):
            return part
        kind = part.get("type")
        if kind == "definition-ref":
            return self._there(part)
        found = {key: self._under(key, each) for key, each in part.items()}
        return found | {"fail_fast": True} if kind in _CONTAINERS else found

    def _under(self, key: str, part: Any) -> Any:
        if key in _NAMED and isinstance(part, dict):
            return {name: self.hasty(each) for name, each in part.items()}
        return part if key in _NO_SCHEMAS else self.hasty(part)

    def _there(self, reference: Any) -> Any:
        """Return what is referred to in its place; the reference, where that has no end."""
        name = reference["schema_ref"]
        if name in self._within or not self._left:
            return reference
        found: Any = self._handler.resolve_ref_schema(reference)
        if found["type"] == "model":  # it has its own validator, which knows no option
            return reference
        self._left -= 1
        self._within.add(name)
        inline = self.hasty({key: each for key, each in found.items() if key != "ref"})
        self._within.discard(name)
        return inline
