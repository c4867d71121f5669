"""What a backend is, what it says of itself, and which one carries a policy on this machine.

A backend may put a command in front of the zygote (``command``), names the locks that guests must
take (``locks``), and declares what it does about every field in ``DECLARED`` (``declarations``).
Nothing is declared by default: a backend that forgets one, or names one that does not exist, fails
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


# --- what a probe finds -----------------------------------------------------------------------


class Support(Struct, frozen=True):
    """What a probe found. ``usable`` is True only if it saw the locks hold here.

    ``witnessed`` names what it saw: each attempt failed and its positive control succeeded.
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
        """One line: what was seen, where, when."""
        return f"{self.why}; Linux {self.os_kernel}, Landlock ABI {self.abi}; {self.time}"


def witnessed(names: Iterable[str], expected: Collection[str]) -> Support:
    """Return a support for what a probe saw hold, which is usable if that is all it had to."""
    seen = tuple(names)
    unseen = [name for name in expected if name not in seen]
    why = f"not witnessed: {', '.join(unseen)}" if unseen else "seen to hold in a probe"
    return structs.replace(unprobed(why, usable=not unseen), witnessed=seen)


def unprobed(why: str, *, usable: bool) -> Support:
    """Return a support that no probe backs."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return Support(usable, why, platform.release(), abi=0, witnessed=(), time=now)


# --- what a zygote sees -----------------------------------------------------------------------


class Bounds(Struct, frozen=True):
    """What a zygote, its guests and their copies may take together; None is no bound.

    ``scratch`` is their own writable folder, and ``scratch_bytes`` its size.
    """

    scratch: str
    scratch_bytes: int | None
    memory_bytes: int | None
    tasks: int | None


class View(Struct, frozen=True):
    """What a wrapped zygote is to see of the file system. All paths but ``names`` are canonical.

    ``readable`` are whole roots; what is ``masked`` may lie beneath them. ``names`` are the
    spellings that the interpreter and the host use: the links on the way have to exist.
    ``movable`` are roots that cells may move: what is mounted there has to be what the host finds.
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
    #: Bytes of a /dev/shm of its own; 0 for none.
    shared_memory: int = 0
    #: Whether mounts are made for each session of the zygote's.
    own_mounts: bool = False
    #: The listed hosts that the zygote has listen in a network of the session's own.
    neighbours: tuple[Neighbour, ...] = ()
    #: Whether it makes a network that the host has a way into.
    serves: bool = False


#: Names that guests look for, to see that they are not there.
_ENOUGH: Final = 3


