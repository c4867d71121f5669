"""All that run calls for one session; loaded when it has tools, or its guest calls one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cellblock.errors import PolicyError
from cellblock.host.services import llm
from cellblock.host.services.operations import catalog
from cellblock.host.services.operations.provider import OperationsProvider
from cellblock.host.services.tools.worker import WorkerProvider, WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cellblock.host.services.tools.calls import Answer, Call, Tooling
    from cellblock.host.services.tools.runner import InProcessTools
    from cellblock.host.session.types import Reactor
    from cellblock.wire import messages

    #: What has to be asked which tools it has.
    Source = WorkerProvider | InProcessTools


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
        if policy.mcp:
            settings = WorkerSettings(
                servers=policy.mcp,
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
