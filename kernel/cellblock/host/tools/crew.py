"""Whoever runs tools for a session: found out about before its first guest, and ended with it.

The operator's tools are known when their worker has imported them; operations and calls of language
models are known without, and their workers start with the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from cellblock.host.llm.provider import Llm
    from cellblock.host.ops.provider import Operations
    from cellblock.host.session.types import Reactor
    from cellblock.host.tools import Tooling
    from cellblock.host.tools.provider import Answer, Call, Provider, Source
    from cellblock.wire.messages import Tool


class Crew:
    """Who there is: the workshop, a program's functions, operations, language models."""

    def __init__(self, reactor: Reactor, tooling: Tooling) -> None:
        #: Those that have to be asked what they have; and what those have that have said so.
        self._sources: list[Source] = []
        self._told: dict[Source, tuple[Tool, ...]] = {}
        self._operations: Operations | None = None
        self._llm: Llm | None = None
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
            from cellblock.host.tools.workshop import Workshop  # noqa: PLC0415 - few have any

            self._sources.append(Workshop(reactor, tooling.settings))
        if tooling.given is not None:
            self._sources.append(tooling.given())
        if tooling.operations is not None:
            from cellblock.host.ops.provider import Operations  # noqa: PLC0415 - as above

            self._operations, self._paths = Operations(reactor, tooling.operations), None
            self._own += self._operations.tools
        if tooling.models is not None:
            from cellblock.host.llm.provider import Llm  # noqa: PLC0415 - as above

            section, ledger = tooling.models.section, tooling.models.ledger
            self._llm = Llm(reactor, section, ledger, max_bytes=tooling.limits.max_bytes)
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
        from cellblock.host.llm import offer  # noqa: PLC0415 - most sessions call nothing
        from cellblock.host.ops import catalog  # noqa: PLC0415 - as above

        why = {tool.name: catalog.refusal(tool.name) for tool in catalog.ALL.values()}
        why |= {name: offer.refusal(name) for name in (offer.CALL, offer.CHAT)}
        granted = {tool.name for tool in self._own}
        return {name: said for name, said in why.items() if name not in granted}

    def beyond(self, call: Call) -> Answer | None:
        """Return what a call is answered that asks for what the policy does not grant."""
        for one in (self._operations, self._llm):
            if one is not None and call.tool.name in {tool.name for tool in one.tools}:
                return one.beyond(call)
        return None

    def provider(self) -> Provider:
        """Return all of them as one, once it is known what there is."""
        from cellblock.host.tools.several import Several  # noqa: PLC0415 - as above

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
