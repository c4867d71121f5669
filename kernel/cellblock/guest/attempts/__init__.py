"""The attempts of a trial, each with its positive control. What they mean, the host says.

An attempt raises OSError where it is refused and returns where it is not; a control raises where
what is allowed does not work either. Each is harmless should it succeed: what it reads, changes,
calls and signals is the host's own (``wire.messages.Trial``), made for the trial.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cellblock.guest.attempts import files, network, processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.guest.attempts.place import Place

#: Anybody may lower what is his own as far as that (setpriority(2)).
_LOWEST: Final = 19

_DENIED: Final = (errno.EACCES, errno.EPERM)
#: Of what is there, as the host knows, and is not to be seen or reached.
_HIDDEN: Final = (*_DENIED, errno.ENOENT, errno.EROFS, errno.EXDEV)
_UNREACHED: Final = (*_DENIED, errno.ENETUNREACH, errno.ECONNREFUSED, errno.ENOENT)
_NOBODY: Final = (*_DENIED, errno.ESRCH)


@dataclass(frozen=True)
class Probe:
    """``refusals`` are the errors that show a lock; any other shows nothing."""

    attempt: Callable[[Place], object]
    control: Callable[[Place], object]
    refusals: tuple[int, ...] = _DENIED


PROBES: Final[dict[str, Probe]] = {
    "read_file": Probe(lambda w: files.read(f"{w.outside}/secret"), files.read_inside, _HIDDEN),
    "list_folder": Probe(
        lambda w: os.listdir(w.outside), lambda w: os.listdir(f"{w.inside}/folder"), _HIDDEN
    ),
    "look_up_name": Probe(
        lambda w: os.stat(f"{w.outside}/secret"), lambda w: os.stat(f"{w.inside}/file"), _HIDDEN
    ),
    "follow_link": Probe(files.link, files.write_in_scratch, _HIDDEN),
    "hard_link": Probe(files.hard_link, files.write_in_scratch, _HIDDEN),
    "move_file": Probe(files.move, files.write_in_scratch, _HIDDEN),
    "read_denied_file": Probe(lambda w: files.read(f"{w.denied}/file"), files.read_inside, _HIDDEN),
    "earlier_hard_link": Probe(
        lambda w: files.read(f"{w.inside}/earlier"), files.read_inside, _HIDDEN
    ),
    "write_file": Probe(
        lambda w: files.append(f"{w.outside}/secret"), files.write_in_scratch, _HIDDEN
    ),
    "write_readable_file": Probe(
        lambda w: files.append(f"{w.inside}/file"), files.write_in_scratch, _HIDDEN
    ),
    "make_file": Probe(lambda w: files.make(f"{w.outside}/new"), files.make_and_remove, _HIDDEN),
    "truncate": Probe(
        lambda w: os.truncate(f"{w.outside}/long", 0), files.write_in_scratch, _HIDDEN
    ),
    "remove": Probe(lambda w: os.unlink(f"{w.outside}/removable"), files.make_and_remove, _HIDDEN),
    "chmod": Probe(lambda w: os.chmod(f"{w.inside}/file", 0o640), files.read_inside, _HIDDEN),
    "utime": Probe(lambda w: os.utime(f"{w.inside}/file", (1, 1)), files.read_inside, _HIDDEN),
    "write_on_import_path": Probe(files.write_on_import_path, files.write_in_scratch, _HIDDEN),
    "tcp": Probe(network.tcp, network.pair, _UNREACHED),
    "tcp_fast_open": Probe(network.fast_open, network.pair, _UNREACHED),
    "mptcp": Probe(
        lambda w: network.tcp(w, network.IPPROTO_MPTCP, "mptcp"), network.pair, _UNREACHED
    ),
    "udp": Probe(network.udp, network.pair, _UNREACHED),
    "listen": Probe(network.listen, network.pair),
    "unlisted_port": Probe(
        lambda w: network.called(w, "unlisted_port").close(), network.call_listed
    ),
    "unlisted_host": Probe(
        lambda w: network.called(w, "unlisted_host", "127.0.0.2").close(), network.call_listed
    ),
    "unlisted_name": Probe(
        lambda _w: socket.getaddrinfo("localhost", 1), network.call_listed, (socket.EAI_FAIL,)
    ),
    "turn_connection": Probe(network.turn, network.call_listed),
    "unix_socket": Probe(lambda w: network.unix(w, "path"), network.pair, _UNREACHED),
    "abstract_socket": Probe(lambda w: network.unix(w, "abstract"), network.pair, _UNREACHED),
    "netlink": Probe(network.netlink, network.pair),
    "fork": Probe(lambda _w: processes.child(processes.nothing), processes.thread),
    "spawn": Probe(processes.spawn, processes.thread),
    "execute": Probe(processes.execute, processes.thread),
    "child_reads": Probe(
        lambda w: processes.child(lambda: files.read(f"{w.outside}/secret")),
        lambda w: processes.child(lambda: files.read_inside(w)),
        _HIDDEN,
    ),
    "signal": Probe(lambda w: os.kill(w.process, signal.SIGCONT), processes.itself, _NOBODY),
    "limit_of_another": Probe(processes.limit, processes.itself, _NOBODY),
    "priority_of_another": Probe(
        lambda w: os.setpriority(os.PRIO_PROCESS, w.process, _LOWEST), processes.itself, _NOBODY
    ),
    "environment": Probe(
        lambda w: processes.variable(w.variable),
        lambda _w: processes.variable("HOME"),
        (errno.ENOENT,),
    ),
    "open_too_many": Probe(
        processes.open_too_many, lambda _w: os.close(os.dup(1)), (errno.EMFILE,)
    ),
    "take_too_much": Probe(
        processes.take_too_much,
        lambda _w: mmap.mmap(-1, processes.MIB, flags=mmap.MAP_PRIVATE).close(),
        (errno.ENOMEM,),
    ),
    "write_too_long": Probe(
        lambda w: processes.write_at(w, w.limits.max_file_size or 0),
        lambda w: processes.write_at(w, 0),
        (errno.EFBIG,),
    ),
}
