"""Confinement: what a guest does to itself before the first user byte.

Invariant: every lock is taken by the one thread there is, none can be taken back, and a guest
whose required locks are not all achieved runs nothing (promise P5). The order matters: dropping
capabilities first means that nothing after it is exempt; no_new_privs comes before Landlock and
seccomp, which need it; seccomp comes last, because it refuses the calls that the others are. One
resource limit waits for it: behind a gate, open files are limited once the gate's listener is sent
(``process.limit_files`` says why).

- ``process``: a fork's first steps, capabilities and resource limits;
- ``landlock``: files and TCP ports;
- ``seccomp``: the filter that is compiled from the tables ``arch`` and ``syscalls``;
- ``notify``: the gate: calls that the zygote decides;
- ``witness``: sees the locks hold, by attempts of ``guest.probes``;
- ``layer``: what a zygote mounts before its locks: overlays over staged roots;
- ``own_network``: a network that a session has to itself, with listed hosts as neighbours;
- ``session_mounts``: mounts of one session, where guests of several are forked from one zygote;
- ``aside``: a descriptor that a child of the zygote makes, within a time;
- ``libc``: makes the system calls.

May import the standard library, msgspec, ``wire`` and ``descriptors``, and of ``guest`` those
attempts, ``mounting`` and ``violations``.
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

#: What a backend has put around the zygote, and a guest can only look at. Looked at first.
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
#: Beside the locks, a report says under this name what was seen to be refused.
WITNESS: Final = "witness"
#: Likewise, under this name, that the guest is under the gate.
GATE: Final = "gate"
_GATED: Final = ", behind a gate"
#: Statements travel in a frame of bounded names.
_LONGEST_STATEMENT: Final = 1_000


def prepare(plan: Plan) -> None:
    """Do ahead, in the zygote, what does not depend on the guest: compile the filter.

    That of guests behind a gate: where there can be none, each compiles its own.
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

    Call it in the freshly forked guest, before any thread exists. With ``hand_over``, which is
    given the listener's descriptor and sends it to the zygote, the guest is under the gate
    (``notify``); the zygote must answer from then on, or this never returns. ``highest_abi``
    makes tests on a new OS kernel behave as on an old one. Raises ConfineError if a lock that
    ``plan.required`` names was not achieved, or is not known, or a second thread exists; the
    caller must then end the process.
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
    # What the namespaces' lock looked for is what it is, so its statement is what was witnessed.
    outcome.witness("namespaces", lambda: "names" if plan.unseen else "")
    for lock in ("landlock", "seccomp"):
        outcome.witness(lock, partial(witness.see, lock, plan))
    if outcome.achieved.get("seccomp", "").endswith(_GATED):
        outcome.achieved[GATE] = "starts and foreign signals are the zygote's to decide"
    return LockReport(achieved=outcome.achieved, failed=outcome.failed)


def confine_zygote(plan: Plan, *, around: bool) -> None:
    """Take, in a zygote, what all of its guests are under: ``plan`` is the widest of theirs.

    Less what it takes to be one (``syscalls.ZYGOTE``), and less a limit on open files, of which it
    has some for each guest. ``around`` says that namespaces show it no more than that, so that no
    Landlock is needed; it then removes what guests leave. Raises ConfineError as ``confine`` does.
    """
    machine, outcome = arch.current(), _Outcome(plan)
    if machine is None:
        return  # no guest will be ready
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
    """How the locks of a plan came out, so far."""

    def __init__(self, plan: Plan) -> None:
        self._planned, self._required = plan.locks, plan.required
        self.achieved: dict[str, str] = {}
        self.failed: dict[str, str] = {}

    def take(self, lock: str, take: Callable[[], str]) -> None:
        """Take a lock, or the rest of it, if it is planned and has not failed.

        Raises ConfineError if it fails and is required.
        """
        if lock in self._planned and lock not in self.failed:
            before, statement = self.achieved.pop(lock, ""), self._try(lock, take)
            if statement is not None:
                self.achieved[lock] = ", ".join(filter(None, (before, statement)))

    def witness(self, lock: str, look: Callable[[], str]) -> None:
        """Look whether a lock holds that was taken; one that does not is not achieved."""
        if lock not in self.achieved:
            return
        seen = self._try(lock, look)
        if seen is None:
            del self.achieved[lock]
        elif seen:
            before = self.achieved.get(WITNESS)
            self.achieved[WITNESS] = f"{before}, {seen}" if before else seen

    def _try(self, lock: str, act: Callable[[], str]) -> str | None:
        try:
            return act()[:_LONGEST_STATEMENT]
        except (OSError, ValueError, LockFailed) as error:
            self.failed[lock] = str(error)[:_LONGEST_STATEMENT]
            if lock in self._required:
                raise fatal(lock, error) from error
        return None


def _require_one_thread() -> None:
    # Landlock (below ABI 8) and capset reach the calling thread only.
    try:
        threads = process.thread_count()
    except OSError as error:
        raise ConfineError("process", error.errno or 0, "can't count threads") from error
    if threads != 1:
        raise ConfineError("process", 0, f"{threads} threads exist, locks reach only one")


def _locks(
    plan: Plan, hand_over: Callable[[int], None] | None, highest_abi: int
) -> list[tuple[str, Callable[[], str]]]:
    """Return what takes each lock, in the order in which they are taken.

    Open files are limited between the gate, whose listener is sent, and the filter, which lets
    nobody set limits.
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
    """Put this process under the gate; return whether that was possible.

    Where a listener is above us already (a container's, say) there can be no second one (EBUSY),
    and OS kernels before 5.0 have none (EINVAL): the main filter then refuses what the gate asks
    about, and nothing forks, snapshots neither.
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
    decides = version if "landlock" in plan.locks else 0
    # A program's first stack is put at random in the last 16 GiB of the address space and grows by
    # RLIMIT_STACK; all else lies below that and a gap of 1 MiB (``mmap_base`` in
    # arch/x86/mm/mmap.c of the OS kernel). How large the space is, an address on our own stack
    # tells; where nobody knows one, no memory is moved.
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
        # A filter can't see which file a descriptor is: only where Landlock decides which device
        # may be asked are there requests that a filter lets through.
        requests=plan.device_requests if decides >= landlock.IOCTL_ABI else frozenset(),
        gated=gated,
        attributes=plan.attributes,
        apart=plan.apart,
        own_users="namespaces" in plan.locks,
        user=os.geteuid(),
        group=os.getegid(),
        stacks=stacks,
    )
