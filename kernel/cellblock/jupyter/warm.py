"""A kernel that is there before it is asked for: it waits for its launch, as far along as can be.

``provisioner`` starts it, in a server, with the command of the kernel before and ``--warm``. It
imports what a kernel imports and starts a zygote. Where the policy allows it, the zygote prepares
for another kernel like the last one: of the same policy, in the same folder. Then it sleeps.

What launches it comes through a socket that is its stdin, which nobody but its parent has: command
line, folder and environment, in place of those that it was started with. From there on all is as
in any start: the sockets are bound, the policy is read, and the zygote is used if it was told
exactly what it would be told now. Else another one is started.

Two things can't be had in place of others: variables that are read as a process begins, and code
that was imported. Where those differ it executes itself again, which is a plain start. It ends
when its parent does, or lets go of the socket.
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

#: Variables of one launch, which nothing reads before it: any other may have been.
_OF_A_LAUNCH = ("JPY_", "KERNEL_")
_STDIN = 0
#: Tells the parent that a kernel has started, or does so plainly.
_TAKEN = b"+"


def may_be_told(config: SessionConfig) -> bool:
    """Whether a zygote can be told of this before the launch.

    Not where somebody is asked first, where it is not known yet which tools there are, and where
    the zygote is a container.
    """
    policy = config.policy
    equipped = policy.tools or policy.mcp or policy.llm.granted or policy.operations is not None
    return policy.approvals == "never" and not equipped and words_of(config.wrap) is not None


class ToldZygote:
    """A waiting kernel's zygote, told ``config``, with a guest and a spare one, which imports.

    Raises OSError where no process can be started.
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
        guest = Guest(reactor, _ignore, _ignore, _ignore)
        guest.hold(held=True)  # whoever it is for reads its report
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
        """Return all where they are for just this; else end them, and return nothing."""
        if self._zygote.closed or self._told != _told(prepare):
            self.end()
            return None
        return Standing(self._zygote, self._guests)

    def end(self) -> None:
        """End all."""
        guest, spare = self._guests
        spare.end()
        guest.close()
        if not self._zygote.closed:
            self._zygote.kill()


def _told(prepare: Prepare) -> tuple[Any, ...]:
    """Return what a zygote and its guests are told, and which folder they are in by that."""
    return first_frame(prepare), place_of(prepare), identity(prepare.cwd)


def _ignore(*_: object) -> None: ...


def launched(
    reactor: ZmqReactor, config: SessionConfig | PolicyError | BackendError, early: EarlyZygote
) -> tuple[Options, Callable[[], None]]:
    """Wait for the launch; return its options, under which the policy is yet to be read.

    What is returned besides is called when the kernel's sockets are bound. Its parent waits for it:
    front ends that connect before try again a tenth of a second later. Raises ``SystemExit`` where
    nothing is launched, ``StartError``.
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
        if not (launch := _received(reactor, control)):
            sys.exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        arguments = launch["arguments"]
        environment = launch["environment"]
        os.chdir(launch["folder"])
        if _is_read_early(environment) or code != _code():
            unused.close()
            _start_plainly(control, arguments, environment)
        unused.pop_all()
    os.environ.clear()
    os.environ.update(environment)
    return parse(arguments), partial(_tell, control)


def _tell(parent: socket.socket) -> None:
    with parent, contextlib.suppress(OSError):
        parent.sendall(_TAKEN)


def _received(reactor: ZmqReactor, control: socket.socket) -> dict[str, Any]:
    """Return what the parent sends; nothing when it has ended, or let go of the socket."""
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
    while control.fileno() in ready and (part := control.recv(1 << 16)):
        text += part
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, _STDIN)
    os.close(null)
    return json.loads(text) if text else {}


def _is_read_early(environment: dict[str, str]) -> bool:
    """Whether a variable differs that the process, or what it imports, may have read by now."""
    changed = {name for name, _ in environment.items() ^ os.environ.items()}
    return any(not name.startswith(_OF_A_LAUNCH) for name in changed)


def _code() -> list[int]:
    """Return when packages were last put where this process imports from."""
    folders = (*map(Path, sys.path), Path(__file__).parent)
    return [folder.stat().st_mtime_ns for folder in folders if folder.is_dir()]


def _start_plainly(
    control: socket.socket, arguments: list[str], environment: dict[str, str]
) -> NoReturn:
    _tell(control)
    own = sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *own, *arguments], environment)  # noqa: S606 - no shell


def _remove(early: EarlyZygote) -> None:
    """Leave nothing of a kernel that was never launched."""
    early.end()
    remove_scratch(early.scratch)
    remove_tree(changes.Staged(scratch_name(Path(early.scratch)), ()).folder)