def names_apart_from(shown: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Return the first few names that neither are nor lead to anything that is shown."""
    found = (
        name
        for name in names
        if not any(within(name, other) or within(other, name) for other in shown)
    )
    return tuple(islice(found, _ENOUGH))


def file_identity(path: str) -> str:
    """Return a file's path and what tells it from another that may be put there."""
    found = os.stat(path)
    return f"{path} {found.st_dev}:{found.st_ino} {found.st_size} {found.st_mtime_ns}"


# --- programs of ours that are tried behind a wrapper -------------------------------------------


def trial_argv(module: str, function: str, argument: str) -> list[str]:
    """Return the program that calls a function of a module with ``argument``."""
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
            close_fds=False,  # what is inheritable is for it
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendError(str(error)) from None


# --- what a backend declares ------------------------------------------------------------------


class Declaration(Struct, frozen=True):
    """What a backend claims about one capability, wherever it works.

    The claim is void where the guest does not achieve one of ``locks``. Where the guest has a gate,
    the mechanism is ``at_gate``, unless that is empty. What the claim is worth on this machine is
    an ``Enforcement``.
    """

    status: Status
    mechanism: str
    holes: tuple[str, ...] = ()
    locks: tuple[str, ...] = ()
    at_gate: str = ""


#: A declaration, or what makes one where it depends on the policy.
Declare = Declaration | Callable[["Policy"], Declaration]


def holds(mechanism: str, *, locks: tuple[str, ...] = ()) -> Declaration:
    """Declare a mechanism without known holes, which no probe attempts to break."""
    return Declaration(Status.asserted, mechanism, (), locks)


def holds_within(
    mechanism: str, bound: str, *, known: bool, locks: tuple[str, ...] = ()
) -> Declaration:
    """Declare a mechanism that holds but for a bounded amount: a hole where that is not known."""
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
    """Return what the field's row says that the host does about it."""
    mechanism = ROWS[field].host
    if not isinstance(mechanism, str):
        mechanism = mechanism[getattr(policy, field)]
    return holds(mechanism)


#: Nothing enforces it.
UNENFORCED: Final = Declaration(Status.unenforced, "none")
UNSTAGED: Final = unavailable("no overlays: the folder `work` is made and can be written to")


class Backend(ABC):
    """One way of enforcing a policy on this machine."""

    name: ClassVar[str]
    #: The guest's locks, all of them required; () if the guest takes none.
    locks: ClassVar[tuple[str, ...]]
    #: Capability to what this backend does about it. No defaults.
    declarations: ClassVar[Mapping[str, Declare]]

    def __init_subclass__(cls) -> None:
        declared = set(cls.declarations)
        if declared != set(DECLARED):
            missing = sorted(set(DECLARED) - declared)
            unknown = sorted(declared - set(DECLARED))
            raise TypeError(f"backend {cls.name}: undeclared {missing}, unknown {unknown}")

    # Whether it works here: three answers, each more certain and slower than the one before.

    @abstractmethod
    def glance(self) -> Support:
        """Return in microseconds whether it is worth trying."""

    def attempt(self) -> Support:
        """Return in milliseconds whether a guest can start; whether locks hold, guests report."""
        return self.glance()

    @abstractmethod
    def probe(self) -> Support:
        """Try the real locks in a child process. Never raises; what can't be tried is unusable."""

    #: Whether a policy that names it gets a weaker one and a gap, where it can't be had.
    falls_back: ClassVar[bool] = True

    def configured(self, policy: Policy) -> Backend:
        """Return this backend with the settings that ``policy`` has for it."""
        del policy
        return self

    # What goes around a zygote.

    #: Whether ``command`` puts one in front; then no zygote can start before its policy is read.
    wraps: ClassVar[bool] = False
    #: Whether that command stays, as the zygote's parent; else it becomes the zygote.
    stays: ClassVar[bool] = False
    #: Whether listed addresses can be added to a session's own network.
    adds_addresses: ClassVar[bool] = True
    #: Whether its zygotes can lay layers over folders.
    stages: ClassVar[bool] = False
    #: Whether /proc and /dev/shm are the guests' own.
    namespaces: ClassVar[bool] = False

    @property
    def separates_sessions(self) -> bool:
        """Whether guests of one zygote can have mounts of their own in those namespaces."""
        return False

    def why_no_list(self) -> str:
        """Return why no host can be a neighbour in a session's own network; empty where it can."""
        return "sessions have no network of their own"

    def why_no_ports(self) -> str:
        """Return why the host can't connect to servers in a session's own network; else nothing."""
        return "sessions have no network that the host has a way into"

    #: Whether its guests can have devices of the policy's.
    grants_devices: ClassVar[bool] = False

    def why_no_requests(self) -> str:
        """Return why granted devices can't be asked anything (ioctl(2)); empty where they can."""
        return ""

    def command(self, argv: Sequence[str], view: View) -> AbstractContextManager[list[str]]:
        """Yield the command that starts the zygote; unchanged where nothing wraps it.

        What the command reads stays open inside the context. Raises OSError, and PolicyError for a
        view that can't be kept.
        """
        del view
        return nullcontext(list(argv))

    def repeatable(self, argv: Sequence[str], view: View) -> tuple[str, ...]:
        """Return what ``command`` puts in front, if the next start may repeat it as a guess.

        Empty where each start is its own, or takes more than arguments.
        """
        del argv, view
        return ()

    def fingerprint(self) -> str:
        """Return what tells the programs that ``command`` uses from others; "" where it uses none.

        Raises OSError where that can't be known.
        """
        return ""

    def unseen(self, view: View) -> tuple[str, ...]:
        """Return names that are here and that a guest behind ``command`` must not see."""
        del view
        return ()

    def mounted(self, view: View) -> tuple[str, ...]:
        """Return those of ``view.movable`` that ``command`` mounts by their names."""
        del view
        return ()

    def bounded(self, view: View) -> tuple[tuple[str, int], ...]:
        """Return folders that are file systems of their own behind it, and their bytes."""
        del view
        return ()

    # What that enforces.

    def declare(self, policy: Policy, support: Support) -> dict[str, Enforcement]:
        """Return what each capability is worth here, in the order of ``CAPABILITIES``."""
        declared = {}
        for capability in CAPABILITIES:
            said = self.declarations.get(capability) or _by_host(capability, policy)
            if not isinstance(said, Declaration):
                said = said(policy)
            if capability == "network_access" and has_list(policy) and said.locks:
                said = self._with_list(policy, said)
            if capability == "ports" and policy.ports:
                said = self._with_ports(policy)
            if capability == "devices" and policy.devices and said.locks:
                said = self._with_devices(policy, said)
            evidence = support.evidence if said.locks else ""
            declared[capability] = Enforcement(
                capability,
                said.status,
                said.mechanism,
                said.holes,
                evidence,
                said.locks,
                at_gate=said.at_gate,
            )
        return declared

    def _with_list(self, policy: Policy, said: Declaration) -> Declaration:
        """Return what a list of addresses is worth: nothing is reached where it can't be kept."""
        if why := self.why_no_list():
            return unavailable(f"no network at all: {why}")
        if self.adds_addresses or not isinstance(policy.network_access, tuple):
            return said
        literals = [each for each in map(parse_address, policy.network_access) if each.literal]
        missing = ", ".join(str(each) for each in literals if not is_loopback(each.host))
        if not missing:
            return said
        return partly(said.mechanism, f"{UNADDED}: {missing}", locks=said.locks)

    def _with_ports(self, policy: Policy) -> Declaration:
        """Return what ports are worth: nothing is served where it can't be by these alone."""
        if why := self.why_no_ports():
            return unavailable(f"no port is opened: {why}")
        holes = [PAGES]
        if policy.port_hosts:
            shown = ", ".join(policy.port_hosts)
            holes.append(f"pages of cells' servers have the origin and the cookies of {shown}")
        return partly(PORTS, *holes)

    def _with_devices(self, policy: Policy, said: Declaration) -> Declaration:
        """Return what devices are worth: what is missing here, and what a driver may open."""
        from cellblock.backends import devices  # noqa: PLC0415 - most policies have none

        found = devices.find(policy.devices)
        holes = [DRIVERS_CODE]
        if found.missing:
            holes.append(f"not here, or not yours to open: {', '.join(found.missing)}")
        if found.without_requests:
            shown = ", ".join(found.without_requests)
            holes.append(f"read, written and mapped only, no request is known of: {shown}")
        if self.why_no_requests():
            holes.append(self.why_no_requests())
        return partly(said.mechanism, *holes, locks=said.locks)

    def enforcement(self, policy: Policy) -> dict[str, Enforcement]:
        """Return what each capability is worth on this machine, as far as a glance tells.

        Nothing is enforced where the backend can't be had.
        """
        support = self.glance()
        declared = self.declare(policy, support)
        if support.usable:
            return declared
        return {
            name: replace(each, status=Status.unavailable, holes=(), evidence=support.why)
            for name, each in declared.items()
        }


# --- which one carries a policy here, and why not the others ------------------------------------

#: Backends by their module's name and their class, strongest first. After the one that the policy
#: names, the first is taken that its probe shows to work. A module is imported when its turn comes:
#: a kernel's start waits for that.
_CLASSES: Final = {
    "docker": "Docker",
    "bubblewrap": "Bubblewrap",
    "landlock": "Landlock",
    "seatbelt": "Seatbelt",
    "noop": "Noop",
}
ORDER: Final = tuple(_CLASSES)
#: Taken only where the policy names it.
ONLY_BY_NAME: Final = ("docker",)


class Chosen(Struct, frozen=True):
    """The backend, what its probe found, and which stronger or wished-for ones fell away."""

    backend: Backend
    support: Support
    passed_over: tuple[tuple[str, str], ...]

    def declare(self, policy: Policy) -> dict[str, Enforcement]:
        """Return what each capability is worth here."""
        return self.backend.declare(policy, self.support)


@cache
def named(name: str) -> Backend:
    """Return a backend by its name, the same each time. Raises BackendError for an unknown name."""
    if name not in _CLASSES:
        raise BackendError(f"no backend is called {name!r}")
    made: Backend = getattr(import_module(f"cellblock.backends.{name}"), _CLASSES[name])()
    return made


def choose(policy: Policy, how: Literal["probe", "attempt"] = "probe") -> Chosen:
    """Return the backend for ``policy``; ``how`` is the method of each that says whether it works.

    An ``attempt`` spares a kernel's start a third of a second: one is taken behind which a guest
    can start, and its own locks have the last word.

    Raises BackendError where the one that the policy names can't be had and nothing may replace
    it; and where none but noop is left and the policy asked for more, by ``on_unsupported =
    "error"`` or by requiring a capability.
    """
    passed_over: list[tuple[str, str]] = []
    asked = [policy.backend] if policy.backend in _CLASSES else []
    for name in (*asked, *(each for each in ORDER if each not in (*asked, *ONLY_BY_NAME))):
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
    if not chosen.passed_over or not (policy.on_unsupported == "error" or policy.required):
        return
    if policy.backend == chosen.backend.name:
        return
    strict = policy.on_unsupported == "error" and policy.backend != "auto"
    if chosen.backend.name != "noop" and not strict:
        return  # what it lacks is a gap, and each gap is looked at
    why = "; ".join(f"{name}: {reason}" for name, reason in chosen.passed_over)
    raise BackendError(
        f"backend {policy.backend!r} can't be had here ({why}). This policy runs nothing without; "
        'one with require = [] and on_unsupported = "warn" runs cells all the same'
    )


def has_list(policy: Policy) -> bool:
    """Whether there are addresses that cells may reach, and others that they may not."""
    return isinstance(policy.network_access, tuple) and bool(policy.network_access)


# --- words that several backends use ----------------------------------------------------------

#: How a list of addresses is enforced.
NEIGHBOURS: Final = (
    "a network namespace of the session's own, with a loopback device at which listed hosts are; "
    "the host's relay looks up what is listed, connects to it, and copies bytes"
)
#: What cells that may start programs have (``backends.plan``).
OWN_NETWORK: Final = (
    "a network namespace of the session's own, with a loopback device and no other: sockets reach "
    "its own programs alone"
)
#: How a cell's server is reached, and no other thing.
PORTS: Final = (
    "the host listens on your loopback, and a process of its own continues what comes for that "
    "very address to the session's network, which it has entered"
)
#: What it opens beside that: nobody looks at what a server answers.
PAGES: Final = "a page of a cell's server, open in your browser, can send what cells know anywhere"
#: Of addresses, where they can't be added to a network.
UNADDED: Final = "listed addresses are not reached, list their names"
#: How devices are granted, and what that opens beside them.
DEVICES: Final = (
    "Landlock: of all devices these alone are opened and asked; the system call filter lets "
    "through what their drivers are asked"
)
DRIVERS_CODE: Final = "a driver runs in the OS kernel: a fault in it is outside of every lock"
#: What no limit of memory counts.
OF_DEVICES: Final = "memory of devices, and what a driver pins for cells, counts for no limit"
UNRESTRICTED_NETWORK: Final = holds("not restricted: TCP and UDP sockets")


def own_network(
    around: str, locks: tuple[str, ...], *, own: Callable[[Policy], object] = lambda _: False
) -> Callable[[Policy], Declaration]:
    """Declare ``network_access`` where guests have no network, or one of their own.

    ``around`` is what a backend has beside the system call filter, with "; " behind it; ``own``
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
    """Declare ``devices`` where guests can have none."""
    if policy.devices:
        return unavailable("no device is granted behind this backend")
    return holds("no device is granted")


def package_installation(locks: tuple[str, ...] = ()) -> Callable[[Policy], Declaration]:
    """Declare ``package_installation``, which no guest can do."""

    def declare(policy: Policy) -> Declaration:
        if policy.package_installation:
            return unavailable("the host alone installs packages")
        return holds("no folder on the import path is writable", locks=locks)

    return declare


# --- what no backend changes: what the host has a part in, and resource limits -------------------

#: Whether one process can read another's clock and memory, as the host's monitor does.
_MONITORED: Final = os.uname().sysname == "Linux"

#: What the host's monitor alone does about memory.
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

#: What the host does where the operating system has a part in it. An entry says what code does
#: today, not what is planned.
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
    """Declare that ``guest.confine`` counts tasks: at its gate, or else by RLIMIT_NPROC."""
    counted = partly(
        "RLIMIT_NPROC",
        "counts everything this user runs, from the number at the guest's start",
        locks=("rlimits",),
    )
    return structs.replace(
        UNENFORCED if os.getuid() == 0 else counted,
        at_gate="the zygote counts this guest's threads and processes",
    )


#: What resource limits do wherever the guest can set them. See setrlimit(2).
BY_RLIMITS: Final[Mapping[str, Declare]] = {
    **{field: holds(limit, locks=("rlimits",)) for field, limit in messages.RLIMITS.items()},
    "max_processes": _processes,
}
#: The same limits where the guest sets none.
UNLIMITED: Final[Mapping[str, Declare]] = dict.fromkeys(
    messages.Limits.__struct_fields__, UNENFORCED
)
