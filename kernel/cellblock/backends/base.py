"""The interface of a backend, its declarations, and the choice of a backend for a policy.

A backend may wrap the zygote in a command (``command``). It names the locks that guests must take
(``locks``), and declares what it does about every field in ``DECLARED`` (``declarations``). Nothing
is declared by default: a backend that leaves a field out, or names one that does not exist, fails
when its module is imported.

Below the class is the choice (``choose``), and the declarations that no backend changes: what the
host does, and what resource limits do wherever a guest can set them.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from msgspec import Struct, structs

from cellblock.errors import BackendError
from cellblock.policy.model import CAPABILITIES, DECLARED, ROWS, Enforcement, Status
from cellblock.policy.network import is_loopback, parse_address
from cellblock.policy.paths import within
from cellblock.wire import messages

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Sequence

    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport, Neighbour


# --- the result of trying a backend -----------------------------------------------------------


class Support(Struct, frozen=True):
    """Whether a backend can be used on this machine, and how that is known.

    After a probe, ``usable`` is True only if the locks were seen to hold here. ``witnessed`` names
    the attempts that were seen to fail while their positive controls succeeded.
    """

    usable: bool
    why: str
    os_kernel: str
    abi: int
    witnessed: tuple[str, ...]
    time: str
    report: LockReport | None = None

    @property
    def evidence(self) -> str:
        """A line that says what was seen, where and when."""
        return f"{self.why}; Linux {self.os_kernel}, Landlock ABI {self.abi}; {self.time}"


def witnessed(names: Iterable[str], expected: Collection[str]) -> Support:
    """Return the support of a probe that saw ``names`` hold; usable if all ``expected`` did."""
    held = tuple(names)
    unseen = [name for name in expected if name not in held]
    why = f"not witnessed: {', '.join(unseen)}" if unseen else "seen to hold in a probe"
    return structs.replace(unprobed(why, usable=not unseen), witnessed=held)


def unprobed(why: str, *, usable: bool) -> Support:
    """Return a support that rests on no probe."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Support(usable, why, platform.release(), abi=0, witnessed=(), time=now)


# --- what a zygote sees -----------------------------------------------------------------------


class Bounds(Struct, frozen=True):
    """What a zygote, its guests and their copies may use together; None is no bound.

    ``scratch`` is their own writable folder, ``scratch_bytes`` its size.
    """

    scratch: str
    scratch_bytes: int | None
    memory_bytes: int | None
    tasks: int | None


class View(Struct, frozen=True):
    """What a wrapped zygote may see of the file system. All paths but ``names`` are canonical.

    ``readable`` are whole roots, beneath which the ``masked`` paths may lie. ``names`` are the
    spellings of paths that the interpreter and the host use, so the links on the way must exist.
    ``movable`` are roots that cells may move away: what is mounted there must be what the host
    finds there.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    masked: tuple[str, ...]
    devices: tuple[str, ...]
    names: tuple[str, ...]
    movable: tuple[str, ...] = ()
    network: bool = False
    bounds: Bounds | None = None
    subprocess: bool = False
    #: Whether the zygote lays layers.
    staged: bool = False
    #: Bytes of the zygote's own /dev/shm; 0 for none.
    shared_memory: int = 0
    #: Whether mounts are made for each session of the zygote.
    own_mounts: bool = False
    #: The listed hosts, for which the zygote listens in the session's own network.
    neighbours: tuple[Neighbour, ...] = ()
    #: Whether the zygote makes a network that the host can enter.
    serves: bool = False


#: Names that guests look up, to make sure that they don't see them.
_ENOUGH: Final = 3


def names_apart_from(visible: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the first few names that are neither in nor above a path that is shown."""
    apart = (
        name
        for name in names
        if not any(within(name, path) or within(path, name) for path in visible)
    )
    return tuple(islice(apart, _ENOUGH))


