"""What cells look for in vain and without an error: in folders, files and variables.

``glob.glob`` of a folder that cells may not read gives an empty list, so does ``os.listdir`` of one
whose place an empty folder has taken, ``os.path.exists`` of a file in it gives False, and
``os.getenv`` of a variable that was not passed on gives None: the cell goes on with nothing, and
its user does not learn why. So the host is told what was looked for, each once; whether the policy
had anything to do with it the host decides.

Of files only those are told that a cell's own code asks for: libraries ask for many, to see what
machine they are on. What is missing in a folder that can be listed is told of by nobody: most
projects have something that is hidden by its name.
"""

from __future__ import annotations

import contextlib
import functools
import genericpath
import os
import pathlib
import posixpath
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from cellblock.guest import audit_hook
from cellblock.guest.audit_hook import effects, roots
from cellblock.guest.output import encodable
from cellblock.guest.violations import is_exempt, run_exempt
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    Tell = Callable[[messages.NotThere], None]

#: Things of a kind that a session tells.
_MOST: Final = 500
_LONGEST: Final = 1_000
#: Frames between a call and whoever made it.
_DEEPEST: Final = 30
_MAGIC: Final = re.compile(r"[*?\[]")
_IMPORTS: Final = "<frozen importlib."
#: What lists a folder, and fails where that may not be read: then the exception says it.
_LISTINGS: Final = frozenset({"os.listdir", "os.scandir"})
#: Where ``%cd`` is.
_CD: Final = "/IPython/core/magics/osm.py"
#: Where the frames between a search and this module are.
_HOOKS: Final = frozenset({__file__, audit_hook.__file__})
#: Methods of ``os.environ`` that look a name up in order to set it.
_SETTERS: Final = frozenset({"setdefault", "pop"})


def watch(tell: Tell) -> None:
    """Tell of searches and lookups from now on; there is no way back."""
    effects.on_search = _searches(tell)
    _note_questions(tell)
    environ: Any = os.environ
    environ.encodekey = _lookups(tell, environ.encodekey, vars(environ)["_data"])


def _searches(tell: Tell) -> Callable[[str, tuple[Any, ...]], None]:
    told = set[str]()

    def on_search(event: str, args: tuple[Any, ...]) -> None:
        if is_exempt() or len(told) >= _MOST:
            return
        if event == "os.chdir" and not _is_magic():
            return
        try:
            folder, seen = _searched(event, args), True
        except OSError:  # nobody knows where the process is: too deep, or not to be looked up
            return
        if not folder or folder in told:
            return
        # A folder that has entries is not remembered: a narrower policy may empty it.
        try:
            found = run_exempt(_has_entries, folder)
        except OSError as error:
            found, seen = event in _LISTINGS, not isinstance(error, FileNotFoundError)
        if found:
            return
        direct = event == "os.chdir" or _caller()
        # Builders look for sources wherever Python imports from, and the cell named no such folder.
        if direct is None or (not direct and _is_imported_from(folder)):
            return
        told.add(folder)
        tell(messages.NotThere(kind="folder", name=encodable(folder)[:_LONGEST], seen=seen))

    return on_search


def _is_magic() -> bool:
    """Whether ``%cd`` changes the folder, which prints its error; a function raises its own."""
    return any(frame.f_code.co_filename.endswith(_CD) for frame in _frames(sys._getframe(2)))  # noqa: SLF001


def _note_questions(tell: Tell) -> None:
    """Tell of files that a cell's own code asks for, and that are not there; one of a folder."""
    told, installed = set[str](), roots()

    def note(path: Any) -> None:
        asked_by = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - as inspect does
        if asked_by.startswith(installed) or is_exempt() or len(told) >= _MOST:
            return
        try:
            path = os.fsdecode(path)
        except TypeError:  # a descriptor
            return
        # A loop asks for many of a folder. Where the process is takes long to be asked for.
        folder = path.rpartition("/")[0]
        if folder not in told:
            told.add(folder)
            with contextlib.suppress(OSError):  # nobody knows where the process is, as above
                path = os.path.abspath(path)
                tell(messages.NotThere(kind="file", name=encodable(path)[:_LONGEST]))

    def noting(function: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(function)
        def asked(path: Any, *args: Any, **options: Any) -> bool:
            if function(path, *args, **options):
                return True
            note(path)
            return False

        return asked

    # Where they are defined, too: they are pickled by that name.
    for name in ("exists", "isfile", "isdir"):
        vars(posixpath)[name] = vars(genericpath)[name] = noting(vars(posixpath)[name])
    for name in ("exists", "is_file", "is_dir"):
        setattr(pathlib.Path, name, noting(getattr(pathlib.Path, name)))


def _is_imported_from(folder: str) -> bool:
    return any(f"{folder}/".startswith(f"{entry}/") for entry in sys.path if entry)


def _has_entries(folder: str) -> bool:
    with os.scandir(folder) as entries:
        return next(entries, None) is not None


def _searched(event: str, args: tuple[Any, ...]) -> str:
    """Return the folder that a search begins in, which has no wildcard; empty for none."""
    if event == "glob.glob/2":
        pattern, _, start, folder = args
        start = "" if start is None else start
        if folder is not None:  # a descriptor
            return ""
    elif event in _LISTINGS or event == "os.chdir":
        pattern, start = "", "." if args[0] is None else args[0]
    elif event == "os.walk":
        pattern, start = "", args[0]
    else:  # of pathlib
        start, pattern = args[0], args[1]
    try:
        start, pattern = os.fsdecode(start), os.fsdecode(pattern)
    except TypeError:
        return ""
    if magic := _MAGIC.search(pattern):
        pattern = pattern[: magic.start()].rpartition("/")[0] or "/" * pattern.startswith("/")
    return os.path.abspath(os.path.join(start, pattern))


def _lookups(
    tell: Tell, encode: Callable[[str], bytes], known: dict[bytes, bytes]
) -> Callable[[str], bytes]:
    seen = set[bytes]()

    def encodekey(key: str) -> bytes:
        """Return a variable's name as the environment has it."""
        found = encode(key)
        if found in known or found in seen or len(seen) >= _MOST:
            return found
        if sys._getframe(1).f_code.co_name == "__getitem__":  # noqa: SLF001 - as inspect does
            direct = _caller()
            if direct is not None:
                seen.add(found)
                name = encodable(key)[:_LONGEST]
                tell(messages.NotThere(kind="variable", name=name, direct=direct))
        return found

    return encodekey


def _caller() -> bool | None:
    """Return whether a cell's own code calls, and not a library for it; None for all others."""
    installed, direct = roots(), True
    for frame in _frames(sys._getframe(2)):  # noqa: SLF001 - as inspect does
        name = frame.f_code.co_filename
        if name.startswith(_IMPORTS) or frame.f_code.co_name in _SETTERS:
            return None
        if name in _HOOKS or name.startswith("<frozen ") or _is_pythons(name):
            continue
        if not name.startswith(installed):
            return direct
        direct = False
    return None


def _is_pythons(name: str) -> bool:
    """Whether a file is one of the modules in which the call itself is made."""
    folder, _, last = name.rpartition("/")
    return last in {"glob.py", "os.py", "_collections_abc.py"} or (
        folder.endswith("/pathlib") or last == "pathlib.py"
    )


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_DEEPEST):
        if frame is None:
            return
        yield frame
        frame = frame.f_back
