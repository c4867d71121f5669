"""What cells import in mode safe and that works in memory there: it looks at no file.

``gzip``, ``zipfile`` and ``xml.etree.ElementTree`` find ``open``, ``os`` and ``shutil`` among their
own globals, before the real ones. What they find there opens and looks at nothing. A zygote need
not load them, so ``guards.facades`` calls ``in_memory`` when a cell imports a module.
"""

from __future__ import annotations

import builtins
import io
import os
import shutil
from typing import TYPE_CHECKING, Any

from IPython.core import display
from IPython.lib.display import Audio

from cellblock.analysis.allowlist import MODULES
from cellblock.guest.guards.access import refusing
from cellblock.guest.violations import OperationViolation

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import ModuleType


def refused_file(what: str, remedy: str = "Pass an io.BytesIO or an io.StringIO.") -> Any:
    """Return what stands in place of ``what``: whoever calls it learns that it looks at files."""
    why = "would look at or change files"
    return refusing(what, OperationViolation("operation-not-allowed", what, why, remedy))


class _InMemory:
    """Stands in for a module of which another one may use what looks at no file."""

    def __init__(self, module: ModuleType, names: Iterable[str], **more: object) -> None:
        self.__dict__.update({n: getattr(module, n) for n in names if hasattr(module, n)}, **more)
        self._name = module.__name__

    def __getattr__(self, name: str) -> Any:
        return refused_file(f"{self._name}.{name}")


def in_memory(module: ModuleType) -> None:
    """Have a module of these find no function that opens or looks at files."""
    if module.__name__ not in {"gzip", "xml.etree.ElementTree", "zipfile"}:
        return
    own = vars(module)
    path = _InMemory(os.path, MODULES["os.path"] or ())
    streams = {*io.__all__, "text_encoding"} - {"FileIO", "open", "open_code"}
    parts = {
        "builtins": _InMemory(builtins, ()),
        "io": _InMemory(io, streams),
        "os": _InMemory(os, MODULES["os"] or (), path=path),
        "shutil": _InMemory(shutil, ("copyfileobj",)),
    }
    found = {name: part for name, part in parts.items() if name in own}
    own.update(found, open=refused_file("open"))


def harden_displays() -> None:
    """Make displays take data only: no file, no URL."""

    def reload(self: Any) -> None:
        if self.filename is not None or self.url is not None:
            what, why = type(self).__name__, "would read or write a file or a URL"
            raise OperationViolation("operation-not-allowed", what, why, "Pass the data itself.")

    shown: Any = display.DisplayObject
    shown.reload = reload
    vars(display)["_safe_exists"] = lambda _path: False

    def reload_audio(self: Any) -> None:
        reload(self)
        self.mimetype = "audio/wav"

    def without_numpy(*_args: object) -> Any:
        raise ImportError("numpy")  # it is native code, which no policy without packages loads

    audio: Any = Audio
    audio.reload = reload_audio
    type.__setattr__(Audio, "_validate_and_normalize_with_numpy", without_numpy)
