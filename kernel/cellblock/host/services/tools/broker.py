"""The broker: admits or refuses every call of a guest, answers each exactly once, and records it.

What a guest says is a name, an id of its own choosing and some bytes. The broker checks the name,
the size and the policy's limits (``tool_max_…``), waits for the rate limit, has the call approved,
and only then gives it to its provider, under a number of the host's own. Its arguments are
validated where the tool runs (``registry``).
"""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.errors import PolicyError
from cellblock.host.services.llm import provider as llm
from cellblock.host.services.operations import catalog
from cellblock.host.services.operations.provider import OperationsProvider
from cellblock.host.services.tools.calls import Answer, Call, CallRecord, CellCalls, bounded
from cellblock.host.services.tools.worker_provider import WorkerProvider, WorkerSettings
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cellblock.host.services.tools.calls import Source, Status, Tooling
    from cellblock.host.session.types import Reactor


#: Calls of one cell that get a record; and refused calls of one cell that the log lists.
MAX_RECORDS: Final = 100
#: Bytes of arguments that all calls under way may hold in the host.
MAX_ARGUMENTS: Final = 48 * 2**20
#: Bytes that may wait for the guest before answers are kept back, and seconds between looks.
MAX_BACKLOG: Final = 8 * 2**20
POLL_SECONDS: Final = 0.01


class RateLimit:
    """A token bucket that holds one second's calls, and is full at first."""

    def __init__(self) -> None:
        self._room, self._at = float("inf"), 0.0

    def take(self, most: float | None, now: float) -> float:
        """Take a token at the time ``now``, if ``most`` are added per second.

        Return 0 if there was one, else the seconds until there is.
        """
        if most is None:
            return 0.0
        room = min(most, self._room + (now - self._at) * most)
        self._at, self._room = now, room
        if room < 1:
            return (1 - room) / most
        self._room = room - 1
        return 0.0


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
    #: The answer of a call that is to be refused.
    refusal: Answer | None


