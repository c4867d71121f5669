"""bubblewrap: namespaces around the zygote, and Landlock's locks inside them.

Contract: what ``landlock`` holds; and names outside the roots do not exist, /proc shows the guests
and their zygote alone, there is no network device unless network_access is True, denied paths have
nothing in them, and whatever is in the namespaces ends with the zygote.
Gaps: the names of the folders that lead to a root are there, empty of anything else; the user's
other processes, outside, can trace the zygote and guests (user_namespaces(7): the owner).

The zygote is the first process of its pid namespace (``--as-pid-1``), so that it is told of every
orphan and the OS kernel ends all others with it. ``--die-with-parent`` is left out: a zygote
outlives a killed host for as long as it removes what guests left; it sees to its own end.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from cellblock.backends import aside, landlock, planner
from cellblock.backends.base import (
    EARLIER_LINKS,
    RELAYED,
    Backend,
    Declare,
    Support,
    View,
    by_policy,
    holds,
    partly,
)
from cellblock.backends.landlock import Landlock
from cellblock.errors import BackendError
from cellblock.policy.paths import links, parts, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from cellblock.policy.model import Policy


# Why bwrap(1) can't make namespaces here: which setting forbids it, or what its words mean.
#
# Source: user_namespaces(7), namespaces(7); bubblewrap.c and network.c of bubblewrap 0.8.

MISSING: Final = "bwrap is not installed: install the package bubblewrap"
_SETTINGS: Final = Path("/proc/sys")
#: Setting, the value that forbids user namespaces to those who are not root, and what to do.
_FORBIDDING: Final = (
    ("user.max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ("kernel.unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "an AppArmor profile for bwrap that has userns, or the setting 0",
    ),
)
#: What bwrap says, and what that means where no setting is known to forbid it.
_MEANINGS: Final = (
    ("Can't mount proc", "this container hides parts of /proc, so no new one can be mounted"),
    ("setuid", "this OS kernel has no user namespaces, and bwrap is not setuid root"),
    (
        "No permissions to creat",
        "user namespaces are forbidden here: by a container, or by seccomp",
    ),
    ("max_", "no more user namespaces may be made: see user.max_user_namespaces"),
    ("No space left", "no more user namespaces may be made: see user.max_user_namespaces"),
    ("uid map", "user namespaces have no rights here: see AppArmor, SELinux or the container"),
    ("RTM_NEWADDR", "user namespaces have no rights here: see AppArmor, SELinux or the container"),
)
_LONGEST: Final = 300


def refusal(said: str) -> str:
    """Say which setting has ``bwrap`` fail, or what it says means, and its own words."""
    words = f"(bwrap: {said.removeprefix('bwrap: ')[:_LONGEST]})"
    for name, value, remedy in _FORBIDDING:
        if _setting(name) == value:
            return f"{_said(name, value, remedy)} {words}"
    for part, meaning in _MEANINGS:
        if part in said:
            return f"{meaning} {words}"
    return f"it fails here {words}"


def forbidden() -> str | None:
    """Say which setting forbids it for certain: AppArmor's may have an exception for bwrap."""
    certain = _FORBIDDING[:1] if os.getuid() == 0 else _FORBIDDING[:2]
    for name, value, remedy in certain:
        if _setting(name) == value:
            return _said(name, value, remedy)
    return None


def _said(name: str, value: str, remedy: str) -> str:
    return f"{name} is {value}; to allow it: {remedy}"


def _setting(name: str) -> str:
    try:
        return (_SETTINGS / name.replace(".", "/")).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


PROGRAM: Final = "bwrap"
NAMESPACES: Final = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
)
#: Links alone, by which shared libraries are found (update-alternatives(1)).
ALTERNATIVES: Final = "/etc/alternatives"
#: Mounted anew: what is granted beneath it is there.
_PROC: Final = "/proc"
#: Of these the first few that are here and lead to nothing readable are looked for by guests.
_LOOKED_FOR: Final = ("/etc/passwd", "/etc/hostname", "/root", "/home", "/var/log", "/boot", "/srv")
_ENOUGH: Final = 3
#: Seconds that a probe may take; it takes about a tenth of one.
_PATIENCE: Final = 10.0
_INSIDE: Final = (
    "import sys; sys.path[:] = sys.argv[2:];"
    "from cellblock.backends.landlock import answer_inside; answer_inside(sys.argv[1])"
)

