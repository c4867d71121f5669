"""docker: a container around the zygote, and Landlock's locks inside it.

Contract: what ``bubblewrap`` holds; and the root of the file system is read-only, the scratch
folder lies in memory and has a size, the container as a whole has bounds of memory and tasks where
the engine has cgroups, and with its first process all others in it end.
Gap: the names of the folders that lead to a root are there, empty of anything else.

Any engine that shares this OS kernel, rootless or not, and any OCI runtime that does. The inner
locks are required as everywhere: a runtime with an OS kernel of its own that has no Landlock, or
through which no descriptor comes (gVisor), starts nothing, and says so. What it does is in
``container.running``, imported when it is asked for.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from cellblock.backends import (
    aside,
    bubblewrap,
    container_engine,
    container_image,
    container_launcher,
    landlock,
    planner,
)
from cellblock.backends import bubblewrap as views
from cellblock.backends.base import RELAYED, Backend, Declare, Room, Support, View, by_policy, holds
from cellblock.backends.container_engine import Refused, Wanted
from cellblock.backends.landlock import Landlock
from cellblock.policy.paths import links, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from cellblock.backends.base import Support
    from cellblock.policy.model import Policy


#: Not there in a container of ours, and nothing that a base image has.
_ENOUGH: Final = 3
_ELSEWHERE: Final = ("/proc", "/sys", "/dev", "/run")

_LOCKS: Final = ("namespaces", "container", "landlock", "seccomp")
_CALLS: Final = ("seccomp", "no_new_privs", "namespaces")


def _network(policy: Policy, support: Support) -> Declare:
    if policy.network_access is True:
        return holds("network_access", "not restricted: TCP and UDP sockets")
    if policy.network_access:
        mechanism = f"{RELAYED}; a container without a network; system call filter"
        return holds("network_access", mechanism, locks=_CALLS)
    del support
    mechanism = "a container without a network; system call filter: no socket is opened"
    return holds("network_access", mechanism, locks=_CALLS)


@dataclass(frozen=True)
class Docker(Backend):
    """A container of an engine's, and the locks of ``guest.confine``, all of them required."""

    engine: str = "auto"
    runtime: str = ""
    image: str = ""

    name = "docker"
    locks = ("namespaces", "container", *Landlock.locks)
    wraps = stays = relays = True
    falls_back = False
    declarations: ClassVar[Mapping[str, Declare]] = {
        **bubblewrap.Bubblewrap.declarations,
        "filesystem_read_roots": holds(
            "filesystem_read_roots",
            "a container: no other names exist but of the folders that lead there; Landlock",
            locks=_LOCKS,
        ),
        "filesystem_write_roots": holds(
            "filesystem_write_roots",
            "a read-only root and read-only mounts; Landlock; the system call filter refuses "
            "changes of mode, owner, times, attributes",
            locks=_LOCKS,
        ),
        "scratch_max_bytes": holds(
            "scratch_max_bytes", "a file system in memory of that size", locks=("container",)
        ),
        "network_access": by_policy("network_access", _network),
    }

    def under(self, policy: Policy) -> Docker:
        """Return this backend with the engine, runtime and image that ``policy`` names."""
        return Docker(policy.container_engine, policy.container_runtime, policy.container_image)

    def glance(self) -> Support:
        """Look for the engine's program, and at what Landlock looks at; ask nobody."""
        from cellblock.backends import container_engine  # noqa: PLC0415 - as ``running``

        found = container_engine.find(self.engine, os.environ)
        if isinstance(found, str):
            return landlock.unprobed(found, usable=False)
        return Landlock().glance()

    def probe(self) -> Support:
        """Take the locks in a real container and look whether they hold."""
        glanced = self.glance()
        return probe(self) if glanced.usable else glanced

    def command(self, argv: Sequence[str], view: View) -> AbstractContextManager[list[str]]:
        """Yield the command that starts ``argv`` in a container that sees ``view`` alone."""
        return command(self, argv, view)

    def fingerprint(self) -> str:
        """Return which image is run, by what, and where that is; asks the engine."""
        return fingerprint(self)

    def mounted(self, view: View) -> tuple[str, ...]:
        """Return all of it but the scratch folder, which is memory: an engine follows links."""
        own = view.room.scratch if view.room else None
        return tuple(path for path in view.movable if path != own)

    def bounded(self, view: View) -> tuple[tuple[str, int], ...]:
        """Return the scratch folder, which is memory, and its size."""
        room = view.room
        if room is None or room.scratch_bytes is None:
            return ()
        return ((room.scratch, room.scratch_bytes),)

    def unseen(self, view: View) -> tuple[str, ...]:
        """Return names that are here, and that are nowhere in a container that sees ``view``."""
        shown = [*view.readable, *view.writable, *view.devices, *view.names, *_ELSEWHERE]
        found = [
            path
            for path in view.masked
            if os.path.lexists(path)
            and not any(within(path, other) or within(other, path) for other in shown)
        ]
        return tuple(found[:_ENOUGH])


