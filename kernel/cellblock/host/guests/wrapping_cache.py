"""What wrapped earlier zygotes: the next one starts in the same before its policy is read.

To read a policy takes longer than all that comes before, and the command that wrapped the last
kernel's zygote, for the same policy and folder, is the same most of the time. So it is kept in a
file in the user's cache folder.

Contract: a guess, and nothing more. Who starts a zygote in it compares ``words`` with what the
policy asks for, before the zygote is told anything, and ends it where they differ. After a
wrong guess, an entry is not used until two starts had the same wrapping. A new folder's guess is
what wrapped another folder's zygote, with this one in its place.

Standard library only, and of that only what is cheap: nothing else is imported yet.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from cellblock.descriptors import with_hidden_options

TYPE_CHECKING = False  # typing is not imported yet
if TYPE_CHECKING:
    from contextlib import AbstractContextManager

#: Entries that are kept, newest first, and bytes of a file that is read: one has some 4,000.
MOST = 16
MOST_BYTES = 1 << 18
_NAME = "wrappings"
#: Stand for a kernel's own folders. No word begins so: paths here are absolute.
_SCRATCH, _PROJECT = "{scratch}", "{project}"
_SAME, _DIFFERED = "same", "differed"
#: What stands before an entry's words: whether it is as before, policy, project.
_HEAD = 3
_WORD, _ENTRY = b"\0", b"\0\0"


class Recalled:
    """A way to wrap a zygote; ``words`` are the program's name and its options."""

    stays = True

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words

    def __call__(self, argv: list[str]) -> AbstractContextManager[list[str]]:
        """Return the command that starts ``argv`` behind it."""
        program, *options = self.words
        return with_hidden_options(program, options, argv)


class WrappingCache:
    """The file in ``folder``, as far as it is about kernels with this policy and project.

    And in this environment: others share the folder, and what goes around theirs has not this
    one's interpreter in it. Nothing here raises: what can't be kept or read is not there.
    """

    def __init__(self, folder: str, policy: str, project: str, scratch: str) -> None:
        self._folder, self._project = folder, project
        self._policy = f"{sys.executable} {sys.base_prefix} {policy}"
        self._places = ((_SCRATCH, scratch), (_PROJECT, project.rstrip("/")))

    def recall(self) -> Recalled | None:
        """Return what went around the last zygote, unless that was not the same as before."""
        kept = [each for each in _read(self._folder) if each[1] == self._policy]
        mine = [each for each in kept if each[2] == self._project]
        for state, _, _, *words in mine or kept:
            if state == _SAME:
                return Recalled(tuple(map(self._placed, words)))
        return None

    def keep(self, words: tuple[str, ...]) -> None:
        """Remember what went around this one."""
        entry = [self._policy, self._project, *map(self._placeless, words)]
        kept = _read(self._folder)
        mine = [each for each in kept if each[1:3] == entry[:2]]
        state = _SAME if not mine or mine[0][1:] == entry else _DIFFERED
        if mine != [[state, *entry]] and all(entry):
            others = [each for each in kept if each not in mine]
            _write(self._folder, [[state, *entry], *others][:MOST])

    def _placeless(self, word: str) -> str:
        for name, folder in self._places:
            if folder and (word == folder or word.startswith(f"{folder}/")):
                return name + word.removeprefix(folder)
        return word

    def _placed(self, word: str) -> str:
        for name, folder in self._places:
            if word.startswith(name):
                return folder + word.removeprefix(name)
        return word


def _read(folder: str) -> list[list[str]]:
    """Return what is kept; nothing where the file is missing, or not the user's alone."""
    try:
        with open(f"{folder}/{_NAME}", "rb", opener=_open) as file:
            status = os.fstat(file.fileno())
            others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if not stat.S_ISREG(status.st_mode) or others or status.st_uid != os.geteuid():
                return []
            entries = file.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        return []
    if len(entries) > MOST_BYTES:
        return []
    kept = [[os.fsdecode(word) for word in each.split(_WORD)] for each in entries.split(_ENTRY)]
    return [each for each in kept if len(each) > _HEAD]


def _write(folder: str, entries: list[list[str]]) -> None:
    """Put a new file in place of the old one, whole or not at all."""
    text = _ENTRY.join(_WORD.join(map(os.fsencode, entry)) for entry in entries)
    name = f"{folder}/.{_NAME}-{os.getpid()}-{os.urandom(4).hex()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with open(name, "xb", opener=_open) as file:
            file.write(text)
        os.replace(name, f"{folder}/{_NAME}")
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.unlink(name)


def _open(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
