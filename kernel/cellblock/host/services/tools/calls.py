"""The types that all parts of tools share: a call, its approval, its answer and its record.

A guest's call becomes a ``Call`` when the broker has admitted it. An ``Approval`` may decide about
it. A ``ToolSource`` runs it, and gives an ``Answer``. When it has ended, it is a ``CallRecord``,
which replies' metadata and the audit log show without secrets.
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

    ``tokens`` is how many tokens the call used, if it called a language model.
    """

    value: bytes = NOTHING
    kind: str = ""
    message: str = ""
    tokens: int = 0


class KeyUse(msgspec.Struct, frozen=True):
    """A request that carries a credential: the name of that, and the host, method and path."""

    credential: str
    host: str
    method: str
    path: str


def _ignore(_value: object) -> None: ...


class Call(msgspec.Struct, frozen=True):
    """A call that was admitted. ``answer`` is called exactly once.

    Before that, ``tell`` may be called with lines about the call's progress, for the user, and
    ``note`` with each request that carries a credential, before the request is sent. ``cell`` is
    the number of the calling cell from the guest's ``ToolCall``, so the guest may lie about it.
    With ``checks_only`` the arguments are only validated; an answer without an error says that they
    fit.
    """

    number: int
    tool: Tool
    arguments: msgspec.Raw
    answer: Callable[[Answer], None]
    tell: Callable[[str], None] = _ignore
    note: Callable[[KeyUse], None] = _ignore
    cell: int = 0
    checks_only: bool = False
    #: The names of credentials that its request carries, shown to the user who is asked about it.
    carries: tuple[str, ...] = ()


