"""Confinement: the locks that a guest takes before it runs the first byte of a user's code.

``confine`` takes them in a new guest, ``confine_zygote`` those of the zygote, before it imports
what a policy names. Both are called by the package ``guest`` alone.

Invariant: the process has one thread when it takes a lock, no lock can be undone, and a guest that
has not achieved all required locks runs nothing (promise P5). The order matters: capabilities are
dropped first, so that no later lock exempts a privileged process; no_new_privs comes before
Landlock and seccomp, which need it; seccomp comes last, because it refuses the calls that the other
locks are made of. Behind a gate, the limit on open files waits until the gate's listener is sent
(``process.limit_files`` says why).

- ``process``: a fork's first steps, capabilities and resource limits;
- ``landlock``: files and TCP ports;
- ``seccomp``: the system call filter, compiled from the tables ``arch`` and ``syscalls``;
- ``notify``: the gate, which lets the zygote decide some calls;
- ``witness``: checks that the locks hold, by attempts from ``guest.probes``;
- ``layer``: overlays over staged roots, which a zygote mounts before its locks;
- ``own_network``: a network for one session alone, with listed hosts as neighbours;
- ``session_mounts``: mounts for each session, if one zygote forks guests of several sessions;
- ``aside``: has a child of the zygote make a descriptor, within a time;
- ``libc``: makes the system calls.

May import the standard library, msgspec, ``wire`` and ``descriptors``, and of ``guest`` the modules
``probes``, ``mounting`` and ``violations``.
"""

from __future__ import annotations

import errno
import os
import resource
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from cellblock.guest.confine import arch, landlock, libc, notify, process, seccomp, witness
from cellblock.guest.confine.libc import ConfineError, LockFailed, fatal
from cellblock.guest.confine.process import close_inherited
from cellblock.guest.confine.syscalls import Grants
from cellblock.wire.messages import LockReport, Plan

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LOCKS", "ConfineError", "close_inherited", "confine", "confine_zygote", "prepare"]

#: Locks that a backend has put around the zygote. A guest only checks these, and does so first.
AROUND: Final = ("namespaces", "container")
#: Every lock that a guest takes, in the order in which they are taken.
LOCKS: Final = (
    "capabilities",
    "no_new_privs",
    "not_dumpable",
    "rlimits",
    "landlock",
    "seccomp",
)
#: Entry of a report, beside the locks: the probes that were refused.
WITNESS: Final = "witness"
#: Entry of a report, beside the locks: the guest is behind the gate.
GATE: Final = "gate"
_GATED: Final = ", behind a gate"
#: Characters of a statement: as many as a ``Name`` in a frame may have.
_LONGEST_STATEMENT: Final = 1_000


def prepare(plan: Plan) -> None:
    """Compile the guests' system call filter ahead, in the zygote, which each fork then has.

    Compiles that of guests behind a gate. If no gate can be set up, each guest compiles its own.
    """
    machine = arch.current()
    if machine is not None and "seccomp" in plan.locks:
        seccomp.build(machine.name, _grants(plan, landlock.abi(machine), gated=True))


def confine(
    plan: Plan,
    *,
    hand_over: Callable[[int], None] | None = None,
    highest_abi: int = landlock.HIGHEST_KNOWN_ABI,
) -> LockReport:
    """Take every lock in ``plan.locks`` and report how each came out.

    Call it in the newly forked guest, before any thread exists. ``hand_over`` must send the gate's
    listener, whose descriptor it gets, to the zygote. The guest is then behind the gate
    (``notify``), and this function never returns if the zygote doesn't answer from then on. Without
    ``hand_over`` there is no gate. ``highest_abi`` makes tests on a new OS kernel behave as on an
    old one.

    Raises ConfineError if a lock that ``plan.required`` names was not achieved or is not known, or
    if a second thread exists. The caller must then end the process.
    """
    for lock in (*plan.required, *plan.locks):
        if lock not in (*AROUND, *LOCKS):
            raise ConfineError(lock, 0, "no such lock")
    for lock in plan.required:
        if lock not in plan.locks:
            raise ConfineError(lock, 0, "required, but not planned")
    if plan.locks:
        _require_one_thread()
    outcome = _Outcome(plan)
    for lock, take in _locks(plan, hand_over, highest_abi):
        outcome.take(lock, take)
    # Taking the lock "namespaces" already consists of looking for names that must not be there. So
    # there is nothing more to try, only to be named.
    outcome.witness("namespaces", lambda: "names" if plan.unseen else "")
    for lock in ("landlock", "seccomp"):
        outcome.witness(lock, partial(witness.see, lock, plan))
    if outcome.achieved.get("seccomp", "").endswith(_GATED):
        outcome.achieved[GATE] = "starts and foreign signals are the zygote's to decide"
    return LockReport(achieved=outcome.achieved, failed=outcome.failed)


