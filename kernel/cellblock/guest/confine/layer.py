"""Layers over folders: cells seem to write there, and what they write lies elsewhere.

An overlay is mounted over each root, in a mount namespace of the zygote's own, before its locks: a
process under Landlock mounts nothing. Beneath it is the folder as it is, above it the session's
``upper`` folder, which no lock grants but through the mount. Everything is opened once, without
following a link, and mounted by descriptor (promise P13).

What is ``hidden`` has a whiteout in a ``mask`` folder between the two: the overlay shows
nothing under that name, whether there is a file below now or only later, and what a cell makes
there is its own. In the upper folder a cell would take it away with a file that it makes and
deletes again; below, nothing that a cell does changes a mask. What is
``fixed`` is mounted over the overlay as it is, read-only: what the next zygote would import.

Source: overlayfs.rst (userxattr, whiteouts), user_namespaces(7), mount(2).
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import os
import re
import socket
import stat
import struct
import tempfile
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.guest import mounting
from cellblock.guest.confine import arch, libc, process
from cellblock.guest.confine.libc import ConfineError
from cellblock.guest.mounting import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    PLACE,
    by,
    make_read_only,
    mount,
    walk,
)
from cellblock.wire.messages import SHARED_MEMORY, UPPER, WORK, Layer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# <linux/sched.h>
CLONE_NEWNS: Final = 0x0002_0000
CLONE_NEWUSER: Final = 0x1000_0000
# <linux/mount.h>
MS_REC: Final = 16384
MS_PRIVATE: Final = 1 << 18
MS_SLAVE: Final = 1 << 19
# <linux/mount.h>, <linux/fcntl.h>: struct mount_attr of mount_setattr(2), Linux 5.12
_ATTR: Final = struct.Struct("=QQQQ")
MOUNT_ATTR_RDONLY: Final = 1
AT_FDCWD: Final = -100
AT_EMPTY_PATH: Final = 0x1000
AT_RECURSIVE: Final = 0x8000
#: How mountinfo writes a space or the like (proc(5)).
_OCTAL: Final = re.compile(rb"\\([0-7]{3})")
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def lay(layers: Sequence[Layer], shared_memory: int = 0) -> tuple[int, int]:
    """Mount each layer, and a /dev/shm of so many bytes, in namespaces that were entered for them.

    Return an empty folder, and a file that nobody may open, to be mounted over others. Raises
    ConfineError.
    """
    try:
        empty = _make_empty(layers[0].folder)
        for layer in layers:
            _mount_layer(layer)
        if shared_memory:
            mount_shared_memory(shared_memory)
        for store in {os.path.dirname(os.path.dirname(layer.folder)) for layer in layers}:
            # Other sessions' layers are nobody's business, not even their names.
            mount("tmpfs", store, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV)
    except OSError as error:
        raise ConfineError("layer", error.errno or 0, "") from error
    else:
        return empty


def mount_shared_memory(size: int) -> None:
    """Mount a /dev/shm of so many bytes. Raises OSError."""
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, f"size={size},mode=0700")


def _make_empty(folder: str) -> tuple[int, int]:
    place = tempfile.mkdtemp(prefix="empty-", dir=folder)
    os.mkdir(f"{place}/folder", 0o500)
    os.close(os.open(f"{place}/file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
    return os.open(f"{place}/folder", PLACE), os.open(f"{place}/file", PLACE)


def enter_namespaces() -> None:
    """Enter a mount namespace, and a user namespace of this user alone where that takes one.

    For a process of one thread that has taken no lock yet. Raises OSError.
    """
    try:
        libc.unshare(CLONE_NEWNS)
    except PermissionError:
        enter_user_namespace()
    mount("none", "/", "", MS_REC | MS_SLAVE)


def enter_user_namespace() -> None:
    """Enter a mount namespace, in a user namespace of this user alone. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    libc.unshare(CLONE_NEWUSER | CLONE_NEWNS)
    with process.dumpable():  # else these files are root's (proc(5))
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _mount_layer(layer: Layer) -> None:
    # Held as long as this process lives: who adopts a layer waits for it.
    fcntl.flock(os.open(layer.folder, FOLDER), fcntl.LOCK_SH)
    with contextlib.ExitStack() as stack:

        def opened(path: str, flags: int = FOLDER, above: int | None = None) -> int:
            fd = os.open(path, flags, dir_fd=above)
            stack.callback(os.close, fd)
            return fd

        root, folder = opened(layer.root), opened(layer.folder)
        upper = opened(UPPER, above=folder)
        # A new one each time: one that was mounted as volatile is refused later on (overlayfs.rst).
        work = opened(tempfile.mkdtemp(dir=f"{layer.folder}/{WORK}"))
        lower = by(root)
        # Nothing of the user's is below the cells' home folder, but links to what they are granted.
        if layer.hidden and not layer.kept_in:
            # A zygote that comes later has one of its own: nobody changes one that is in use.
            mask = opened(tempfile.mkdtemp(prefix="mask-", dir=layer.folder))
            for path in layer.hidden:
                _hide(path, root, mask)
            lower = f"{by(mask)}:{lower}"
            os.chmod(mask, stat.S_IMODE(os.fstat(root).st_mode))
        fixed = {path: opened(path, PLACE, root) for path in layer.fixed}
        # Volatile: else who lets go of it last, host or zygote, waits until its whole disk is
        # written back, whoever wrote there.
        options = f"lowerdir={lower},upperdir={by(upper)},workdir={by(work)},userxattr,volatile"
        mount("overlay", by(root), "overlay", MS_NOSUID | MS_NODEV, options)
        merged = opened(layer.root)
        for path, place in fixed.items():
            target = walk(merged, path, stack)
            mount(by(place), by(target), "", MS_BIND)
            shown = walk(merged, path, stack)
            make_read_only(shown)