class Quota:
    """The amount of something that a session may use: calls, tokens or bytes.

    It is kept in the host, so that it does not start again with a restored guest or a new worker.
    The most that a call may take is reserved before the call begins, so concurrent calls can't
    exceed it together.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.used = 0

    def reserve(self, amount: int) -> bool:
        """Count ``amount`` as used and return True, or return False if less is left."""
        if self.used + amount > self.most:
            return False
        self.used += amount
        return True

    def release(self, amount: int) -> None:
        """Give back an amount that was not taken; below 0, more was taken than was reserved."""
        self.used -= amount


class Approval(Protocol):
    """The decision about a call that the policy grants, before anything of it is run.

    ``decide`` calls exactly one of ``proceed()`` and ``refuse(why)``, now or later. Neither has an
    effect after the call was withdrawn. ``dropped`` is called then, so that the user is no longer
    asked.
    """

    def decide(
        self, call: Call, proceed: Callable[[], None], refuse: Callable[[str], None], /
    ) -> None:
        """Decide about ``call``."""

    def dropped(self, number: int, /) -> None:
        """Stop asking about a call that was withdrawn. Does nothing if it is decided already."""


#: Why a call is refused if nobody can be asked, with the remedies of the cell and of the operator.
NOBODY_ASKED: Final = (
    "nobody can be asked: a program runs the cells. Do without this call; the operator can allow "
    'it, unasked, with approvals = "never" in the policy, or have the program asked, by approve='
)


class DenyAll:
    """An approval that refuses all calls: the policy has users asked, and nobody can be."""

    def decide(
        self, _call: Call, _proceed: Callable[[], None], refuse: Callable[[str], None], /
    ) -> None:
        """Refuse the call."""
        refuse(NOBODY_ASKED)

    def dropped(self, _number: int, /) -> None:
        """Do nothing: nobody was asked."""


#: A program's function with this attribute is called without asking anybody.
UNASKED: Final = "__cellblock_unasked__"


class AllowNamed:
    """An approval that allows calls of the named functions; ``others`` decides about the rest.

    For functions of a program that do no more than hand the program its cell's answer.
    """

    def __init__(self, names: frozenset[str], otherwise: Approval) -> None:
        self._names, self._others = names, otherwise

    def decide(
        self, call: Call, proceed: Callable[[], None], refuse: Callable[[str], None], /
    ) -> None:
        """Allow the call, or let ``others`` decide."""
        if call.tool.name in self._names:
            proceed()
        else:
            self._others.decide(call, proceed, refuse)

    def dropped(self, number: int, /) -> None:
        """Pass that on. ``others`` ignores a call that it was not asked about."""
        self._others.dropped(number)


class ToolSource(Protocol):
    """A source of tools, which runs their calls: a worker, or functions of a program."""

    def open(
        self, on_tools: Callable[[tuple[Tool, ...]], None], on_failed: Callable[[PolicyError], None]
    ) -> None:
        """Load the tools, then call exactly one of the two."""

    def narrow_to(self, timeout: float | None, timeouts: dict[str, float]) -> None:
        """Set the time limits in seconds: of all tools, and of tools by name."""

    def begin(self, call: Call) -> None:
        """Run a call as soon as there is room."""

    def cancel(self, number: int) -> None:
        """Stop a call, or forget it if it has not begun."""

    def hold(self, *, held: bool) -> None:
        """Hold answers back, or let them go again."""

    def close(self) -> None:
        """Stop all calls."""


class Tooling(msgspec.Struct, frozen=True, kw_only=True):
    """What a session's cells may call, within the limits of ``policy``.

    ``approval`` decides about calls; for None all are allowed.
    """

    policy: Policy
    #: Makes the source of the functions of a program, if a program runs the cells.
    functions: Callable[[], ToolSource] | None = None
    #: Returns the worker of the operator's functions that was started ahead, if any, once.
    worker: Callable[[], Started | None] = lambda: None
    #: What operations may touch; None if the policy grants none.
    operations: OperationGrants | None = None
    #: Filled by the providers: for each tool with a quota, a function that returns how much of it
    #: is used.
    budgets: dict[str, Callable[[], Budget]] = msgspec.field(default_factory=dict)
    approval: Approval | None = None


# --- reports of a call before its answer ------------------------------------------------------

_MAX_LINE: Final = 200
#: Called with progress lines of the call that runs in this thread or task.
progress_to: Final[ContextVar[Callable[[str], None]]] = ContextVar("progress_to")

#: Called with the uses of credentials by the call that runs in this thread or task.
uses_to: Final[ContextVar[Callable[[KeyUse], None]]] = ContextVar("uses_to")

#: The number of the cell whose call runs in this thread or task, from the guest's ``ToolCall``.
calling_cell: Final[ContextVar[int]] = ContextVar("calling_cell", default=0)


def report_progress(text: str) -> None:
    """Show the user a line about the call that runs in this thread or task."""
    if (send := progress_to.get(None)) is not None:
        send(text[:_MAX_LINE])


def report_use(use: KeyUse) -> None:
    """Record a credential of the call that runs in this thread or task, before it is sent."""
    if (send := uses_to.get(None)) is not None:
        send(use)


# --- records of calls -------------------------------------------------------------------------

#: The most bytes of arguments and of a result that a record keeps. For larger ones it has the size.
MAX_KEPT: Final = 4_096
MASK: Final = "•••"
_POSITIONAL, _REST, _NAMED_REST = (0, 1), 2, 4
Status = Literal["ok", "error", "withdrawn", "refused", "unfinished"]


class CallRecord(msgspec.Struct, frozen=True):
    """A call and its result with secrets; only ``as_dict`` may be shown to others."""

    number: int
    tool: Tool
    #: As the guest encoded them, or their size in bytes.
    arguments: bytes | int
    status: Status
    #: The encoded value if ``status`` is ok, or its size in bytes.
    value: bytes | int = 0
    kind: str = ""
    message: str = ""
    #: How many a call of a language model took.
    tokens: int = 0
    seconds: float = 0.0
    #: The number of its cell in the audit log; 0 is the last cell that was decided about.
    cell: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return the record as JSON data: secrets are masked, large values replaced by sizes."""
        args, kwargs = _arguments(self.tool, self.arguments)
        data: dict[str, Any] = {"name": self.tool.name, "args": args, "kwargs": kwargs}
        data["status"] = self.status
        if self.status == "ok":
            data["result"] = MASK if self.tool.secret_result else _decoded(self.value)
        elif self.kind:
            data["error"] = {"type": self.kind, "message": self.message}
        if self.tokens:
            data["tokens"] = self.tokens
        return data | {"seconds": round(self.seconds, 6)}


class CellCalls(msgspec.Struct, frozen=True):
    """The calls of a cell: records of the first ones, and how many more there were."""

    records: tuple[CallRecord, ...] = ()
    left_out: int = 0

    def as_list(self) -> list[dict[str, Any]]:
        """Return the records as JSON data."""
        return [record.as_dict() for record in self.records]


def bounded(encoded: bytes) -> bytes | int:
    """Return encoded data, or its size in bytes if it is too large for a record."""
    return encoded if len(encoded) <= MAX_KEPT else len(encoded)


#: Tables and images are decoded to a short description, since nobody reads them in a record.
_decode: Final = msgspec.msgpack.Decoder(ext_hook=arrays.described).decode


def _decoded(encoded: bytes | int) -> Any:
    """Return JSON data for encoded data, or for its size: a guest may have encoded anything."""
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
    """Return ``text`` with these secrets masked, the longest first: one may contain another."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text


def is_secret_at(tool: Tool, index: int) -> bool:
    """Return whether the positional argument at ``index`` is secret."""
    positional = [each for each in tool.parameters if each.kind in _POSITIONAL]
    rest = [each for each in tool.parameters if each.kind == _REST]
    parameters = positional[index : index + 1] or rest
    return any(each.secret for each in parameters)


def is_secret_named(tool: Tool, key: str) -> bool:
    """Return whether the keyword argument ``key`` is secret."""
    same_named = [each for each in tool.parameters if each.name == key and each.kind != 0]
    parameters = same_named or [each for each in tool.parameters if each.kind == _NAMED_REST]
    return any(each.secret for each in parameters)
