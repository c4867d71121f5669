"""Providers: everything that runs tool calls for one session.

The broker loads this module when the session has tools, or when its guest calls one. ``Providers``
knows which provider has a tool and passes calls on: to the worker of the operator's functions or
MCP servers, to functions of a program, to ``OperationsProvider`` or to ``llm.LlmProvider``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from cellblock.errors import PolicyError
from cellblock.host.services import addresses, llm
from cellblock.host.services.operations import catalog, files, keys, urls
from cellblock.host.services.operations.catalog import TRANSIENT, UNWRITTEN, not_granted
from cellblock.host.services.operations.grants import OperationError, OperationGrants
from cellblock.host.services.tools.calls import Answer, Call, Quota
from cellblock.host.services.tools.worker import WorkerProvider
from cellblock.host.services.tools.worker_messages import WorkerSettings
from cellblock.policy.network import is_address
from cellblock.render.tables import WriteBudget
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cellblock.host.reactor import Reactor
    from cellblock.host.services.tools.calls import Tooling, ToolSource
    from cellblock.policy.model import Policy
    from cellblock.policy.operations import Operations
    from cellblock.wire import messages


def _settings_of(policy: Policy) -> WorkerSettings:
    return WorkerSettings(
        timeout=policy.tool_timeout,
        timeouts=policy.tool_timeouts,
        max_bytes=policy.tool_max_bytes,
        policy=policy.name,
    )


def functions_of(policy: Policy) -> WorkerSettings:
    """Return the settings of the worker that runs the operator's functions."""
    return replace(_settings_of(policy), entries=policy.tools)


