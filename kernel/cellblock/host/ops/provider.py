"""The host's end of operations: a provider whose worker starts with the first call of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.errors import PolicyError
from cellblock.host.ops import catalog
from cellblock.host.ops.errors import TRANSIENT, UNWRITTEN
from cellblock.host.tools.provider import Answer, Call
from cellblock.host.tools.settings import Settings
from cellblock.host.tools.workshop import Workshop

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.ops import settings
    from cellblock.host.ops.ledger import Ledger
    from cellblock.host.session.types import Reactor
    from cellblock.wire.messages import Tool

#: Seconds that a call has beyond its own limit, to say itself that it took too long.
_GRACE: Final = 2.0
#: Bytes of an answer besides what it carries: headers, the names in it.
_BESIDES: Final = 256 * 2**10
_BEFORE_ALL: Final = 0
_decode: Final = msgspec.msgpack.Decoder(dict[str, Any]).decode


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy grants: what cells see of it, what its worker is told, and what it costs.

    ``packages`` are installed before the first cell. ``policy`` is the file's name, for errors.
    """

    tools: tuple[Tool, ...]
    settings: settings.Settings
    ledger: Ledger
    timeout: float | None
    packages: tuple[str, ...] = ()
    policy: str = ""


class Operations:
    """Runs operations, in a workshop of their own."""

    def __init__(self, reactor: Reactor, offer: Offer) -> None:
        self._reactor, self._offer = reactor, offer
        self._workshop = Workshop(reactor, _settings(offer))

    def hold_to(self, offer: Offer) -> None:
        """Run calls that begin now as a narrower offer says, in a worker that knows no other.

        What it costs stays on one account.
        """
        if offer.settings != self._offer.settings:
            self._workshop.give_up("the policy has become narrower")
            self._workshop = Workshop(self._reactor, _settings(offer))
        elif offer.timeout != self._offer.timeout:
            made = _settings(offer)
            self._workshop.hold_to(made.timeout, made.timeouts)
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
        self._workshop.begin(Call(_BEFORE_ALL, catalog.INSTALL, arguments, done, tell=tell))

    def _not_there(self, answer: Answer) -> PolicyError:
        clear = "" if answer.kind in TRANSIENT else "run `cellblock packages clear` and "
        return PolicyError(
            f"they can't be installed: {answer.message}",
            file=self._offer.policy,
            key="packages",
            value=repr(list(self._offer.packages)),
            remedy=f"Mend that, then {clear}restart the kernel.",
        )

    def beyond(self, call: Call) -> Answer | None:
        """Return what a call is answered that asks for what is not granted, before it is run."""
        from cellblock.host.ops import beyond  # noqa: PLC0415 - where users are asked only

        return beyond.answer(call, self._offer.settings)

    def begin(self, call: Call) -> None:
        """Run a call, unless it takes more of what a session may have than is left."""
        if call.tool.name == catalog.WRITE_FILE.name:
            size, ledger = len(bytes(call.arguments)), self._offer.ledger
            if refusal := ledger.reserve(size):
                call.answer(Answer(kind="BudgetSpent", message=refusal))
                return
            call = _accounted(call, size, ledger)
        self._workshop.begin(call)

    def cancel(self, number: int) -> None:
        """Stop a call."""
        self._workshop.cancel(number)

    def hold(self, *, held: bool) -> None:
        """Take no answers for now, or again."""
        self._workshop.hold(held=held)

    def close(self) -> None:
        """End the worker, if one has been started."""
        self._workshop.close()


def _accounted(call: Call, size: int, ledger: Ledger) -> Call:
    """Return the same call, which gives back what its answer says was not written.

    One that has no answer, or is lost or late, may have been.
    """

    def answer(answer: Answer) -> None:
        if answer.kind in UNWRITTEN:
            ledger.give_back(size)
        call.answer(answer)

    return msgspec.structs.replace(call, answer=answer)


def _settings(offer: Offer) -> Settings:
    given = offer.settings
    tables = (given.read_file, given.http)
    most = max((table.max_bytes for table in tables if table is not None), default=2**20)
    timed = {catalog.HTTP.name: given.http, catalog.INSTALL.name: given.install}
    return Settings(
        operations=given,
        timeout=offer.timeout,
        timeouts={name: one.timeout + _GRACE for name, one in timed.items() if one is not None},
        max_bytes=max(most, 2**20) + _BESIDES + _names(given),
        policy=offer.policy,
    )


def _names(given: settings.Settings) -> int:
    """Return the bytes that the longest list of names may take."""
    return 0 if given.list_dir is None else given.list_dir.max_entries * 400
