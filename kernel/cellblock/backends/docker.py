"""docker: a container around the zygote, and Landlock's locks inside it.

Contract: what ``bubblewrap`` holds; and the root of the file system is read-only, the scratch
folder lies in memory and has a size, the container as a whole has bounds of memory and tasks where
the engine has cgroups, and with its first process all others in it end.
Gap: the names of the folders that lead to a root are there, empty of anything else.

Any engine that shares this OS kernel, rootless or not, and any OCI runtime that does. The inner
locks are required as everywhere: a runtime with an OS kernel of its own that has no Landlock, or
through which no descriptor comes (gVisor), starts nothing, and says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from cellblock.backends import aside, bubblewrap, probes
from cellblock.backends.base import Backend, Declare, Room, Support, View
from cellblock.backends.container import engines, images, mounts, undertaker
from cellblock.backends.container.wanted import Refused, Wanted
from cellblock.backends.landlock import Landlock
from cellblock.backends.shared import RELAYED, by_policy, holds
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cellblock.policy.model import Policy

_BOOT: Final = (
    "import sys; sys.path[:] = sys.argv[sys.argv.index('-c', 1) + 4:];"
    "from cellblock.backends.container.launcher import main;"
    "main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])"
)
_INSIDE: Final = (
    "import sys; sys.path[:] = sys.argv[2:];"
    "from cellblock.backends.probes import answer_inside; answer_inside(sys.argv[1])"
)
_OPTIONS: Final = ("-I", "-S", "-X", "utf8", "-c")
#: Seconds that a probe may take; it takes about one.
_PATIENCE: Final = 60.0
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
        found = engines.find(self.engine, os.environ)
        if isinstance(found, str):
            return probes.unprobed(found, usable=False)
        return Landlock().glance()

    def probe(self) -> Support:
        """Take the locks in a real container and look whether they hold."""
        glanced = self.glance()
        if not glanced.usable:
            return glanced
        try:
            with tempfile.TemporaryDirectory(prefix="cellblock-") as folder:
                return self._probed(os.path.realpath(folder))
        except Refused as refusal:
            return probes.unprobed(str(refusal), usable=False)
        except (OSError, subprocess.SubprocessError) as error:
            return probes.unprobed(f"{self.engine} could not be tried: {error}", usable=False)

    def _probed(self, folder: str) -> Support:
        """Return what a container says. Raises Refused, OSError, SubprocessError."""
        scratch, hidden = Path(folder, "scratch"), Path(folder, "hidden")
        scratch.mkdir()
        hidden.touch()
        least = bubblewrap.least_view()
        view = View(
            readable=least.readable,
            writable=(str(scratch),),
            masked=(),
            devices=least.devices,
            names=least.names,
            room=Room(str(scratch), 1 << 20, 1 << 29, 64),
        )
        plan = probes.plan_for(self.locks, (str(hidden),), self.bounded(view))
        inside = [sys.executable, *_OPTIONS, _INSIDE, plan, *bubblewrap.absolute(sys.path)]
        asked = self._wanted(inside, view)
        name = f"cellblock-{secrets.token_hex(8)}"
        command = asked.command(name, os.getpid(), inside)
        try:
            ran = asked.engine.ask(*command[1:], seconds=_PATIENCE)
        except subprocess.TimeoutExpired:
            undertaker.remove(asked.engine, [name])
            raise
        if ran.returncode != 0:
            said = ran.stderr.decode(errors="replace")
            return probes.unprobed(engines.meaning(said), usable=False)
        return probes.judged(probes.answered(ran.stdout))

    @contextlib.contextmanager
    def command(self, argv: Sequence[str], view: View) -> Iterator[list[str]]:
        """Yield the command that starts ``argv`` in a container that sees ``view`` alone.

        It reads from a file what the container is to be.
        """
        control = argv[list(argv).index("-c") + 2]
        try:
            asked = self._wanted(argv, view)
        except Refused as gone:  # since it was looked for
            raise FileNotFoundError(errno.ENOENT, str(gone)) from None
        with aside.told([asked.text()]) as fd:
            yield [sys.executable, *_OPTIONS, _BOOT, str(fd), control, *argv]

    def fingerprint(self) -> str:
        """Return which image is run, by what, and where that is; asks the engine."""
        found = engines.find(self.engine, os.environ)
        if isinstance(found, str):
            raise OSError(found)
        try:
            image = images.identity(found, images.names(self.image))
            return f"{found.identity()}, runtime {self.runtime or 'default'}, image {image}"
        except (Refused, subprocess.SubprocessError) as error:
            raise OSError(str(error)) from None

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

    def _wanted(self, argv: Sequence[str], view: View) -> Wanted:
        found = engines.find(self.engine, os.environ)
        if isinstance(found, str):
            raise Refused(found)
        room = view.room
        return Wanted(
            engine=found,
            runtime=self.runtime,
            images=images.names(self.image),
            mounts=tuple(mounts.mounts(argv, view)),
            network=view.network,
            folder=os.path.dirname(room.scratch) if room else tempfile.gettempdir(),  # noqa: PTH120
            memory_bytes=room.memory_bytes if room else None,
            tasks=room.tasks if room else None,
        )
