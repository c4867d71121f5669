"""A call, who runs it, who approves of it, and its record: what all parts of tools share.

A guest's call becomes a ``Call`` when the broker has admitted it. An ``Approval`` may be asked
about it; then it is run and has an ``Answer``. Every call that ended is a ``CallRecord``, which
replies' metadata and the audit log show without secrets.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from cellblock.host.output.text import Cleaner, TooLargeError
from cellblock.wire import arrays
from cellblock.wire.messages import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cellblock.errors import PolicyError
    from cellblock.host.guests.worker_process import Started
    from cellblock.host.services.operations.grants import OperationGrants
    from cellblock.policy.model import Policy
    from cellblock.render.tables import Budget
    from cellblock.wire.messages import Tool


class Answer(msgspec.Struct, frozen=True):
    """The result of a call: an encoded value, or an error if ``kind`` is not empty.

    ``tokens`` is what a call of a language model cost.
    """

    value: bytes = NOTHING
    kind: str = ""
    message: str = ""
    tokens: int = 0


class KeyUse(msgspec.Struct, frozen=True):
    """A request that carries a policy's credential: to whom, by which method, for which path."""

    credential: str
    host: str
    method: str
    path: str


def _ignore(_value: object) -> None: ...


class Call(msgspec.Struct, frozen=True):
    """One call that was admitted. ``answer`` is called exactly once.

    Before that, ``tell`` may get lines about the call's progress, for the user who waits, and
    ``note`` each request with a credential, before it is sent. ``cell``
    is the number of the cell that calls, as ``ToolCall`` has it: a guest's word. With
    ``checks_only`` its arguments are validated, and an answer without an error says that they fit.
    """

    number: int
    tool: Tool
    arguments: msgspec.Raw
    answer: Callable[[Answer], None]
    tell: Callable[[str], None] = _ignore
    note: Callable[[KeyUse], None] = _ignore
    cell: int = 0
    checks_only: bool = False
    #: The policy's credentials that it sends along, for who is asked about it.
    carries: tuple[str, ...] = ()


class Quota:
    """How much of something one session may use: calls, tokens, bytes.

    Kept in the host, so that no restored guest and no new worker begins anew. What a call may take
    is reserved before it begins, so calls at once never take more.
    """

    def __init__(self, most: int) -> None:
        self.most, self.used = most, 0

    def reserve(self, amount: int) -> bool:
        """Count ``amount`` as used, if there is so much left."""
        if self.used + amount > self.most:
            return False
        self.used += amount
        return True

    def release(self, amount: int) -> None:
        """Give back what was reserved and not taken; a negative amount was taken beyond that."""
        self.used -= amount


class Approval(Protocol):
    """Decides about a call that the policy grants, before anything of it is run.

    Exactly one of ``proceed()`` and ``refuse(why)`` is called, now or later. Neither has an effect
    once the call was withdrawn; ``dropped`` says that, so that the user is not asked any more.
    """

    def decide(
        self, call: Call, proceed: Callable[[], None], refuse: Callable[[str], None], /
    ) -> None:
        """Decide about ``call``."""

    def dropped(self, number: int, /) -> None:
        """Note that nobody waits for this call any more; harmless if it is decided."""


#: Why a call is refused where nobody can be asked: what a cell can do, and what the operator can.
NOBODY_ASKED: Final = (
    "nobody can be asked: a program runs the cells. Do without this call; the operator can allow "
    'it, unasked, with approvals = "never" in the policy, or have the program asked, by approve='
)


class DenyAll:
    """Approves of nothing: the policy has users asked, and a program has none to ask."""

    def decide(
        self, _call: Call, _proceed: Callable[[], None], refuse: Callable[[str], None], /
    ) -> None:
        """Refuse the call."""
        refuse(NOBODY_ASKED)

    def dropped(self, _number: int, /) -> None:
        """Do nothing: nobody was asked."""


#: The attribute of a program's function that says that nobody is asked about its calls.
UNASKED: Final = "__cellblock_unasked__"


class AllowNamed:
    """Approves of calls of some functions of the program's own; ``others`` decides about the rest.

    For a function that does nothing but hand the program its cell's answer.
    """

    def __init__(self, names: frozenset[str], others: Approval) -> None:
        self._names, self._others = names, others

    def decide(
        self, call: Call, proceed: Callable[[], None], refuse: Callable[[str], None], /
    ) -> None:
        """Have the call made, or decided about."""
        if call.tool.name in self._names:
            proceed()
        else:
            self._others.decide(call, proceed, refuse)

    def dropped(self, number: int, /) -> None:
        """Hand that on: who was not asked about the call takes no notice."""
        self._others.dropped(number)


class ToolSource(Protocol):
    """Has tools, and runs calls of them."""

    def open(
        self, on_tools: Callable[[tuple[Tool, ...]], None], on_failed: Callable[[PolicyError], None]
    ) -> None:
        """Start; exactly one of the two is called."""

    def narrow_to(self, timeout: float | None, timeouts: dict[str, float]) -> None:
        """Set the time limits, in seconds: of any tool, and by name."""

    def begin(self, call: Call) -> None:
        """Run a call as soon as there is room."""

    def cancel(self, number: int) -> None:
        """Stop a call, or forget it if it has not begun."""

    def hold(self, *, held: bool) -> None:
        """Keep answers back, or let them go again."""

    def close(self) -> None:
        """Stop all calls."""


