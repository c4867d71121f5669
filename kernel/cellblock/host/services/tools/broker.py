"""The broker: admits or refuses each call of a guest, answers it exactly once, and records it.

A guest's call is a tool's name, an id that the guest chose, and encoded arguments. The broker
checks the name, the size and the policy's limits (``tool_max_…``), has the call approved, and only
then gives it to its provider, under a number that the host chose::

    handle --> admitted --> arguments checked --> approved --> running --> settled
                  |             if anybody is asked |                        ^
                  +--> refused -------------------->+----- refused --------->+
                                        withdrawn by the guest, at any time -+

Arguments are validated where the tool runs (``registry``): before somebody is asked about the call,
and again when it runs. Both decode the same bytes, and nothing is kept in between. ``Providers``
and its imports are loaded when a session has tools, or when a guest calls one.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from cellblock.errors import CellblockError, PolicyError
from cellblock.host.services.tools.calls import Answer, Call, CallRecord, CellCalls, bounded
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cellblock.host.audit.recorder import Audit
    from cellblock.host.guests.process import Guest
    from cellblock.host.reactor import Reactor
    from cellblock.host.services.tools.calls import Status, Tooling
    from cellblock.host.services.tools.providers import Providers


#: Calls of one cell that have a record, and refused calls of one cell that the audit log lists.
MAX_RECORDS: Final = 100
#: Bytes of arguments that all pending calls may hold in the host.
MAX_ARGUMENTS: Final = 48 * 2**20
#: Unread bytes in the guest's socket beyond which answers are held back, and seconds between polls.
MAX_BACKLOG: Final = 8 * 2**20
POLL_SECONDS: Final = 0.01
#: Seconds between polls whether a guest has read a request.
READ_POLL_SECONDS: Final = 0.002
#: Progress lines that are kept until a cell runs that shows them.
MAX_LINES: Final = 20


class _Account:
    """The calls of one request: how many there were, how many were refused, and their records.

    ``number`` is the cell's number in the audit log, 0 if it has none.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.calls = self.refused = 0
        self.records: list[CallRecord] = []


class _PendingCall(msgspec.Struct, frozen=True, eq=False):
    """A call without an answer."""

    number: int
    message: messages.ToolCall
    tool: messages.Tool
    began: float
    #: The account of the request that made it.
    account: _Account


class CallingRequest(Protocol):
    """A request whose cell calls tools."""

    message: Any
    #: The number of its subshell, 0 for the main shell.
    subshell: int
    #: Whether it has called a tool. Then it must not be run again after a restore.
    called: bool


class CallingRequests(Protocol):
    """The session's requests."""

    @property
    def request(self) -> CallingRequest | None:
        """The main shell's request under way."""

    def is_read(self) -> bool:
        """Return whether the guest has read all requests that it was sent."""


class EquippedGuests(Protocol):
    """The guests of a session: the one that calls tools now, and those that start later."""

    @property
    def guest(self) -> Guest | None:
        """The guest that serves requests, or None."""

    def equip(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...]) -> None:
        """Give guests that start from now on these tools and folders of packages."""