def confine_zygote(plan: Plan, *, around: bool) -> None:
    """Take, in a zygote, the locks of its guests. ``plan`` is the widest plan of these.

    The zygote keeps the calls that its work takes (``syscalls.ZYGOTE``), and has no limit on open
    files, as it holds some for each guest. ``around`` says that namespaces show the zygote no more
    than its guests may see: then it needs no Landlock, and may remove files that guests leave.
    Raises ConfineError as ``confine`` does.
    """
    machine = arch.current()
    outcome = _Outcome(plan)
    if machine is None:
        return  # no guest can take its locks either, so none will be ready
    version = min(landlock.abi(machine), plan.highest_abi or landlock.HIGHEST_KNOWN_ABI)
    grants = replace(_grants(plan, version, gated=True), zygote=True, removing=around)
    grants = replace(grants, entering=plan.own_mounts)
    outcome.take("capabilities", lambda: process.drop_capabilities(machine))
    outcome.take("no_new_privs", process.no_new_privs)
    outcome.take("rlimits", lambda: process.apply_limits(plan.limits, gated=True))
    if not around:
        outcome.take("landlock", lambda: landlock.apply(plan, machine, version))
    outcome.take(
        "seccomp", lambda: seccomp.load(machine, seccomp.build(machine.name, grants), os.getpid())
    )


class _Outcome:
    """The outcome of a plan's locks, as far as they have been tried."""

    def __init__(self, plan: Plan) -> None:
        self._planned = plan.locks
        self._required = plan.required
        self.achieved: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def take(self, lock: str, take: Callable[[], str]) -> None:
        """Take a lock, or one more part of it, if it is planned and has not failed.

        ``take`` returns a statement for the report. Raises ConfineError if a required lock fails.
        """
        if lock in self._planned and lock not in self.failed:
            before = self.achieved.pop(lock, "")
            statement = self._try(lock, take)
            if statement is not None:
                self.achieved[lock] = ", ".join(filter(None, (before, statement)))

    def witness(self, lock: str, look: Callable[[], str]) -> None:
        """Check that a lock that was taken holds. If it doesn't, it counts as failed.

        ``look`` returns the names of the probes that were refused.
        """
        if lock not in self.achieved:
            return
        refused = self._try(lock, look)
        if refused is None:
            del self.achieved[lock]
        elif refused:
            before = self.achieved.get(WITNESS)
            self.achieved[WITNESS] = f"{before}, {refused}" if before else refused

    def _try(self, lock: str, act: Callable[[], str]) -> str | None:
        """Call ``act``; return its statement, or None if it failed.

        Raises ConfineError if it failed and the lock is required.
        """
        try:
            return act()[:_LONGEST_STATEMENT]
        except (OSError, ValueError, LockFailed) as error:
            self.failed[lock] = str(error)[:_LONGEST_STATEMENT]
            if lock in self._required:
                raise fatal(lock, error) from error
        return None


def _require_one_thread() -> None:
    # Landlock (below ABI 8) and capset restrict the calling thread only.
    try:
        threads = process.thread_count()
    except OSError as error:
        raise ConfineError("process", error.errno or 0, "can't count threads") from error
    if threads != 1:
        raise ConfineError("process", 0, f"{threads} threads exist, locks reach only one")


