"""The broker: admits or refuses every call of a guest, answers each exactly once, and records it.

What a guest says is a name, an id of its own choosing and some bytes. The broker checks the name,
the size and the policy's limits (``tool_max_…``), has the call approved, and only then gives it to
its provider, under a number of the host's own. Its arguments are validated where the tool runs
(``registry``): before somebody is asked about it, and again when it runs, since both begin with the
same bytes and nothing is kept in between. ``Providers`` and all that they import are loaded when a
session has tools, or a guest calls one.
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


#: Calls of one cell that get a record; and refused calls of one cell that the log lists.
MAX_RECORDS: Final = 100
#: Bytes of arguments that all calls under way may hold in the host.
MAX_ARGUMENTS: Final = 48 * 2**20
#: Bytes that may wait for the guest before answers are kept back, and seconds between looks.
MAX_BACKLOG: Final = 8 * 2**20
POLL_SECONDS: Final = 0.01
#: Seconds between looks at whether a guest has read a request.
READ_POLL_SECONDS: Final = 0.002
#: Progress lines that are kept while no cell runs to show them.
MAX_LINES: Final = 20


class _Account:
    """The calls of one request: how many, how many of them refused, and their records.

    ``number`` is that of its cell in the audit log, 0 for none of its own.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.calls = self.refused = 0
        self.records: list[CallRecord] = []


class _PendingCall(msgspec.Struct, frozen=True, eq=False):
    number: int
    message: messages.ToolCall
    tool: messages.Tool
    began: float
    #: Of the request that made it.
    account: _Account


class CallingRequest(Protocol):
    """A request whose cell calls tools."""

    message: Any
    #: The subshell that it is for; 0 is the main shell.
    subshell: int
    #: It called a tool: it must not run twice.
    called: bool


class CallingRequests(Protocol):
    """The session's requests."""

    @property
    def request(self) -> CallingRequest | None:
        """The main shell's request under way."""

    def is_read(self) -> bool:
        """Return whether the guest has read all that it was sent."""


class EquippedGuests(Protocol):
    """Has the guest that calls tools, and starts guests that know of them."""

    @property
    def guest(self) -> Guest | None:
        """The guest that serves, or None."""

    def equip(self, tools: tuple[messages.Tool, ...], paths: tuple[str, ...]) -> None:
        """Have guests know these tools and folders of packages."""