def file_identity(path: str) -> str:
    """Return a file's path with facts that tell it from another file put in its place."""
    status = os.stat(path)
    return f"{path} {status.st_dev}:{status.st_ino} {status.st_size} {status.st_mtime_ns}"


# --- trials: functions of this package that run behind a backend --------------------------------


def trial_argv(module: str, function: str, argument: str) -> list[str]:
    """Return the command that calls a function of a module with ``argument``."""
    program = (
        f"import sys; sys.path[:] = sys.argv[2:]; from {module} import {function} as call;"
        "call(sys.argv[1])"
    )
    path = [folder for folder in sys.path if folder.startswith("/")]
    interpreter = os.path.abspath(sys.executable)
    return [interpreter, "-I", "-S", "-X", "utf8", "-c", program, argument, *path]


def run_trial(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Run a command that a backend wrapped, to its end. Raises BackendError."""
    import subprocess  # noqa: PLC0415 - a zygote is started without it

    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=seconds,
            check=False,
            env={},
            close_fds=False,  # inheritable descriptors are meant for the command
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendError(str(error)) from None


# --- declarations -----------------------------------------------------------------------------


class Declaration(Struct, frozen=True):
    """What a backend claims about one capability, on any machine on which it works.

    The claim is void unless the guest achieves all ``locks``. If the guest has a gate, the
    mechanism is ``at_gate``, unless that is empty. An ``Enforcement`` says what the claim is worth
    on this machine.
    """

    status: Status
    mechanism: str
    holes: tuple[str, ...] = ()
    locks: tuple[str, ...] = ()
    at_gate: str = ""


#: A declaration, or a function that makes one if it depends on the policy.
Declare = Declaration | Callable[["Policy"], Declaration]


def holds(mechanism: str, *, locks: tuple[str, ...] = ()) -> Declaration:
    """Declare a mechanism without known holes."""
    return Declaration(Status.asserted, mechanism, (), locks)


def holds_within(
    mechanism: str, bound: str, *, known: bool, locks: tuple[str, ...] = ()
) -> Declaration:
    """Declare a mechanism that holds except for a bounded amount.

    If the bound is not ``known``, because the policy sets none, the amount is a hole.
    """
    if known:
        return holds(f"{mechanism}; within {bound}", locks=locks)
    return partly(mechanism, f"{bound}, of which the policy sets no limit", locks=locks)


def partly(mechanism: str, *holes: str, locks: tuple[str, ...] = ()) -> Declaration:
    """Declare a mechanism with these holes."""
    return Declaration(Status.partial, mechanism, holes, locks)


def unavailable(mechanism: str) -> Declaration:
    """Declare a mechanism that does not exist behind this backend."""
    return Declaration(Status.unavailable, mechanism)


def _by_host(field: str, policy: Policy) -> Declaration:
    """Return the declaration of what the host does about a field, as its row says."""
    mechanism = ROWS[field].host
    if not isinstance(mechanism, str):
        mechanism = mechanism[getattr(policy, field)]
    return holds(mechanism)


#: Nothing enforces the field.
UNENFORCED: Final = Declaration(Status.unenforced, "none")
#: Writes can't be staged.
UNSTAGED: Final = unavailable("no overlays: the folder `work` is made and can be written to")


class Backend(ABC):
    """One way of enforcing a policy on this machine."""

    name: ClassVar[str]
    #: The locks that a guest must take, all of them; () if there are none.
    locks: ClassVar[tuple[str, ...]]
    #: What this backend does about each capability. There are no defaults.
    declarations: ClassVar[Mapping[str, Declare]]

    def __init_subclass__(cls) -> None:
        declared = set(cls.declarations)
        if declared != set(DECLARED):
            missing = sorted(set(DECLARED) - declared)
            unknown = sorted(declared - set(DECLARED))
            raise TypeError(f"backend {cls.name}: undeclared {missing}, unknown {unknown}")

    # Whether the backend works here: three answers, each more certain and slower than the last.

    @abstractmethod
    def glance(self) -> Support:
        """Return in microseconds whether this backend is worth trying."""

    def attempt(self) -> Support:
        """Return in milliseconds whether a guest can start; guests report if their locks hold."""
        return self.glance()

    @abstractmethod
    def probe(self) -> Support:
        """Try the real locks in a child process. Never raises; what can't be tried is unusable."""

    #: Whether a policy that names this backend, if it can't be had, gets a weaker one and a gap.
    falls_back: ClassVar[bool] = True

    def configured(self, policy: Policy) -> Backend:
        """Return this backend with the settings that ``policy`` has for it."""
        del policy
        return self

    # The wrapping of a zygote.

    #: Whether ``command`` wraps zygotes. Then no zygote can start before its policy is read.
    wraps: ClassVar[bool] = False
    #: Whether the wrapping stays, as the zygote's parent; otherwise it becomes the zygote.
    stays: ClassVar[bool] = False
    #: Whether listed addresses can be added to a session's own network.
    adds_addresses: ClassVar[bool] = True
    #: Whether zygotes can lay layers over folders.
    stages: ClassVar[bool] = False
    #: Whether guests have a /proc and /dev/shm of their own.
    namespaces: ClassVar[bool] = False

    @property
    def separates_sessions(self) -> bool:
        """Whether guests of one zygote can have mounts of their own in these namespaces."""
        return False

    def why_no_list(self) -> str:
        """Return why listed hosts can't be reached from a session's own network; "" if they can."""
        return "sessions have no network of their own"

    def why_no_ports(self) -> str:
        """Return why the host can't connect to servers in a session's network; "" if it can."""
        return "sessions have no network that the host has a way into"

    #: Whether guests can have the devices that a policy grants.
    grants_devices: ClassVar[bool] = False

    def why_no_requests(self) -> str:
        """Return why granted devices take no requests (ioctl(2)); "" if they do."""
        return ""

    def command(self, argv: Sequence[str], view: View) -> AbstractContextManager[list[str]]:
        """Yield the command that starts the zygote: ``argv``, wrapped if this backend wraps.

        Files that the command reads stay open inside the context. Raises OSError, and PolicyError
        for a view that can't be kept.
        """
        del view
        return nullcontext(list(argv))

    def repeatable(self, argv: Sequence[str], view: View) -> tuple[str, ...]:
        """Return the words that ``command`` puts before ``argv``, if later starts can repeat them.

        A later kernel then starts its zygote with these words before it has read the policy. Return
        () if the words differ at each start, or are not all that a start needs.
        """
        del argv, view
        return ()

    def fingerprint(self) -> str:
        """Return a text that identifies the programs which ``command`` uses; "" if it uses none.

        Raises OSError if they can't be identified.
        """
        return ""

    def unseen(self, view: View) -> tuple[str, ...]:
        """Return names that exist here and that a guest behind ``command`` must not see."""
        del view
        return ()

    def mounted(self, view: View) -> tuple[str, ...]:
        """Return those of ``view.movable`` that ``command`` mounts by their names."""
        del view
        return ()

    def bounded(self, view: View) -> tuple[tuple[str, int], ...]:
        """Return the folders that ``command`` makes file systems of their own, with their bytes."""
        del view
        return ()

    # What the backend enforces.

    def declare(self, policy: Policy, support: Support) -> dict[str, Enforcement]:
        """Return what each capability is worth here, in the order of ``CAPABILITIES``."""
        declared = {}
        for capability in CAPABILITIES:
            declaration = self.declarations.get(capability) or _by_host(capability, policy)
            if not isinstance(declaration, Declaration):
                declaration = declaration(policy)
            if capability == "network_access" and has_list(policy) and declaration.locks:
                declaration = self._with_list(policy, declaration)
            if capability == "ports" and policy.ports:
                declaration = self._with_ports(policy)
            if capability == "devices" and policy.devices and declaration.locks:
                declaration = self._with_devices(policy, declaration)
            evidence = support.evidence if declaration.locks else ""
            declared[capability] = Enforcement(
                capability,
                declaration.status,
                declaration.mechanism,
                declaration.holes,
                evidence,
                declaration.locks,
                at_gate=declaration.at_gate,
            )
        return declared

    def _with_list(self, policy: Policy, declaration: Declaration) -> Declaration:
        """Return the declaration for a policy that lists addresses.

        If the list can't be kept to, there is no network at all.
        """
        if why := self.why_no_list():
            return unavailable(f"no network at all: {why}")
        if self.adds_addresses or not isinstance(policy.network_access, tuple):
            return declaration
        literals = [
            address for address in map(parse_address, policy.network_access) if address.literal
        ]
        missing = ", ".join(str(address) for address in literals if not is_loopback(address.host))
        if not missing:
            return declaration
        return partly(declaration.mechanism, f"{UNADDED}: {missing}", locks=declaration.locks)

    def _with_ports(self, policy: Policy) -> Declaration:
        """Return the declaration for a policy with ports. If they can't be kept to, none opens."""
        if why := self.why_no_ports():
            return unavailable(f"no port is opened: {why}")
        holes = [PAGES]
        if policy.port_hosts:
            hosts = ", ".join(policy.port_hosts)
            holes.append(f"pages of cells' servers have the origin and the cookies of {hosts}")
        return partly(PORTS, *holes)

    def _with_devices(self, policy: Policy, declaration: Declaration) -> Declaration:
        """Return a declaration of ``devices`` with its holes on this machine."""
        from cellblock.backends import devices  # noqa: PLC0415 - most policies have none

        local_devices = devices.find(policy.devices)
        holes = [DRIVERS_CODE]
        if local_devices.missing:
            holes.append(f"not here, or not yours to open: {', '.join(local_devices.missing)}")
        if local_devices.without_requests:
            paths = ", ".join(local_devices.without_requests)
            holes.append(f"read, written and mapped only, no request is known of: {paths}")
        if self.why_no_requests():
            holes.append(self.why_no_requests())
        return partly(declaration.mechanism, *holes, locks=declaration.locks)

    def enforcement(self, policy: Policy) -> dict[str, Enforcement]:
        """Return what each capability is worth on this machine, as far as a glance tells.

        If the backend can't be had nothing is enforced.
        """
        support = self.glance()
        declared = self.declare(policy, support)
        if support.usable:
            return declared
        return {
            name: replace(declaration, status=Status.unavailable, holes=(), evidence=support.why)
            for name, declaration in declared.items()
        }


# --- the choice of a backend --------------------------------------------------------------------

#: The class of each backend, by its name, which is that of its module; the strongest first. After
#: the backend that the policy names they are tried in this order, and the first that works is
#: taken. A module is imported only when its turn comes, because a kernel's start waits for that.
_CLASSES: Final = {
    "docker": "Docker",
    "bubblewrap": "Bubblewrap",
    "landlock": "Landlock",
    "seatbelt": "Seatbelt",
    "noop": "Noop",
}
ORDER: Final = tuple(_CLASSES)
#: Backends that are taken only if the policy names them.
ONLY_BY_NAME: Final = ("docker",)


class Chosen(Struct, frozen=True):
    """The chosen backend, its support, and the backends passed over before it, with reasons."""

    backend: Backend
    support: Support
    passed_over: tuple[tuple[str, str], ...]

    def declare(self, policy: Policy) -> dict[str, Enforcement]:
        """Return what each capability is worth here."""
        return self.backend.declare(policy, self.support)


@cache
def named(name: str) -> Backend:
    """Return the backend with this name. Raises BackendError for an unknown name."""
    if name not in _CLASSES:
        raise BackendError(f"no backend is called {name!r}")
    backend: Backend = getattr(import_module(f"cellblock.backends.{name}"), _CLASSES[name])()
    return backend


def choose(policy: Policy, how: Literal["probe", "attempt"] = "probe") -> Chosen:
    """Return the backend for ``policy``; ``how`` names the method that says whether one works.

    An "attempt" saves a kernel's start a third of a second: it takes a backend behind which a guest
    can start, and the guest's own report of its locks has the last word.

    Raises BackendError if the backend that the policy names can't be had and no other may replace
    it. Also if only noop is left and the policy asked for more, by ``on_unsupported = "error"`` or
    by requiring a capability.
    """
    passed_over: list[tuple[str, str]] = []
    preferred = [policy.backend] if policy.backend in _CLASSES else []
    for name in (
        *preferred,
        *(candidate for candidate in ORDER if candidate not in (*preferred, *ONLY_BY_NAME)),
    ):
        backend = named(name).configured(policy)
        support: Support = getattr(backend, how)()
        if support.usable:
            chosen = Chosen(backend, support, tuple(passed_over))
            _refuse_downgrade(policy, chosen)
            return chosen
        passed_over.append((name, support.why))
        if not backend.falls_back:
            raise BackendError(f"backend {name!r} can't be had here ({support.why})")
    raise BackendError("no backend works here")


def _refuse_downgrade(policy: Policy, chosen: Chosen) -> None:
    """Raise BackendError if the policy does not accept this backend instead of what it names."""
    if not chosen.passed_over or not (policy.on_unsupported == "error" or policy.required):
        return
    if policy.backend == chosen.backend.name:
        return
    strict = policy.on_unsupported == "error" and policy.backend != "auto"
    if chosen.backend.name != "noop" and not strict:
        return  # whatever it lacks is a gap, and each gap is judged by itself
    why = "; ".join(f"{name}: {reason}" for name, reason in chosen.passed_over)
    raise BackendError(
        f"backend {policy.backend!r} can't be had here ({why}). This policy runs nothing without; "
        'one with require = [] and on_unsupported = "warn" runs cells all the same'
    )


def has_list(policy: Policy) -> bool:
    """Whether the policy lists addresses: cells may reach these, and no others."""
    return isinstance(policy.network_access, tuple) and bool(policy.network_access)


# --- words that several backends use ----------------------------------------------------------

#: The mechanism that enforces a list of addresses.
NEIGHBOURS: Final = (
    "a network namespace of the session's own, with a loopback device at which listed hosts are; "
    "the host's relay looks up what is listed, connects to it, and copies bytes"
)
#: The mechanism for cells that may start programs (``backends.plan``).
OWN_NETWORK: Final = (
    "a network namespace of the session's own, with a loopback device and no other: sockets reach "
    "its own programs alone"
)
#: The mechanism by which a cell's server is reached, and nothing else.
PORTS: Final = (
    "the host listens on your loopback, and a process of its own continues what comes for that "
    "very address to the session's network, which it has entered"
)
#: The hole of ports: nobody looks at what a server answers.
PAGES: Final = "a page of a cell's server, open in your browser, can send what cells know anywhere"
#: The hole of a list if addresses can't be added to a network.
UNADDED: Final = "listed addresses are not reached, list their names"
#: How devices are granted.
DEVICES: Final = (
    "Landlock: of all devices these alone are opened and asked; the system call filter lets "
    "through what their drivers are asked"
)
#: The hole of devices: what a driver may open.
DRIVERS_CODE: Final = "a driver runs in the OS kernel: a fault in it is outside of every lock"
#: The hole of ``memory_max_bytes`` if devices are granted.
OF_DEVICES: Final = "memory of devices, and what a driver pins for cells, counts for no limit"
UNRESTRICTED_NETWORK: Final = holds("not restricted: TCP and UDP sockets")


def own_network(
    around: str, locks: tuple[str, ...], *, own: Callable[[Policy], object] = lambda _: False
) -> Callable[[Policy], Declaration]:
    """Return the declaration of ``network_access`` for guests with no network, or one of their own.

    ``around`` is the backend's mechanism beside the system call filter, followed by "; ". ``own``
    says whether cells that may start programs have a network of the session's own.
    """

    def declare(policy: Policy) -> Declaration:
        if policy.network_access is True:
            return UNRESTRICTED_NETWORK
        if policy.network_access:
            return holds(f"{NEIGHBOURS}; system call filter: TCP and UDP alone", locks=locks)
        if policy.subprocess_execution and own(policy):
            return holds(OWN_NETWORK, locks=locks)
        return holds(f"{around}system call filter: no socket is opened", locks=locks)

    return declare


def no_devices(policy: Policy) -> Declaration:
    """Declare ``devices`` for a backend whose guests can have none."""
    if policy.devices:
        return unavailable("no device is granted behind this backend")
    return holds("no device is granted")


def package_installation(locks: tuple[str, ...] = ()) -> Callable[[Policy], Declaration]:
    """Return the declaration of ``package_installation``, which no guest can do."""

    def declare(policy: Policy) -> Declaration:
        if policy.package_installation:
            return unavailable("the host alone installs packages")
        return holds("no folder on the import path is writable", locks=locks)

    return declare


# --- declarations that no backend changes: the host's, and resource limits -----------------------

#: Whether the host's monitor works here: whether one process can read another's processor time and
#: memory.
_MONITORED: Final = os.uname().sysname == "Linux"

#: What the host's monitor does about memory, without any lock.
MONITORED_MEMORY: Final = (
    partly(
        "the host kills a guest that it sees to hold an eighth more",
        "what is taken between two looks, a tenth of a second",
    )
    if _MONITORED
    else UNENFORCED
)


def _cpu(policy: Policy) -> Declaration:
    if not _MONITORED:
        return UNENFORCED
    mechanism = "the host reads the guest's processor clock, interrupts the cell, then kills it"
    if policy.subprocess_execution:
        return partly(
            mechanism,
            "processes that live for less than a tenth of a second, if their parent ignores that",
        )
    return holds(mechanism)


#: What the host's monitor does about the scratch folder.
SUMMED_SCRATCH: Final = "the host adds up the folder, interrupts the cell, then kills it"

#: What the host does about capabilities in which the operating system has a part. An entry says
#: what the code does today, not what is planned.
HOST: Final[Mapping[str, Declare]] = {
    "env_var_access": holds("the guest starts from an empty environment"),
    "snapshots": holds("a copy of the guest waits, from which what ran since is run again"),
    "undo_depth": holds("the host keeps as many copies"),
    "max_branches": holds("the host counts checkpoints and forks before it has one made"),
    "cpu_seconds": _cpu,
    "scratch_max_bytes": partly(
        SUMMED_SCRATCH,
        "what is written between two looks, a tenth of a second",
        "files that were removed while they are open or mapped: each of max_file_size",
    ),
    "idle_timeout": UNENFORCED,
    "ports": holds("no port is opened"),
    "devices": holds("no device is granted"),
}


def _processes(_policy: Policy) -> Declaration:
    """Return the declaration of ``max_processes``: counted at the gate, or by RLIMIT_NPROC."""
    counted = partly(
        "RLIMIT_NPROC",
        "counts everything this user runs, from the number at the guest's start",
        locks=("rlimits",),
    )
    return structs.replace(
        UNENFORCED if os.getuid() == 0 else counted,
        at_gate="the zygote counts this guest's threads and processes",
    )


#: What resource limits do wherever guests can set them (setrlimit(2)).
BY_RLIMITS: Final[Mapping[str, Declare]] = {
    **{field: holds(limit, locks=("rlimits",)) for field, limit in messages.RLIMITS.items()},
    "max_processes": _processes,
}
#: The same capabilities for guests that set no limits.
UNLIMITED: Final[Mapping[str, Declare]] = dict.fromkeys(
    messages.Limits.__struct_fields__, UNENFORCED
)
