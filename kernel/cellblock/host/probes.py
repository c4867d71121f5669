"""Running the suite of probes: a zygote as any other, and guests of its that never serve.

What is proved is the real launch path: the same wrapper, zygote, fork, descriptors and locks as a
kernel's, under the policy in question. Two guests are forked: one tries all probes, another has a
thread before its locks, and is to refuse to start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import secrets
import signal
import socket
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec
from msgspec import structs

import cellblock
from cellblock.backends.report import Proof, probes_for
from cellblock.descriptors import remove_tree
from cellblock.guest.probes import EARLIER_THREAD, PROBES
from cellblock.host.files import PrivateFile
from cellblock.host.guests.process import Guest
from cellblock.host.guests.zygote import Zygote
from cellblock.host.reactor import Reactor
from cellblock.host.session.history import default_path
from cellblock.policy.model import DECLARED, PATHS
from cellblock.policy.paths import checkout, within
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from cellblock.backends.base import Backend
    from cellblock.host.guests.zygote import Spawn
    from cellblock.host.services.relay import Relay
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport


#: Seconds that a suite may take; it takes half of one, and what a policy preloads.
PATIENCE: Final = 60.0
_MAX_TEXT: Final = 500


class Loop(Reactor, Protocol):
    """A reactor that somebody runs."""

    def run(self) -> None:
        """Serve until ``stop``."""

    def stop(self) -> None:
        """End ``run``."""


class Prover:
    """One run of the suite. The fields below say what came of it.

    ``look`` returns the probes that left a trace outside; ``relay`` is the relay, if there is one.
    """

    def __init__(
        self,
        loop: Loop,
        prepare: messages.Prepare,
        spawn: Spawn,
        look: Callable[[], set[str]],
        relay: Relay | None = None,
    ) -> None:
        self._loop, self._prepare, self._spawn = loop, prepare, spawn
        self._look, self._relay = look, relay
        self._last_words = ""
        self.report: LockReport | None = None
        self.results: dict[str, messages.Attempt] = {}
        self.touched: set[str] = set()
        self.failure = ""

    def run(self, trial: messages.Trial) -> None:
        """Have both guests try. Never raises for what they do."""
        try:
            zygote = Zygote(self._loop, self._spawn, self._prepare)
        except OSError as error:
            self.failure = f"no zygote could be started: {error}"
            return
        zygote.users.append(self)
        late = self._loop.call_later(PATIENCE, lambda: self._fail("it took too long"))
        try:
            self._fork(zygote, trial)
            self.touched = self._look()  # now: the zygote removes what lies in its folder
            if not self.failure:
                self._fork(zygote, structs.replace(trial, probes=(), thread=True))
        finally:
            late.cancel()
            zygote.end()

    def _fork(self, zygote: Zygote, trial: messages.Trial) -> None:
        """Have a guest try, and serve until it has, or has ended."""

        def on_message(message: messages.FromGuest) -> None:
            match message:
                case messages.TrialResults(results=results):
                    self.results |= results
                    self._loop.stop()
                case messages.Ready(report=report):
                    self.report = self.report or report
                    if self._relay is not None:
                        self._relay.serve(zygote.listeners)
                case messages.NotReady(lock=lock, detail=detail) if trial.thread:
                    # Only for this reason it is worth something that it did not start.
                    outcome: Any = "refused" if lock == "process" else "unwitnessed"
                    attempt = messages.Attempt(outcome=outcome, detail=detail[:_MAX_TEXT])
                    self.results[EARLIER_THREAD] = attempt
                    self._loop.stop()
                case messages.NotReady(lock=lock, detail=detail):
                    self._fail(f"{lock}: {detail}")
                case _:
                    self._fail("a guest said something else than what it tried")

        def on_text(written: messages.Stream) -> None:
            self._last_words = (self._last_words + written.text)[-_MAX_TEXT:]

        def on_lost(reason: str) -> None:
            if trial.thread:
                self._loop.stop()  # what it did not say is unwitnessed
                return
            last_words = self._last_words.strip() or "it said nothing"
            self._fail(reason or f"a guest ended: {last_words}")

        guest = Guest(self._loop, on_message, on_text, on_lost)
        try:
            zygote.fork(guest, trial=trial)
            self._loop.run()
        finally:
            guest.close()

    def on_zygote(self, message: messages.FromZygote) -> None:
        """Hear that no guest can be forked."""
        if isinstance(message, messages.ZygoteFailed | messages.ForkFailed):
            self._fail(message.detail)

    def on_zygote_lost(self, why: str) -> None:
        """Hear that the zygote has ended."""
        self._fail(why)

    def _fail(self, why: str) -> None:
        self.failure = self.failure or why[:_MAX_TEXT]
        self._loop.stop()


# --- proofs, kept for kernels' starts ---------------------------------------------------------
#
# A proof is valid only for what it was made with: the OS kernel, Landlock's ABI, the backend and
# the programs it wraps with, cellblock, the interpreter, the user and the policy. Without a valid
# proof, a capability is asserted that would be verified otherwise. A file of proofs that is
# damaged, too large or owned by somebody else is treated as empty.

NAME: Final = "proofs.json"
#: Proofs that are kept, newest last, and bytes of a file that is read: one proof has some 4,000.
MOST: Final = 32
MOST_BYTES: Final = 1 << 20
#: What presets give cells of a checkout: of one that holds a home folder, file by file.
_OF_CHECKOUT: Final = ("filesystem_read_roots", "filesystem_staged_roots")


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One proof, and the parts of what it counts for."""

    key: tuple[str, ...]
    proof: Proof


