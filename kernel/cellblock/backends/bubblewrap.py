"""Backend bubblewrap: namespaces around the zygote, and the locks of ``landlock`` inside them.

Contract: all that ``landlock`` holds. Beyond that, names outside the roots don't exist, /proc shows
only the guests and their zygote, there is no network device unless network_access is True, denied
paths have nothing in them, and all processes in the namespaces end with the zygote.
Gaps: the folders that lead to a root exist, with nothing else in them. The user's other processes,
outside, can trace zygote and guests (user_namespaces(7): the owner).

The zygote is the first process of its pid namespace (``--as-pid-1``). So it becomes the parent of
every orphan, and the OS kernel ends all other processes with it. If the host is killed the zygote
ends as well, whatever state it is in: the OS kernel ends bwrap (``--die-with-parent``), and then
the zygote, which asked for the same. What guests left in their folder is removed by whatever starts
next (``policy.folders``).

For ``--die-with-parent`` the parent is the thread that started bwrap (prctl(2)). That thread runs
the event loop of the zygote's host, without which nothing serves the zygote.

Source: bwrap(1), user_namespaces(7), namespaces(7); bubblewrap.c and network.c of bubblewrap 0.8.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from cellblock.backends import networks
from cellblock.backends.base import (
    Backend,
    Declare,
    Support,
    View,
    file_identity,
    holds,
    names_apart_from,
    own_network,
    run_trial,
    unprobed,
)
from cellblock.backends.landlock import (
    Landlock,
    denied_paths,
    printed_answer,
    probe_argv,
    support_from,
)
from cellblock.backends.plan import (
    PROC_FILES,
    canonical,
    interpreter_view,
    is_masked,
    outermost,
)
from cellblock.descriptors import with_hidden_options
from cellblock.errors import BackendError
from cellblock.policy.paths import entries_of, links, parts, within
from cellblock.wire.messages import SHARED_MEMORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

PROGRAM: Final = "bwrap"
NAMESPACES: Final = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
)
#: A folder of links only, by which shared libraries are found (update-alternatives(1)).
ALTERNATIVES: Final = "/etc/alternatives"
#: Links by which programs name their own streams, and bash the pipes of ``<(…)``.
STREAMS: Final = (
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stderr", "/proc/self/fd/2"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
)
#: Mounted anew, with all the files that may be granted beneath it.
_PROC: Final = "/proc"
#: Names that guests look up, to make sure that they don't see them: the first few of these that
#: exist here and are neither in nor above a path that is shown.
_LOOKED_FOR: Final = ("/etc/passwd", "/etc/hostname", "/root", "/home", "/var/log", "/boot", "/srv")
#: Seconds that a probe may take. It takes about 0.1 s.
_PATIENCE: Final = 10.0

_LOCKS: Final = ("namespaces", "landlock", "seccomp", "capabilities", "no_new_privs")
_CALLS: Final = ("seccomp", "no_new_privs", "namespaces")


class Bubblewrap(Backend):
    """Namespaces made by bwrap(1), and the locks of ``guest.confine``, all of them required."""

    name = "bubblewrap"
    locks = ("namespaces", *Landlock.locks)
    wraps = stays = stages = namespaces = grants_devices = True
    declarations: ClassVar[Mapping[str, Declare]] = {
        **Landlock.declarations,
        "filesystem_read_roots": holds(
            "a mount namespace: no other names exist but of the folders that lead there; Landlock",
            locks=_LOCKS,
        ),
        "filesystem_write_roots": holds(
            "read-only mounts; Landlock; the system call filter refuses changes of mode, owner, "
            "times, attributes; where cells start programs or stage what they write, read-only "
            "mounts may do that instead",
            locks=_LOCKS,
        ),
        "read_deny_paths": denied_paths(
            "masked by empty mounts; Landlock: no rule covers them", _LOCKS
        ),
        "network_access": own_network(
            "a network namespace without a device; ", _CALLS, own=lambda _: True
        ),
    }

    def __init__(self) -> None:
        #: The fingerprint of the bwrap that was seen to work in this process.
        self._worked = ""

    @property
    def separates_sessions(self) -> bool:
        """Whether bwrap leaves capabilities to zygotes: a setuid one, to root only (bwrap(1))."""
        program = shutil.which(PROGRAM)
        return os.getuid() == 0 or not (program and os.stat(program).st_mode & stat.S_ISUID)

    def glance(self) -> Support:
        """Look for the program, for settings that certainly forbid it, and at Landlock."""
        why = MISSING if shutil.which(PROGRAM) is None else forbidden()
        return Landlock().glance() if why is None else unprobed(why, usable=False)

    def attempt(self) -> Support:
        """Start a trivial program behind bwrap. Only making namespaces tells whether one may.

        This is done once in a process, and again if bwrap was replaced. If bwrap stops working
        later, no zygote starts.
        """
        support = self.glance()
        program = self.fingerprint()
        if not support.usable or program == self._worked:
            return support
        # Without true(1), an interpreter with empty input ends just as soon.
        program_to_run = shutil.which("true") or sys.executable
        try:
            self._run([program_to_run], interpreter_view())
        except BackendError as error:
            return unprobed(str(error), usable=False)
        self._worked = program
        return support

    def why_no_list(self) -> str:
        """Return why no network can be made within bwrap's own, which can't be changed, or ""."""
        return networks.why_not(self)

    def why_no_ports(self) -> str:
        """Return why no network namespace can be made, or "". The host can enter each."""
        return networks.why_not(self)

    def why_no_requests(self) -> str:
        """Return why Landlock can't decide which devices take requests; "" if it can."""
        return Landlock().why_no_requests()

    def probe(self) -> Support:
        """Take the locks behind a real wrapper and look whether they hold."""
        support = self.glance()
        if not support.usable:
            return support
        view = interpreter_view()
        try:
            printed = self._run(probe_argv(self.locks, self.unseen(view)), view)
        except BackendError as error:
            return unprobed(str(error), usable=False)
        return support_from(printed_answer(printed))

    def _run(self, argv: Sequence[str], view: View) -> bytes:
        """Run a wrapped program and return its output. Raises BackendError if it fails."""
        try:
            with self.command(argv, view) as (program, *options):
                completed = run_trial([program, *options], _PATIENCE)
        except (OSError, BackendError) as error:
            raise BackendError(f"{PROGRAM} could not be tried: {error}") from None
        if completed.returncode != 0:
            raise BackendError(refusal(completed.stderr.decode(errors="replace").strip()))
        return completed.stdout

    def repeatable(self, argv: Sequence[str], view: View) -> tuple[str, ...]:
        """Return bwrap and its options, which stand before ``argv``."""
        return (
            shutil.which(PROGRAM) or PROGRAM,
            *NAMESPACES,
            *(() if view.network else ("--unshare-net",)),
            *("--hostname", "cellblock", "--as-pid-1", "--die-with-parent", "--cap-drop", "ALL"),
            *_rights(view),
            *_mounts(argv, view),
            *("--remount-ro", "/", "--chdir", "/"),
        )

    def command(self, argv: Sequence[str], view: View) -> AbstractContextManager[list[str]]:
        """Return the wrapped command, with bwrap's options in a file.

        In a file they can't be seen in the list of processes: they name the policy's folders.
        """
        program, *options = self.repeatable(argv, view)
        return with_hidden_options(program, options, argv)

    def fingerprint(self) -> str:
        """Return the path and the identity of bwrap."""
        program = shutil.which(PROGRAM)
        return "" if program is None else file_identity(program)

    def mounted(self, view: View) -> tuple[str, ...]:
        """Return all of them: bwrap follows links when it mounts (its ``--bind-fd`` is recent)."""
        return view.movable

    def unseen(self, view: View) -> tuple[str, ...]:
        """Return names that exist here and are neither in nor above a path of ``view``."""
        visible = [*view.readable, *view.writable, *view.devices, *view.names, ALTERNATIVES]
        return names_apart_from(visible, filter(os.path.exists, _LOOKED_FOR))