def _hide(path: str, root: int, mask: int) -> None:
    """Put a whiteout where ``path`` is beneath the root, or where a folder to it is missing."""
    *folders, last = path.split("/")
    with contextlib.ExitStack() as stack:
        for name in folders:
            below = _folder_in(root, name, stack)
            if below is None:
                _white_out(name, mask)
                return
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, stat.S_IMODE(os.fstat(below).st_mode) | stat.S_IRWXU, dir_fd=mask)
            above = _folder_in(mask, name, stack)
            if above is None:
                return
            root, mask = below, above
        _white_out(last, mask)


def _folder_in(folder: int, name: str, stack: contextlib.ExitStack) -> int | None:
    try:
        fd = os.open(name, FOLDER, dir_fd=folder)
    except OSError:
        return None
    stack.callback(os.close, fd)
    return fd


def _white_out(name: str, mask: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=mask)


# --- what is not written to -----------------------------------------------------------------------
#
# No lock tells whose mode, owner or times are set: Landlock does not look at chmod(2), chown(2) and
# utimensat(2), nor at where a name in them leads. The OS kernel itself refuses them on a read-only
# mount. So once all but what cells write is mounted so, for the namespace that guests are born
# into, they may make these calls. A process in another namespace is no way out of it: by Landlock,
# /proc leads to none that is not a guest's own.


def seal(writable: Sequence[str], *, apart: bool) -> bool:
    """Have every mount be read-only but those of ``writable``; return whether nothing else is not.

    ``apart`` says that there are only mounts that were made for guests. Else, what the user mounts
    later would come in here, as it is; and it can't be kept out without having it busy when the
    user takes it away. So where any could come, nothing is done. Raises ConfineError.
    """
    places = {path for path in writable if os.path.lexists(path)}
    machine = arch.current()
    try:
        there = mounts()
        if machine is None or not _can_set_attributes(machine):
            return False
        if not apart and any(tags for _, _, tags in there):
            return False
        tops = {path for path, _, _ in there}
        for path, options, _ in there:
            above = [top for top in places if path.startswith(f"{top}/")]
            known = path in places or ("rw" not in options and tops.issuperset(above))
            if above and not known:
                return False  # one that was mounted in what cells write
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        for path in places - tops:
            with _opened(path) as fd:
                # With what is mounted beneath: the home folder's layer lies in scratch.
                mount(by(fd), by(fd), "", MS_BIND | MS_REC)
        _set_attributes(machine, AT_FDCWD, "/", AT_RECURSIVE, added=MOUNT_ATTR_RDONLY)
        for path in places:
            with _opened(path) as fd:
                _set_attributes(machine, fd, "", AT_EMPTY_PATH, removed=MOUNT_ATTR_RDONLY)
        return {path for path, options, _ in mounts() if "rw" in options} <= places
    except OSError as error:
        raise ConfineError("layer", error.errno or 0, "read-only mounts") from error


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, PLACE)
    try:
        yield fd
    finally:
        os.close(fd)