def where() -> str:
    """Return which OS kernel this is: release, build and machine."""
    machine = os.uname()
    return f"{machine.sysname} {machine.release} {machine.version}, {machine.machine}"


def key(
    policy: Policy,
    backend: Backend,
    report: LockReport,
    *,
    project: Path,
    scratch: Path | None,
) -> tuple[str, ...]:
    """Return what a proof counts for: this machine, these programs, and what is enforced.

    Of a policy that is each field that the operating system has a part in. Where the project is,
    and the scratch folder, is not in it: a proof made in one project counts in any other.
    """
    suite = hashlib.sha256(
        repr([(probe.name, probe.capability, probe.hole) for probe in PROBES]).encode()
    )
    return (
        where(),
        report.achieved.get("landlock", "no Landlock").partition(",")[0],
        f"{backend.name} {backend.fingerprint()}",
        f"cellblock {cellblock.__version__}, suite {suite.hexdigest()}",
        f"{sys.version}, {sys.prefix}, uid {os.geteuid()}",
        _digest_of_enforced(policy, project, scratch),
    )


def _digest_of_enforced(policy: Policy, project: Path, scratch: Path | None) -> str:
    home = os.path.realpath(Path("~").expanduser())
    is_home = within(home, str(project))
    folders = [("{scratch}", scratch), ("{project}", project), ("{project}", checkout(project))]

    def placeless(path: str, field: str) -> str:
        if field == "read_deny_paths" and within(path, home):  # which may be the project, too
            return "~" + path.removeprefix(home)
        if is_home and field in _OF_CHECKOUT and Path(path).parent == project:
            return "{project}"  # of a home folder each file has a root: which they are is no matter
        for name, folder in folders:
            if folder is not None and within(path, str(folder)):
                return name + path.removeprefix(str(folder))
        return path

    values = policy.as_dict()
    for field in PATHS:
        values[field] = sorted({placeless(path, field) for path in values[field]})
    enforced = [policy.mode, {field: values[field] for field in DECLARED}]
    return hashlib.sha256(json.dumps(enforced, sort_keys=True).encode()).hexdigest()


def is_whole(proof: Proof, policy: Policy) -> bool:
    """Return whether a proof is about the very probes that ``policy`` is asked.

    One that lacks some would verify on what is left.
    """
    return not proof.failure and proof.results.keys() == {
        probe.name for probe in probes_for(policy)
    }


