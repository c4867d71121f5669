"""``assemble``: puts a kernel together from its config and sockets, and returns its clean-up.

The order matters. Sockets are bound first. Without a usable config there is a kernel, but no
session. If the policy needs the user's consent, the first cell asks for that, and the session
begins after it (``StartConsent``).
"""

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


#: Seconds until the files of killed kernels are removed: after the first reply, not before it.
_SWEEP = 1.0


def _end_changes(kernel: Kernel, scratch: Path) -> None:
    """End the staging of changes, and say on stderr how the staged files can still be kept.

    A kernel that is restarted leaves them to the next one.
    """
    number = scratch_name(scratch)
    if (open_changes := kernel.views.staged) is not None:
        open_changes.close()
        if kernel.restarts:
            return
        number = open_changes.id
    if (staged := changes.end(number)) is not None:
        line = "what cells wrote to the project was put aside, for a week. To keep it:"
        with contextlib.suppress(OSError):
            sys.stderr.write(f"cellblock: {line} cellblock changes keep {staged.id}\n")


class _Launch(NamedTuple):
    """The parts of a kernel whose sockets are bound."""

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
    """Bind the sockets and return the parts of the kernel.

    A waiting kernel (``--warm``) first waits for its launch, which brings other options, and then
    reads the policy again. Raises ``StartError``.
    """
    on_bound: Callable[[], None] | None = None
    if options.warm:
        options, on_bound = warm.launched(reactor, config, early)
    context: zmq.Context[Any] = zmq.Context()
    connection = channels.read_connection(Path(options.connection_file))
    if why_not := options.ipykernel.why_not(connection.info):
        raise StartError(why_not)
    bound = channels.bind(context, connection)
    if on_bound is not None:
        on_bound()  # the server goes on while the policy is read
        config = kernel_policy.resolve_launched(options, early)
    codec = MessageCodec(connection.key, connection.digest)
    return _Launch(options, config, context, bound, codec)


def assemble(
    options: Options, config: SessionConfig | PolicyError | BackendError, early: EarlyZygote
) -> tuple[ZmqReactor, Kernel, Callable[[], None]]:
    """Return the loop, the kernel, and the function that cleans up after the loop has ended.

    The zygote in ``early`` is used, or ended if there is no session. A waiting kernel waits here
    for its launch.
    """
    reactor = ZmqReactor()
    options, config, context, bound, codec = _launched(reactor, options, config, early)
    views = Views(config)
    log = OutputLog(default_path().parent / "output", views.kept_bytes())
    audit = open_audit(views.in_force)
    history = History(default_path() if options.ipykernel.keeps_history else None)
    kernel = Kernel(reactor, bound, codec, history, views, log, audit)
    kernel.heed(options.ipykernel)
    reactor.call_later(_SWEEP, log.sweep)
    reactor.call_later(_SWEEP, early.remember)
    reactor.call_later(_SWEEP, sweep_scratch_in_thread)

    def begin() -> None:
        """Open the session and start it: the zygote forks the first guest."""
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
        """Close everything, in an order that loses nothing if the kernel is killed over it."""
        kernel.history.close()  # first, since the rest may take long, and a server may kill us
        if kernel.lab is not None:
            kernel.lab.close()
        if kernel.session is not None:
            kernel.session.disconnect()  # the last cell's connections get on the audit log
        early.remember()
        log.close()
        if kernel.exports is not None:
            kernel.exports.close()
        early.end()
        # If the session could not be closed, its zygote still uses these folders.
        if kernel.session is None or kernel.session.close():
            remove_scratch(early.scratch)
            _end_changes(kernel, Path(early.scratch))
        audit.close()  # after the session, whose workers may still write records
        context.destroy(linger=200)

    return reactor, kernel, cleanup


# --- asking the user: about calls and imports, and about a start that needs consent ---------------


def ask_from_now_on(config: SessionConfig, kernel: Kernel, start: Callable[[], None]) -> None:
    """Let the kernel ask its user from now on; call ``start`` when its session may begin.

    ``start`` is called at once, unless the policy has a condition for its start that the user has
    not allowed for always. Then the first cell asks.
    """
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
    if approver.may_start():
        start()  # the user has allowed it for always
    else:
        kernel.starting = StartConsent(kernel, approver, start)
        kernel.views.refuse(config.condition)


def under(config: SessionConfig, policy: Policy) -> GrantContext:
    """Return the scope and the policy digest that "always" answers are stored under.

    ``policy`` is the one in force, which a notebook may have narrowed.
    """
    scope = policy.approval.scope.replace("{project}", os.path.realpath(config.project))
    return GrantContext(scope=scope, policy=policy.name, digest=policy.digest())


class StartConsent:
    """The consent to start a session, which the first cell asks for and waits for.

    Until the user consents there is no session, and no guest. ``start`` begins the session.
    """

    def __init__(self, kernel: Kernel, approver: Approver, start: Callable[[], None]) -> None:
        self._kernel = kernel
        self._approver = approver
        self._start = start

    def ask(self, cell: ExecuteRequest, go_on: Callable[[], None]) -> None:
        """Ask the user on behalf of a cell; call ``go_on`` when that is decided, either way."""

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
        """Withdraw the question: the session does not begin."""
        self._approver.interrupt()
