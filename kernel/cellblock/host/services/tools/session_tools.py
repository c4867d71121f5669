"""A session's tools: known before its first guest, called by its guests, ended with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cellblock.errors import CellblockError, PolicyError
from cellblock.host.services.tools.calls import CellCalls
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cellblock.host.guests.supervisor import Supervisor
    from cellblock.host.services.llm.provider import LlmProvider
    from cellblock.host.services.operations.provider import OperationsProvider
    from cellblock.host.services.tools.broker import Broker
    from cellblock.host.services.tools.calls import Answer, Call, Provider, Source, Tooling
    from cellblock.host.session.requests import Request
    from cellblock.host.session.types import Reactor
    from cellblock.wire.messages import Tool


# Whoever runs tools for a session: found out about before its first guest, and ended with it.
#
# The operator's tools are known when their worker has imported them; operations and calls of
# language models are known without, and their workers start with the first call.


class Providers:
    """Who there is: the workshop, a program's functions, operations, language models."""

    def __init__(self, reactor: Reactor, tooling: Tooling) -> None:
        #: Those that have to be asked what they have; and what those have that have said so.
        self._sources: list[Source] = []
        self._told: dict[Source, tuple[Tool, ...]] = {}
        self._operations: OperationsProvider | None = None
        self._llm: LlmProvider | None = None
        #: Where packages are imported from; None while that is unknown.
        self._paths: tuple[str, ...] | None = ()
        #: What the host has of its own.
        self._own: tuple[Tool, ...] = ()
        #: Names that a narrower policy has no tools of.
        self._gone = frozenset[str]()
        #: What errors call the policy.
        self._policy = tooling.settings.policy if tooling.settings is not None else ""
        self._staff(reactor, tooling)

    def _staff(self, reactor: Reactor, tooling: Tooling) -> None:
        if tooling.settings is not None:
            from cellblock.host.services.tools.worker_provider import WorkerProvider  # noqa: PLC0415 - few have any

            self._sources.append(WorkerProvider(reactor, tooling.settings))
        if tooling.given is not None:
            self._sources.append(tooling.given())
        if tooling.operations is not None:
            from cellblock.host.services.operations.provider import OperationsProvider  # noqa: PLC0415 - as above

            self._operations, self._paths = OperationsProvider(reactor, tooling.operations), None
            self._own += self._operations.tools
        if tooling.models is not None:
            from cellblock.host.services.llm.provider import LlmProvider  # noqa: PLC0415 - as above

            llm, quota = tooling.models.llm, tooling.models.quota
            self._llm = LlmProvider(reactor, llm, quota, max_bytes=tooling.limits.max_bytes)
            self._own += self._llm.tools

    @property
    def awaited(self) -> bool:
        """Whether it is not known yet what there is: no guest is started before that."""
        return len(self._told) < len(self._sources) or self._paths is None

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What cells may call."""
        told = (tool for one in self._sources for tool in self._told.get(one, ()))
        return tuple(tool for tool in (*told, *self._own) if tool.name not in self._gone)

    def hold_to(self, tooling: Tooling, gone: Collection[str]) -> None:
        """Have calls that begin now keep within less, and offer no more what is ``gone``."""
        self._gone |= frozenset(gone)
        limits = tooling.limits
        for source in self._sources:
            source.hold_to(limits.timeout, limits.timeouts)
        if self._operations is not None and tooling.operations is not None:
            self._operations.hold_to(tooling.operations)

    @property
    def paths(self) -> tuple[str, ...]:
        """Folders that packages are imported from."""
        return self._paths or ()

    def withheld(self) -> dict[str, str]:
        """Return why what the policy does not grant of the host's is not run, by its names."""
        from cellblock.host.services.llm import provider  # noqa: PLC0415 - most sessions call nothing
        from cellblock.host.services.operations import catalog  # noqa: PLC0415 - as above

        why = {tool.name: catalog.refusal(tool.name) for tool in catalog.ALL.values()}
        why |= {name: provider.refusal(name) for name in (provider.CALL, provider.CHAT)}
        granted = {tool.name for tool in self._own}
        return {name: said for name, said in why.items() if name not in granted}

    def beyond(self, call: Call) -> Answer | None:
        """Return what a call is answered that asks for what the policy does not grant."""
        for one in (self._operations, self._llm):
            if one is not None and call.tool.name in {tool.name for tool in one.tools}:
                return one.precheck(call)
        return None

    def provider(self) -> Provider:
        """Return all of them as one, once it is known what there is."""
        named: dict[str, Provider] = {}
        for source, tools in self._told.items():
            named |= {tool.name: source for tool in tools}
        for one in (self._operations, self._llm):
            if one is not None:
                named |= {tool.name: one for tool in one.tools}
        return Several(named)

    def open(
        self,
        on_ready: Callable[[], None],
        on_failed: Callable[[PolicyError], None],
        tell: Callable[[str], None],
    ) -> None:
        """Find out which tools there are, and install what is to be there.

        Calls one of the two once, at once where there is nothing to be found out. ``tell`` gets
        lines of how the installation is getting on.
        """
        failed = False

        def known(source: Source, tools: tuple[Tool, ...]) -> None:
            names = {tool.name for tool in self.tools}
            if twice := next((tool.name for tool in tools if tool.name in names), ""):
                fail(_twice(twice, self._policy))
                return
            self._told[source] = tools
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
        for source in self._sources:
            source.open(lambda tools, source=source: known(source, tools), fail)  # type: ignore[misc]
        if self._operations is not None:
            self._operations.open(installed, fail, tell)

    def close(self) -> None:
        """End all workers that were started."""
        for one in (*self._sources, self._operations, self._llm):
            if one is not None:
                one.close()