class Broker:
    """Handles the calls of one guest at a time.

    ``send`` gets messages to the guest; ``backlog`` returns the bytes that it has not read yet.
    ``tell`` gets lines about a call's progress. Of a cell's refused calls only the first are
    recorded, since they cost a cell nothing.
    """

    def __init__(
        self,
        reactor: Reactor,
        providers: Providers,
        tooling: Tooling,
        *,
        clock: Callable[[], float],
        send: Callable[[messages.ToolResult | messages.ToolPiece], None],
        backlog: Callable[[], int],
        tell: Callable[[str], None],
    ) -> None:
        self._reactor, self.providers, self._tooling = reactor, providers, tooling
        self._clock, self._send, self._backlog, self._tell = clock, send, backlog, tell
        self._numbers = itertools.count(1)
        #: Calls without an answer, by the guest's id, and the bytes of their arguments.
        self._pending: dict[int, _PendingCall] = {}
        self._bytes, self._held = 0, False
        self._rate, self._is_timed = RateLimit(), False
        #: Calls that wait for the rate limit, by number.
        self._delayed: dict[int, _PendingCall] = {}
        #: By the subshell of their request; 0 is the main shell.
        self._accounts = {0: _Account()}

    def narrow_to(self, tooling: Tooling, gone: Collection[str]) -> None:
        """Apply a narrower policy; ``gone`` are tools that it takes away."""
        self._tooling = tooling
        self.providers.narrow_to(tooling, gone)

    def begin(self, subshell: int = 0, number: int = 0) -> None:
        """Begin a cell, or a comm message: its calls are counted from here."""
        self.close()
        self._accounts[subshell] = _Account(number)

    def end(self, subshell: int = 0) -> CellCalls:
        """Return the calls of the cell, those that have no answer yet as ``unfinished``."""
        self.close()
        # What the main shell's calls between its cells is its last one's.
        found = self._accounts.pop(subshell, None) if subshell else self._accounts[0]
        account = found or _Account()
        own = [one for one in self._pending.values() if one.account is account]
        unfinished = [self._record(one, "unfinished") for one in own[:MAX_RECORDS]]
        records = [*account.records, *unfinished][:MAX_RECORDS]
        return CellCalls(tuple(records), account.calls - len(records))

    def close(self) -> None:
        """Report the refused calls that have no record."""
        for account in self._accounts.values():
            if account.refused > MAX_RECORDS:
                more, account.refused = account.refused - MAX_RECORDS, MAX_RECORDS
                self._tooling.unlisted(more)

    # --- messages of a guest ------------------------------------------------------------------

    def call(self, message: messages.ToolCall, subshell: int = 0, *, querying: bool) -> str:
        """Admit or refuse a call; return how it breaks the protocol, or an empty string.

        It counts for the request of ``subshell``, or of the main shell where there is none.
        ``querying``: the guest completes or inspects a name, which must not have any effect.
        """
        policy, name = self._tooling.policy, message.name
        tool = self.providers.tool(name)
        if tool is None and name in self.providers.withheld:
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
        account = self._accounts.get(subshell) or self._accounts[0]
        account.calls += 1
        refusal = self._refusal(account, name, size, querying=querying)
        began = self._clock()
        one = _PendingCall(next(self._numbers), message, tool, began, account, refusal)
        self._pending[message.id] = one
        self._bytes += size
        wait = 0.0 if self._delayed else self._rate.take(policy.tool_max_per_second, began)
        if wait:
            self._run_delayed_in(wait)
        # A call whose arguments the host has no room for does not wait.
        if (self._delayed or wait) and (refusal is None or self._bytes <= MAX_ARGUMENTS):
            self._delayed[one.number] = one
        else:
            self._proceed(one)
        return ""

    def _refusal(self, account: _Account, name: str, size: int, *, querying: bool) -> Answer | None:
        """Return the refusal of the call that was counted last, if it is to be refused."""
        most = self._tooling.policy.tool_max_calls
        if querying:
            return _refused("no tool is called to complete or to describe a name")
        if most is not None and account.calls > most:
            return _refused(f"a cell may call tools {most:,} times (tool_max_calls)")
        if self._bytes + size > MAX_ARGUMENTS:
            held = f"the calls under way hold {MAX_ARGUMENTS >> 20} MiB of arguments already"
            return _refused(f"{held}: have fewer at once")
        if why := self.providers.withheld.get(name):
            return Answer(kind="NotGranted", message=why)
        return None

    def _run_delayed_in(self, seconds: float) -> None:
        if not self._is_timed:
            self._is_timed = True
            self._reactor.call_later(seconds, self._run_delayed)

    def _run_delayed(self) -> None:
        """Proceed with the calls that waited, as far as the rate limit allows now."""
        self._is_timed = False
        while self._delayed:
            most = self._tooling.policy.tool_max_per_second
            if wait := self._rate.take(most, self._clock()):
                self._run_delayed_in(wait)
                return
            self._proceed(self._delayed.pop(next(iter(self._delayed))))

    def _proceed(self, one: _PendingCall) -> None:
        """Have a call approved, then run: nothing of it runs before that."""
        if one.refusal is not None:
            self._refuse(one, one.refusal)
            return
        call = Call(
            one.number,
            one.tool,
            one.message.arguments,
            answer=lambda answer: self._settle(one, answer, "error" if answer.kind else "ok"),
            piece=lambda text: self._piece(one, text),
            tell=self._tell,
        )

        def begin() -> None:
            if self._tooling.barred():
                self._refuse(one, _UNLOGGED)
            elif self._is_pending(one):
                self.providers.begin(call)

        approval = self._tooling.approval
        if approval is None:
            begin()
        elif (answer := self.providers.precheck(call)) is not None:
            self._refuse(one, answer)
        elif self._tooling.barred():
            self._refuse(one, _UNLOGGED)
        else:
            approval.decide(
                call, begin, lambda why: self._refuse(one, Answer(kind="NotApproved", message=why))
            )

    def _refuse(self, one: _PendingCall, answer: Answer) -> None:
        self._settle(one, answer, "refused")

    def withdraw(self, message: messages.ToolWithdrawn) -> None:
        """Stop a call that its guest gave up; the answer may have crossed this message."""
        one = self._pending.get(message.id)
        if one is None:
            return
        self._forget(one)
        self._delayed.pop(one.number, None)
        if one.refusal is not None:
            record = self._record(one, "refused", one.refusal)
        else:
            self._stop_asking(one)
            self.providers.cancel(one.number)
            record = self._record(one, "withdrawn")
        if self._count(one, record):
            self._tooling.observe(record)

    def drop(self) -> None:
        """Stop all calls: the guest has ended.

        The user is asked about one call at a time, so the last one is dropped first: else dropping
        one would ask about the next.
        """
        for one in list(reversed(self._pending.values())):
            self._stop_asking(one)
        for one in list(self._pending.values()):
            self.withdraw(messages.ToolWithdrawn(id=one.message.id))
        self.close()

    def _stop_asking(self, one: _PendingCall) -> None:
        if self._tooling.approval is not None:
            self._tooling.approval.dropped(one.number)

    def _is_pending(self, one: _PendingCall) -> bool:
        return self._pending.get(one.message.id) is one

    def _forget(self, one: _PendingCall) -> None:
        del self._pending[one.message.id]
        self._bytes -= len(bytes(one.message.arguments))

    # --- answers ------------------------------------------------------------------------------

    def _piece(self, one: _PendingCall, text: str) -> None:
        """Pass a piece on, unless the guest is behind: the answer will have all of the text."""
        if self._is_pending(one) and self._backlog() <= MAX_BACKLOG:
            self._send(messages.ToolPiece(id=one.message.id, text=text))

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
                self._tooling.observe(record)
        if not self._held and self._backlog() > MAX_BACKLOG:
            self._hold()

    def _hold(self) -> None:
        """Keep answers back until the guest has read those that wait for it."""
        much = self._backlog() > MAX_BACKLOG
        if much != self._held:
            self._held = much
            self.providers.hold(held=much)
        if much:
            self._reactor.call_later(POLL_SECONDS, self._hold)

    def _count(self, one: _PendingCall, record: CallRecord) -> bool:
        """Count a call for its cell; return whether the log lists it."""
        account = one.account
        if account not in self._accounts.values():
            account = self._accounts[0]  # its cell has ended
        elif len(account.records) < MAX_RECORDS:
            account.records.append(record)
        account.refused += record.status == "refused"
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