def _rights(view: View) -> list[str]:
    """Return the options for capabilities that a zygote keeps until it takes its locks."""
    names = []
    # The zygote makes mounts of its own: layers, and read-only ones of all that cells don't write.
    if (view.staged or view.subprocess or view.neighbours or view.serves) and os.getuid() == 0:
        # Only a process with this capability may map root in a user namespace within this one
        # (user_namespaces(7)).
        names.append("CAP_SETFCAP")
    if view.own_mounts:
        # The zygote's mounter keeps this, to mount a /proc for each session.
        names.append("CAP_SYS_ADMIN")
    return [option for name in names for option in ("--cap-add", name)]


def _mounts(argv: Sequence[str], view: View) -> list[str]:
    """Return the options that build the file system, folders before what lies beneath them."""
    mounts: dict[str, tuple[str, ...]] = {}
    for path in outermost([*view.readable, *canonical([ALTERNATIVES, argv[0]])]):
        if not within(path, _PROC):
            mounts[path] = "--ro-bind-try", path, path
    visible = (*mounts, *view.writable)
    # Only the outermost: a mask beneath another mask would make its name anew.
    for path in outermost(path for path in view.masked if is_masked(path, visible)):
        is_folder = os.path.isdir(path)
        mounts[path] = ("--tmpfs", path) if is_folder else ("--ro-bind", os.devnull, path)
    mounts |= {path: ("--bind-try", path, path) for path in view.writable}
    mounts |= {path: ("--dev-bind-try", path, path) for path in view.devices}
    mounts[_PROC] = "--proc", _PROC
    if view.subprocess:
        mounts |= _beside_processes(path for path in view.readable if within(path, _PROC))
    if view.shared_memory:
        mounts[SHARED_MEMORY] = "--size", str(view.shared_memory), "--tmpfs", SHARED_MEMORY
    for link, target in STREAMS:
        mounts[link] = "--symlink", target, link
    for link, target in links([*argv, *view.names]):
        if not any(within(link, path) for path in mounts):
            mounts[link] = "--symlink", target, link
    # A read root that lies in a write root is part of that one, and writable like it.
    mounts = {
        path: options
        for path, options in mounts.items()
        if options[0] != "--ro-bind-try" or not any(within(path, root) for root in view.writable)
    }
    arguments = [argument for path in sorted(mounts, key=parts) for argument in mounts[path]]
    # Masks become read-only last, because there may be something to mount in them, such as devices
    # in /dev.
    masks = [path for path, options in mounts.items() if options[0] == "--tmpfs"]
    return arguments + [argument for path in masks for argument in ("--remount-ro", path)]


