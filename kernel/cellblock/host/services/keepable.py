"""Reasons why a staged change is never kept.

``changes`` calls this module for each entry that it lists. The first reason in this order counts:

1. ``is_setting``: programs' own files below ``~`` are not even listed.
2. ``why_never``: other programs run or trust a file of this name (``never_kept``), or the folder is
   a virtual environment. Nothing in such a folder is looked at.
3. ``TOO_DEEP``, ``UNREADABLE``: the folder can't be entered.
4. ``why_secret``: cells made a file at a path that the policy denies, and its name is one of
   secrets. A file of another name there is not listed.
5. ``Reasons.why_not``, for each file: it is not a regular file, or takes the place of something
   that is not one; it can't be read; its name is one of secrets; it would run unread; its name
   can't be shown.
6. ``FILE_IN_PLACE_OF_FOLDER``: the user's files in a folder whose place cells gave to a file.
   ``FOLDER_IN_PLACE_OF_FILE``: the user's file whose place cells gave to a folder.

A file that the user changed after the session began can be kept, but only with ``--overwrite``
(``Staged.chosen``). ``keeping`` lists the checks that follow.
"""

from __future__ import annotations

import os
import stat
import sys
from importlib.machinery import all_suffixes
from typing import Final

from cellblock.descriptors import status
from cellblock.host.services.never_kept import ENVIRONMENT, PROGRAMS, folded, why_never_kept
from cellblock.policy.paths import SECRETS, pattern_of, within

#: Levels of nested folders that a listing enters.
DEEPEST: Final = 64
TOO_DEEP: Final = f"its folders are nested more than {DEEPEST} deep"
UNREADABLE: Final = "it can't be read"
FILE_IN_PLACE_OF_FOLDER: Final = "a file is in the place of its folder"
FOLDER_IN_PLACE_OF_FILE: Final = "a folder is in its place, of which nothing can be kept"

#: Ends of names of compiled code, which a program may run in place of the source that a user reads.
_COMPILED_SUFFIXES: Final = (".dll", ".dylib", ".pyc", ".pyd", ".pyo", ".so")
#: Ends of names of modules, and of files from which Python adds folders to import from.
_IMPORTED_SUFFIXES: Final = (*all_suffixes(), ".pth", ".egg-link")


def is_setting(name: str) -> bool:
    """Return whether an entry of a home folder is a program's own: a cache, settings, keys.

    Libraries in cells write such files all the time. They are neither listed nor kept, and are
    removed with the session: other programs read them in the user's home folder, so only the user
    may write them there.
    """
    return name.startswith(".")


def why_never(path: str, file_status: os.stat_result, *folders: int | None) -> str:
    """Return why a file of this name, or a folder and all in it, is never kept; empty if it may be.

    ``file_status`` is its status. ``folders`` are descriptors of the folders that hold it, in the
    layer and in the project: either may have the mark of a virtual environment.
    """
    is_folder = stat.S_ISDIR(file_status.st_mode)
    folder, name = os.path.split(path)
    why = why_never_kept(name, is_folder=is_folder, within=os.path.basename(folder))
    if why or not is_folder:
        return why
    marks = (status(folder, f"{name}/{ENVIRONMENT}") for folder in folders)
    return PROGRAMS if any(mark is not None for mark in marks) else ""


def why_secret(path: str) -> str:
    """Return why a file is not kept if a name in its path is one of secrets, otherwise ""."""
    hit = pattern_of("/".join(map(folded, path.split("/"))), SECRETS)
    return "files of this name hold secrets" if hit else ""


class Reasons:
    """The check of files beneath one root; ``at_home``: the root is the user's home folder."""

    def __init__(self, root: str, *, at_home: bool) -> None:
        self._root = root
        self._at_home = at_home
        # Without safe_path, the first entry is the folder of the program or the current folder.
        entries = map(os.path.realpath, sys.path if sys.flags.safe_path else sys.path[1:])
        self._imports = [path for path in entries if within(path, root) or within(root, path)]
        places = os.environ.get("PATH", "").split(os.pathsep)
        self._programs = [os.path.realpath(path) for path in places if os.path.isabs(path)]
        # Many a .profile adds this folder to PATH at the first login after it was made.
        self._programs.append(f"{root.rstrip('/')}/bin")

    def why_not(
        self,
        path: str,
        file_status: os.stat_result | None,
        before: os.stat_result | None,
        *,
        blocked: bool,
    ) -> str:
        """Return why the change of a file is never kept; empty if it can be.

        ``file_status`` is the status of the staged file and ``before`` that of the user's; for a
        deletion both are the user's. ``blocked``: the project has something else in the place of a
        folder that the file is in.
        """
        if file_status is None or not stat.S_ISREG(file_status.st_mode):
            return "it is not a regular file"
        if blocked or (before is not None and not stat.S_ISREG(before.st_mode)):
            return "something that is not a file is in its place"
        if not (file_status.st_mode & stat.S_IRUSR or os.geteuid() == 0):
            return UNREADABLE
        if why := why_secret(path):
            return why
        imported = "" if file_status is before else self._why_imported(path)
        return imported or ("" if path.isprintable() else "its name can't be shown")

    def _why_imported(self, path: str) -> str:
        """Return why a written file would run without being read first; empty if it would not."""
        if path.lower().endswith(_COMPILED_SUFFIXES):
            return "compiled code would run in place of the source beside it"
        whole = f"{self._root.rstrip('/')}/{path}"
        if self._at_home and any(within(whole, place) for place in self._programs):
            return "shells find programs there"
        folder = next((place for place in self._imports if within(whole, place)), "")
        if folder and path.endswith(_IMPORTED_SUFFIXES):
            return f"Python, cellblock's own too, imports from {folder}"
        return ""
