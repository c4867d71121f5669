"""The host's end of operations: a provider whose worker starts with the first call of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.errors import PolicyError
from cellblock.host.services.network import addresses
from cellblock.host.services.operations import catalog, files, urls
from cellblock.host.services.operations.urls import (
    TRANSIENT,
    UNWRITTEN,
    OperationError,
    not_granted,
)
from cellblock.host.services.tools.calls import Answer, Call, WorkerSettings
from cellblock.host.services.tools.worker_provider import WorkerProvider
from cellblock.policy.network import is_address
from cellblock.render.tables import WriteBudget
from cellblock.wire import values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.host.services.operations.catalog import OperationGrants
    from cellblock.host.session.types import Reactor
    from cellblock.wire.messages import Tool


#: Seconds that a call has beyond its own limit, to say itself that it took too long.
_GRACE: Final = 2.0
#: Bytes of an answer besides what it carries: headers, the names in it.
_BESIDES: Final = 256 * 2**10
_BEFORE_ALL: Final = 0
_decode: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode


class OperationsAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy grants: what cells see of it, what its worker is told, and what it costs.

    ``packages`` are installed before the first cell. ``policy`` is the file's name, for errors.
    """

    tools: tuple[Tool, ...]
    settings: catalog.OperationGrants
    ledger: WriteQuota
    timeout: float | None
    packages: tuple[str, ...] = ()
    policy: str = ""


