"""Between guests and whoever runs tools: judges every call, answers each once, keeps account.

A call is a guest's word: a name, an id of its own choosing, some bytes. Whoever runs it gets it
under a number of ours, and the guest that is answered is the one that asked.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.host.tools.provider import Answer, Call
from cellblock.host.tools.record import Made, Record, kept
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cellblock.host.reactor import Reactor
    from cellblock.host.tools.provider import Provider
    from cellblock.host.tools.record import Status

#: Calls of one cell that are told of one by one.
MOST_RECORDS: Final = 100
#: Bytes of arguments under way, over all calls: the host holds them until they are taken.
MOST_UNDER_WAY: Final = 48 * 2**20
#: Bytes that wait for the guest from which on answers are kept back, and seconds between looks.
MUCH_WAITING: Final = 8 * 2**20
LOOK: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Calls at once, calls in one cell (None: any number), bytes of one call's arguments."""

    in_flight: int
    calls: int | None
    max_bytes: int


class _UnderWay(msgspec.Struct, frozen=True, eq=False):
    number: int
    message: messages.ToolCall
    tool: messages.Tool
    began: float
    #: Which cell it belongs to.
    cell: int


class Broker:
    """Calls of one guest at a time. ``send`` gets what goes to it; ``waiting`` is its backlog.

    ``observe`` gets the record of every call that ended.
    """

    def __init__(  # noqa: PLR0913 - whom it stands between
        self,
        reactor: Reactor,
        provider: Provider,
        limits: Limits,
        *,
        clock: Callable[[], float],
        send: Callable[[messages.ToolResult], None],
        waiting: Callable[[], int],
        observe: Callable[[Record], None] = lambda _record: None,
    ) -> None:
        self._reactor, self._provider, self._limits = reactor, provider, limits
        self._clock, self._send, self._waiting, self._observe = clock, send, waiting, observe
        self._tools: Mapping[str, messages.Tool] = {}
        self._numbers = itertools.count(1)
        self._under_way: dict[int, _UnderWay] = {}
        self._bytes, self._held = 0, False
        self._cell, self._calls = 0, 0
        self._records: list[Record] = []

    def offer(self, tools: tuple[messages.Tool, ...]) -> None:
        """Take note of which tools there are."""
        self._tools = {tool.name: tool for tool in tools}

    def keep(self, names: Collection[str]) -> None:
        """Have no tools but those with these names."""
        self._tools = {name: tool for name, tool in self._tools.items() if name in names}

    def hold_to(self, limits: Limits) -> None:
        """Have these limits."""
        self._limits = limits

    def begin(self) -> None:
        """Begin a new account: a cell, or a comm message."""
        self._cell += 1
        self._calls, self._records = 0, []

    def end(self) -> Made:
        """Return the account, with what has no answer yet as it stands."""
        now = self._clock()
        own = [one for one in self._under_way.values() if one.cell == self._cell]
        open_ = [_record(one, "unfinished", now=now) for one in own[:MOST_RECORDS]]
        told = [*self._records, *open_][:MOST_RECORDS]
        return Made(tuple(told), self._calls - len(told))

    # --- what a guest says --------------------------------------------------------------------

    def call(self, message: messages.ToolCall, *, querying: bool) -> str:
        """Have a tool called; return what no honest guest would ask, or nothing.

        ``querying``: it is asked for completions, or what a name is, which must change nothing.
        """
        tool = self._tools.get(message.name)
        if tool is None:
            return "a call of what is no tool"
        if message.id in self._under_way:
            return "a call under an id that is in use"
        if len(self._under_way) >= self._limits.in_flight:
            return "more calls at once than there may be"
        size = len(bytes(message.arguments))
        if size > self._limits.max_bytes:
            return "a call with larger arguments than there may be"
        self._calls += 1
        one = _UnderWay(next(self._numbers), message, tool, self._clock(), self._cell)
        if refusal := self._refusal(size, querying=querying):
            self._settle(one, Answer(kind="CallRefused", message=refusal), "refused")
            return ""
        self._under_way[message.id] = one
        self._bytes += size
        self._provider.begin(
            Call(one.number, tool, message.arguments, lambda answer: self._answer(one, answer))
        )
        return ""

    def _refusal(self, size: int, *, querying: bool) -> str:
        calls = self._limits.calls
        if querying:
            return "no tool is called to complete or to describe a name"
        if calls is not None and self._calls > calls:
            return f"a cell may call tools {calls:,} times (tool_max_calls)"
        if self._bytes + size > MOST_UNDER_WAY:
            return "the calls under way hold too much already"
        return ""

    def withdraw(self, message: messages.ToolWithdrawn) -> None:
        """Stop a call that its guest waits for no more; its answer may have crossed with this."""
        one = self._under_way.get(message.id)
        if one is not None:
            self._forget(one)
            self._provider.cancel(one.number)
            self._note(one, _record(one, "withdrawn", now=self._clock()))

    def drop(self) -> None:
        """Stop all: the guest is no more."""
        for one in list(self._under_way.values()):
            self.withdraw(messages.ToolWithdrawn(id=one.message.id))

    # --- answers ------------------------------------------------------------------------------

    def _answer(self, one: _UnderWay, answer: Answer) -> None:
        if self._under_way.get(one.message.id) is one:
            self._forget(one)
            self._settle(one, answer, "error" if answer.kind else "ok")

    def _forget(self, one: _UnderWay) -> None:
        del self._under_way[one.message.id]
        self._bytes -= len(bytes(one.message.arguments))

    def _settle(self, one: _UnderWay, answer: Answer, status: Status) -> None:
        self._note(one, _record(one, status, answer, now=self._clock()))
        kind, text = answer.kind, answer.message
        value = msgspec.Raw(answer.value)
        self._send(messages.ToolResult(id=one.message.id, value=value, kind=kind, message=text))
        if not self._held and self._waiting() > MUCH_WAITING:
            self._hold()

    def _hold(self) -> None:
        """Keep answers back until the guest has taken those it has."""
        much = self._waiting() > MUCH_WAITING
        if much != self._held:
            self._held = much
            self._provider.hold(held=much)
        if much:
            self._reactor.call_later(LOOK, self._hold)

    def _note(self, one: _UnderWay, record: Record) -> None:
        if one.cell == self._cell and len(self._records) < MOST_RECORDS:
            self._records.append(record)
        self._observe(record)


def _record(one: _UnderWay, status: Status, answer: Answer | None = None, *, now: float) -> Record:
    said = answer or Answer()
    return Record(
        number=one.number,
        tool=one.tool,
        arguments=kept(bytes(one.message.arguments)),
        status=status,
        value=kept(said.value) if status == "ok" else 0,
        kind=said.kind,
        message=said.message,
        seconds=now - one.began,
    )
