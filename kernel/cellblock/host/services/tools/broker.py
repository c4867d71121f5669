"""Between guests and whoever runs tools: judges every call, answers each once, keeps account.

A call is a guest's word: a name, an id of its own choosing, some bytes. Whoever runs it gets it
under a number of ours, and the guest that is answered is the one that asked. Between the two
stands ``approval``: nothing of a call has been run when that is asked.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

import msgspec

from cellblock.host.services.tools.calls import Answer, Call, CallRecord, CellCalls, Unasked, kept
from cellblock.wire import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from cellblock.host.services.tools.calls import Approval, CallLimits, Provider, Status
    from cellblock.host.session.types import Reactor


# So many calls a second, over all cells and what runs between them.


class Rate:
    """A bucket that holds a second's worth. It is full at first, and ``now`` is in seconds."""

    __slots__ = ("_at", "_room")

    def __init__(self) -> None:
        self._room, self._at = float("inf"), 0.0

    def take(self, most: float | None, now: float) -> float:
        """Take a place, where ``most`` come up each second; return how long there is none yet.

        0 means that it was taken.
        """
        if most is None:
            return 0.0
        room = min(most, self._room + (now - self._at) * most)
        self._at, self._room = now, room
        if room < 1:
            return (1 - room) / most
        self._room = room - 1
        return 0.0


#: Calls of one cell that are told of one by one; and that are refused and entered in the log.
MOST_RECORDS: Final = 100
#: Bytes of arguments under way, over all calls: the host holds them until they are taken.
MOST_UNDER_WAY: Final = 48 * 2**20
#: Bytes that wait for the guest from which on answers are kept back, and seconds between looks.
MUCH_WAITING: Final = 8 * 2**20
LOOK: Final = 0.01


class _UnderWay(msgspec.Struct, frozen=True, eq=False):
    number: int
    message: messages.ToolCall
    tool: messages.Tool
    began: float
    #: Which cell it belongs to.
    cell: int


