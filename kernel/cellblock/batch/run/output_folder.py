"""The folder that a run writes to, and what is in it of each notebook.

No name leads out of the folder, and no reader sees half a file. It may be part of a checkout, so
links in it are not followed. Beside the notebooks' files the run has files of its own there:

- The *run log*, ``run.jsonl``: a line for each notebook that passed, by which ``--resume`` knows it
  (`RunLog`). A line that was cut off is ignored, as is whatever else is in the file's place.
- Files that are not complete yet, and the lock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.batch.run.execution import NotebookResult, NotebookStatus
from cellblock.descriptors import FILE, FOLDER, NEW, closing
from cellblock.errors import CellblockError
from cellblock.guest import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: The subfolder of DIR with the run's own files.
OWN: Final = ".cellblock"
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: Does not block on a named pipe.
_APPEND: Final = _CREATE | os.O_APPEND | os.O_NONBLOCK
#: How names of files end that are not complete yet.
_PARTIAL: Final = ".part"
_BUFFER: Final = 1 << 18


class OutputFolderError(CellblockError):
    """The folder can't be written to, or not by this run."""


class OutputFolder:
    """DIR. It is made if it is not there, and locked for this run until it is closed."""

    def __init__(self, path: Path) -> None:
        """Raise OutputFolderError where it can't be used."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._root = os.open(path, FOLDER & ~os.O_NOFOLLOW)
            self._own = _make_folder(OWN, self._root)
        except OSError as exc:
            raise OutputFolderError(f"{path}: can't be written to: {exc.strerror}") from None
        try:
            self._lock = self.append_to("lock")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            what = "another run writes there. Wait for it, or name another folder"
            raise OutputFolderError(f"{path}: {what}.") from None
        except OSError as exc:
            raise OutputFolderError(f"{path}: can't be locked: {exc.strerror}") from None
        for name in self.names(_PARTIAL):
            self.remove(name)

    def close(self) -> None:
        """Unlock the folder."""
        for descriptor in (self._lock, self._own, self._root):
            os.close(descriptor)

    # --- the user's files -----------------------------------------------------------------------

    def write(self, name: str, content: Iterable[bytes]) -> None:
        """Write a file whole or not at all; make the folders on the way. Raise OSError."""
        part = f"{os.urandom(8).hex()}{_PARTIAL}"
        with os.fdopen(os.open(part, NEW, 0o666, dir_fd=self._own), "wb", _BUFFER) as file:
            file.writelines(content)
        try:
            with self._parent_of(name) as (folder, last):
                os.replace(part, last, src_dir_fd=self._own, dst_dir_fd=folder)
        except OSError:
            self.remove(part)
            raise

    def remove_folder(self, name: str) -> str:
        """Remove a folder if it is there, and return its path. Raise OSError."""
        with self._parent_of(name) as (folder, last):
            remove_tree.remove(f"/proc/self/fd/{folder}/{last}")
        return str(self.path.resolve() / name)

    @contextlib.contextmanager
    def _parent_of(self, name: str) -> Iterator[tuple[int, str]]:
        """Yield the folder that a file is to be in, and its name there. Raise OSError."""
        *folders, last = name.split("/")
        invalid = "\0" in name or any(part in {"", ".", ".."} for part in (*folders, last))
        if invalid or folders[:1] == [OWN]:
            raise OSError(errno.EINVAL, "no name for a file in there")
        at = os.dup(self._root)
        try:
            for each in folders:
                at, above = _make_folder(each, at), at
                os.close(above)
            yield at, last
        finally:
            os.close(at)

    # --- the run's own files --------------------------------------------------------------------

    def keep(self, folder: str, name: str, content: bytes) -> None:
        """Write a new file into a folder of the run's own. Raise OSError."""
        with closing(_make_folder(folder, self._own)) as at:
            descriptor = os.open(name, NEW, 0o600, dir_fd=at)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)

    def append_to(self, name: str) -> int:
        """Return a descriptor for appending to a file of the run's own. Raise OSError."""
        return os.open(name, _APPEND, 0o600, dir_fd=self._own)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the lines of a file of the run's own, each with its end. Raise OSError."""
        with os.fdopen(os.open(name, FILE, dir_fd=self._own), "rb") as file:
            yield from file

    def names(self, ending: str) -> list[str]:
        """Return the run's own files whose names end so."""
        with os.scandir(self._own) as entries:
            return sorted(entry.name for entry in entries if entry.name.endswith(ending))

    def remove(self, name: str) -> None:
        """Remove a file of the run's own, if it is there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._own)


def _make_folder(name: str, folder: int) -> int:
    """Return a descriptor of a folder in a folder, made if it is not there. Raise OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=folder)
    return os.open(name, FOLDER, dir_fd=folder)


# --- the run log ----------------------------------------------------------------------------------

_RUN_LOG: Final = "run.jsonl"


class _LogEntry(msgspec.Struct, frozen=True):
    """A notebook's file, as its name's bytes in hex, the key it was run by, and its result."""

    output: str
    key: str
    record: NotebookResult


_encode: Final = msgspec.json.Encoder().encode
_decode_entry: Final = msgspec.json.Decoder(_LogEntry).decode


class RunLog:
    """The notebooks that passed in a folder, in this run and, where it is ``resumed``, before."""

    def __init__(self, folder: OutputFolder, *, resumed: bool) -> None:
        """Raise OSError where it can't be read or written."""
        self._known: dict[str, _LogEntry] = {}
        if not resumed:
            folder.remove(_RUN_LOG)
        self._descriptor = folder.append_to(_RUN_LOG)
        os.write(self._descriptor, b"\n")  # ends a line that was cut off
        for line in folder.lines(_RUN_LOG):
            with contextlib.suppress(msgspec.MsgspecError, RecursionError):  # it is not ours
                entry = _decode_entry(line)
                self._known[entry.output] = entry

    def append(self, output: str, key: str, result: NotebookResult) -> None:
        """Append the result of a notebook that passed. Raise OSError."""
        entry = _LogEntry(os.fsencode(output).hex(), key, result)
        os.write(self._descriptor, _encode(entry) + b"\n")

    def find(self, output: str, key: str) -> NotebookResult | None:
        """Return the earlier result of the same notebook, if it need not run again."""
        entry = self._known.get(os.fsencode(output).hex())
        if entry is None or entry.key != key or entry.record.status is not NotebookStatus.passed:
            return None
        return msgspec.structs.replace(entry.record, kept=True)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
