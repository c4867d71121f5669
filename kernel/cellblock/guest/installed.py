"""Where installers put packages, on ``sys.path``, and which of their files had to be compiled.

The former are the prefix's folders and any others.

``pip install --target``, a .pth file, the user's site and a distribution's own folders all lead
elsewhere. Such a folder may be a project's as well, so its other contents are no library.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING, Final

from cellblock.wire.messages import MOST_COMPILED

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Folders of these names hold nothing else; Debian's packages there have no records.
_OURS: Final = ("dist-packages", "site-packages")
#: What a guest imports for itself: readable without records too, as when installed to be edited.
_NEEDED: Final = (
    "IPython", "asttokens", "comm", "decorator", "executing", "ipython_pygments_lexers", "jedi",
    "matplotlib_inline", "msgspec", "parso", "pexpect", "prompt_toolkit", "ptyprocess",
    "pure_eval", "pygments", "six.py", "stack_data", "traitlets", "typing_extensions.py",
    "wcwidth",
)  # fmt: skip
#: First parts of a recorded path that stand for no package.
_OTHERS: Final = frozenset({"", ".", "..", "__pycache__"})


def is_packages(folder: str) -> bool:
    """Return whether a folder on ``sys.path`` holds what installers put there, and nothing else."""
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
        found = [name for name in os.listdir(folder) if name.endswith(".dist-info")]
    except OSError:
        return names
    for name in found:
        try:
            with open(f"{folder}/{name}/RECORD", encoding="utf-8") as record:
                names.update(line.partition("/")[0].partition(",")[0] for line in record)
        except (OSError, UnicodeDecodeError):
            continue
    return names - _OTHERS


# --- what had to be compiled -------------------------------------------------------------------
#
# A guest keeps no byte code. It tells the host, which has it kept (``host.guests.byte_code``).

#: Characters of a path that is told.
_LONGEST: Final = 1_000
_compiled: list[str] = []


def note_compiled() -> None:
    """Note what was compiled until now, and from now on which source files are read.

    A module's is read where there is no byte code of it. What compiles it is left as it is: one
    more frame would show in the traceback of a syntax error.
    """
    for module in sys.modules.values():
        name, kept = getattr(module, "__file__", None), getattr(module, "__cached__", None)
        if name and kept and not os.path.exists(kept):
            _compiled.append(name)
    read = SourceFileLoader.get_data

    def get_data(self: SourceFileLoader, path: str) -> bytes:
        data = read(self, path)
        if path == self.path:
            _compiled.append(path)
        return data

    SourceFileLoader.get_data = get_data  # type: ignore[method-assign, assignment]


def take_compiled() -> list[str]:
    """Return what has not been told yet, some at a time."""
    taken = _compiled[:MOST_COMPILED]
    del _compiled[:MOST_COMPILED]
    return [path for path in taken if path.isprintable() and len(path) <= _LONGEST]