class Broker:
    """Calls of one guest at a time. ``send`` gets what goes to it; ``waiting`` is its backlog.

    ``observe`` gets the record of every call that ended, but of one cell's that were refused the
    first only: they cost a cell nothing. ``unlisted`` gets how many more there were; while
    ``barred`` returns anything, none begins: what came of it could not be entered. ``tell`` gets
    a line of how one is getting on. ``beyond`` answers what ``approval`` is not asked about: it is
    not granted.
    """

    def __init__(  # noqa: PLR0913 - whom it stands between
        self,
        reactor: Reactor,
        provider: Provider,
        limits: CallLimits,
        *,
        clock: Callable[[], float],
        send: Callable[[messages.ToolResult | messages.ToolPiece], None],
        waiting: Callable[[], int],
        observe: Callable[[CallRecord], None] = lambda _record: None,
        unlisted: Callable[[int], None] = lambda _calls: None,
        barred: Callable[[], object] = lambda: None,
        tell: Callable[[str], None] = lambda _text: None,
        approval: Approval | None = None,
        beyond: Callable[[Call], Answer | None] | None = None,
    ) -> None:
        self._reactor, self._provider, self._limits = reactor, provider, limits
        self._clock, self._send, self._waiting, self._observe = clock, send, waiting, observe
        self._unlisted, self._barred = unlisted, barred
        self._tell, self._approval = tell, approval or Unasked()
        self._beyond = beyond or (lambda _call: None)
        self._tools: Mapping[str, messages.Tool] = {}
        #: Why what is known by name is not offered.
        self._withheld: Mapping[str, str] = {}
        self._numbers = itertools.count(1)
        self._under_way: dict[int, _UnderWay] = {}
        self._bytes, self._held = 0, False
        self._rate, self._catching_up = Rate(), False
        #: Calls that are too many for this second, and what they are refused with, if they are.
        self._late: OrderedDict[int, tuple[_UnderWay, Answer | None]] = OrderedDict()
        self._cell, self._calls, self._refused = 0, 0, 0
        self._records: list[CallRecord] = []

    def offer(
        self, tools: tuple[messages.Tool, ...], withheld: Mapping[str, str] | None = None
    ) -> None:
        """Take note of which tools there are, and why others are ``withheld``, by their names."""
        self._tools = {tool.name: tool for tool in tools}
        self._withheld = withheld or {}

    def drop_tools(self, gone: Collection[str]) -> None:
        """Have no tools with these names any more."""
        self._tools = {name: tool for name, tool in self._tools.items() if name not in gone}

    def hold_to(self, limits: CallLimits) -> None:
        """Have these limits."""
        self._limits = limits

    def begin(self) -> None:
        """Begin a new account: a cell, or a comm message."""
        self.close()
        self._cell += 1
        self._calls, self._refused, self._records = 0, 0, []

    def end(self) -> CellCalls:
        """Return the account, with what has no answer yet as it stands."""
        self.close()
        now = self._clock()
        own = [one for one in self._under_way.values() if one.cell == self._cell]
        open_ = [_record(one, "unfinished", now=now) for one in own[:MOST_RECORDS]]
        told = [*self._records, *open_][:MOST_RECORDS]
        return CellCalls(tuple(told), self._calls - len(told))

    def close(self) -> None:
        """Tell of refused calls that no record was made of."""
        if self._refused > MOST_RECORDS:
            more, self._refused = self._refused - MOST_RECORDS, MOST_RECORDS
            self._unlisted(more)

    # --- what a guest says --------------------------------------------------------------------

    def call(self, message: messages.ToolCall, *, querying: bool) -> str:
        """Have a tool called; return what no honest guest would ask, or nothing.

        ``querying``: it is asked for completions, or what a name is, which must change nothing.
        """
        tool = self._tools.get(message.name)
        if tool is None and message.name in self._withheld:
            tool = messages.Tool(name=message.name)
        if tool is None:
            return "a call of what is no tool"
        if message.id in self._under_way:
            return "a call under an id that is in use"
        if len(self._under_way) >= self._limits.in_flight:
            return "more calls at once than there may be"
        size = len(bytes(message.arguments))
        if size > (tool.max_bytes or self._limits.max_bytes):
            return "a call with larger arguments than there may be"
        self._calls += 1
        one = _UnderWay(next(self._numbers), message, tool, self._clock(), self._cell)
        refused = self._refused_with(message.name, size, querying=querying)
        self._under_way[message.id] = one
        self._bytes += size
        # What there is no room for does not wait.
        if self._is_late(one) and (refused is None or self._bytes <= MOST_UNDER_WAY):
            self._late[one.number] = one, refused
        else:
            self._proceed(one, refused)
        return ""

    def _is_late(self, one: _UnderWay) -> bool:
        """Say whether a call has to wait for a place; have the first that does waited for."""
        wait = 0.0 if self._late else self._rate.take(self._limits.rate, one.began)
        if wait and not self._catching_up:
            self._catching_up = True
            self._reactor.call_later(wait, self._catch_up)
        return bool(self._late or wait)

    def _catch_up(self) -> None:
        """Proceed with what was too much for the last second, as far as there is room now."""
        self._catching_up = False
        while self._late:
            if wait := self._rate.take(self._limits.rate, self._clock()):
                self._catching_up = True
                self._reactor.call_later(wait, self._catch_up)
                return
            self._proceed(*self._late.popitem(last=False)[1])

    def _proceed(self, one: _UnderWay, refused: Answer | None) -> None:
        if refused is None:
            self._ask(one)
        else:
            self._forget(one)
            self._settle(one, refused, "refused")

    def _refused_with(self, name: str, size: int, *, querying: bool) -> Answer | None:
        if refusal := self._refusal(size, querying=querying):
            return Answer(kind="CallRefused", message=refusal)
        if why := self._withheld.get(name, ""):
            return Answer(kind="NotGranted", message=why)
        return None

    def _refusal(self, size: int, *, querying: bool) -> str:
        calls = self._limits.calls
        if querying:
            return "no tool is called to complete or to describe a name"
        if calls is not None and self._calls > calls:
            return f"a cell may call tools {calls:,} times (tool_max_calls)"
        if self._bytes + size > MOST_UNDER_WAY:
            most = MOST_UNDER_WAY >> 20
            return f"the calls under way hold {most} MiB of arguments already: have fewer at once"
        return ""

    def _ask(self, one: _UnderWay) -> None:
        """Have the call approved of, and then run; nothing of it has been until then."""
        call = Call(
            one.number,
            one.tool,
            one.message.arguments,
            answer=lambda answer: self._answer(one, answer),
            piece=lambda text: self._piece(one, text),
            tell=self._tell,
        )

        def proceed() -> None:
            if not self._is_under_way(one):
                return
            if (answer := self._not_now()) is not None:
                self._refuse(one, answer)
            else:
                self._provider.begin(call)

        def refuse(why: str) -> None:
            if self._is_under_way(one):
                self._refuse(one, Answer(kind="NotApproved", message=why))

        if (answer := self._beyond(call) or self._not_now()) is not None:
            self._refuse(one, answer)
        else:
            self._approval.decide(call, proceed, refuse)

    def _not_now(self) -> Answer | None:
        """Return why no call begins now, if so: what comes of it could not be entered."""
        if not self._barred():
            return None
        said = "it would not be on the audit log"
        return Answer(kind="CallRefused", message=said)

    def _refuse(self, one: _UnderWay, answer: Answer) -> None:
        self._forget(one)
        self._settle(one, answer, "refused")

    def _is_under_way(self, one: _UnderWay) -> bool:
        return self._under_way.get(one.message.id) is one

    def withdraw(self, message: messages.ToolWithdrawn) -> None:
        """Stop a call that its guest waits for no more; its answer may have crossed with this."""
        one = self._under_way.get(message.id)
        if one is not None:
            self._forget(one)
            _, refused = self._late.pop(one.number, (one, None))
            if refused is not None:
                self._note(one, _record(one, "refused", refused, now=self._clock()))
                return
            self._approval.dropped(one.number)
            self._provider.cancel(one.number)
            self._note(one, _record(one, "withdrawn", now=self._clock()))

    def drop(self) -> None:
        """Stop all: the guest is no more. Nobody is asked about the next because one is stopped."""
        for one in list(reversed(self._under_way.values())):
            self._approval.dropped(one.number)
        for one in list(self._under_way.values()):
            self.withdraw(messages.ToolWithdrawn(id=one.message.id))
        self.close()

    # --- answers ------------------------------------------------------------------------------

    def _piece(self, one: _UnderWay, text: str) -> None:
        """Pass a piece on, or leave it out where the guest is behind: the answer has all."""
        if self._is_under_way(one) and self._waiting() <= MUCH_WAITING:
            self._send(messages.ToolPiece(id=one.message.id, text=text))

    def _answer(self, one: _UnderWay, answer: Answer) -> None:
        if self._is_under_way(one):
            self._forget(one)
            self._settle(one, answer, "error" if answer.kind else "ok")

    def _forget(self, one: _UnderWay) -> None:
        del self._under_way[one.message.id]
        self._bytes -= len(bytes(one.message.arguments))

    def _settle(self, one: _UnderWay, answer: Answer, status: Status) -> None:
        record = _record(one, status, answer, now=self._clock())
        is_told = self._count(one, record)
        kind, text = answer.kind, answer.message
        value = msgspec.Raw(answer.value)
        try:
            self._send(messages.ToolResult(id=one.message.id, value=value, kind=kind, message=text))
            self._reactor.expect()  # the next call
        finally:  # after it: the guest goes on meanwhile
            if is_told:
                self._observe(record)
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

    def _note(self, one: _UnderWay, record: CallRecord) -> None:
        if self._count(one, record):
            self._observe(record)

    def _count(self, one: _UnderWay, record: CallRecord) -> bool:
        """Have a call in the account; say whether it is told of by itself."""
        if one.cell == self._cell and len(self._records) < MOST_RECORDS:
            self._records.append(record)
        self._refused += record.status == "refused"
        return record.status != "refused" or self._refused <= MOST_RECORDS


def _record(
    one: _UnderWay, status: Status, answer: Answer | None = None, *, now: float
) -> CallRecord:
    said = answer or Answer()
    return CallRecord(
        number=one.number,
        tool=one.tool,
        arguments=kept(bytes(one.message.arguments)),
        status=status,
        value=kept(said.value) if status == "ok" else 0,
        kind=said.kind,
        message=said.message,
        tokens=said.tokens,
        seconds=now - one.began,
    )