_LOCKS: Final = ("namespaces", "landlock", "seccomp", "capabilities", "no_new_privs")
_CALLS: Final = ("seccomp", "no_new_privs", "namespaces")


def _network(policy: Policy, support: Support) -> Declare:
    if policy.network_access is True:
        return holds("network_access", "not restricted: TCP and UDP sockets")
    if policy.network_access:
        mechanism = f"{RELAYED}; a network namespace without a device; system call filter"
        return holds("network_access", mechanism, locks=_CALLS)
    del support
    mechanism = "a network namespace without a device; system call filter: no socket is opened"
    return holds("network_access", mechanism, locks=_CALLS)


def _denied(policy: Policy, support: Support) -> Declare:
    del support
    from cellblock.backends.planner import splits_roots  # noqa: PLC0415 - plan is heavier

    mechanism = "masked by empty mounts; Landlock: no rule covers them"
    if not splits_roots(policy):
        return holds("read_deny_paths", mechanism, locks=_LOCKS)
    return partly(
        "read_deny_paths",
        mechanism,
        EARLIER_LINKS,
        "what is created beside them after the kernel's start is not readable",
        locks=_LOCKS,
    )


class Bubblewrap(Backend):
    """Namespaces made by bwrap(1), and the locks of ``guest.confine``, all of them required."""

    name = "bubblewrap"
    locks = ("namespaces", *Landlock.locks)
    wraps = stays = relays = True
    declarations: ClassVar[Mapping[str, Declare]] = {
        **Landlock.declarations,
        "filesystem_read_roots": holds(
            "filesystem_read_roots",
            "a mount namespace: no other names exist but of the folders that lead there; Landlock",
            locks=_LOCKS,
        ),
        "filesystem_write_roots": holds(
            "filesystem_write_roots",
            "read-only mounts; Landlock; the system call filter refuses changes of mode, owner, "
            "times, attributes",
            locks=_LOCKS,
        ),
        "read_deny_paths": by_policy("read_deny_paths", _denied),
        "network_access": by_policy("network_access", _network),
    }

    def glance(self) -> Support:
        """Look for the program, for what forbids it for certain, and at what Landlock looks at."""
        why = MISSING if shutil.which(PROGRAM) is None else forbidden()
        return Landlock().glance() if why is None else landlock.unprobed(why, usable=False)

    def attempt(self) -> Support:
        """Start next to nothing behind it: only making namespaces tells whether one may."""
        found = self.glance()
        if not found.usable:
            return found
        # An interpreter that is told nothing ends as soon.
        least = shutil.which("true") or sys.executable
        try:
            self._run([least], least_view())
        except BackendError as error:
            return landlock.unprobed(str(error), usable=False)
        return found

    def probe(self) -> Support:
        """Take the locks behind a real wrapper and look whether they hold."""
        found = self.glance()
        if not found.usable:
            return found
        view = least_view()
        plan = landlock.plan_for(self.locks, unseen=self.unseen(view))
        inside = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _INSIDE, plan]
        try:
            printed = self._run([*inside, *absolute(sys.path)], view)
        except BackendError as error:
            return landlock.unprobed(str(error), usable=False)
        return landlock.judged(landlock.answered(printed))

    def wrap(self, argv: Sequence[str], view: View) -> list[str]:
        """Return the command that starts ``argv`` seeing ``view`` alone."""
        network = () if view.network else ("--unshare-net",)
        return [
            shutil.which(PROGRAM) or PROGRAM,
            *NAMESPACES,
            *network,
            *("--hostname", "cellblock", "--as-pid-1", "--cap-drop", "ALL"),
            *_mounts(argv, view),
            *("--remount-ro", "/", "--chdir", "/", aside.END),
            *argv,
        ]

    def command(self, argv: Sequence[str], view: View) -> AbstractContextManager[list[str]]:
        """Return the same with its options in a file: they name what the policy does."""
        program, *options = self.words(argv, view)
        return aside.behind(program, options, argv)

    def words(self, argv: Sequence[str], view: View) -> tuple[str, ...]:
        """Return the program and all that stands between it and ``argv``."""
        wrapped = self.wrap(argv, view)
        return tuple(wrapped[: wrapped.index(aside.END)])

    def _run(self, argv: Sequence[str], view: View) -> bytes:
        """Return what a wrapped program prints. Raises BackendError, which says why it failed."""
        try:
            with self.command(argv, view) as wrapped:
                return _ended(wrapped)
        except OSError as error:
            raise BackendError(f"{PROGRAM} could not be tried: {error}") from None

    def fingerprint(self) -> str:
        """Return where bwrap is, and which file that is."""
        program = shutil.which(PROGRAM)
        if program is None:
            return ""
        found = os.stat(program)  # noqa: PTH116 - start-up
        return f"{program} {found.st_dev}:{found.st_ino} {found.st_size} {found.st_mtime_ns}"

    def mounted(self, view: View) -> tuple[str, ...]:
        """Return all of it: bwrap follows links when it mounts (its ``--bind-fd`` is recent)."""
        return view.movable

    def unseen(self, view: View) -> tuple[str, ...]:
        """Return names that are here, and that neither are nor lead to anything in ``view``."""
        shown = [*view.readable, *view.writable, *view.devices, *view.names, ALTERNATIVES]
        found = [
            path
            for path in _LOOKED_FOR
            if os.path.exists(path)  # noqa: PTH110 - start-up
            and not any(within(path, other) or within(other, path) for other in shown)
        ]
        return tuple(found[:_ENOUGH])