def _locks(
    plan: Plan, hand_over: Callable[[int], None] | None, highest_abi: int
) -> list[tuple[str, Callable[[], str]]]:
    """Return the functions that take the locks, in the order in which they must be called.

    Some locks have several parts. Open files are limited between the gate, whose listener must be
    sent before, and the main filter, after which no limit can be set.
    """
    machine = arch.current()
    if machine is None:
        return [(lock, _unknown_machine) for lock in (*AROUND, *LOCKS)]
    version = min(landlock.abi(machine), highest_abi, plan.highest_abi or highest_abi)
    gated = False

    def gate() -> str:
        nonlocal gated
        gated = _install_gate(machine, _grants(plan, version, gated=True), hand_over)
        if hand_over is not None and not gated and plan.limits.max_processes is not None:
            process.limit_tasks(plan.limits.max_processes)
        return ""

    def filter_calls() -> str:
        program = seccomp.build(machine.name, _grants(plan, version, gated=gated))
        statement = seccomp.load(machine, program, os.getpid())
        return statement + _GATED if gated else statement

    most = plan.limits.max_open_files
    return [
        ("namespaces", lambda: witness.look_at_namespaces(plan)),
        ("container", lambda: witness.look_at_container(plan)),
        ("capabilities", lambda: process.drop_capabilities(machine)),
        ("no_new_privs", process.no_new_privs),
        ("not_dumpable", process.not_dumpable),
        ("rlimits", lambda: process.apply_limits(plan.limits, gated=hand_over is not None)),
        ("landlock", lambda: landlock.apply(plan, machine, version)),
        ("seccomp", gate),
        ("rlimits", lambda: process.limit_files(most, sockets=plan.has_sockets)),
        ("seccomp", filter_calls),
    ]


def _install_gate(
    machine: arch.Arch, grants: Grants, hand_over: Callable[[int], None] | None
) -> bool:
    """Put this process behind the gate; return whether that was possible.

    There can be no second listener if this process already has one above it, such as a container's
    (EBUSY), and OS kernels before 5.0 have none (EINVAL). The main filter then refuses the calls
    that the gate would decide, and nothing can fork, so there are no snapshots.
    """
    if hand_over is None:
        return False
    try:
        notify.install(machine, os.getpid(), grants, hand_over)
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EINVAL, errno.ENOSYS):
            raise
        return False
    return True


def _unknown_machine() -> str:
    raise LockFailed("no system call table for this architecture")


def _grants(plan: Plan, version: int, *, gated: bool) -> Grants:
    """Return what the system call filter allows. ``version`` is the Landlock ABI."""
    decides = version if "landlock" in plan.locks else 0
    # ``stacks`` is the address below which nothing can be a program's first stack. Linux puts that
    # stack at random into the last 16 GiB of the address space, lets it grow by RLIMIT_STACK, and
    # keeps all other memory below it and a gap of 1 MiB (``mmap_base`` in arch/x86/mm/mmap.c of the
    # OS kernel). An address on our own stack tells how large the space is. If none is known,
    # ``stacks`` is 0 and no memory may be moved.
    soft = resource.getrlimit(resource.RLIMIT_STACK)[0]
    limited = plan.limits.memory_max_bytes or 4 << 30
    grows = min(4 << 30, limited, limited if soft == resource.RLIM_INFINITY else soft)
    stacks = max(0, (1 << libc.on_first_stack().bit_length()) - (16 << 30) - grows - (1 << 20))
    return Grants(
        network=plan.has_sockets,
        local=plan.local_sockets,
        subprocess=plan.subprocess,
        scoped=decides >= landlock.SCOPE_ABI,
        truncate=decides >= landlock.TRUNCATE_ABI,
        # A filter can't see which file a descriptor refers to. So it lets ioctl(2) requests for
        # devices through only if Landlock decides which devices take them.
        requests=plan.device_requests if decides >= landlock.IOCTL_ABI else frozenset(),
        gated=gated,
        attributes=plan.attributes,
        apart=plan.apart,
        own_users="namespaces" in plan.locks,
        user=os.geteuid(),
        group=os.getegid(),
        stacks=stacks,
    )