class Broker:
    """A session's tools: known before its first guest starts, called by its guests, one at a time.

    ``violation`` gets what no honest guest does, such as a call of an unknown tool. ``show`` gets
    lines about the progress of calls, for the cell that waits. No call begins while the ``audit``
    log bars that: its record could not be entered. Of a cell's refused calls only the first are
    recorded, since they cost a cell nothing.
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
        self._tooling, self._audit = tooling, audit
        self._clock, self._violation, self._show = clock, violation, show
        self._providers: Providers | None = None
        self._numbers = itertools.count(1)
        #: Calls without an answer, by the guest's id, and the bytes of their arguments.
        self._pending: dict[int, _PendingCall] = {}
        self._bytes, self._held = 0, False
        #: Calls that nobody was asked about yet, in the order in which they came, and what asks;
        #: None while their arguments are validated.
        self._unasked: dict[int, Callable[[], None] | None] = {}
        #: By the subshell of their request; 0 is the main shell.
        self._accounts = {0: _Account()}
        #: Answers that wait until the guest has read the request before them.
        self._unsent: list[messages.ToolResult] = []
        #: Gets a record of each call when it begins, as unfinished, and another when it ended.
        self.watch: Callable[[CallRecord], None] | None = None
        #: Progress lines that no cell was there to show.
        self._lines: list[str] = []
        policy = tooling.policy
        granted = policy.tools or policy.mcp or policy.llm.granted
        if granted or tooling.functions or tooling.operations:
            self._loaded()

    def _loaded(self) -> Providers:
        """Return the providers, made at their first use."""
        if self._providers is None:
            from cellblock.host.services.tools import providers  # noqa: PLC0415 - most sessions call nothing

            self._providers = providers.Providers(self._reactor, self._tooling)
        return self._providers

    @property
    def awaited(self) -> bool:
        """Whether no guest may start yet, because it is not known which tools there are."""
        return self._providers is not None and self._providers.awaited

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders that installed packages are imported from."""
        return () if self._providers is None else self._providers.paths

    @property
    def from_workers(self) -> Mapping[str, tuple[messages.Tool, ...]]:
        """The operator's tools that cells may call, as far as known, by the policy's field."""
        return {} if self._providers is None else self._providers.from_workers

    def open(
        self,
        on_tools: Callable[[tuple[messages.Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
        known: Mapping[str, tuple[messages.Tool, ...]],
    ) -> None:
        """Find out which tools there are, install packages, and call one of the two.

        A fork's guest is a copy, and may call its parent's tools before any worker has started:
        ``known`` are the ``from_workers`` of that, and empty for any other session.
        """
        providers = self._providers
        if providers is None:
            on_tools(())
            return

        def ready() -> None:
            if providers.tools or providers.paths:
                self._guests.equip(providers.tools, providers.paths)
            on_tools(providers.tools)

        providers.expect(known)
        providers.open(ready, on_failed, self._tell)

    def narrow_to(self, tooling: Tooling, gone: Collection[str]) -> None:
        """Apply a narrower policy; ``gone`` are the tools that it takes away."""
        self._tooling = tooling
        if self._providers is not None:
            self._providers.narrow_to(tooling, gone)

    def begin(self, subshell: int = 0, number: int = 0) -> None:
        """Begin a request of a shell, by its number in the audit log: its calls count from here."""
        self._report_unlisted()
        self._accounts[subshell] = _Account(number)

    def end(self, subshell: int = 0) -> CellCalls:
        """Return the calls of the request, those that have no answer yet as ``unfinished``."""
        self._report_unlisted()
        # What the main shell's calls between its cells is its last one's.
        found = self._accounts.pop(subshell, None) if subshell else self._accounts[0]
        account = found or _Account()
        own = [one for one in self._pending.values() if one.account is account]
        unfinished = [self._record(one, "unfinished") for one in own[:MAX_RECORDS]]
        records = [*account.records, *unfinished][:MAX_RECORDS]
        return CellCalls(tuple(records), account.calls - len(records))

    def close(self) -> None:
        """End all that runs calls."""
        self._report_unlisted()
        if self._providers is not None:
            self._providers.close()

    def _report_unlisted(self) -> None:
        """Report the refused calls that have no record."""
        for account in self._accounts.values():
            if account.refused > MAX_RECORDS:
                more, account.refused = account.refused - MAX_RECORDS, MAX_RECORDS
                self._audit.refused_more(more)

    # --- messages of a guest ------------------------------------------------------------------

    def handle(
        self, message: messages.ToolCall | messages.ToolWithdrawn, request: CallingRequest | None
    ) -> None:
        """Handle a guest's message about a call, while ``request`` is under way."""
        if isinstance(message, messages.ToolCall):
            if request is not None:
                request.called = True
            if breach := self._call(message, self._loaded(), request):
                self._violation(breach)
        elif self._providers is None:
            self._violation("a call of what is no tool")
        elif one := self._pending.get(message.id):  # else the answer has crossed this message
            self._withdraw(one, self._providers)

    def _call(
        self, message: messages.ToolCall, providers: Providers, request: CallingRequest | None
    ) -> str:
        """Admit or refuse a call; return how it breaks the protocol, or an empty string.

        It counts for the shell of ``request``, or the main one where there is none.
        """
        policy, name = self._tooling.policy, message.name
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
        one = _PendingCall(next(self._numbers), message, tool, self._clock(), account)
        self._pending[message.id] = one
        self._bytes += size
        if self.watch is not None:
            self.watch(self._record(one, "unfinished"))
        if refusal is not None:
            self._refuse(one, refusal)
        else:
            self._proceed(one, providers)
        return ""

    def _refusal(
        self, account: _Account, size: int, withheld: str | None, *, querying: bool
    ) -> Answer | None:
        """Return the refusal of the call that was counted last, if it is to be refused."""
        most = self._tooling.policy.tool_max_calls
        if querying:
            return _refused("no tool is called to complete or to describe a name")
        if most is not None and account.calls > most:
            return _refused(f"a cell may call tools {most:,} times (tool_max_calls)")
        if self._bytes + size > MAX_ARGUMENTS:
            held = f"the calls under way hold {MAX_ARGUMENTS >> 20} MiB of arguments already"
            return _refused(f"{held}: have fewer at once")
        return Answer(kind="NotGranted", message=withheld) if withheld else None

    def _proceed(self, one: _PendingCall, providers: Providers) -> None:
        """Have a call approved, then run: nothing of it runs before that."""
        call = Call(
            one.number,
            one.tool,
            one.message.arguments,
            answer=lambda answer: self._settle(one, answer, "error" if answer.kind else "ok"),
            tell=self._tell,
            note=lambda use: self._audit.key_sent(one.account.number, use),
            cell=one.message.cell,
        )

        def begin() -> None:
            if self._audit.barred():
                self._refuse(one, _UNLOGGED)
            elif self._is_pending(one):
                providers.begin(call)

        approval = self._tooling.approval
        if approval is None:
            begin()
        elif (answer := providers.precheck(call)) is not None:
            self._refuse(one, answer)
        elif self._audit.barred():
            self._refuse(one, _UNLOGGED)
        else:
            asked = msgspec.structs.replace(call, carries=providers.carries(call))
            self._check(
                one,
                providers,
                call,
                lambda: approval.decide(
                    asked,
                    begin,
                    lambda why: self._refuse(one, Answer(kind="NotApproved", message=why)),
                ),
            )

    def _check(
        self, one: _PendingCall, providers: Providers, call: Call, ask: Callable[[], None]
    ) -> None:
        """Have a call's arguments validated, and then call ``ask``, in the order of calls.

        What can't run is answered as it would be when it ran: nobody is asked about it.
        """

        def checked(answer: Answer) -> None:
            if not self._is_pending(one):
                return
            if answer.kind:
                self._settle(one, answer, "error")
            else:
                self._unasked[one.number] = ask
                self._ask_in_line()

        self._unasked[one.number] = None
        providers.check(msgspec.structs.replace(call, answer=checked))

    def _ask_in_line(self) -> None:
        """Ask about the calls that no earlier one keeps waiting."""
        while self._unasked:
            number, ask = next(iter(self._unasked.items()))
            if ask is None:
                return
            del self._unasked[number]
            ask()

    def _refuse(self, one: _PendingCall, answer: Answer) -> None:
        self._settle(one, answer, "refused")

    def _withdraw(self, one: _PendingCall, providers: Providers) -> None:
        """Stop a call that its guest gave up."""
        self._forget(one)
        self._stop_asking(one)
        providers.cancel(one.number)
        record = self._record(one, "withdrawn")
        if self._count(one, record):
            self._audit.called(record)

    def drop(self) -> None:
        """Stop all calls: the guest has ended.

        The user is asked about one call at a time, so the last one is dropped first: else dropping
        one would ask about the next.
        """
        self._unsent.clear()
        self._unasked.clear()
        for one in list(reversed(self._pending.values())):
            self._stop_asking(one)
        for one in list(self._pending.values()):
            self._withdraw(one, self._loaded())
        self._report_unlisted()

    def _stop_asking(self, one: _PendingCall) -> None:
        if self._tooling.approval is not None:
            self._tooling.approval.dropped(one.number)

    def _is_pending(self, one: _PendingCall) -> bool:
        return self._pending.get(one.message.id) is one

    def _forget(self, one: _PendingCall) -> None:
        del self._pending[one.message.id]
        self._bytes -= len(bytes(one.message.arguments))
        if self._unasked.pop(one.number, self) is not self:
            self._ask_in_line()

    # --- answers ------------------------------------------------------------------------------

    def _settle(self, one: _PendingCall, answer: Answer, status: Status) -> None:
        """Answer a call and record it, unless that is done or it was withdrawn."""
        if not self._is_pending(one):
            return
        self._forget(one)
        record = self._record(one, status, answer)
        is_listed = self._count(one, record)
        kind, text = answer.kind, answer.message
        value = msgspec.Raw(answer.value)
        try:
            self._send(messages.ToolResult(id=one.message.id, value=value, kind=kind, message=text))
            self._reactor.expect()  # the next call
        finally:  # after the answer is sent: the guest goes on meanwhile
            if is_listed:
                self._audit.called(record)
        if not self._held and self._backlog() > MAX_BACKLOG:
            self._hold()

    def _hold(self) -> None:
        """Keep answers back until the guest has read those that wait for it."""
        much = self._backlog() > MAX_BACKLOG
        if much != self._held:
            self._held = much
            self._loaded().hold(held=much)
        if much:
            self._reactor.call_later(POLL_SECONDS, self._hold)

    def _send(self, message: messages.ToolResult) -> None:
        """Send an answer once the request before it is read.

        Until the guest has begun a request, unread bytes in its socket show that it has not read
        that; an answer among them would hide it.
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
        due, self._unsent = self._unsent, []
        for message in due:
            self._send(message)

    def _backlog(self) -> int:
        guest = self._guests.guest
        return 0 if guest is None else guest.backlog

    # --- progress lines, and records ----------------------------------------------------------

    def _tell(self, text: str) -> None:
        """Show a line in the cell that runs; keep it for the next one if none does."""
        self._lines = [*self._lines[1 - MAX_LINES :], text]
        self.catch_up()

    def catch_up(self) -> None:
        """Show the lines that were kept, if a cell runs now."""
        request = self._requests.request
        if self._lines and request is not None and isinstance(request.message, messages.Execute):
            lines, self._lines = self._lines, []
            text = "".join(f"{line}\n" for line in lines)
            self._show(messages.Stream(name="stdout", text=text))

    def _count(self, one: _PendingCall, record: CallRecord) -> bool:
        """Count a call for its cell; return whether the log lists it."""
        account = one.account
        if account not in self._accounts.values():
            account = self._accounts[0]  # its cell has ended
        elif len(account.records) < MAX_RECORDS:
            account.records.append(record)
        account.refused += record.status == "refused"
        if self.watch is not None:
            self.watch(record)
        return record.status != "refused" or account.refused <= MAX_RECORDS

    def _record(
        self, one: _PendingCall, status: Status, answer: Answer | None = None
    ) -> CallRecord:
        answer = answer or Answer()
        return CallRecord(
            number=one.number,
            tool=one.tool,
            arguments=bounded(bytes(one.message.arguments)),
            status=status,
            value=bounded(answer.value) if status == "ok" else 0,
            kind=answer.kind,
            message=answer.message,
            tokens=answer.tokens,
            seconds=self._clock() - one.began,
            cell=one.account.number,
        )


def _refused(why: str) -> Answer:
    return Answer(kind="CallRefused", message=why)


_UNLOGGED: Final = _refused("it would not be on the audit log")