class Providers:
    """The providers of one session. Each call goes to the provider that has its tool.

    The operator's tools are known when their worker has imported them. Operations and language
    models are known at once, and their workers start with the first call. So it is in a fork with
    the operator's tools, too, which the parent session knows.
    """

    def __init__(self, reactor: Reactor, tooling: Tooling) -> None:
        #: The sources that load their tools, with those tools, None until they are known.
        self._sources: dict[ToolSource, tuple[messages.Tool, ...] | None] = {}
        self._operations: OperationsProvider | None = None
        self._llm: llm.LlmProvider | None = None
        #: Folders that packages are imported from; None until they are installed.
        self._paths: tuple[str, ...] | None = ()
        #: Names of tools that a narrower policy took away.
        self._gone = frozenset[str]()
        self._policy = policy = tooling.policy
        #: The workers of the operator's tools, by the field of the policy.
        self._workers: dict[str, WorkerProvider] = {}
        if policy.tools:
            ahead = tooling.worker()
            self._workers["tools"] = WorkerProvider(reactor, functions_of(policy), ahead)
        if policy.mcp:
            servers = replace(_settings_of(policy), servers=policy.mcp)
            self._workers["mcp"] = WorkerProvider(reactor, servers)
        self._sources.update(dict.fromkeys(self._workers.values()))
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
        #: The providers of the host's own tools.
        self._own = [each for each in (self._operations, self._llm) if each is not None]
        #: Each tool and its provider, by the tool's name. It keeps tools that are gone, since their
        #: calls may still be running.
        self._named: dict[str, tuple[messages.Tool, ToolSource | _Own]] = {}
        self._index()
        #: The host's own tools that the policy does not grant, and why each is refused.
        self.withheld = {tool.name: catalog.refusal(tool.name) for tool in catalog.ALL.values()}
        self.withheld |= {name: llm.refusal(name) for name in (llm.CALL, llm.CHAT)}
        for name in self._named:
            self.withheld.pop(name, None)

    @property
    def awaited(self) -> bool:
        """Whether the tools or packages are not known yet. No guest may start before that."""
        return self._paths is None or None in self._sources.values()

    @property
    def tools(self) -> tuple[messages.Tool, ...]:
        """The tools that cells may call."""
        return tuple(tool for tool, _ in self._named.values() if tool.name not in self._gone)

    @property
    def paths(self) -> tuple[str, ...]:
        """Folders that packages are imported from."""
        return self._paths or ()

    @property
    def from_workers(self) -> dict[str, tuple[messages.Tool, ...]]:
        """The operator's tools that cells may call and are known by now, by the policy's field."""
        return {
            field: tuple(tool for tool in tools if tool.name not in self._gone)
            for field, worker in self._workers.items()
            if (tools := self._sources[worker]) is not None
        }

    def tool(self, name: str) -> messages.Tool | None:
        """Return the tool of that name that cells may call, or None."""
        return None if name in self._gone or name not in self._named else self._named[name][0]

    def _index(self) -> None:
        """Fill ``_named`` from the tools that are known by now."""
        loaded = [(tool, source) for source, tools in self._sources.items() for tool in tools or ()]
        own = [(tool, provider) for provider in self._own for tool in provider.tools]
        self._named = {tool.name: (tool, provider) for tool, provider in (*loaded, *own)}

    def expect(self, tools_by_worker: Mapping[str, tuple[messages.Tool, ...]]) -> None:
        """Take over ``from_workers`` of a session under the same policy. Called before ``open``."""
        for field, worker in self._workers.items():
            if field in tools_by_worker:
                worker.expect(tools_by_worker[field])
                self._sources[worker] = tools_by_worker[field]
        self._index()

    def open(
        self,
        on_ready: Callable[[], None],
        on_failed: Callable[[PolicyError], None],
        tell: Callable[[str], None],
    ) -> None:
        """Load the tools, and install the policy's packages.

        Exactly one of ``on_ready`` and ``on_failed`` is called, once; before ``open`` returns if
        there is nothing to wait for. ``tell`` gets lines about the installation's progress.
        """
        failed = False

        def on_tools(source: ToolSource, tools: tuple[messages.Tool, ...]) -> None:
            if twice := next((tool.name for tool in tools if self.tool(tool.name)), ""):
                problem = "the policy has a tool of this name already"
                file, key = (self._policy.name, "tools") if self._policy.tools else ("tools", "")
                remedy = "Rename one of them."
                fail(PolicyError(problem, file=file, key=key, value=repr(twice), remedy=remedy))
                return
            self._sources[source] = tools
            self._index()
            settle()

        def on_installed(paths: tuple[str, ...]) -> None:
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
        for source in [source for source, tools in self._sources.items() if tools is None]:
            source.open(partial(on_tools, source), fail)
        if self._operations is not None:
            self._operations.open(on_installed, fail, tell)

    def narrow_to(self, tooling: Tooling, removed_names: Collection[str]) -> None:
        """Apply a narrower policy to calls that begin from now on, without ``removed_names``."""
        self._gone |= frozenset(removed_names)
        for source in self._sources:
            source.narrow_to(tooling.policy.tool_timeout, tooling.policy.tool_timeouts)
        if self._operations is not None and tooling.operations is not None:
            self._operations.narrow_to(tooling.policy, tooling.operations)

    def precheck(self, call: Call) -> Answer | None:
        """Return the refusal of a call that the policy does not grant, before a user is asked."""
        _, provider = self._named.get(call.tool.name, (None, None))
        return provider.precheck(call) if isinstance(provider, _Own) else None

    def carries(self, call: Call) -> tuple[str, ...]:
        """Return the names of the credentials that a call's first request carries.

        They are shown to the user who is asked about the call.
        """
        _, provider = self._named.get(call.tool.name, (None, None))
        return provider.carries(call) if isinstance(provider, OperationsProvider) else ()

    def check(self, call: Call) -> None:
        """Validate a call's arguments, and answer whether they fit. Called before a user is asked.

        The tool isn't run.
        """
        _, provider = self._named[call.tool.name]
        if isinstance(provider, llm.LlmProvider):
            call.answer(Answer())  # its precheck has validated them
        else:
            source = provider.worker if isinstance(provider, OperationsProvider) else provider
            source.begin(replace(call, checks_only=True))

    def begin(self, call: Call) -> None:
        """Run a call."""
        self._named[call.tool.name][1].begin(call)

    def cancel(self, number: int) -> None:
        """Stop a call."""
        for source in self._all():
            source.cancel(number)

    def hold(self, *, held: bool) -> None:
        """Hold answers back, or let them go again."""
        for source in self._all():
            source.hold(held=held)

    def close(self) -> None:
        """End all workers that were started."""
        for source in self._all():
            source.close()

    def _all(self) -> list[ToolSource]:
        return [*self._sources, *(provider.worker for provider in self._own)]