class Tooling(msgspec.Struct, frozen=True, kw_only=True):
    """What a session's cells may call, and within what limits: those of ``policy``.

    ``approval`` decides about calls; None approves of all.
    """

    policy: Policy
    #: Makes the source of functions of the program that has the cells run.
    functions: Callable[[], ToolSource] | None = None
    #: Returns the worker of the operator's functions if one was started ahead, once.
    worker: Callable[[], Started | None] = lambda: None
    #: What operations may touch; None if the policy grants none.
    operations: OperationGrants | None = None
    #: Gets what tells how much of a session's quota is used, by the name of what uses it.
    budgets: dict[str, Callable[[], Budget]] = msgspec.field(default_factory=dict)
    approval: Approval | None = None


# --- what a call says before its answer -------------------------------------------------------

_MAX_LINE: Final = 200
#: What gets progress lines of the call that runs in this thread or task.
progress_to: Final[ContextVar[Callable[[str], None]]] = ContextVar("progress_to")

#: What gets the uses of credentials of the call that runs in this thread or task.
uses_to: Final[ContextVar[Callable[[KeyUse], None]]] = ContextVar("uses_to")

#: The number of the cell whose call runs in this thread or task, as ``ToolCall`` has it.
calling_cell: Final[ContextVar[int]] = ContextVar("calling_cell", default=0)


def report_progress(text: str) -> None:
    """Show a line to the user who waits for the call that runs here."""
    if (send := progress_to.get(None)) is not None:
        send(text[:_MAX_LINE])


def report_use(use: KeyUse) -> None:
    """Have it recorded that the call that runs here sends a credential; before that is sent."""
    if (send := uses_to.get(None)) is not None:
        send(use)


# --- records of calls -------------------------------------------------------------------------

#: Bytes of arguments and of a result that a record keeps; of larger ones it keeps the size.
MAX_KEPT: Final = 4_096
MASK: Final = "•••"
_POSITIONAL, _REST, _NAMED_REST = (0, 1), 2, 4
Status = Literal["ok", "error", "withdrawn", "refused", "unfinished"]


class CallRecord(msgspec.Struct, frozen=True):
    """A call and its result, secrets included; ``as_dict`` is what others may see."""

    number: int
    tool: Tool
    #: As the guest encoded them, or their size in bytes.
    arguments: bytes | int
    status: Status
    #: The encoded value if ``status`` is ok, or its size.
    value: bytes | int = 0
    kind: str = ""
    message: str = ""
    #: What a call of a language model cost.
    tokens: int = 0
    seconds: float = 0.0
    #: The number of its cell in the audit log; 0 is the last that was decided about.
    cell: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return JSON data with secrets masked; of large values it has the size only."""
        args, kwargs = _arguments(self.tool, self.arguments)
        found: dict[str, Any] = {"name": self.tool.name, "args": args, "kwargs": kwargs}
        found["status"] = self.status
        if self.status == "ok":
            found["result"] = MASK if self.tool.secret_result else _decoded(self.value)
        elif self.kind:
            found["error"] = {"type": self.kind, "message": self.message}
        if self.tokens:
            found["tokens"] = self.tokens
        return found | {"seconds": round(self.seconds, 6)}


class CellCalls(msgspec.Struct, frozen=True):
    """The calls that a cell made: the first ones, and how many more."""

    records: tuple[CallRecord, ...] = ()
    left_out: int = 0

    def as_list(self) -> list[dict[str, Any]]:
        """Return them as JSON data."""
        return [record.as_dict() for record in self.records]


def bounded(encoded: bytes) -> bytes | int:
    """Return encoded data, or its size if it is too large for a record to keep."""
    return encoded if len(encoded) <= MAX_KEPT else len(encoded)


#: Tables and images are described: nobody reads them in a record.
_decode: Final = msgspec.msgpack.Decoder(ext_hook=arrays.described).decode


def _decoded(encoded: bytes | int) -> Any:
    if isinstance(encoded, int):
        return f"… {encoded:,} bytes"
    try:
        value = _decode(encoded)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return "… no data"
    try:
        return Cleaner(nodes=MAX_KEPT, chars=8 * MAX_KEPT, depth=32).clean(value)
    except TooLargeError:
        return "… too deep"


def _arguments(tool: Tool, encoded: bytes | int) -> tuple[list[Any], dict[str, Any]]:
    """Return args and kwargs, secrets masked."""
    data = _decoded(encoded)
    match data:
        case [list() as args, dict() as kwargs]:
            pass
        case _:
            return [data], {}
    return (
        [MASK if is_secret_at(tool, index) else value for index, value in enumerate(args)],
        {key: MASK if is_secret_named(tool, key) else kwargs[key] for key in kwargs},
    )


def mask(text: str, secrets: Iterable[str]) -> str:
    """Return ``text`` without these texts, of which one may hold another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def is_secret_at(tool: Tool, index: int) -> bool:
    """Whether the positional argument at ``index`` is secret."""
    positional = [one for one in tool.parameters if one.kind in _POSITIONAL]
    rest = [one for one in tool.parameters if one.kind == _REST]
    found = positional[index : index + 1] or rest
    return any(one.secret for one in found)


def is_secret_named(tool: Tool, key: str) -> bool:
    """Whether the keyword argument ``key`` is secret."""
    named = [one for one in tool.parameters if one.name == key and one.kind != 0]
    found = named or [one for one in tool.parameters if one.kind == _NAMED_REST]
    return any(one.secret for one in found)
