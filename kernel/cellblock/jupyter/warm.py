"""``launched``: lets a kernel wait for its launch, prepared as far as possible (ADR 0008).

    started by ``provisioner`` with ``--warm`` ──► imports, zygote ──► waits
                                                                         │
         socket closed, or the parent has ended ◄────────────────────────┤ launch
             ──► exit                                                    ▼
                     folder, environment, options of the launch ──► a kernel's usual start

``provisioner``, in a server, starts it with the command of the last kernel. It imports what a
kernel imports, and starts a zygote. If the policy allows that (``may_be_told``), the zygote
prepares for another kernel with the same policy in the same folder.

The launch comes through a socket, which is the process's stdin and which only its parent has. It
brings command line, folder and environment, which replace those that the process was started with.
Then the start goes on as usual: sockets are bound, the policy is read, and the zygote is used if it
was told exactly what it would be told now.

Two things can't be replaced: environment variables that are read when a process begins, and code
that was imported. If these differ, the process executes itself anew, which is a plain start.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from cellblock.descriptors import identity, remove_tree
from cellblock.host.guests import background
from cellblock.host.guests.process import Guest
from cellblock.host.guests.spare import SpareGuest, imported_ahead
from cellblock.host.guests.zygote import Standing, Zygote, first_frame, place_of
from cellblock.host.services import changes
from cellblock.host.session.config import SessionConfig
from cellblock.jupyter.command_line import parse
from cellblock.jupyter.early_zygote import words_of
from cellblock.policy.folders import remove_scratch, scratch_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.errors import BackendError, PolicyError
    from cellblock.jupyter.command_line import Options
    from cellblock.jupyter.early_zygote import EarlyZygote
    from cellblock.jupyter.reactor import ZmqReactor
    from cellblock.wire.messages import Prepare

#: Beginnings of variables that belong to one launch. Nothing reads these before the launch; any
#: other variable may have been read.
_OF_A_LAUNCH = ("JPY_", "KERNEL_")
_STDIN = 0
#: Tells the parent that the launch was taken: the kernel has started, or executes itself anew.
_TAKEN = b"+"


def may_be_told(config: SessionConfig) -> bool:
    """Return whether a zygote can be told this config before the launch.

    It can't if the user must be asked first, if the config has tools, which are not loaded yet, or
    if the zygote runs in a container.
    """
    policy = config.policy
    equipped = policy.tools or policy.mcp or policy.llm.granted or policy.operations is not None
    return policy.approvals == "never" and not equipped and words_of(config.wrap) is not None


class ToldZygote:
    """The zygote of a waiting kernel, which was told ``config``, and a guest and a spare guest.

    The spare guest imports modules ahead. Raises OSError if no process can be started.
    """

    def __init__(self, reactor: ZmqReactor, early: EarlyZygote, config: SessionConfig) -> None:
        prepare = config.prepare
        background.place_font_list(Path(prepare.scratch))
        self._told = _told(prepare)
        self._zygote = Zygote(reactor, early.take, prepare)
        try:
            self._guests = self._forked(reactor, config)
        except OSError:
            self._zygote.kill()
            raise

    def _forked(self, reactor: ZmqReactor, config: SessionConfig) -> tuple[Guest, SpareGuest]:
        """Have the zygote fork the guests, which wait for a session to take them."""
        guest = Guest(reactor, _ignore, _ignore, _ignore)
        guest.hold(held=True)  # the session that takes it reads its report
        self._zygote.fork(guest)
        modules = imported_ahead(config.policy)
        spare = SpareGuest(reactor, self._fork, modules, config.prepare.cwd)
        if modules:
            spare.fork_ahead()
        return guest, spare

    def _fork(self, guest: Guest) -> Zygote:
        self._zygote.fork(guest)
        return self._zygote

    def take(self, prepare: Prepare) -> Standing | None:
        """Return zygote and guests if they were told exactly this; else end them."""
        if self._zygote.closed or self._told != _told(prepare):
            self.end()
            return None
        return Standing(self._zygote, self._guests)

    def end(self) -> None:
        """End the guests and the zygote."""
        guest, spare = self._guests
        spare.end()
        guest.close()
        if not self._zygote.closed:
            self._zygote.kill()


def _told(prepare: Prepare) -> tuple[Any, ...]:
    """Return what a zygote and its guests are told, and the identity of the folder they are in."""
    return first_frame(prepare), place_of(prepare), identity(prepare.cwd)


def _ignore(*_: object) -> None: ...


def launched(
    reactor: ZmqReactor, config: SessionConfig | PolicyError | BackendError, early: EarlyZygote
) -> tuple[Options, Callable[[], None]]:
    """Wait for the launch. Return its options, and a function to call when sockets are bound.

    The policy must be read again, by these options. The function tells the parent, which waits for
    that: front ends that connected earlier would try again only a tenth of a second later. Raises
    ``SystemExit`` if there is no launch, or ``StartError``.
    """
    code = _code()
    if isinstance(config, SessionConfig) and may_be_told(config):
        with contextlib.suppress(OSError):
            early.ahead = ToldZygote(reactor, early, config)
    gc.collect()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with contextlib.ExitStack() as unused:
        unused.callback(_remove, early)
        control = socket.socket(fileno=os.dup(_STDIN))
        os.set_inheritable(control.fileno(), False)
        if not (launch := _receive_launch(reactor, control)):
            sys.exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        arguments = launch["arguments"]
        environment = launch["environment"]
        os.chdir(launch["folder"])
        if _differs_in_early_variable(environment) or code != _code():
            unused.close()
            _start_plainly(control, arguments, environment)
        unused.pop_all()
    os.environ.clear()
    os.environ.update(environment)
    return parse(arguments), partial(_tell, control)


def _tell(parent: socket.socket) -> None:
    with parent, contextlib.suppress(OSError):
        parent.sendall(_TAKEN)


def _receive_launch(reactor: ZmqReactor, control: socket.socket) -> dict[str, Any]:
    """Return the launch that the parent sends; empty if it has ended or closed the socket."""
    parent = os.pidfd_open(os.getppid())
    ready = set[int]()

    def arrived(fd: int) -> None:
        ready.add(fd)
        reactor.stop()

    for fd in (control.fileno(), parent):
        reactor.watch(fd, partial(arrived, fd))
    reactor.run()
    for fd in (control.fileno(), parent):
        reactor.unwatch(fd)
    os.close(parent)
    text = b""
    while control.fileno() in ready and (chunk := control.recv(1 << 16)):
        text += chunk
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, _STDIN)
    os.close(null)
    return json.loads(text) if text else {}


def _differs_in_early_variable(environment: dict[str, str]) -> bool:
    """Return whether a variable differs that the process, or its imports, may have read by now."""
    changed_names = {name for name, _ in environment.items() ^ os.environ.items()}
    return any(not name.startswith(_OF_A_LAUNCH) for name in changed_names)


def _code() -> list[int]:
    """Return the modification times of the folders that this process imports from.

    They change when a package is installed.
    """
    folders = (*map(Path, sys.path), Path(__file__).parent)
    return [folder.stat().st_mtime_ns for folder in folders if folder.is_dir()]


def _start_plainly(
    control: socket.socket, arguments: list[str], environment: dict[str, str]
) -> NoReturn:
    """Execute this process anew, as a plain start with the launch's options and environment."""
    _tell(control)
    interpreter_options = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *interpreter_options, *arguments], environment)  # noqa: S606 - no shell


def _remove(early: EarlyZygote) -> None:
    """Remove everything of a kernel that was never launched."""
    early.end()
    remove_scratch(early.scratch)
    remove_tree(changes.Staged(scratch_name(Path(early.scratch)), ()).folder)