# From a view to what an engine is told to mount, each place with its words.
#
# Places come sorted by depth: what is above is there before what is beneath. An engine makes no
# links, so where a name leads through one, what that leads to is mounted at the name as well.

#: Every container has its own; what is granted beneath them is there.
_ITS_OWN: Final = ("/proc", "/sys", "/dev")
_EMPTY: Final = "tmpfs-size=4096", "tmpfs-mode=0555", "readonly"

Mount = tuple[str, tuple[str, ...]]


def mounts(argv: Sequence[str], view: View) -> list[Mount]:
    """Return the places to mount and the engine's words for each."""
    made: dict[str, tuple[str, ...]] = {}
    for path in _whole([*view.readable, *planner.canonical([argv[0]])]):
        if not any(within(path, root) for root in view.writable):  # else it is both
            made[path] = _bound(path, path)
    made |= {at: _bound(target, at) for at, target in _aliases([*argv, *view.names], made)}
    shown = (*made, *view.writable)
    for path in planner.outermost(path for path in view.masked if views.is_shown(path, shown)):
        if not _is_its_own(path):
            made[path] = _masked(path)
    for path in view.writable:
        made[path] = _bound(path, path, read_only=False)
    if view.room:  # also where it lies in what is writable: it has a size
        made[view.room.scratch] = _scratch(view.room)
    return sorted(made.items(), key=lambda one: one[0].split("/"))


def _whole(paths: Iterable[str]) -> list[str]:
    """Return which of canonical paths to mount; the root of all can't be, so what is in it is."""
    found = planner.outermost(paths)
    if "/" in found:
        inside = (entry.path for entry in os.scandir("/") if not entry.is_symlink())
        found = tuple(sorted(inside))
    return [path for path in found if not _is_its_own(path)]


def _is_its_own(path: str) -> bool:
    return any(within(path, root) for root in _ITS_OWN)


def _aliases(names: Iterable[str], made: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that leads to something else, and that, where the name will not be there."""
    known = tuple(made)
    for at, _ in links(names):
        target = os.path.realpath(at)
        if not any(within(at, path) for path in known) and any(
            within(target, path) for path in known
        ):
            yield at, target


def _bound(source: str, at: str, *, read_only: bool = True) -> tuple[str, ...]:
    words = ["type=bind", f"src={source}", f"dst={at}"]
    return _mount([*words, "readonly"] if read_only else words)


def _masked(path: str) -> tuple[str, ...]:
    if os.path.isdir(path):  # noqa: PTH112 - start-up
        return _mount(["type=tmpfs", f"dst={path}", *_EMPTY])
    return _bound(os.devnull, path)


def _scratch(room: Room) -> tuple[str, ...]:
    """Return the words for a file system in memory that goes with the container.

    Everybody in the container may write there, who is one user.
    """
    words = ["type=tmpfs", f"dst={room.scratch}", "tmpfs-mode=1777"]
    if room.scratch_bytes is not None:
        words += [f"tmpfs-size={room.scratch_bytes}"]
    return _mount(words)


def _mount(words: Iterable[str]) -> tuple[str, ...]:
    """Return the option; its words are fields of CSV, since paths may have commas."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(words)
    return "--mount", line.getvalue()


# What backend ``docker`` does once it is wanted: apart from it, since most kernels need none.

_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv[sys.argv.index('-c', 1) + 4:];"
    "from cellblock.backends.container_launcher import main;"
    "main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])"
)
_INSIDE: Final = (
    "import sys; sys.path[:] = sys.argv[2:];"
    "from cellblock.backends.landlock import answer_inside; answer_inside(sys.argv[1])"
)
_OPTIONS: Final = ("-I", "-S", "-X", "utf8", "-c")
#: Seconds that a probe may take; it takes about one.
_PATIENCE: Final = 60.0