def _ended(wrapped: Sequence[str]) -> bytes:
    """Return what a wrapped program prints. Raises BackendError, OSError."""
    import subprocess  # noqa: PLC0415 - a zygote is started without it

    # Ended with us, should we be killed meanwhile: unlike a zygote it leaves nothing.
    program, *command = wrapped
    try:
        ran = subprocess.run(  # noqa: S603 - bwrap, as it is found
            [program, "--die-with-parent", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
            env={},
            close_fds=False,  # what is inheritable is for it
        )
    except subprocess.SubprocessError as error:
        raise BackendError(f"{PROGRAM} could not be tried: {error}") from None
    if ran.returncode != 0:
        raise BackendError(refusal(ran.stderr.decode(errors="replace").strip()))
    return ran.stdout


def absolute(paths: Iterable[str]) -> list[str]:
    """Return those of ``paths`` that are."""
    return [path for path in paths if path.startswith("/")]


def least_view() -> View:
    """Return what the interpreter needs, and nothing else."""
    names = [*(path for path, _ in planner.SYSTEM), *planner.interpreter()]
    devices = planner.canonical(planner.DEVICES)
    return View(planner.canonical(names), (), (), devices, tuple(names))


# --- mounts -----------------------------------------------------------------------------------


def _mounts(argv: Sequence[str], view: View) -> list[str]:
    """Return the options that build the file system, what is above before what is beneath."""
    made: dict[str, tuple[str, ...]] = {}
    own = planner.canonical([ALTERNATIVES, argv[0]])
    for path in planner.outermost([*view.readable, *own]):
        if not within(path, _PROC):
            made[path] = "--ro-bind-try", path, path
    bound = (*made, *view.writable)
    # Not beneath another: that would make its name anew.
    masked = planner.outermost(path for path in view.masked if is_shown(path, bound))
    made |= {path: _mask(path) for path in masked}
    made |= {path: ("--bind-try", path, path) for path in view.writable}
    made |= {path: ("--dev-bind-try", path, path) for path in view.devices}
    made[_PROC] = "--proc", _PROC
    for link, target in links([*argv, *view.names]):
        if not any(within(link, path) for path in made):
            made[link] = "--symlink", target, link
    made = {path: how for path, how in made.items() if not _writable_above(path, how, view)}
    words = [word for path in sorted(made, key=parts) for word in made[path]]
    # Last: there may be something to mount in what is masked, devices in /dev for one.
    masks = [path for path, how in made.items() if how[0] == "--tmpfs"]
    return words + [word for path in masks for word in ("--remount-ro", path)]


def is_shown(path: str, bound: Iterable[str]) -> bool:
    """Say whether there is something to mask, which beneath a mount there may be."""
    if os.path.islink(path) or not os.path.exists(path):  # noqa: PTH110, PTH114 - start-up
        return False
    return any(within(path, root) for root in bound)


def _mask(path: str) -> tuple[str, ...]:
    if os.path.isdir(path):  # noqa: PTH112 - start-up
        return "--tmpfs", path
    return "--ro-bind", os.devnull, path


def _writable_above(path: str, how: tuple[str, ...], view: View) -> bool:
    """Say whether a root that is only read lies in one that is written: it is both."""
    return how[0] == "--ro-bind-try" and any(within(path, root) for root in view.writable)
