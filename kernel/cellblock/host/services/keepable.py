"""Why something that cells wrote is not kept: each reason, and where it is found.

``changes`` asks here for each entry that it lists, and has the first reason that there is:

1. ``is_setting``: what programs put below ``~`` for themselves is not even listed.
2. ``why_never``: a name that other programs run or trust (``never_kept``), or a virtual
   environment. Nothing in such a folder is looked at.
3. ``TOO_DEEP``, ``UNREADABLE``: a folder that is not entered.
4. ``why_secret``, of what cells made in the place of something denied, of which no more is said.
5. ``Reasons.why_not``, of a file: it is none, or stands in the place of something else; it can't be
   read; its name is one of secrets; it would run unread; its name can't be shown.
6. ``IN_ITS_PLACE``: files of the user's beneath a folder in whose place cells put a file, and a
   file of theirs in whose place cells put a folder: ``FOLDER_IN_ITS_PLACE``.

What the user changed since the session began may be kept, but not without being named
(``Staged.chosen``). ``keeping`` says what is checked after that.
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

#: Folders within folders that are entered.
DEEPEST: Final = 64
TOO_DEEP: Final = f"its folders are nested more than {DEEPEST} deep"
UNREADABLE: Final = "it can't be read"
IN_ITS_PLACE: Final = "a file is in the place of its folder"
FOLDER_IN_ITS_PLACE: Final = "a folder is in its place, of which nothing can be kept"

#: What runs in place of a module's source, without a change that could be read.
_COMPILED: Final = (".dll", ".dylib", ".pyc", ".pyd", ".pyo", ".so")
#: What is a module by its name, or has Python import some.
_IMPORTED: Final = (*all_suffixes(), ".pth", ".egg-link")


def is_setting(name: str) -> bool:
    """Whether an entry of a home folder is a program's own: a cache, settings, keys.

    Cells' libraries write those all the time. They go with the session, and are neither listed nor
    kept: what another program reads in the user's own home folder is the user's to write.
    """
    return name.startswith(".")


def why_never(path: str, found: os.stat_result, *folders: int | None) -> str:
    """Return why nothing of this name, nor what is in it, is kept; empty where it can be.

    ``found`` is what has that path, in ``folders``: those of the layer and of the project.
    """
    is_folder = stat.S_ISDIR(found.st_mode)
    folder, name = os.path.split(path)
    why = why_never_kept(name, is_folder=is_folder, within=os.path.basename(folder))
    if why or not is_folder:
        return why
    marks = (status(folder, f"{name}/{ENVIRONMENT}") for folder in folders)
    return PROGRAMS if any(mark is not None for mark in marks) else ""


def why_secret(path: str) -> str:
    """Return why a file of this path, from a root, is not kept if its name is one of secrets."""
    hit = pattern_of("/".join(map(folded, path.split("/"))), SECRETS)
    return "files of this name hold secrets" if hit else ""


class Reasons:
    """Why a file beneath one root is not kept; ``at_home``: the root is the user's home folder."""

    def __init__(self, root: str, *, at_home: bool) -> None:
        self._root, self._at_home = root, at_home
        # The first is a program's own folder, if anything is.
        entries = map(os.path.realpath, sys.path if sys.flags.safe_path else sys.path[1:])
        self._imports = [one for one in entries if within(one, root) or within(root, one)]
        places = os.environ.get("PATH", "").split(os.pathsep)
        self._programs = [os.path.realpath(one) for one in places if os.path.isabs(one)]
        # Added to PATH by many a .profile, at the next login after it was made.
        self._programs.append(f"{root.rstrip('/')}/bin")

    def why_not(
        self,
        path: str,
        found: os.stat_result | None,
        before: os.stat_result | None,
        *,
        blocked: bool,
    ) -> str:
        """Return why it is never kept; empty where it can be.

        ``found`` is what is to be kept and ``before`` what the user has; both are the same of what
        was deleted. ``blocked``: something else than a folder is above it in the project.
        """
        if found is None or not stat.S_ISREG(found.st_mode):
            return "it is not a regular file"
        if blocked or (before is not None and not stat.S_ISREG(before.st_mode)):
            return "something that is no file is in its place"
        if not (found.st_mode & stat.S_IRUSR or os.geteuid() == 0):
            return UNREADABLE
        if why := why_secret(path):
            return why
        imported = "" if found is before else self._imported(path)
        return imported or ("" if path.isprintable() else "its name can't be shown")

    def _imported(self, path: str) -> str:
        """Return why what was written would run unread; empty where it does not."""
        if path.lower().endswith(_COMPILED):
            return "compiled code would run in place of the source beside it"
        whole = f"{self._root.rstrip('/')}/{path}"
        if self._at_home and any(within(whole, one) for one in self._programs):
            return "shells find programs there"
        folder = next((one for one in self._imports if within(whole, one)), "")
        if folder and path.endswith(_IMPORTED):
            return f"Python, cellblock's own too, imports from {folder}"
        return ""
