"""Putting a kernel together from its policy, its backend and its sockets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import zmq

from cellblock.guest import remove_tree
from cellblock.host.cell.output_log import Kept
from cellblock.host.guests import spawn
from cellblock.host.guests.zygotes import Own
from cellblock.host.session.build import audit_of, enter_start, exports_of, found, views_of
from cellblock.host.session.config import Ground
from cellblock.host.session.history import History, default_path
from cellblock.jupyter import messages
from cellblock.jupyter.kernel import Kernel
from cellblock.jupyter.messages import Composer
from cellblock.jupyter.reactor import ZmqReactor

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cellblock.errors import BackendError, PolicyError
    from cellblock.jupyter.start import Early, Options


#: Seconds after which what killed kernels left is removed: past the first reply.
_SWEEP = 1.0


def assemble(
    options: Options,
    scratch: str,
    ground: Ground | PolicyError | BackendError,
    early: Early,
) -> tuple[ZmqReactor, Kernel, Callable[[], None]]:
    """Return the loop, the kernel and what to call at the end.

    ``early`` holds the zygote that is already importing, if one is; it is taken, or ended.
    """
    views = views_of(ground)
    context: zmq.Context[Any] = zmq.Context()
    connection = messages.read_connection(Path(options.connection_file))
    bound = messages.bind(context, connection)
    reactor = ZmqReactor()
    composer = Composer(connection.key, connection.scheme)
    kept = Kept(default_path().parent / "output", views.kept_bytes())
    audit = audit_of(views)
    kernel = Kernel(reactor, bound, composer, History(default_path()), views, kept, audit)
    reactor.call_later(_SWEEP, kept.sweep)
    reactor.call_later(_SWEEP, early.remember)
    if isinstance(ground, Ground):
        enter_start(ground, kernel)
        _begin(ground, reactor, kernel, early)
    else:
        _end(early.zygotes)

    def cleanup() -> None:
        kernel.history.close()  # first: the rest may take long, and we may be killed over it
        if kernel.session is not None:
            kernel.session.disconnect()  # what the last cell asked for is accounted for
        audit.close()
        early.remember()
        kept.close()
        if kernel.exports is not None:
            kernel.exports.close()
        _end(early.zygotes)
        gone = kernel.session is None or kernel.session.close()
        if gone:  # else its zygote is still at it
            remove_tree.remove(scratch)
        context.destroy(linger=200)

    return reactor, kernel, cleanup


def _begin(ground: Ground, reactor: ZmqReactor, kernel: Kernel, early: Early) -> None:
    """Have a session, or what asks the user whether there may be one: nothing starts before."""
    zygotes = Own(reactor, lambda: _zygote(ground, early.zygotes))

    def begin() -> None:
        kernel.session = session = found(ground, reactor, kernel, zygotes)
        kernel.exports = exports_of(ground, reactor, session)
        session.start()

    if ground.policy.approvals == "never":
        begin()
        return
    from cellblock.jupyter import prompts  # noqa: PLC0415 - few policies have anybody asked

    prompts.begin(ground, kernel, begin)


def _zygote(
    ground: Ground, prestarted: list[tuple[socket.socket, int]]
) -> tuple[socket.socket, int]:
    return prestarted.pop() if prestarted else spawn.start(ground.wrap)


def _end(prestarted: list[tuple[socket.socket, int]]) -> None:
    while prestarted:
        spawn.drop(*prestarted.pop())
