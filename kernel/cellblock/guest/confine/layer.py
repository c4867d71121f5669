"""Layers over folders: cells seem to write in a folder, and their files lie elsewhere.

The zygote mounts an overlay over each staged root (``lay``), in a mount namespace of its own and
before its locks, since a process under Landlock can't mount anything. An overlay shows, from the
bottom up:

    root     the user's folder, unchanged
    mask     whiteouts, which hide names of the root
    upper    the session's folder, which gets what cells write

No lock grants access to ``upper`` except through the overlay. Everything is opened once, without
following a link, and mounted by descriptor (promise P13).

Each ``hidden`` path has a whiteout in the mask: the overlay shows nothing by that name, whether the
root has a file there now or gets one later, and a file that a cell makes there is the cell's own.
The whiteouts can't be in ``upper``, where a cell could remove one by making a file and deleting it
again. No cell can change a mask. Each ``fixed`` path is mounted over the overlay as it is in the
root, read-only, because the next zygote would import it.

Other parts: ``seal`` makes all other mounts read-only; the ``Mounter`` is the zygote's connection
to the process that changes layers later; ``try_out`` checks whether layers work on this machine.

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
#: An escaped byte in mountinfo, such as a space (proc(5)).
_OCTAL: Final = re.compile(rb"\\([0-7]{3})")
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def lay(layers: Sequence[Layer], shared_memory: int = 0) -> tuple[int, int]:
    """Mount each layer, and a /dev/shm of ``shared_memory`` bytes if that is not 0.

    The process must have entered a mount namespace for this. Return descriptors of an empty folder
    and of a file that nobody may open, which the mounter mounts over denied paths. Raises
    ConfineError.
    """
    try:
        empty = _make_empty(layers[0].folder)
        for layer in layers:
            _mount_layer(layer)
        if shared_memory:
            mount_shared_memory(shared_memory)
        for store in {os.path.dirname(os.path.dirname(layer.folder)) for layer in layers}:
            # Hides other sessions' layers, their names included.
            mount("tmpfs", store, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV)
    except OSError as error:
        raise ConfineError("layer", error.errno or 0, "") from error
    else:
        return empty


def mount_shared_memory(size: int) -> None:
    """Mount an empty /dev/shm of ``size`` bytes. Raises OSError."""
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("tmpfs", SHARED_MEMORY, "tmpfs", flags, f"size={size},mode=0700")


def _make_empty(folder: str) -> tuple[int, int]:
    """Make an empty folder and a file without permissions; return their descriptors."""
    empty_folder = tempfile.mkdtemp(prefix="empty-", dir=folder)
    os.mkdir(f"{empty_folder}/folder", 0o500)
    os.close(os.open(f"{empty_folder}/file", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0))
    return os.open(f"{empty_folder}/folder", PLACE), os.open(f"{empty_folder}/file", PLACE)


def enter_namespaces() -> None:
    """Enter a new mount namespace.

    If this process may not do that, enter a new user namespace as well, which has this user only.
    The process must have one thread and no locks. Raises OSError.
    """
    try:
        libc.unshare(CLONE_NEWNS)
    except PermissionError:
        enter_user_namespace()
    mount("none", "/", "", MS_REC | MS_SLAVE)


def enter_user_namespace() -> None:
    """Enter a new mount namespace, in a user namespace of this user alone. Raises OSError."""
    user = os.geteuid()
    group = os.getegid()
    libc.unshare(CLONE_NEWUSER | CLONE_NEWNS)
    with process.dumpable():  # otherwise root owns these files (proc(5))
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
    """Mount one overlay. Raises OSError."""
    # This process keeps the lock as long as it lives: a later session that adopts the layer waits
    # for it.
    fcntl.flock(os.open(layer.folder, FOLDER), fcntl.LOCK_SH)
    with contextlib.ExitStack() as stack:

        def opened(path: str, flags: int = FOLDER, above: int | None = None) -> int:
            fd = os.open(path, flags, dir_fd=above)
            stack.callback(os.close, fd)
            return fd

        root, folder = opened(layer.root), opened(layer.folder)
        upper = opened(UPPER, above=folder)
        # A new one each time: overlayfs refuses one that was mounted as volatile (overlayfs.rst).
        work = opened(tempfile.mkdtemp(dir=f"{layer.folder}/{WORK}"))
        lower = by(root)
        # The cells' home folder (``kept_in``) needs no mask: below it are no files of the user's,
        # only links to folders that cells are granted.
        if layer.hidden and not layer.kept_in:
            # Each zygote makes its own mask, as one that is mounted must not change.
            mask = opened(tempfile.mkdtemp(prefix="mask-", dir=layer.folder))
            for path in layer.hidden:
                _hide(path, root, mask)
            lower = f"{by(mask)}:{lower}"
            os.chmod(mask, stat.S_IMODE(os.fstat(root).st_mode))
        fixed = {path: opened(path, PLACE, root) for path in layer.fixed}
        # "volatile" skips syncing. Without it, the last process to release the overlay, host or
        # zygote, would wait until the whole disk is written back, also for other programs' data.
        options = f"lowerdir={lower},upperdir={by(upper)},workdir={by(work)},userxattr,volatile"
        mount("overlay", by(root), "overlay", MS_NOSUID | MS_NODEV, options)
        merged = opened(layer.root)
        for path, source_fd in fixed.items():
            target = walk(merged, path, stack)
            mount(by(source_fd), by(target), "", MS_BIND)
            mounted_fd = walk(merged, path, stack)
            make_read_only(mounted_fd)


def _hide(path: str, root: int, mask: int) -> None:
    """Put a whiteout for ``path`` into the mask, or for the first folder of it that is missing."""
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
            root = below
            mask = above
        _white_out(last, mask)


def _folder_in(folder: int, name: str, stack: contextlib.ExitStack) -> int | None:
    """Open a folder within a folder, following no link; return None if there is none."""
    try:
        fd = os.open(name, FOLDER, dir_fd=folder)
    except OSError:
        return None
    stack.callback(os.close, fd)
    return fd


def _white_out(name: str, mask: int) -> None:
    with contextlib.suppress(FileExistsError):
        os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=mask)


# --- read-only mounts -----------------------------------------------------------------------------
#
# No lock can decide by file about modes, owners and times: Landlock does not check chmod(2),
# chown(2) and utimensat(2). But the OS kernel refuses these calls on a read-only mount. So if
# everything that cells don't write is mounted read-only in the namespace of guests, they may make
# these calls. Other namespaces offer no way around it: Landlock lets a guest follow /proc to its
# own processes only.


def seal(writable: Sequence[str], *, apart: bool) -> bool:
    """Make every mount read-only except those of the paths ``writable``.

    Return True if nothing else can be written afterwards. Return False, mostly without a change,
    if that can't be had: if the OS kernel can't set attributes of mounts (Linux 5.12), if something
    is mounted within a writable folder, or if mounts of the user could still appear.

    ``apart`` says that the namespace has only mounts that were made for guests. Otherwise, what the
    user mounts later would propagate here, writable. Keeping it out would make it busy when the
    user unmounts it, so nothing is done in that case. Raises ConfineError.
    """
    places = {path for path in writable if os.path.lexists(path)}
    machine = arch.current()
    try:
        before = mounts()
        if machine is None or not _can_set_attributes(machine):
            return False
        if not apart and any(tags for _, _, tags in before):
            return False
        tops = {path for path, _, _ in before}
        for path, options, _ in before:
            above = [top for top in places if path.startswith(f"{top}/")]
            is_expected = path in places or ("rw" not in options and tops.issuperset(above))
            if above and not is_expected:
                return False  # mounted within a folder that cells write
        mount("none", "/", "", MS_REC | MS_PRIVATE)
        for path in places - tops:
            with _opened(path) as fd:
                # Recursively: the layer of the home folder is mounted within the scratch folder.
                mount(by(fd), by(fd), "", MS_BIND | MS_REC)
        _set_attributes(machine, AT_FDCWD, "/", AT_RECURSIVE, added=MOUNT_ATTR_RDONLY)
        for path in places:
            with _opened(path) as fd:
                _set_attributes(machine, fd, "", AT_EMPTY_PATH, removed=MOUNT_ATTR_RDONLY)
        return {path for path, options, _ in mounts() if "rw" in options} <= places
    except OSError as error:
        raise ConfineError("layer", error.errno or 0, "read-only mounts") from error


def can_seal(writable: Sequence[str]) -> bool:
    """Return whether a process in a user namespace of its own can ``seal`` its mounts.

    Tried in a child process, so that nothing is lost where it can't: bwrap may make namespaces, and
    what it starts may not (Ubuntu's AppArmor profile for it).
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            enter_user_namespace()
            mount("none", "/", "", MS_REC | MS_SLAVE)
            status = 0 if seal(writable, apart=True) else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@contextlib.contextmanager
def _opened(path: str) -> Iterator[int]:
    fd = os.open(path, PLACE)
    try:
        yield fd
    finally:
        os.close(fd)


def mounts() -> list[tuple[str, list[str], list[str]]]:
    """Return the path, the options and the propagation tags of each mount (proc(5), mountinfo).

    If several are mounted at one path, only the last is returned: it covers the others.
    """
    with open("/proc/self/mountinfo", "rb") as file:
        lines = [line.split() for line in file]
    by_path = dict[str, tuple[str, list[str], list[str]]]()
    for line in lines:
        path = os.fsdecode(_OCTAL.sub(lambda match: bytes([int(match[1], 8)]), line[4]))
        tags = [field.decode() for field in line[6 : line.index(b"-")]]
        by_path[path] = path, line[5].decode().split(","), tags
    return list(by_path.values())


def _can_set_attributes(machine: arch.Arch) -> bool:
    try:
        _set_attributes(machine, AT_FDCWD, "/", 0)
    except OSError:
        return False
    return True


def _set_attributes(
    machine: arch.Arch, fd: int, path: str, flags: int, *, added: int = 0, removed: int = 0
) -> None:
    """Change attributes of a mount, or with AT_RECURSIVE of all beneath (mount_setattr(2))."""
    name = ctypes.create_string_buffer(os.fsencode(path))
    attributes = ctypes.create_string_buffer(_ATTR.pack(added, removed, 0, 0), _ATTR.size)
    number = machine.numbers["mount_setattr"]
    libc.syscall(number, fd, name, flags, attributes, _ATTR.size)


# --- changes to layers that are mounted -----------------------------------------------------------

#: Seconds in which the mounter must answer. It takes a fraction of a millisecond, unless a disk
#: hangs. A late mounter is not killed; the zygote goes on without it.
PATIENCE: Final = 2.0
_LONGEST_ANSWER: Final = 16


class Mounter:
    """The zygote's connection to the mounter (``guest.mounter``), which changes mounted layers.

    Methods raise OSError if the mounter fails. A mounter that was late or has ended is not asked
    again, because its late answer would be taken for the answer to another question.
    """

    def __init__(self, line: socket.socket, layers: Sequence[Layer]) -> None:
        line.settimeout(PATIENCE)
        self._line = line
        self._known = [set[str]() for _ in layers]

    def begin(self, layers: Sequence[Layer], empty: tuple[int, int]) -> None:
        """Send the mounter descriptors: the zygote's namespaces, the layers' roots and ``empty``.

        ``empty`` is what ``lay`` returned. All these descriptors are closed here. A mounter that
        can't enter the namespaces ends, and the next question to it raises OSError.
        """
        fds = [*mounting.namespaces(), *(os.open(layer.root, PLACE) for layer in layers), *empty]
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        with contextlib.suppress(OSError):
            self._line.sendmsg([b"e"], [rights])
        for fd in fds:
            os.close(fd)

    def refresh(self) -> None:
        """Make the overlays forget the names that they have looked up."""
        self._ask(mounting.REFRESH)

    def cover(self, layers: Sequence[Layer]) -> None:
        """Mount an empty folder or file over each ``covered`` path, for good.

        Paths that were covered before are left out.
        """
        for number, (layer, covered) in enumerate(zip(layers, self._known, strict=True)):
            for path in layer.covered:
                if path not in covered:
                    self._ask(b"%d:%s" % (number, os.fsencode(path)), path)
                    covered.add(path)

    def _ask(self, question: bytes, path: str | None = None) -> None:
        """Send a question and wait for the answer, an errno or 0. Raises OSError.

        ``path`` is named in the error.
        """
        why = "the process that mounts has ended"
        try:
            self._line.send(question)
            answer = self._line.recv(_LONGEST_ANSWER)
        except TimeoutError:
            answer = b""
            why = "the process that mounts does not answer"
        except OSError:
            answer = b""
        if not answer:
            self._line.close()
            raise OSError(errno.EIO, why)
        if number := int(answer):
            raise OSError(number, os.strerror(number), path)

    def close(self) -> None:
        """Close the connection. The mounter ends when no process has it open."""
        self._line.close()


# --- whether it works here ------------------------------------------------------------------------


def try_out(layer: Layer) -> None:
    """Mount a layer, and check that a file made in its root lands in the layer only.

    The process must end afterwards, as it can't leave the namespaces. Raises ConfineError.
    """
    name = f".cellblock-{os.urandom(8).hex()}"  # a name that can't exist yet
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
    """Run ``try_out`` and print "works" or why it failed. Runs in a process of its own.

    ``layer`` is a ``Layer`` as JSON.
    """
    try:
        try_out(msgspec.json.decode(layer, type=Layer))
    except ConfineError as error:
        os.write(1, error.why.encode())
    else:
        os.write(1, b"works")
