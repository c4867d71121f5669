"""Paths in a policy: placeholders, ``~`` and relative paths, expanded once.

Grammar of an entry::

    entry       = [ placeholder | "~" ] text [ "?" ]
    placeholder = "{project}" | "{scratch}"

A relative entry is relative to the policy file's folder. A trailing ``?`` drops the entry when
it does not exist.

Links are resolved once, in ``resolve``: what is decided and shown is what is enforced. Cells may
put a link in a folder's place after that. So the path that came of it is never resolved again: it
is opened by ``open_unlinked``, to which a link is something missing (promise P13).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.errors import PolicyError
from cellblock.policy.home import cache_folder, data_folder, shipped_folder
from cellblock.policy.vocabulary import PLACEHOLDERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


#: What an entry begins with that stays as written where no kernel runs.
_SCRATCH: Final = "{scratch}"
_MACOS: Final = sys.platform == "darwin"
#: For naming a place: no pipe is waited for and no device touched.
_PLACE: Final = os.O_RDONLY | os.O_NONBLOCK if _MACOS else os.O_PATH
#: Of macOS' open(2).
_O_NOFOLLOW_ANY: Final = 0x20000000 if _MACOS else 0
#: What makes a pattern of a path.
_WILD: Final = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Places:
    """What the placeholders stand for; ``scratch`` is None where no kernel runs.

    Where nothing is to run ``here``, neither folders nor packages need be.
    """

    file: str
    folder: Path
    project: Path
    scratch: Path | None
    here: bool = True


def expand(entry: str, *, key: str, places: Places, must_exist: bool) -> str | None:
    """Return the entry as an absolute path, or None for an optional one that is not there.

    Raises PolicyError as ``resolve`` and ``present`` do.
    """
    path = resolve(entry, key=key, places=places)
    return present(entry, path, key=key, places=places, must_exist=must_exist)


def resolve(entry: str, *, key: str, places: Places) -> str:
    """Return the entry as an absolute path without links: the only time that they are followed.

    Without a scratch folder an entry that names it stays as written.
    Raises PolicyError for an unknown placeholder or user.
    """
    text = _placed(entry.removesuffix("?"), key, places)
    if text.startswith(_SCRATCH):
        return text
    return os.path.realpath(places.folder / _home(text, key, places))


def present(entry: str, path: str, *, key: str, places: Places, must_exist: bool) -> str | None:
    """Return the path that ``entry`` was resolved to, or None for an optional one not there.

    Raises PolicyError for a path that has to exist and does not, and for one that can't be
    granted: it is no file or folder, can't be read, or a link in the project leads out of it.
    """
    if path.startswith(_SCRATCH):
        return path
    with contextlib.suppress(OSError):
        place = open_unlinked(path)
        try:
            mode = os.fstat(place).st_mode
        finally:
            os.close(place)
        if must_exist:
            _check_grantable(entry, path, mode, key=key, places=places)
        return path
    if entry.endswith("?"):
        return None
    if must_exist:
        raise PolicyError(
            "no such file or folder",
            file=places.file,
            key=key,
            value=repr(entry),
            remedy=f"Create {path}, or end the entry with ? if it may be missing.",
        )
    return path


def expand_pattern(entry: str, *, key: str, places: Places) -> str:
    """Return a glob pattern, absolute where it begins with a placeholder, ``~`` or ``/``.

    Any other is relative to the folder that cells run in, which is not known here. What stands
    before its first wildcard has its links resolved. Raises PolicyError as ``expand``.
    """
    text = _home(_placed(entry, key, places), key, places)
    if not text.startswith("/"):
        return text
    parts = text.split("/")
    plain = next((at for at, part in enumerate(parts) if _WILD.intersection(part)), len(parts) - 1)
    folder = os.path.realpath("/".join(parts[:plain]) or "/")
    return "/".join([folder.rstrip("/"), *parts[plain:]])


def expand_own(entry: str, *, key: str, places: Places) -> str:
    """Return a folder or file of the host's own, which need not exist, as an absolute path.

    ``{cache}``, ``{data}`` and ``{shipped}`` are understood here and nowhere else. A link at the
    path's end is left to be refused by whoever opens it. Raises PolicyError as ``expand``.
    """
    head, brace, tail = entry.partition("}")
    folder = _OWN.get(head + brace)
    if folder is not None and tail[:1] in ("", "/"):
        text = folder() + tail
    else:
        text = _home(_placed(entry, key, places), key, places)
    named = os.path.normpath(places.folder / text)
    path = os.path.join(os.path.realpath(os.path.dirname(named)), os.path.basename(named))  # noqa: PTH118, PTH119, PTH120  # as above
    if _led_out(entry, path, places):
        what = f"a link leads out of the project folder, to {path}"
        remedy = "Put a folder in the link's place."
        raise PolicyError(what, file=places.file, key=key, value=repr(entry), remedy=remedy)
    return path


#: Where the host keeps what is its own; only the host's own folders may be there.
_OWN: Final[dict[str, Callable[[], str]]] = {
    "{data}": data_folder,
    "{shipped}": shipped_folder,
    "{cache}": cache_folder,
}


def _check_grantable(entry: str, path: str, mode: int, *, key: str, places: Places) -> None:
    if _led_out(entry, path, places):
        what = f"a link leads out of the project folder, to {path}"
        remedy = "Put a folder in the link's place, or name where it leads in a policy of your own."
    elif not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        what = "neither a folder nor a file"
        remedy = "Name the folder or the file that cells are to have."
    elif not os.access(path, os.R_OK | (os.X_OK if stat.S_ISDIR(mode) else 0)):
        what = f"the user who runs the kernel can't read {path}"
        remedy = f"Change its mode, or take it out of {key}."
    else:
        return
    raise PolicyError(what, file=places.file, key=key, value=repr(entry), remedy=remedy)


def _led_out(entry: str, path: str, places: Places) -> bool:
    """Whether whoever made the project, not the operator, chose where ``entry`` is."""
    if not entry.startswith("{project}"):
        return False
    project = os.path.realpath(places.project)
    tail = entry.removesuffix("?").removeprefix("{project}")
    named = os.path.normpath(f"{project}/{tail}")
    return within(named, project) and not within(path, project)


def open_unlinked(path: str, flags: int = _PLACE) -> int:
    """Return a descriptor of what a canonical path names. Raises OSError: ELOOP for a link in it.

    What was opened says itself where it is (proc(5)), so a link does not matter that comes or goes
    meanwhile.
    """
    fd = os.open(path, flags | os.O_CLOEXEC | _O_NOFOLLOW_ANY)
    if not _MACOS and os.readlink(f"/proc/self/fd/{fd}") != path:  # noqa: PTH115 - no path
        os.close(fd)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
    return fd


def identity(path: str) -> tuple[int, int]:
    """Return device and inode of what a canonical path names; zeros where nothing is there."""
    try:
        place = open_unlinked(path)
    except OSError:
        return 0, 0
    try:
        found = os.fstat(place)
    finally:
        os.close(place)
    return found.st_dev, found.st_ino


def within(path: str, folder: str) -> bool:
    """Return whether ``path`` is ``folder`` or lies beneath it; both canonical."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _placed(text: str, key: str, places: Places) -> str:
    if not text.startswith("{"):
        return text
    head, _, tail = text.partition("}")
    name = head + "}"
    if name not in PLACEHOLDERS or tail[:1] not in ("", "/"):
        raise PolicyError(
            "unknown placeholder",
            file=places.file,
            key=key,
            value=repr(text),
            remedy=f"Begin with one of {', '.join(PLACEHOLDERS)}, or write ./{text} for a file.",
        )
    folder = places.project if name == "{project}" else places.scratch
    return text if folder is None else str(folder) + tail


def _home(text: str, key: str, places: Places) -> str:
    path = os.path.expanduser(text)  # noqa: PTH111  # as above
    if text and not path.startswith("~") and "\0" not in path:
        return path
    what = "not a path" if not path.startswith("~") else "no such user"
    remedy = "Write an absolute path, one relative to this file, or one below ~."
    if path.partition("/")[0] == "~":
        what = "the user who runs the kernel has no home folder"
        remedy = "Set HOME where the kernel is started."
    raise PolicyError(what, file=places.file, key=key, value=repr(text), remedy=remedy)