class Proofs:
    """The file in ``folder``. Nothing here raises: what can't be kept or read is not there."""

    def __init__(self, folder: Path) -> None:
        self._file = PrivateFile(folder / NAME, MOST_BYTES)

    def find(self, key_wanted: tuple[str, ...]) -> Proof | None:
        """Return the proof for this very key."""
        return next((each.proof for each in self._kept_proofs() if each.key == key_wanted), None)

    def keep(self, made_for: tuple[str, ...], proof: Proof) -> bool:
        """Save a proof in place of any with the same key; return whether it could be written."""
        other_proofs = [each for each in self._kept_proofs() if each.key != made_for]
        try:
            self._file.write(msgspec.json.encode([*other_proofs, _Kept(made_for, proof)][-MOST:]))
        except OSError:
            return False
        return True

    def _kept_proofs(self) -> list[_Kept]:
        """Return what is kept; nothing where the file is missing or damaged."""
        try:
            return msgspec.json.decode(self._file.read(), type=list[_Kept])
        except msgspec.MsgspecError:
            return []


# --- what a guest tries its locks on ----------------------------------------------------------
#
# A guest says what it was refused. Where that can be looked at from outside, it is: a probe that
# left a trace has passed, whatever the guest says of it.

#: Names of listeners on loopback, and of those on local sockets.
PORTS: Final = (
    "tcp", "tcp_fast_open", "mptcp", "udp", "listed", "unlisted_port", "turn_connection",
)  # fmt: skip
#: What listens at the port of another, at an address of its own.
_UNLISTED_HOST: Final = ("unlisted_host", "listed", "127.0.0.2")
SOCKETS: Final = {"path": "unix_socket", "abstract": "abstract_socket"}
#: One may be cells' to write to.
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 - what is made there is made by mkdtemp
_FILE_TEXT: Final = "cellblock's own, for a trial\n"
_FILES: Final = ("secret", "movable", "removable", "long")
_MODE, _WHEN = 0o600, 1_000_000_000


