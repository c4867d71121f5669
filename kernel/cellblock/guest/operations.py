"""``ops`` as cells see it: the host's own operations, those that the policy does not grant too.

One that is not granted is not offered; whoever calls it by its name is told by the host which
section of a policy grants it.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest.calls import ToolError
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PREFIX: Final = "ops."
_REST, _NAMED_REST = 2, 4
_CHARSET: Final = "charset="
_LEAST_ERROR: Final = 400


class Operations:
    """What the host does for cells. ``%tools`` lists what this policy grants."""

    def __init__(self, granted: Mapping[str, Any], withheld: Mapping[str, Any]) -> None:
        vars(self).update(granted)
        self._withheld = withheld

    def __getattr__(self, name: str) -> Any:
        withheld = vars(self).get("_withheld", {})
        if name in withheld:
            return withheld[name]
        raise AttributeError(f"there is no operation ops.{name}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return [name for name in vars(self) if not name.startswith("_")]

    def __repr__(self) -> str:
        names = ", ".join(f"ops.{name}" for name in dir(self))
        return f"<operations: {names or 'this policy grants none'}>"


class Response:
    """An answer that ``ops.http`` got: ``status``, ``url``, ``headers`` by small letters, body."""

    __slots__ = ("content", "headers", "status", "url")

    def __init__(self, status: int, url: str, headers: dict[str, str], content: bytes) -> None:
        self.status, self.url, self.headers, self.content = status, url, headers, content

    @property
    def text(self) -> str:
        """The body as text, in the encoding that its headers name, else UTF-8."""
        kind = self.headers.get("content-type", "")
        _, _, named = kind.lower().partition(_CHARSET)
        try:
            return self.content.decode(named.partition(";")[0].strip("\"' ") or "utf-8", "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return what the body says as JSON."""
        return json.loads(self.content)

    @property
    def ok(self) -> bool:
        """Whether the status is none of an error."""
        return self.status < _LEAST_ERROR

    def raise_for_status(self) -> None:
        """Raise ToolError where the status is one of an error."""
        if not self.ok:
            raise ToolError("ops.http", "HTTPStatusError", f"{self.status} for {self.url}")

    def __repr__(self) -> str:
        kind = self.headers.get("content-type", "").partition(";")[0] or "no stated type"
        return f"<Response {self.status}: {len(self.content):,} bytes of {kind}>"


def _installed(value: Any) -> list[str]:
    """Have what was installed imported, behind what the interpreter has itself."""
    sys.path.extend(path for path in value["paths"] if path not in sys.path)
    importlib.invalidate_caches()
    installed: list[str] = value["installed"]
    return installed


#: What cells get of what the host answers, where that is more than data.
RESULTS: Final[dict[str, Callable[[Any], Any]]] = {
    "ops.http": lambda value: Response(**value),
    "ops.install": _installed,
}


def withheld(granted: tuple[messages.Tool, ...]) -> tuple[messages.Tool, ...]:
    """Return what stands for operations that are not granted."""
    known = {tool.name for tool in granted}
    names = (f"{PREFIX}{name}" for name in messages.OPERATIONS)
    return tuple(stand_in(name) for name in names if name not in known)


def stand_in(name: str) -> messages.Tool:
    """Return what stands for something of the host's that is not granted: it takes anything."""
    anything = (
        messages.Parameter(name="args", kind=_REST),
        messages.Parameter(name="kwargs", kind=_NAMED_REST),
    )
    doc = "This policy does not grant it; call it to see which section would."
    return messages.Tool(name=name, parameters=anything, doc=doc)


def gathered(functions: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return what a cell's namespace has: tools by their names, operations in ``ops``."""
    plain = {name: one for name, one in functions.items() if not name.startswith(PREFIX)}
    return {**plain, "ops": Operations(_named(functions), _named(others))}


def _named(functions: dict[str, Any]) -> dict[str, Any]:
    return {
        name.removeprefix(PREFIX): one for name, one in functions.items() if name.startswith(PREFIX)
    }