# --- operations -------------------------------------------------------------------------------

#: Seconds that the worker waits beyond an operation's own time limit, so that the operation itself
#: reports the timeout.
_GRACE: Final = 2.0
#: Bytes of an answer besides its data (headers, names), and of each entry of a folder.
_BESIDES: Final = 256 * 2**10
_ENTRY: Final = 400
#: The number of the call that installs the policy's packages. Cells' calls begin at 1.
_BEFORE_ALL: Final = 0
#: The least bytes that a written file counts as: a block of a disk.
_LEAST_FILE: Final = 4_096
_decode: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode


class OperationsProvider:
    """The provider of operations, in a worker of their own that starts with the first call.

    A call that is refused by its arguments alone is refused before a user is asked (``refusal``).
    Bytes that ``ops.write_file`` writes count against a quota. The worker judges a call once more,
    with facts that only it finds out, such as where a link leads.
    """

    def __init__(self, reactor: Reactor, policy: Policy, grants: OperationGrants) -> None:
        self._reactor = reactor
        self._policy = policy
        self._grants = grants
        self.worker = WorkerProvider(reactor, _worker_settings(policy, grants))
        #: The tools that cells may call.
        self.tools = catalog.granted_tools(policy.operations)
        written = grants.tables.get("write_file")
        self._written = Quota(written["max_total_bytes"] if written else 0)

    def spent(self) -> WriteBudget:
        """Return how many bytes cells have written, and how many they may."""
        return WriteBudget(self._written.used, self._written.most)

    def narrow_to(self, policy: Policy, grants: OperationGrants) -> None:
        """Apply a narrower policy to calls that begin from now on, in a new worker if need be.

        The quota and its use stay the same.
        """
        settings = _worker_settings(policy, grants)
        if grants != self._grants:
            self.worker.give_up("the policy has become narrower")
            self.worker = WorkerProvider(self._reactor, settings)
        elif policy.tool_timeout != self._policy.tool_timeout:
            self.worker.narrow_to(settings.timeout, settings.timeouts)
        self._policy = policy
        self._grants = grants

    def open(
        self,
        on_ready: Callable[[tuple[str, ...]], None],
        on_failed: Callable[[PolicyError], None],
        tell: Callable[[str], None],
    ) -> None:
        """Install the policy's packages. ``on_ready`` gets the folders to import them from.

        Exactly one of ``on_ready`` and ``on_failed`` is called, before ``open`` returns if there is
        nothing to install.
        """
        packages = self._policy.packages
        if not packages:
            on_ready(())
            return

        def on_answer(answer: Answer) -> None:
            if not answer.kind:
                on_ready(tuple(_decode(answer.value)["paths"]))
                return
            clear = "" if answer.kind in TRANSIENT else "run `cellblock packages clear` and "
            problem = f"they can't be installed: {answer.message}"
            remedy = f"Mend that, then {clear}restart the kernel."
            on_failed(self._policy.error(problem, "packages", list(packages), remedy))

        arguments = msgspec.Raw(msgspec.msgpack.encode((packages, {})))
        self.worker.begin(Call(_BEFORE_ALL, catalog.INSTALL, arguments, on_answer, tell=tell))

    def precheck(self, call: Call) -> Answer | None:
        """Return the refusal of a call that is not granted, before a user is asked."""
        return refusal(call, self._policy.operations, self._grants)

    def carries(self, call: Call) -> tuple[str, ...]:
        """Return the names of credentials that a request carries which passed ``precheck``."""
        if call.tool.name != catalog.HTTP.name or not self._grants.credentials:
            return ()
        try:
            args, kwargs = values.decode(call.arguments)
            return _carried(list(args), dict(kwargs), self._grants)
        except (OperationError, *_MISFITS):
            return ()  # the worker will refuse it, and send no key

    def begin(self, call: Call) -> None:
        """Run a call, unless it exceeds the session's quota for writing."""
        if call.tool.name != catalog.WRITE_FILE.name:
            self.worker.begin(call)
            return
        size = max(len(bytes(call.arguments)), _LEAST_FILE)
        if not self._written.reserve(size):
            why = f"it counts as {size:,} bytes, too many (max_total_bytes)"
            message = f"{why}: {self.spent()} for this session"
            call.answer(Answer(kind="BudgetSpent", message=message))
            return

        def on_answer(answer: Answer) -> None:
            # After any other answer, or none, something may have been written.
            if answer.kind in UNWRITTEN:
                self._written.release(size)
            call.answer(answer)

        self.worker.begin(replace(call, answer=on_answer))