def _twice(name: str, policy: str) -> PolicyError:
    what, remedy = "the policy has a tool of this name already", "Rename one of them."
    file, key = (policy, "tools") if policy else ("tools", "")
    return PolicyError(what, file=file, key=key, value=repr(name), remedy=remedy)


#: Seconds between looks at whether a guest has read a request.
LOOK: Final = 0.002
#: Lines kept of how it gets on while nobody waits.
MOST_LINES: Final = 20


class SessionTools:
    """What of tools concerns a session; a call of what it has never heard of is a breach.

    ``show`` gets lines of how a call is getting on, for whoever waits.
    """

    def __init__(
        self,
        reactor: Reactor,
        keeper: Supervisor,
        request: Callable[[], Request | None],
        violation: Callable[[str], None],
        show: Callable[[messages.Stream], None],
    ) -> None:
        self._reactor, self._keeper = reactor, keeper
        self._request, self._violation, self._show = request, violation, show
        #: Answers behind a request that the guest has not read yet.
        self._later: list[messages.ToolResult | messages.ToolPiece] = []
        #: Lines that nobody was there to be shown.
        self._lines: list[str] = []
        self._tooling: Tooling | None = None
        self._clock: Callable[[], float] | None = None
        self._broker: Broker | None = None
        #: Whoever runs tools.
        self._crew: Providers | None = None

    @property
    def awaited(self) -> bool:
        """Whether no guest is started yet: which tools there are is not known, say."""
        return self._crew is not None and self._crew.awaited

    @property
    def folders(self) -> tuple[str, ...]:
        """Where packages are imported from besides the interpreter's own."""
        return () if self._crew is None else self._crew.paths

    def set_up(self, tooling: Tooling, clock: Callable[[], float]) -> None:
        """Have tools; where there are none, what knows why is made for the first call."""
        self._tooling, self._clock = tooling, clock
        self._crew = Providers(self._reactor, tooling)

    def _made(self) -> Broker | None:
        """Return the broker, made now if it must be; None where a session was not set up."""
        tooling, clock, crew = self._tooling, self._clock, self._crew
        if self._broker is None and tooling and clock and crew:
            from cellblock.host.services.tools.broker import Broker  # noqa: PLC0415 - few sessions call

            self._broker = Broker(
                self._reactor,
                crew.provider(),
                tooling.limits,
                clock=clock,
                send=self._send,
                waiting=self._waiting,
                observe=tooling.observe,
                unlisted=tooling.unlisted,
                barred=tooling.barred,
                tell=self._tell,
                approval=tooling.approval,
                beyond=None if tooling.approval is None else crew.beyond,
            )
            self._broker.offer(crew.tools, crew.withheld())
        return self._broker

    def hold_to(self, tooling: Tooling | None, gone: Collection[str]) -> None:
        """Have these limits, and no more the tools that are ``gone``, by their names."""
        if tooling is None or self._crew is None:
            return
        self._tooling = tooling
        self._crew.hold_to(tooling, gone)
        if self._broker is not None:
            self._broker.drop_tools(gone)
            self._broker.hold_to(tooling.limits)

    def open(
        self,
        on_tools: Callable[[tuple[messages.Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
    ) -> None:
        """Find out which tools there are, install what is to be there, and tell one of the two."""
        crew = self._crew
        if crew is None:
            return

        def ready() -> None:
            if crew.tools:
                self._made()
            if crew.tools or crew.paths:
                self._keeper.equip(crew.tools, crew.paths)
            on_tools(crew.tools)

        crew.open(ready, on_failed, self._tell)

    def _tell(self, text: str) -> None:
        """Show a line to whoever waits; to the next one, where nobody does."""
        self._lines = [*self._lines[1 - MOST_LINES :], text]
        self.catch_up()

    def catch_up(self) -> None:
        """Show what nobody was there to be shown, where a cell is by now."""
        request = self._request()
        if self._lines and request is not None and isinstance(request.message, messages.Execute):
            lines, self._lines = self._lines, []
            text = "".join(f"{line}\n" for line in lines)
            self._show(messages.Stream(name="stderr", text=text))

    def _send(self, message: messages.ToolResult | messages.ToolPiece) -> None:
        """Answer, but nothing that would hide whether a request was read before it began."""
        if self._later or not self._read():
            if not self._later:
                self._reactor.call_later(LOOK, self._send_later)
            self._later.append(message)
            return
        guest = self._keeper.guest
        if guest is not None and not guest.closed:
            try:
                guest.send(message)
            except CellblockError as exc:
                self._violation(str(exc))

    def _read(self) -> bool:
        """Say whether the request under way, if there is one, has been read."""
        request, guest = self._request(), self._keeper.guest
        if request is None or request.began or request.taken or guest is None:
            return True
        request.taken = guest.unread() == 0
        return request.taken

    def _send_later(self) -> None:
        if self._later and not self._read():
            self._reactor.call_later(LOOK, self._send_later)
            return
        due, self._later = self._later, []
        for message in due:
            self._send(message)

    def _waiting(self) -> int:
        guest = self._keeper.guest
        return 0 if guest is None else guest.backlog

    def begin(self) -> None:
        """Begin the account of a request."""
        if self._broker is not None:
            self._broker.begin()

    def end(self) -> CellCalls:
        """Return the account."""
        return CellCalls() if self._broker is None else self._broker.end()

    def heard(
        self, message: messages.ToolCall | messages.ToolWithdrawn, request: Request | None
    ) -> None:
        """Act on what a guest says of a call, while ``request`` is under way."""
        query = messages.Complete | messages.Inspect
        called = isinstance(message, messages.ToolCall)
        broker = self._broker or (self._made() if called else None)
        if broker is None:
            self._violation("a call of what is no tool")
        elif isinstance(message, messages.ToolWithdrawn):
            broker.withdraw(message)
        else:
            if request is not None:
                request.called = True
            querying = request is not None and isinstance(request.message, query)
            if breach := broker.call(message, querying=querying):
                self._violation(breach)

    def drop(self) -> None:
        """Stop what a guest had called that is no more."""
        self._later.clear()
        if self._broker is not None:
            self._broker.drop()

    def close(self) -> None:
        """End whoever runs tools."""
        if self._broker is not None:
            self._broker.close()
        if self._crew is not None:
            self._crew.close()


# Providers side by side: each call goes to the one that has its tool.


class Several:
    """A provider. ``named`` have the tools, by name; the broker passes no call of any other."""

    def __init__(self, named: Mapping[str, Provider]) -> None:
        self._named = named
        self._all: tuple[Provider, ...] = tuple(dict.fromkeys(named.values()))

    def begin(self, call: Call) -> None:
        """Run a call."""
        self._named[call.tool.name].begin(call)

    def cancel(self, number: int) -> None:
        """Stop a call; harmless for whoever does not have it."""
        for provider in self._all:
            provider.cancel(number)

    def hold(self, *, held: bool) -> None:
        """Keep answers back, or give them again."""
        for provider in self._all:
            provider.hold(held=held)

    def close(self) -> None:
        """End them all."""
        for provider in self._all:
            provider.close()