class Broker:
    """The broker of a session's tools, for one guest after the other.

    The session calls ``open`` before its first guest starts, ``begin`` and ``end`` around each
    request, ``handle`` for each message of a guest about a call, and ``drop`` when a guest has
    ended. ``violation`` gets a text about a message that no honest guest sends, such as a call of
    an unknown tool. ``show`` shows progress of calls in the cell that waits. No call begins while
    the ``audit`` log can't record it. Only the first refused calls of a cell are recorded, since
    they cost the cell nothing.
    """

    def __init__(
        self,
        reactor: Reactor,
        guests: EquippedGuests,
        tooling: Tooling,
        audit: Audit,
        *,
        clock: Callable[[], float],
        requests: CallingRequests,
        violation: Callable[[str], None],
        show: Callable[[messages.Stream], None],
    ) -> None:
        self._reactor = reactor
        self._guests = guests
        self._requests = requests
        self._tooling = tooling
        self._audit = audit
        self._clock = clock
        self._violation = violation
        self._show = show
        self._providers: Providers | None = None
        self._numbers = itertools.count(1)
        #: Calls without an answer, by the guest's id, and the bytes of their arguments in all.
        self._pending: dict[int, _PendingCall] = {}
        self._bytes = 0
        #: Whether answers are held back, because the guest does not read.
        self._held = False
        #: Calls to ask the user about, by their numbers, in the order in which they came. Each has
        #: the function that asks, or None while its arguments are validated.
        self._unasked: dict[int, Callable[[], None] | None] = {}
        #: The account of the last request of each subshell; 0 is the main shell.
        self._accounts = {0: _Account()}
        #: Answers that wait until the guest has read the request that was sent before them.
        self._unsent: list[messages.ToolResult] = []
        #: Gets a record of each call when it begins, as unfinished, and another when it has ended.
        self.watch: Callable[[CallRecord], None] | None = None
        #: Progress lines that wait for a cell to show them.
        self._lines: list[str] = []
        policy = tooling.policy
        granted = policy.tools or policy.mcp or policy.llm.granted
        if granted or tooling.functions or tooling.operations:
            self._loaded()

    def _loaded(self) -> Providers:
        """Return the providers, which are made at their first use."""
        if self._providers is None:
            from cellblock.host.services.tools import providers  # noqa: PLC0415 - most sessions call nothing

            self._providers = providers.Providers(self._reactor, self._tooling)
        return self._providers

    @property
    def awaited(self) -> bool:
        """Whether no guest may start yet, because the tools are not known yet."""
        return self._providers is not None and self._providers.awaited

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that installed packages are imported from."""
        return () if self._providers is None else self._providers.paths

    @property
    def from_workers(self) -> Mapping[str, tuple[messages.Tool, ...]]:
        """The operator's tools that are known by now, by the policy's field, for ``open``."""
        return {} if self._providers is None else self._providers.from_workers

    def open(
        self,
        on_tools: Callable[[tuple[messages.Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
        tools_by_worker: Mapping[str, tuple[messages.Tool, ...]],
    ) -> None:
        """Load the tools and install packages, then call ``on_tools`` or ``on_failed``.

        A fork's guest is a copy of its parent's guest, and may call the parent's tools before any
        worker has started. ``tools_by_worker`` are the parent's ``from_workers``, and empty for a
        session that is not a fork.
        """
        providers = self._providers
        if providers is None:
            on_tools(())
            return

        def on_ready() -> None:
            if providers.tools or providers.paths:
                self._guests.equip(providers.tools, providers.paths)
            on_tools(providers.tools)

        providers.expect(tools_by_worker)
        providers.open(on_ready, on_failed, self._tell)

    def narrow_to(self, tooling: Tooling, removed_names: Collection[str]) -> None:
        """Apply a narrower policy; ``removed_names`` are the tools that it takes away."""
        self._tooling = tooling
        if self._providers is not None:
            self._providers.narrow_to(tooling, removed_names)

    def begin(self, subshell: int = 0, number: int = 0) -> None:
        """Start a new account for a request. ``number`` is its cell's number in the audit log."""
        self._report_unlisted()
        self._accounts[subshell] = _Account(number)

    def end(self, subshell: int = 0) -> CellCalls:
        """Return the calls of a shell's request; those without an answer are ``unfinished``."""
        self._report_unlisted()
        # The main shell's account stays: calls between its cells count for the last one.
        shell_account = self._accounts.pop(subshell, None) if subshell else self._accounts[0]
        account = shell_account or _Account()
        own = [call for call in self._pending.values() if call.account is account]
        unfinished = [self._record(call, "unfinished") for call in own[:MAX_RECORDS]]
        records = [*account.records, *unfinished][:MAX_RECORDS]
        return CellCalls(tuple(records), account.calls - len(records))

    def close(self) -> None:
        """End everything that runs calls."""
        self._report_unlisted()
        if self._providers is not None:
            self._providers.close()

    def _report_unlisted(self) -> None:
        """Report the number of refused calls that have no record of their own."""
        for account in self._accounts.values():
            if account.refused > MAX_RECORDS:
                more, account.refused = account.refused - MAX_RECORDS, MAX_RECORDS
                self._audit.refused_more(more)

    # --- messages of a guest ------------------------------------------------------------------

    def handle(
        self, message: messages.ToolCall | messages.ToolWithdrawn, request: CallingRequest | None
    ) -> None:
        """Handle a guest's message about a call. ``request`` is the one under way, if any."""
        if isinstance(message, messages.ToolCall):
            if request is not None:
                request.called = True
            if breach := self._call(message, self._loaded(), request):
                self._violation(breach)
        elif self._providers is None:
            self._violation("a call of what is no tool")
        elif pending := self._pending.get(message.id):  # otherwise the answer was on its way
            self._withdraw(pending, self._providers)

    def _call(
        self, message: messages.ToolCall, providers: Providers, request: CallingRequest | None
    ) -> str:
        """Admit or refuse a call. Return how it breaks the protocol, or an empty string.

        The call counts for the shell of ``request``, or for the main one without a request.
        """
        policy = self._tooling.policy
        name = message.name
        tool = providers.tool(name)
        if tool is None and name in providers.withheld:
            tool = messages.Tool(name=name)
        if tool is None:
            return "a call of what is no tool"
        if message.id in self._pending:
            return "a call under an id that is in use"
        if len(self._pending) >= policy.tool_max_in_flight:
            return "more calls at once than there may be"
        size = len(bytes(message.arguments))
        if size > (tool.max_bytes or policy.tool_max_bytes):
            return "a call with larger arguments than there may be"
        subshell = 0 if request is None else request.subshell
        account = self._accounts.get(subshell) or self._accounts[0]
        account.calls += 1
        querying = request is not None and isinstance(request.message, messages.Query)
        withheld = providers.withheld.get(name)
        refusal = self._refusal(account, size, withheld, querying=querying)
        pending = _PendingCall(next(self._numbers), message, tool, self._clock(), account)
        self._pending[message.id] = pending
        self._bytes += size
        if self.watch is not None:
            self.watch(self._record(pending, "unfinished"))
        if refusal is not None:
            self._refuse(pending, refusal)
        else:
            self._proceed(pending, providers)
        return ""

    def _refusal(
        self, account: _Account, size: int, withheld: str | None, *, querying: bool
    ) -> Answer | None:
        """Return the refusal of the call that was counted last, or None if it is admitted."""
        most = self._tooling.policy.tool_max_calls
        if querying:
            return _refused("no tool is called to complete or to describe a name")
        if most is not None and account.calls > most:
            return _refused(f"a cell may call tools {most:,} times (tool_max_calls)")
        if self._bytes + size > MAX_ARGUMENTS:
            problem = f"the calls under way hold {MAX_ARGUMENTS >> 20} MiB of arguments already"
            return _refused(f"{problem}: have fewer at once")
        return Answer(kind="NotGranted", message=withheld) if withheld else None

    def _proceed(self, pending: _PendingCall, providers: Providers) -> None:
        """Have a call approved, then run it. Nothing of it runs before it is approved."""
        call = Call(
            pending.number,
            pending.tool,
            pending.message.arguments,
            answer=lambda answer: self._settle(pending, answer, "error" if answer.kind else "ok"),
            tell=self._tell,
            note=lambda use: self._audit.key_sent(pending.account.number, use),
            cell=pending.message.cell,
        )

        def begin() -> None:
            if self._audit.barred():
                self._refuse(pending, _UNLOGGED)
            elif self._is_pending(pending):
                providers.begin(call)

        approval = self._tooling.approval
        if approval is None:
            begin()
        elif (answer := providers.precheck(call)) is not None:
            self._refuse(pending, answer)
        elif self._audit.barred():
            self._refuse(pending, _UNLOGGED)
        else:
            call_shown = msgspec.structs.replace(call, carries=providers.carries(call))
            self._check(
                pending,
                providers,
                call,
                lambda: approval.decide(
                    call_shown,
                    begin,
                    lambda why: self._refuse(pending, Answer(kind="NotApproved", message=why)),
                ),
            )

    def _check(
        self, pending: _PendingCall, providers: Providers, call: Call, ask: Callable[[], None]
    ) -> None:
        """Have a call's arguments validated, then call ``ask``, in the order in which calls came.

        If they don't fit, the call is answered as if it had run, and nobody is asked about it.
        """

        def on_checked(answer: Answer) -> None:
            if not self._is_pending(pending):
                return
            if answer.kind:
                self._settle(pending, answer, "error")
            else:
                self._unasked[pending.number] = ask
                self._ask_in_line()

        self._unasked[pending.number] = None
        providers.check(msgspec.structs.replace(call, answer=on_checked))

    def _ask_in_line(self) -> None:
        """Ask about calls in order, up to the first whose arguments are still being validated."""
        while self._unasked:
            number, ask = next(iter(self._unasked.items()))
            if ask is None:
                return
            del self._unasked[number]
            ask()

    def _refuse(self, pending: _PendingCall, answer: Answer) -> None:
        self._settle(pending, answer, "refused")

    def _withdraw(self, pending: _PendingCall, providers: Providers) -> None:
        """Stop a call that its guest has withdrawn."""
        self._forget(pending)
        self._stop_asking(pending)
        providers.cancel(pending.number)
        record = self._record(pending, "withdrawn")
        if self._count(pending, record):
            self._audit.called(record)

    def drop(self) -> None:
        """Stop all calls. Called when the guest has ended.

        The user is asked about one call at a time. The last call is dropped first, since dropping
        the one that the user sees would ask about the next.
        """
        self._unsent.clear()
        self._unasked.clear()
        for pending in list(reversed(self._pending.values())):
            self._stop_asking(pending)
        for pending in list(self._pending.values()):
            self._withdraw(pending, self._loaded())
        self._report_unlisted()

    def _stop_asking(self, pending: _PendingCall) -> None:
        if self._tooling.approval is not None:
            self._tooling.approval.dropped(pending.number)

    def _is_pending(self, pending: _PendingCall) -> bool:
        return self._pending.get(pending.message.id) is pending

    def _forget(self, pending: _PendingCall) -> None:
        del self._pending[pending.message.id]
        self._bytes -= len(bytes(pending.message.arguments))
        if self._unasked.pop(pending.number, self) is not self:
            self._ask_in_line()

    # --- answers ------------------------------------------------------------------------------

    def _settle(self, pending: _PendingCall, answer: Answer, status: Status) -> None:
        """Answer a call and record it, unless it has been answered or withdrawn already."""
        if not self._is_pending(pending):
            return
        self._forget(pending)
        record = self._record(pending, status, answer)
        is_listed = self._count(pending, record)
        kind, text = answer.kind, answer.message
        value = msgspec.Raw(answer.value)
        try:
            self._send(
                messages.ToolResult(id=pending.message.id, value=value, kind=kind, message=text)
            )
            self._reactor.expect()  # the guest's next call, which often follows at once
        finally:  # recorded after the answer is sent, so that the guest need not wait for it
            if is_listed:
                self._audit.called(record)
        if not self._held and self._backlog() > MAX_BACKLOG:
            self._hold()

    def _hold(self) -> None:
        """Hold answers back while the guest has too many unread bytes. Polls until it has not."""
        too_much = self._backlog() > MAX_BACKLOG
        if too_much != self._held:
            self._held = too_much
            self._loaded().hold(held=too_much)
        if too_much:
            self._reactor.call_later(POLL_SECONDS, self._hold)

    def _send(self, message: messages.ToolResult) -> None:
        """Send an answer, but not before the guest has read the request that was sent before it.

        The host sees that a guest has not read a request by the unread bytes in its socket. An
        answer among these bytes would be confused with the request (ADR 0004).
        """
        if self._unsent or not self._requests.is_read():
            if not self._unsent:
                self._reactor.call_later(READ_POLL_SECONDS, self._send_unsent)
            self._unsent.append(message)
            return
        guest = self._guests.guest
        if guest is not None and not guest.closed:
            try:
                guest.send(message)
            except CellblockError as exc:
                self._violation(str(exc))

    def _send_unsent(self) -> None:
        if self._unsent and not self._requests.is_read():
            self._reactor.call_later(READ_POLL_SECONDS, self._send_unsent)
            return
        to_send, self._unsent = self._unsent, []
        for message in to_send:
            self._send(message)

    def _backlog(self) -> int:
        guest = self._guests.guest
        return 0 if guest is None else guest.backlog

    # --- progress lines, and records ----------------------------------------------------------

    def _tell(self, text: str) -> None:
        """Show a line in the running cell, or keep it for the next one."""
        self._lines = [*self._lines[1 - MAX_LINES :], text]
        self.catch_up()

    def catch_up(self) -> None:
        """Show the kept lines, if a cell runs now."""
        request = self._requests.request
        if self._lines and request is not None and isinstance(request.message, messages.Execute):
            lines, self._lines = self._lines, []
            text = "".join(f"{line}\n" for line in lines)
            self._show(messages.Stream(name="stdout", text=text))

    def _count(self, pending: _PendingCall, record: CallRecord) -> bool:
        """Count a call that has ended for its cell. Return whether the audit log lists it."""
        account = pending.account
        if account not in self._accounts.values():
            account = self._accounts[0]  # its subshell's cell has ended before it
        elif len(account.records) < MAX_RECORDS:
            account.records.append(record)
        account.refused += record.status == "refused"
        if self.watch is not None:
            self.watch(record)
        return record.status != "refused" or account.refused <= MAX_RECORDS

    def _record(
        self, pending: _PendingCall, status: Status, answer: Answer | None = None
    ) -> CallRecord:
        answer = answer or Answer()
        return CallRecord(
            number=pending.number,
            tool=pending.tool,
            arguments=bounded(bytes(pending.message.arguments)),
            status=status,
            value=bounded(answer.value) if status == "ok" else 0,
            kind=answer.kind,
            message=answer.message,
            tokens=answer.tokens,
            seconds=self._clock() - pending.began,
            cell=pending.account.number,
        )


def _refused(why: str) -> Answer:
    return Answer(kind="CallRefused", message=why)


_UNLOGGED: Final = _refused("it would not be in the audit log")