class Surroundings:
    """Folders, listeners and a process, all of them made for one trial. Raises OSError.

    ``outside`` lies in no root. The policy of the trial must have ``inside`` as a read root, and
    must deny ``denied``, which lies in it.
    """

    def __init__(self, write_roots: Iterable[str]) -> None:
        self.base = _made_away_from(tuple(write_roots))
        self.outside, self.inside = self.base / "outside", self.base / "inside"
        self.denied = self.inside / "denied"
        #: In the host's environment, and in no guest's.
        self.variable = f"CELLBLOCK_TRIAL_{secrets.token_hex(8)}"
        os.environ[self.variable] = "set"
        self._listeners: dict[str, socket.socket] = {}
        self.process, self._leash = 0, -1
        try:
            self.process, self._leash = _sentinel()
            self._fill()
            for name, listener in self._listen():
                self._listeners[name] = listener
            self._nice_value = _nice_value(self.process)
            self._limit = resource.prlimit(self.process, resource.RLIMIT_NOFILE)
        except BaseException:
            self.close()
            raise

    @property
    def ports(self) -> dict[str, int]:
        """Return where somebody listens on loopback, by probe."""
        names = (*PORTS, _UNLISTED_HOST[0])
        return {name: self._listeners[name].getsockname()[1] for name in names}

    @property
    def listed(self) -> str:
        """The ``host:port`` that the policy must allow, if it lists network addresses."""
        return f"127.0.0.1:{self.ports['listed']}"

    @property
    def sockets(self) -> dict[str, str]:
        """Return where somebody listens on local sockets, by kind."""
        return {"path": str(self.outside / "socket"), "abstract": f"\0{self.variable}"}

    def _fill(self) -> None:
        for folder in (self.outside, self.inside, self.inside / "folder", self.denied):
            folder.mkdir(mode=0o700)
        for path in (*(self.outside / name for name in _FILES), self.inside / "file"):
            path.write_text(_FILE_TEXT, encoding="ascii")
            path.chmod(_MODE)
            os.utime(path, (_WHEN, _WHEN))
        for name in ("file", "linked"):
            (self.denied / name).write_text(_FILE_TEXT, encoding="ascii")
        with contextlib.suppress(OSError):  # a file system without: that probe is unwitnessed
            (self.inside / "earlier").hardlink_to(self.denied / "linked")

    def _listen(self) -> Iterator[tuple[str, socket.socket]]:
        for name in PORTS:
            kind = socket.SOCK_DGRAM if name == "udp" else socket.SOCK_STREAM
            yield name, _bound_socket(socket.AF_INET, kind, ("127.0.0.1", 0))
        name, listed_name, host = _UNLISTED_HOST
        port = self._listeners[listed_name].getsockname()[1]
        yield name, _bound_socket(socket.AF_INET, socket.SOCK_STREAM, (host, port))
        for where, name in SOCKETS.items():
            yield name, _bound_socket(socket.AF_UNIX, socket.SOCK_STREAM, self.sockets[where])

    @property
    def listening(self) -> frozenset[str]:
        """The probes whose trace is a call at a listener: anybody can make one."""
        return frozenset(self._listeners)

    def touched(self) -> set[str]:
        """Return the probes that left a trace."""
        looks: dict[str, Callable[[], bool]] = {
            "write_file": lambda: _is_changed(self.outside / "secret"),
            "hard_link": lambda: (self.outside / "secret").stat().st_nlink > 1,
            "make_file": (self.outside / "new").exists,
            "move_file": lambda: not (self.outside / "movable").exists(),
            "remove": lambda: not (self.outside / "removable").exists(),
            "truncate": lambda: _is_changed(self.outside / "long"),
            "write_readable_file": lambda: _is_changed(self.inside / "file"),
            "chmod": lambda: (self.inside / "file").stat().st_mode & 0o777 != _MODE,
            # Writing moves the time on; setting it as the probe does takes it back.
            "utime": lambda: (self.inside / "file").stat().st_mtime < _WHEN,
            "limit_of_another": self._is_limited,
            "priority_of_another": lambda: _nice_value(self.process) != self._nice_value,
        }
        looks |= {name: partial(was_called, sock) for name, sock in self._listeners.items()}
        return {name for name, look in looks.items() if _shows(look)}

    def _is_limited(self) -> bool:
        return resource.prlimit(self.process, resource.RLIMIT_NOFILE) != self._limit

    def close(self) -> None:
        """Leave nothing behind."""
        os.environ.pop(self.variable, None)
        for listener in self._listeners.values():
            listener.close()
        if self.process:
            os.close(self._leash)
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            self.process = 0
        remove_tree(str(self.base))


def _made_away_from(roots: tuple[str, ...]) -> Path:
    """Make a folder where no cell may write. Raises OSError where there is no such place."""
    for above in (tempfile.gettempdir(), *_TEMPORARY, default_path().parents[1]):
        real = os.path.realpath(above)
        if any(within(real, root) for root in roots):
            continue
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix="cellblock-trial-", dir=real))
    raise OSError("there is no folder for a trial that cells may not write to")


def _bound_socket(family: int, kind: int, address: object) -> socket.socket:
    bound_socket = socket.socket(family, kind)
    bound_socket.bind(address)  # type: ignore[arg-type]
    if kind == socket.SOCK_STREAM:
        bound_socket.listen()
    bound_socket.setblocking(False)
    return bound_socket


def _shows(look: Callable[[], bool]) -> bool:
    """Return whether there is a trace; what can't be looked at any more has one."""
    try:
        return look()
    except OSError:
        return True


def was_called(listener: socket.socket) -> bool:
    """Return whether somebody has called at a listener since it was last asked."""
    try:
        if listener.type == socket.SOCK_STREAM:
            listener.accept()[0].close()
        else:
            listener.recv(1)
    except BlockingIOError:
        return False
    return True


def _is_changed(path: Path) -> bool:
    return path.read_text(encoding="ascii", errors="replace") != _FILE_TEXT


def _nice_value(process: int) -> int:
    return os.getpriority(os.PRIO_PROCESS, process)


def _sentinel() -> tuple[int, int]:
    """Start a process that ends when the descriptor is closed; return its pid, and that."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(theirs)
            os.read(ours, 1)
        finally:
            os._exit(0)
    os.close(ours)
    return pid, theirs
