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

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from cellblock.backends import bubblewrap, probes
from cellblock.backends.base import Backend, Declare, Support
from cellblock.backends.landlock import Landlock
from cellblock.backends.shared import RELAYED, by_policy, holds
from cellblock.policy.paths import within

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from cellblock.backends.base import View
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
        from cellblock.backends.container import engines  # noqa: PLC0415 - as ``running``

        found = engines.find(self.engine, os.environ)
        if isinstance(found, str):
            return probes.unprobed(found, usable=False)
        return Landlock().glance()

    def probe(self) -> Support:
        """Take the locks in a real container and look whether they hold."""
        from cellblock.backends.container import running  # noqa: PLC0415

        glanced = self.glance()
        return running.probe(self) if glanced.usable else glanced

    def command(self, argv: Sequence[str], view: View) -> AbstractContextManager[list[str]]:
        """Yield the command that starts ``argv`` in a container that sees ``view`` alone."""
        from cellblock.backends.container import running  # noqa: PLC0415

        return running.command(self, argv, view)

    def fingerprint(self) -> str:
        """Return which image is run, by what, and where that is; asks the engine."""
        from cellblock.backends.container import running  # noqa: PLC0415

        return running.fingerprint(self)

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