def engine(docker: Docker) -> container_engine.Engine:
    """Return the engine that it names. Raises Refused where there is none."""
    found = container_engine.find(docker.engine, os.environ)
    if isinstance(found, str):
        raise Refused(found)
    return found


def probe(docker: Docker) -> Support:
    """Take the locks in a real container and look whether they hold. Never raises."""
    try:
        with tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
            return _probed(docker, os.path.realpath(folder))
    except Refused as refusal:
        return landlock.unprobed(str(refusal), usable=False)
    except (OSError, subprocess.SubprocessError) as error:
        return landlock.unprobed(f"{docker.engine} could not be tried: {error}", usable=False)


def _probed(docker: Docker, folder: str) -> Support:
    """Return what a container says. Raises Refused, OSError, SubprocessError."""
    hidden, view = Path(folder, "hidden"), _least_view(Path(folder, "scratch"))
    hidden.touch()
    plan = landlock.plan_for(docker.locks, (str(hidden),), docker.bounded(view))
    inside = [sys.executable, *_OPTIONS, _INSIDE, plan, *bubblewrap.absolute(sys.path)]
    asked = _wanted(docker, inside, view)
    name = f"cellblock-{secrets.token_hex(8)}"
    command = asked.command(name, os.getpid(), inside)
    try:
        ran = asked.engine.ask(*command[1:], seconds=_PATIENCE)
    except subprocess.TimeoutExpired:
        container_launcher.remove(asked.engine, [name])
        raise
    if ran.returncode != 0:
        said = ran.stderr.decode(errors="replace")
        return landlock.unprobed(container_engine.meaning(said), usable=False)
    return landlock.judged(landlock.answered(ran.stdout))


def _least_view(scratch: Path) -> View:
    scratch.mkdir()
    least = bubblewrap.least_view()
    return View(
        readable=least.readable,
        writable=(str(scratch),),
        masked=(),
        devices=least.devices,
        names=least.names,
        room=Room(str(scratch), 1 << 20, 1 << 29, 64),
    )


@contextlib.contextmanager
def command(docker: Docker, argv: Sequence[str], view: View) -> Iterator[list[str]]:
    """Yield the command that starts ``argv`` in a container that sees ``view`` alone.

    It reads from a file what the container is to be. Raises OSError.
    """
    control = argv[list(argv).index("-c") + 2]
    try:
        asked = _wanted(docker, argv, view)
    except Refused as gone:  # since it was looked for
        raise FileNotFoundError(errno.ENOENT, str(gone)) from None
    with aside.told([asked.text()]) as fd:
        yield [sys.executable, *_OPTIONS, _BOOT, str(fd), control, *argv]


def fingerprint(docker: Docker) -> str:
    """Return which image is run, by what, and where that is; asks the engine. Raises OSError."""
    try:
        found = engine(docker)
        image = container_image.identity(found, container_image.names(docker.image))
    except (Refused, subprocess.SubprocessError) as error:
        raise OSError(str(error)) from None
    return f"{found.identity()}, runtime {docker.runtime or 'default'}, image {image}"


def _wanted(docker: Docker, argv: Sequence[str], view: View) -> Wanted:
    """Return what the container is to be. Raises Refused."""
    room = view.room
    return Wanted(
        engine=engine(docker),
        runtime=docker.runtime,
        images=container_image.names(docker.image),
        mounts=tuple(mounts(argv, view)),
        network=view.network,
        folder=os.path.dirname(room.scratch) if room else tempfile.gettempdir(),  # noqa: PTH120
        memory_bytes=room.memory_bytes if room else None,
        tasks=room.tasks if room else None,
    )