def _beside_processes(granted: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the options that cover all of /proc but processes, ``PROC_FILES`` and ``granted``.

    Cells that may start programs read /proc. It contains more than processes, most of it about the
    whole machine: keys of the user, memory of the OS kernel, devices. Every entry that exists now
    is covered, whatever it is called. Links are left, because they lead to something of a process.
    """
    visible = [*dict.fromkeys((*(path for path, _ in PROC_FILES), *granted))]
    mounts: dict[str, tuple[str, ...]] = {}
    for entry in entries_of(_PROC):
        if entry.name.isdigit() or entry.is_symlink() or entry.path in visible:
            continue
        if entry.is_dir():
            mounts[entry.path] = "--tmpfs", entry.path
            mounts |= {
                path: ("--ro-bind-try", path, path) for path in visible if within(path, entry.path)
            }
        else:
            mounts[entry.path] = "--ro-bind", os.devnull, entry.path
    return mounts


# --- why bwrap can't make namespaces here -----------------------------------------------------

MISSING: Final = "bwrap is not installed: install the package bubblewrap"
_INSTALL: Final = "sudo apt install bubblewrap"
_FAILS: Final = "it is installed, and `cellblock doctor --all` says why it is not used here"
_NOT_ASKED: Final = 'set backend = "auto" in the policy, and restart'
_SETTINGS: Final = Path("/proc/sys")
#: Settings, their values that forbid user namespaces to users other than root, and remedies.
_FORBIDDING: Final = (
    ("user.max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ("kernel.unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "kernel.apparmor_restrict_unprivileged_userns",
        "1",
        "an AppArmor profile for bwrap that has userns, or the setting 0",
    ),
)
_NO_RIGHTS: Final = "user namespaces have no rights here: see AppArmor, SELinux or the container"
_NO_MORE: Final = "no more user namespaces may be made: see user.max_user_namespaces"
#: Parts of bwrap's errors, and what they mean if no setting explains the failure.
_MEANINGS: Final = (
    ("Can't mount proc", "this container hides parts of /proc, so no new one can be mounted"),
    ("setuid", "this OS kernel has no user namespaces, and bwrap is not setuid root"),
    (
        "No permissions to creat",
        "user namespaces are forbidden here: by a container, or by seccomp",
    ),
    ("max_", _NO_MORE),
    ("No space left", _NO_MORE),
    ("uid map", _NO_RIGHTS),
    ("RTM_NEWADDR", _NO_RIGHTS),
)
_MAX_WORDS: Final = 300


def how_to_have(policy_backend: str) -> str:
    """Return how to get bubblewrap, for when it would hold more than the backend in use.

    ``policy_backend`` is the policy's ``backend``.
    """
    if policy_backend not in ("auto", Bubblewrap.name):
        return _NOT_ASKED
    if shutil.which(PROGRAM) is None:
        return f"install bubblewrap, and restart: {_INSTALL}"
    why = next(filter(None, (_forbids(*setting) for setting in _FORBIDDING)), "")
    return f"bubblewrap is installed, and {why}" if why else _FAILS


def forbidden() -> str | None:
    """Return which setting certainly forbids namespaces, or None.

    AppArmor's setting does not count, because there may be an exception for bwrap.
    """
    for setting in _FORBIDDING[:1] if os.getuid() == 0 else _FORBIDDING[:2]:
        if why := _forbids(*setting):
            return why
    return None


def refusal(error_text: str) -> str:
    """Return why bwrap failed: the setting at fault or what its error means, and the error."""
    reasons = [why for setting in _FORBIDDING if (why := _forbids(*setting))]
    reasons += [meaning for fragment, meaning in _MEANINGS if fragment in error_text]
    excerpt = error_text.removeprefix("bwrap: ")[:_MAX_WORDS]
    return f"{[*reasons, 'it fails here'][0]} (bwrap: {excerpt})"


def _forbids(name: str, value: str, remedy: str) -> str:
    """Return the remedy for a setting if it has this value, or ""."""
    try:
        setting = (_SETTINGS / name.replace(".", "/")).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
    return f"{name} is {value}; to allow it: {remedy}" if setting == value else ""