def mounts() -> list[tuple[str, list[str], list[str]]]:
    """Return where each mount is, its own options, and how what is mounted elsewhere comes to it.

    Of those at one place the last is seen (proc(5)).
    """
    with open("/proc/self/mountinfo", "rb") as file:
        lines = [line.split() for line in file]
    found = dict[str, tuple[str, list[str], list[str]]]()
    for line in lines:
        path = os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), line[4]))
        tags = [field.decode() for field in line[6 : line.index(b"-")]]
        found[path] = path, line[5].decode().split(","), tags
    return list(found.values())


def _can_set_attributes(machine: arch.Arch) -> bool:
    try:
        _set_attributes(machine, AT_FDCWD, "/", 0)
    except OSError:
        return False
    return True


def _set_attributes(
    machine: arch.Arch, fd: int, path: str, flags: int, *, added: int = 0, removed: int = 0
) -> None:
    name = ctypes.create_string_buffer(os.fsencode(path))
    attributes = ctypes.create_string_buffer(_ATTR.pack(added, removed, 0, 0), _ATTR.size)
    number = machine.numbers["mount_setattr"]
    libc.syscall(number, fd, name, flags, attributes, _ATTR.size)


# --- what changes below ---------------------------------------------------------------------------

#: Seconds that the mounter has to answer in. It is killed by nobody who waits for it, so that the
#: zygote goes on without it: it answers in a fraction of a millisecond, unless a disk hangs.
PATIENCE: Final = 2.0
_LONGEST_ANSWER: Final = 16


class Mounter:
    """The zygote's line to the process that has overlays forget, and covers what is denied later.

    Each method raises OSError where that fails. A process that has not answered in time, or has
    ended, is not asked again: its late answer would be taken for another one.
    """

    def __init__(self, line: socket.socket, layers: Sequence[Layer]) -> None:
        line.settimeout(PATIENCE)
        self._line = line
        self._known = [set[str]() for _ in layers]

    def begin(self, layers: Sequence[Layer], empty: tuple[int, int]) -> None:
        """Have it mount where we have laid layers; ``empty`` is mounted over others, and closed.

        One that can't enter there ends, which whoever asks it hears.
        """
        fds = [*mounting.namespaces(), *(os.open(layer.root, PLACE) for layer in layers), *empty]
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        with contextlib.suppress(OSError):
            self._line.sendmsg([b"e"], [rights])
        for fd in fds:
            os.close(fd)

    def refresh(self) -> None:
        """Have the overlays forget which names they have looked up."""
        self._ask(mounting.REFRESH)

    def cover(self, layers: Sequence[Layer]) -> None:
        """Have nothing but emptiness be at what is ``covered``, for good."""
        for number, (layer, known) in enumerate(zip(layers, self._known, strict=True)):
            for path in layer.covered:
                if path not in known:
                    self._ask(b"%d:%s" % (number, os.fsencode(path)), path)
                    known.add(path)

    def _ask(self, question: bytes, path: str | None = None) -> None:
        why = "the process that mounts has ended"
        try:
            self._line.send(question)
            answer = self._line.recv(_LONGEST_ANSWER)
        except TimeoutError:
            answer, why = b"", "the process that mounts does not answer"
        except OSError:
            answer = b""
        if not answer:
            self._line.close()
            raise OSError(errno.EIO, why)
        if number := int(answer):
            raise OSError(number, os.strerror(number), path)

    def close(self) -> None:
        """Let go of the process, which ends when nobody has a line to it."""
        self._line.close()


# --- whether it works here ------------------------------------------------------------------------


def try_out(layer: Layer) -> None:
    """Lay a layer and see that a file made in its root lands in the layer alone.

    For a process that ends then. Raises ConfineError.
    """
    name = f".cellblock-{os.urandom(8).hex()}"  # nobody can have made it to spoil the trial
    below, upper = (os.open(path, FOLDER) for path in (layer.root, f"{layer.folder}/{UPPER}"))
    try:
        enter_namespaces()
    except OSError as error:
        raise ConfineError("layer", error.errno or 0, "namespaces") from error
    lay([layer])
    try:
        os.close(os.open(f"{layer.root}/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        raise ConfineError("layer", error.errno or 0, "no file can be made there") from error
    if name not in os.listdir(upper) or name in os.listdir(below):
        raise ConfineError("layer", 0, "what was written did not land in the layer")


def run_trial(layer: str) -> None:
    """Lay a layer, see whether it holds, and print that. Runs in a process of its own."""
    try:
        try_out(msgspec.json.decode(layer, type=Layer))
    except ConfineError as error:
        os.write(1, error.why.encode())
    else:
        os.write(1, b"works")