class Providers:
    """All that run calls for one session: each call goes to the provider that has its tool.

    The operator's tools are known when their worker has imported them. Operations and language
    models are known at once, and their workers start with the first call.
    """

    def __init__(self, reactor: Reactor, tooling: Tooling) -> None:
        #: Those that have to be asked which tools they have, with their answers.
        self._sources: dict[Source, tuple[messages.Tool, ...] | None] = {}
        self._operations: OperationsProvider | None = None
        self._llm: llm.LlmProvider | None = None
        #: Folders that packages are imported from; None until they are installed.
        self._paths: tuple[str, ...] | None = ()
        #: Names of tools that a narrower policy took away.
        self._gone = frozenset[str]()
        self._policy = policy = tooling.policy
        if policy.tools:
            settings = WorkerSettings(
                entries=policy.tools,
                timeout=policy.tool_timeout,
                timeouts=policy.tool_timeouts,
                max_bytes=policy.tool_max_bytes,
                policy=policy.name,
            )
            self._sources[WorkerProvider(reactor, settings)] = None
        if tooling.functions is not None:
            self._sources[tooling.functions()] = None
        if tooling.operations is not None:
            self._operations = OperationsProvider(reactor, policy, tooling.operations)
            self._paths = None
            if policy.operations is not None and policy.operations.write_file is not None:
                tooling.budgets[catalog.WRITE_FILE.name] = self._operations.spent
        if policy.llm.granted:
            self._llm = llm.LlmProvider(reactor, policy.llm, max_bytes=policy.tool_max_bytes)
            tooling.budgets[llm.CALL] = self._llm.spent
        self._own = [one for one in (self._operations, self._llm) if one is not None]
        #: By name, also those that are gone: their calls may be under way.
        self._named: dict[str, tuple[messages.Tool, Source | _Own]] = {}
        self._index()
        #: Tools of the host's own that the policy does not grant, and why not.
        self.withheld = {tool.name: catalog.refusal(tool.name) for tool in catalog.ALL.values()}
        self.withheld |= {name: llm.refusal(name) for name in (llm.CALL, llm.CHAT)}
        for name in self._named:
            self.withheld.pop(name, None)

    @property
    def awaited(self) -> bool:
        """Whether it is not known yet what cells may call: no guest starts before that."""
        return self._paths is None or None in self._sources.values()

    @property
    def tools(self) -> tuple[messages.Tool, ...]:
        """What cells may call."""
        return tuple(tool for tool, _ in self._named.values() if tool.name not in self._gone)

    @property
    def paths(self) -> tuple[str, ...]:
        """Folders that packages are imported from."""
        return self._paths or ()

    def tool(self, name: str) -> messages.Tool | None:
        """Return the tool of that name, if there is one."""
        return None if name in self._gone or name not in self._named else self._named[name][0]

    def _index(self) -> None:
        found = [(tool, source) for source, tools in self._sources.items() for tool in tools or ()]
        own = [(tool, one) for one in self._own for tool in one.tools]
        self._named = {tool.name: (tool, one) for tool, one in (*found, *own)}

    def open(
        self,
        on_ready: Callable[[], None],
        on_failed: Callable[[PolicyError], None],
        tell: Callable[[str], None],
    ) -> None:
        """Find out which tools there are, and install the policy's packages.

        Calls one of the two once, at once if there is nothing to wait for. ``tell`` gets lines
        about the progress of the installation.
        """
        failed = False

        def known(source: Source, tools: tuple[messages.Tool, ...]) -> None:
            if twice := next((tool.name for tool in tools if self.tool(tool.name)), ""):
                what = "the policy has a tool of this name already"
                file, key = (self._policy.name, "tools") if self._policy.tools else ("tools", "")
                remedy = "Rename one of them."
                fail(PolicyError(what, file=file, key=key, value=repr(twice), remedy=remedy))
                return
            self._sources[source] = tools
            self._index()
            settle()

        def installed(paths: tuple[str, ...]) -> None:
            self._paths = paths
            settle()

        def settle() -> None:
            if not self.awaited and not failed:
                on_ready()

        def fail(error: PolicyError) -> None:
            nonlocal failed
            if not failed:
                failed = True
                on_failed(error)

        settle()
        for source in tuple(self._sources):
            source.open(partial(known, source), fail)
        if self._operations is not None:
            self._operations.open(installed, fail, tell)

    def narrow_to(self, tooling: Tooling, gone: Collection[str]) -> None:
        """Apply a narrower policy to calls that begin now; ``gone`` are tools it takes away."""
        self._gone |= frozenset(gone)
        for source in self._sources:
            source.narrow_to(tooling.policy.tool_timeout, tooling.policy.tool_timeouts)
        if self._operations is not None and tooling.operations is not None:
            self._operations.narrow_to(tooling.policy, tooling.operations)

    def precheck(self, call: Call) -> Answer | None:
        """Return the refusal of a call that the policy does not grant, before a user is asked."""
        _, provider = self._named.get(call.tool.name, (None, None))
        return provider.precheck(call) if isinstance(provider, _Own) else None

    def begin(self, call: Call) -> None:
        """Run a call."""
        self._named[call.tool.name][1].begin(call)

    def cancel(self, number: int) -> None:
        """Stop a call."""
        for source in self._all():
            source.cancel(number)

    def hold(self, *, held: bool) -> None:
        """Keep answers back, or let them go again."""
        for source in self._all():
            source.hold(held=held)

    def close(self) -> None:
        """End all workers that were started."""
        for source in self._all():
            source.close()

    def _all(self) -> list[Source]:
        return [*self._sources, *(one.worker for one in self._own)]


_Own = OperationsProvider | llm.LlmProvider
