"""Folders, files and variables that cells look for in vain, without an error.

If the policy hides something, some calls give an empty answer instead of an error: ``glob.glob`` of
a folder that cells may not read, ``os.listdir`` of a folder that an empty one covers,
``os.path.exists`` of a file in it, ``os.getenv`` of a variable that is not passed on. The cell goes
on with nothing, and its user does not learn why. So the guest sends ``NotThere``, once for each
thing, and the host decides whether the policy is the reason.

For files, only those are sent that a cell's own code asks for, as libraries ask for many to find
out about the machine. Names that are missing in a folder that can be listed are not sent: most
projects have files that are hidden by their names.

``setup`` calls ``watch`` once, where there is no language layer.
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

#: Most things of each kind that a session sends, and most characters of a name.
_MOST: Final = 500
_LONGEST: Final = 1_000
#: Frames that are looked at for the caller.
_DEEPEST: Final = 30
_MAGIC: Final = re.compile(r"[*?\[]")
_IMPORTS: Final = "<frozen importlib."
#: Audit events of functions that list one folder. If it may not be read, they raise, so nothing
#: need be sent.
_LISTINGS: Final = frozenset({"os.listdir", "os.scandir"})
#: The file of ``%cd``.
_CD: Final = "/IPython/core/magics/osm.py"
#: Files of the frames between a search and this module.
_HOOKS: Final = frozenset({__file__, audit_hook.__file__})
#: Methods of ``os.environ`` that look a name up in order to set it.
_SETTERS: Final = frozenset({"setdefault", "pop"})


def watch(tell: Tell) -> None:
    """Call ``tell`` for each thing that is looked for in vain, from now on and for good."""
    effects.on_search = _searches(tell)
    _note_questions(tell)
    environ: Any = os.environ
    environ.encodekey = _lookups(tell, environ.encodekey, vars(environ)["_data"])


def _searches(tell: Tell) -> Callable[[str, tuple[Any, ...]], None]:
    """Return the function that handles audit events of searches."""
    sent = set[str]()

    def on_search(event: str, args: tuple[Any, ...]) -> None:
        if is_exempt() or len(sent) >= _MOST:
            return
        if event == "os.chdir" and not _is_magic():
            return
        try:
            folder = _searched(event, args)
            seen = True
        except OSError:  # the working folder has no path: it is too deep, or may not be looked up
            return
        if not folder or folder in sent:
            return
        # A folder with entries is not remembered, since a narrower policy may empty it later.
        try:
            is_answered = run_exempt(_has_entries, folder)
        except OSError as error:
            is_answered = event in _LISTINGS
            seen = not isinstance(error, FileNotFoundError)
        if is_answered:
            return
        direct = event == "os.chdir" or _caller()
        # Builders search all folders of ``sys.path`` for sources, which the cell did not ask for.
        if direct is None or (not direct and _is_imported_from(folder)):
            return
        sent.add(folder)
        tell(messages.NotThere(kind="folder", name=encodable(folder)[:_LONGEST], seen=seen))

    return on_search


def _is_magic() -> bool:
    """Return whether ``%cd`` changes the folder. It prints its error, where a function raises."""
    return any(frame.f_code.co_filename.endswith(_CD) for frame in _frames(sys._getframe(2)))  # noqa: SLF001


def _note_questions(tell: Tell) -> None:
    """Replace functions that ask whether a file exists by ones that report missing files.

    They report only files that a cell's own code asks for, and only the first in each folder.
    """
    folders_sent = set[str]()
    installed = roots()

    def note(path: Any) -> None:
        caller = sys._getframe(2).f_code.co_filename  # noqa: SLF001 - as inspect does
        if caller.startswith(installed) or is_exempt() or len(folders_sent) >= _MOST:
            return
        try:
            path = os.fsdecode(path)
        except TypeError:  # a descriptor
            return
        # Checked before ``abspath``, which takes long: a loop may ask for many files of a folder.
        folder = path.rpartition("/")[0]
        if folder not in folders_sent:
            folders_sent.add(folder)
            with contextlib.suppress(OSError):  # the working folder has no path, as above
                path = os.path.abspath(path)
                tell(messages.NotThere(kind="file", name=encodable(path)[:_LONGEST]))

    def noting(function: Callable[..., bool]) -> Callable[..., bool]:
        @functools.wraps(function)
        def note_if_missing(path: Any, *args: Any, **options: Any) -> bool:
            if function(path, *args, **options):
                return True
            note(path)
            return False

        return note_if_missing

    # Also in the module that defines them, by whose name they are pickled.
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
    """Return the folder in which a search begins, up to the first wildcard; "" if there is none.

    Raises OSError.
    """
    if event == "glob.glob/2":
        pattern, _, start, folder = args
        start = "" if start is None else start
        if folder is not None:  # a descriptor
            return ""
    elif event in _LISTINGS or event == "os.chdir":
        pattern = ""
        start = "." if args[0] is None else args[0]
    elif event == "os.walk":
        pattern = ""
        start = args[0]
    else:  # of pathlib
        start = args[0]
        pattern = args[1]
    try:
        start, pattern = os.fsdecode(start), os.fsdecode(pattern)
    except TypeError:
        return ""
    if magic := _MAGIC.search(pattern):
        pattern = pattern[: magic.start()].rpartition("/")[0] or "/" * pattern.startswith("/")
    return os.path.abspath(os.path.join(start, pattern))


def _lookups(
    tell: Tell, encode: Callable[[str], bytes], environment: dict[bytes, bytes]
) -> Callable[[str], bytes]:
    """Return a replacement of ``os.environ.encodekey``, which every look-up of a variable calls.

    ``encode`` is the original, ``environment`` the environment by encoded names.
    """
    sent = set[bytes]()

    def encodekey(key: str) -> bytes:
        """Return the encoded name of a variable; send it if the environment lacks it."""
        encoded = encode(key)
        if encoded in environment or encoded in sent or len(sent) >= _MOST:
            return encoded
        if sys._getframe(1).f_code.co_name == "__getitem__":  # noqa: SLF001 - as inspect does
            direct = _caller()
            if direct is not None:
                sent.add(encoded)
                name = encodable(key)[:_LONGEST]
                tell(messages.NotThere(kind="variable", name=name, direct=direct))
        return encoded

    return encodekey


def _caller() -> bool | None:
    """Return True if a cell's own code calls, False if a library does on its behalf.

    Return None if no cell is behind the call, or it is an import or sets a variable.
    """
    installed = roots()
    direct = True
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
    """Return whether a file is one of Python's modules that make the call itself."""
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