def _worker_settings(policy: Policy, grants: OperationGrants) -> WorkerSettings:
    tables = grants.tables
    most = [tables[name]["max_bytes"] for name in ("read_file", "http") if name in tables]
    entries = tables["list_dir"]["max_entries"] if "list_dir" in tables else 0
    return WorkerSettings(
        operations=grants,
        timeout=policy.tool_timeout,
        timeouts={
            f"{catalog.PREFIX}{name}": tables[name]["timeout"] + _GRACE
            for name in ("http", "install")
            if name in tables
        },
        max_bytes=max((2**20, *most)) + _BESIDES + entries * _ENTRY,
        policy=policy.name,
    )


# --- calls that are refused by their arguments alone, before a user is asked ------------------
#
# Nothing is opened or sent here.


def refusal(call: Call, section: Operations | None, grants: OperationGrants) -> Answer | None:
    """Return the refusal of a call whose arguments show that it isn't granted; otherwise None.

    Arguments that do not fit the signature are left to the worker, which says what is wrong.
    """
    try:
        table = getattr(section, call.tool.name.removeprefix(catalog.PREFIX), None)
        if table is not None:
            args, kwargs = values.decode(call.arguments)
            _check(call.tool.name, list(args), dict(kwargs), table, grants)
    except OperationError as exc:
        return Answer(kind=exc.kind, message=exc.message)
    except _MISFITS:
        return None
    return None


#: Exceptions that arguments raise which do not fit the signature.
_MISFITS: Final = (msgspec.MsgspecError, RecursionError, TypeError, ValueError)


def _check(
    name: str, args: list[Any], kwargs: dict[Any, Any], table: Any, grants: OperationGrants
) -> None:
    """Raise OperationError for a call that isn't granted, TypeError for misfitting arguments."""
    if name == catalog.HTTP.name:
        url = urls.parse_url(_text(args[0] if args else kwargs.get("url")))
        private = urls.HttpRules(table).check(_text(kwargs.get("method", "GET")), url)
        literal = [url.host.strip("[]")] if is_address(url.host) else []
        if why := addresses.refusal(literal, private=private):
            raise not_granted(f"{url.host}: {why}")
        _carried(args, kwargs, grants)
    elif name == catalog.INSTALL.name:
        from cellblock.host.services.operations import packages  # noqa: PLC0415 - few cells ask for packages

        packages.check_names(map(_text, args), table.allow)
    else:
        default = "." if name == catalog.LIST_DIR.name else None
        path = _text(args[0] if args else kwargs.get("path", default))
        roots = files.Roots(name, table.roots, project=grants.project, denied=grants.denied)
        roots.check(path, of_file=name == catalog.WRITE_FILE.name)


def _carried(args: list[Any], kwargs: dict[Any, Any], grants: OperationGrants) -> tuple[str, ...]:
    """Return the names of credentials at a request's first hop. Raises as ``_check`` does."""
    url = urls.parse_url(_text(args[0] if args else kwargs.get("url")))
    header_names = map(_text, kwargs.get("headers") or ())
    return tuple(name for name, _ in keys.Keys(grants.credentials).named_at(url, header_names))


def _text(value: Any) -> str:
    """Return a text, decoding bytes as pydantic does. Raises TypeError, ValueError."""
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


_Own = OperationsProvider | llm.LlmProvider
