"""Installed packages: where they are on ``sys.path``, and which files had to be compiled.

Packages are not only in the interpreter's own folders. ``pip install --target``, a .pth file, the
user's site and a distribution's folders lead elsewhere. Such a folder may also be a project's, so
only what an installer has recorded there counts as a package.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Final

from cellblock.wire.messages import MOST_COMPILED

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Names of folders that contain packages only. Debian's packages there have no records.
_OURS: Final = ("dist-packages", "site-packages")
#: Packages that a guest itself imports. They must be readable even if they have no record, for
#: example because they are installed in editable mode.
_NEEDED: Final = (
    "IPython", "asttokens", "comm", "decorator", "executing", "ipython_pygments_lexers", "jedi",
    "matplotlib_inline", "msgspec", "parso", "pexpect", "prompt_toolkit", "ptyprocess",
    "pure_eval", "pygments", "six.py", "stack_data", "traitlets", "typing_extensions.py",
    "wcwidth",
)  # fmt: skip
#: First parts of recorded paths that are not packages.
_OTHERS: Final = frozenset({"", ".", "..", "__pycache__"})


def is_packages(folder: str) -> bool:
    """Return whether a folder on ``sys.path`` contains installed packages only."""
    return folder.startswith("/") and os.path.basename(folder.rstrip("/")) in _OURS


def package_paths() -> Iterator[str]:
    """Yield the folders and single files of installed packages; some may not exist."""
    for folder in sys.path:
        if not folder.startswith("/"):
            continue
        if is_packages(folder):
            yield folder
        else:
            yield from (f"{folder}/{name}" for name in sorted(_recorded(folder).union(_NEEDED)))


def _recorded(folder: str) -> set[str]:
    """Return the entries of ``folder`` that are in the RECORD of a distribution (PEP 376)."""
    names: set[str] = set()
    try:
        distributions = [name for name in os.listdir(folder) if name.endswith(".dist-info")]
    except OSError:
        return names
    for name in distributions:
        try:
            with open(f"{folder}/{name}/RECORD", encoding="utf-8") as record:
                names.update(line.partition("/")[0].partition(",")[0] for line in record)
        except (OSError, UnicodeDecodeError):
            continue
    return names - _OTHERS


# --- source files that had to be compiled ------------------------------------------------------
#
# A guest writes no byte code. It sends the host the names of these files, and the host compiles
# them for the next guests (``host.guests.byte_code``).

#: Most characters of a path that is sent.
_LONGEST: Final = 1_000
_compiled: list[str] = []


def note_compiled() -> None:
    """Note which modules were compiled until now, and from now on each that is compiled.

    The import system reads a module's source file only if there is no byte code, so reading is what
    is noted. The function that compiles is not replaced: its frame would show in the tracebacks of
    syntax errors.
    """
    for module in sys.modules.values():
        name = getattr(module, "__file__", None)
        byte_code = getattr(module, "__cached__", None)
        if name and byte_code and not os.path.exists(byte_code):
            _compiled.append(name)
    original = SourceFileLoader.get_data

    def get_data(self: SourceFileLoader, path: str) -> bytes:
        data = original(self, path)
        if path == self.path:
            _compiled.append(path)
        return data

    SourceFileLoader.get_data = get_data  # type: ignore[method-assign, assignment]


def take_compiled() -> list[str]:
    """Return files that were compiled and not returned before, a bounded number at a time."""
    files = _compiled[:MOST_COMPILED]
    del _compiled[:MOST_COMPILED]
    return [path for path in files if path.isprintable() and len(path) <= _LONGEST]