class OperationsProvider:
    """Runs operations, in a workshop of their own."""

    def __init__(self, reactor: Reactor, offer: OperationsAccess) -> None:
        self._reactor, self._offer = reactor, offer
        self._worker = WorkerProvider(reactor, _settings(offer))

    def hold_to(self, offer: OperationsAccess) -> None:
        """Run calls that begin now as a narrower offer says, in a worker that knows no other.

        What it costs stays on one account.
        """
        if offer.settings != self._offer.settings:
            self._worker.give_up("the policy has become narrower")
            self._worker = WorkerProvider(self._reactor, _settings(offer))
        elif offer.timeout != self._offer.timeout:
            made = _settings(offer)
            self._worker.hold_to(made.timeout, made.timeouts)
        self._offer = offer

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What cells may call."""
        return self._offer.tools

    def open(
        self,
        on_ready: Callable[[tuple[str, ...]], None],
        on_failed: Callable[[PolicyError], None],
        tell: Callable[[str], None],
    ) -> None:
        """Install what the policy wants to be there; ``on_ready`` gets where it is imported from.

        Exactly one of the two is called, at once where there is nothing to install.
        """
        packages = self._offer.packages
        if not packages:
            on_ready(())
            return

        def done(answer: Answer) -> None:
            if answer.kind:
                on_failed(self._not_there(answer))
            else:
                on_ready(tuple(_decode(answer.value)["paths"]))

        arguments = msgspec.Raw(msgspec.msgpack.encode((packages, {})))
        self._worker.begin(Call(_BEFORE_ALL, catalog.INSTALL, arguments, done, tell=tell))

    def _not_there(self, answer: Answer) -> PolicyError:
        clear = "" if answer.kind in TRANSIENT else "run `cellblock packages clear` and "
        return PolicyError(
            f"they can't be installed: {answer.message}",
            file=self._offer.policy,
            key="packages",
            value=repr(list(self._offer.packages)),
            remedy=f"Mend that, then {clear}restart the kernel.",
        )

    def precheck(self, call: Call) -> Answer | None:
        """Return what a call is answered that asks for what is not granted, before it is run."""
        return answer(call, self._offer.settings)

    def begin(self, call: Call) -> None:
        """Run a call, unless it takes more of what a session may have than is left."""
        if call.tool.name == catalog.WRITE_FILE.name:
            size, ledger = len(bytes(call.arguments)), self._offer.ledger
            if refusal := ledger.reserve(size):
                call.answer(Answer(kind="BudgetSpent", message=refusal))
                return
            call = _accounted(call, size, ledger)
        self._worker.begin(call)

    def cancel(self, number: int) -> None:
        """Stop a call."""
        self._worker.cancel(number)

    def hold(self, *, held: bool) -> None:
        """Take no answers for now, or again."""
        self._worker.hold(held=held)

    def close(self) -> None:
        """End the worker, if one has been started."""
        self._worker.close()


def _accounted(call: Call, size: int, ledger: WriteQuota) -> Call:
    """Return the same call, which gives back what its answer says was not written.

    One that has no answer, or is lost or late, may have been.
    """

    def answer(answer: Answer) -> None:
        if answer.kind in UNWRITTEN:
            ledger.give_back(size)
        call.answer(answer)

    return msgspec.structs.replace(call, answer=answer)


def _settings(offer: OperationsAccess) -> WorkerSettings:
    given = offer.settings
    tables = (given.read_file, given.http)
    most = max((table.max_bytes for table in tables if table is not None), default=2**20)
    timed = {catalog.HTTP.name: given.http, catalog.INSTALL.name: given.install}
    return WorkerSettings(
        operations=given,
        timeout=offer.timeout,
        timeouts={name: one.timeout + _GRACE for name, one in timed.items() if one is not None},
        max_bytes=max(most, 2**20) + _BESIDES + _names(given),
        policy=offer.policy,
    )


def _names(given: catalog.OperationGrants) -> int:
    """Return the bytes that the longest list of names may take."""
    return 0 if given.list_dir is None else given.list_dir.max_entries * 400


# What a call asks for beyond what the policy grants, told from how that is spelled.
#
# For the host, before anybody is asked about a call. Nothing is opened, resolved or sent: the
# worker judges whatever is allowed again, with all that only it finds out, as where a link
# leads.


def answer(call: Call, granted: OperationGrants) -> Answer | None:
    """Return what a call of an operation is answered that is refused anyhow; None for others.

    What is no call of its signature is none of this one's matter: the worker says so.
    """
    try:
        args, kwargs = values.decode(call.arguments)
        _check(call.tool.name, list(args), dict(kwargs), granted)
    except OperationError as exc:
        return Answer(kind=exc.kind, message=exc.message)
    except (msgspec.MsgspecError, RecursionError, TypeError, ValueError):
        return None
    return None


def _check(name: str, args: list[Any], kwargs: dict[Any, Any], granted: OperationGrants) -> None:
    """Raise OperationError for what is not granted, ValueError for arguments of another kind."""
    table = getattr(granted, name.removeprefix(catalog.PREFIX), None)
    if table is None:
        return
    if name == catalog.HTTP.name:
        url, method = _text(args, kwargs, "url"), kwargs.get("method", "GET")
        _check_request(urls.Grants(table), method, urls.read(url))
    elif name == catalog.INSTALL.name:
        _check_packages(map(_as_text, args), table.allow)
    else:
        path = _text(args, kwargs, "path", "." if name == catalog.LIST_DIR.name else None)
        roots = files.Roots(name, table.roots, project=granted.project, denied=granted.denied)
        roots.spelled(path, of_file=name == catalog.WRITE_FILE.name)


def _text(args: list[Any], kwargs: dict[Any, Any], name: str, default: str | None = None) -> str:
    return _as_text(args[0] if args else kwargs.get(name, default))


def _as_text(value: Any) -> str:
    """Return a text as the worker takes it, which takes bytes, too. Raises ValueError."""
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 - of a cell's, and caught here
    return value


def _check_request(grants: urls.Grants, method: Any, url: urls.Url) -> None:
    private = grants.check(_as_text(method), url)
    said = [url.host.strip("[]")] if is_address(url.host) else []
    if why := addresses.refusal(said, private=private):
        raise not_granted(f"{url.host}: {why}")


def _check_packages(asked: Iterable[str], allow: Iterable[str]) -> None:
    from cellblock.host.services.operations import packages  # noqa: PLC0415 - few cells ask for packages

    packages.check_names(asked, allow)


# What cells have had the host write in a session, and what is left of what they may.
#
# Kept in the host, where a worker that ends takes nothing along.

#: What a file counts as at least, as it takes of a disk.
_LEAST_FILE: Final = 4_096


class WriteQuota:
    """One session's account."""

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes, self._bytes = max_bytes, 0

    def spent(self) -> WriteBudget:
        """Return how the account stands."""
        return WriteBudget(self._bytes, self._max_bytes)

    def reserve(self, size: int) -> str:
        """Enter a file of so many bytes; return why it may not be written, or nothing."""
        taken = max(size, _LEAST_FILE)
        if self._bytes + taken > self._max_bytes:
            said = f"it counts as {taken:,} bytes, too many (max_total_bytes)"
            return f"{said}: {self.spent()} for this session"
        self._bytes += taken
        return ""

    def give_back(self, size: int) -> None:
        """Take out a file that was entered and not written."""
        self._bytes -= max(size, _LEAST_FILE)
