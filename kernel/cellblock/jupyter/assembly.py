"""Putting a kernel together from its policy, its backend and its sockets, and taking it apart."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import zmq

from cellblock.errors import StartError
from cellblock.host.cell.output_log import OutputLog
from cellblock.host.cell.status import Views
from cellblock.host.consent.approver import Approver, Prompt
from cellblock.host.consent.grants import GrantContext, Grants
from cellblock.host.consent.store import of_user
from cellblock.host.guests.byte_code import ByteCode
from cellblock.host.guests.zygote import ZygoteSource
from cellblock.host.services import changes
from cellblock.host.session.config import SessionConfig
from cellblock.host.session.history import History, default_path
from cellblock.host.session.session import open_audit, open_session, record_start
from cellblock.jupyter import channels, kernel_policy, preparation, warm
from cellblock.jupyter.kernel import Kernel
from cellblock.jupyter.messages import MessageCodec
from cellblock.jupyter.reactor import ZmqReactor
from cellblock.policy import paths
from cellblock.policy.folders import remove_scratch, scratch_name, sweep_scratch_in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.errors import BackendError, PolicyError
    from cellblock.host.consent.approver import Decision
    from cellblock.host.session.types import ExecuteRequest
    from cellblock.jupyter.command_line import Options
    from cellblock.jupyter.early_zygote import EarlyZygote
    from cellblock.policy.model import Policy


#: Seconds after which what killed kernels left is removed: past the first reply.
_SWEEP = 1.0


def _end_changes(kernel: Kernel, scratch: Path) -> None:
    """End what cells staged; say, where the kernel was started, how what they wrote can be kept.

    Where another kernel starts in its place, that has it.
    """
    number = scratch_name(scratch)
    if (running := kernel.views.staged) is not None:
        running.close()
        if kernel.restarts:
            return
        number = running.id
    if (staged := changes.end(number)) is not None:
        what = "what cells wrote to the project was put aside, for a week. To keep it:"
        with contextlib.suppress(OSError):
            sys.stderr.write(f"cellblock: {what} cellblock changes keep {staged.id}\n")


class _Launch(NamedTuple):
    """What a kernel was started with; its sockets are bound."""

    options: Options
    config: SessionConfig | PolicyError | BackendError
    context: zmq.Context[Any]
    bound: dict[str, zmq.Socket[bytes]]
    codec: MessageCodec


def _launched(
    reactor: ZmqReactor,
    options: Options,
    config: SessionConfig | PolicyError | BackendError,
    early: EarlyZygote,
) -> _Launch:
    """Bind the sockets: of one that is to wait for its launch, once it has come."""
    begun: Callable[[], None] | None = None
    if options.warm:
        options, begun = warm.launched(reactor, config, early)
    context: zmq.Context[Any] = zmq.Context()
    connection = channels.read_connection(Path(options.connection_file))
    if why_not := options.ipykernel.why_not(connection.info):
        raise StartError(why_not)
    bound = channels.bind(context, connection)
    if begun is not None:
        begun()  # its server has enough to do while the policy is read
        config = kernel_policy.resolve_launched(options, early)
    codec = MessageCodec(connection.key, connection.digest)
    return _Launch(options, config, context, bound, codec)


def assemble(
    options: Options, config: SessionConfig | PolicyError | BackendError, early: EarlyZygote
) -> tuple[ZmqReactor, Kernel, Callable[[], None]]:
    """Return the loop, the kernel and what to call at the end.

    The zygote in ``early``, if there is one, is used or ended. One that is to wait for its launch
    does so here.
    """
    reactor = ZmqReactor()
    options, config, context, bound, codec = _launched(reactor, options, config, early)
    views = Views(config)
    kept = OutputLog(default_path().parent / "output", views.kept_bytes())
    audit = open_audit(views.in_force)
    history = History(default_path() if options.ipykernel.keeps_history else None)
    kernel = Kernel(reactor, bound, codec, history, views, kept, audit)
    kernel.heed(options.ipykernel)
    reactor.call_later(_SWEEP, kept.sweep)
    reactor.call_later(_SWEEP, early.remember)
    reactor.call_later(_SWEEP, sweep_scratch_in_thread)

    def begin() -> None:
        if isinstance(config, SessionConfig):
            zygotes = ZygoteSource(reactor, early.take, ahead=early.take_ahead)
            kernel.session = session = open_session(
                config, reactor, kernel, zygotes, take_worker=early.take_worker
            )
            session.requests.on_compiled = ByteCode(reactor).keep_later
            preparation.make_later(reactor, config.prepare)
            preparation.prove_later(reactor, config, kernel.look_for_proof)
            session.start()

    if not isinstance(config, SessionConfig):
        early.end()
    else:
        record_start(config, kernel)
        kernel.run_first(options.ipykernel.cells)
        if config.policy.approvals == "never":
            begin()
        else:
            ask_from_now_on(config, kernel, begin)

    def cleanup() -> None:
        kernel.history.close()  # first: the rest may take long, and we may be killed over it
        if kernel.lab is not None:
            kernel.lab.close()
        if kernel.session is not None:
            kernel.session.disconnect()  # what the last cell asked for is accounted for
        early.remember()
        kept.close()
        if kernel.exports is not None:
            kernel.exports.close()
        early.end()
        if kernel.session is None or kernel.session.close():  # else its zygote is still at it
            remove_scratch(early.scratch)
            _end_changes(kernel, Path(early.scratch))
        audit.close()  # behind the session, whose workers' last words may be for it
        context.destroy(linger=200)

    return reactor, kernel, cleanup


# --- asking the user: for calls and imports, and for a start that needs it ------------------------


def ask_from_now_on(config: SessionConfig, kernel: Kernel, start: Callable[[], None]) -> None:
    """Ask the user of ``kernel`` from now on; call ``start`` once its session may be started."""
    policy = paths.without_scratch(config.policy, Path(config.prepare.scratch))
    kernel.input_requests.prefix_cells = True
    grants = Grants(under(config, policy), of_user())
    kernel.approver = approver = Approver(
        Prompt(kernel.consulted, grants),
        grants,
        observe=kernel.audit.approved,
        tell=kernel.outputs.notice,
    )
    if config.condition is None:
        start()
        return
    if approver.may_start():  # allowed for always
        start()
    else:
        kernel.starting = StartConsent(kernel, approver, start)
        kernel.views.refuse(config.condition)


def under(config: SessionConfig, policy: Policy) -> GrantContext:
    """Return the policy under which users are asked; a notebook may have made it narrower."""
    scope = policy.approval.scope.replace("{project}", os.path.realpath(config.project))
    return GrantContext(scope=scope, policy=policy.name, digest=policy.digest())


class StartConsent:
    """Consent that the first cell waits for: until then there is no session, and no guest.

    ``start`` starts the session.
    """

    def __init__(self, kernel: Kernel, approver: Approver, start: Callable[[], None]) -> None:
        self._kernel = kernel
        self._approver = approver
        self._start = start

    def ask(self, cell: ExecuteRequest, go_on: Callable[[], None]) -> None:
        """Ask on behalf of a cell; call ``go_on`` once that is decided."""

        def decided(decision: Decision) -> None:
            self._approver.end()
            if decision.scope is not None:
                self._kernel.views.allow()
                self._kernel.starting = None
                self._start()
            go_on()

        self._approver.begin(cell)
        self._approver.ask_start(decided)

    def interrupt(self) -> None:
        """Cancel the question: the kernel does not start."""
        self._approver.interrupt()
