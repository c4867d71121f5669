"""What the parts of tools share: limits, providers, approval of calls, their record, settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import msgspec

from cellblock.host.output.text import Cleaner, TooLargeError
from cellblock.wire import values
from cellblock.wire.messages import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cellblock.errors import PolicyError
    from cellblock.host.services.llm.provider import LlmQuota
    from cellblock.host.services.operations import catalog as operations
    from cellblock.host.services.operations.provider import OperationsAccess
    from cellblock.policy.model import Llm
    from cellblock.wire.messages import Tool


def _unobserved(_record: CallRecord) -> None: ...
def _uncounted(_calls: int) -> None: ...
def _open() -> None: ...


class CallLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Calls at once, in one cell and in a second (None: any number), bytes of one's arguments.

    And seconds that one may take (None: any number), of all tools and of some by name.
    """

    in_flight: int
    calls: int | None
    rate: int | None = None
    max_bytes: int
    timeout: float | None = None
    timeouts: Mapping[str, float] = {}


class LlmAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Language models that cells may ask, and the account of what that costs."""

    llm: Llm
    quota: LlmQuota


class Tooling(msgspec.Struct, frozen=True, kw_only=True):
    """What a session is told: what cells may call of whom, and within what limits.

    None stands for what there is nothing of.
    """

    settings: WorkerSettings | None = None
    #: Makes what has functions of the program that has cells run.
    given: Callable[[], Source] | None = None
    operations: OperationsAccess | None = None
    models: LlmAccess | None = None
    limits: CallLimits
    #: Gets the record of every call that ended: for the audit log.
    observe: Callable[[CallRecord], None] = _unobserved
    #: Gets how many calls were refused that no record is made of.
    unlisted: Callable[[int], None] = _uncounted
    #: Says why no call may begin now, if so.
    barred: Callable[[], object] = _open
    #: Decides about calls; None asks nobody.
    approval: Approval | None = None


# Whoever runs tools: the operator's worker, and whatever the host offers by itself.


class Answer(msgspec.Struct, frozen=True):
    """What came of a call: a value, encoded, or where ``kind`` is not empty, an error."""

    value: bytes = NOTHING
    kind: str = ""
    message: str = ""
    #: Of a language model, what it cost.
    tokens: int = 0


def _unheard(_text: str) -> None: ...


class Call(msgspec.Struct, frozen=True):
    """One call that was admitted. ``answer`` is to be called once, and is told nothing later.

    Before that, ``piece`` may be called with more of a text that the answer will have all of, and
    ``tell`` with a line, for whoever waits, of how it is getting on.
    """

    number: int
    tool: Tool
    arguments: msgspec.Raw
    answer: Callable[[Answer], None]
    piece: Callable[[str], None] = _unheard
    tell: Callable[[str], None] = _unheard


class Provider(Protocol):
    """Runs calls without ever holding up the host's loop."""

    def begin(self, call: Call) -> None:
        """Run ``call``, now or when there is room."""

    def cancel(self, number: int) -> None:
        """Stop a call whose answer nobody waits for; harmless when it has been answered."""

    def hold(self, *, held: bool) -> None:
        """Keep answers back while the guest does not take them, or give them again."""

    def close(self) -> None:
        """End, with all that runs."""


class Source(Provider, Protocol):
    """A provider that says what there is, later: exactly one of the two is called."""

    def hold_to(self, timeout: float | None, timeouts: Mapping[str, float]) -> None:
        """Have calls take no longer than so many seconds; some, by name, than these."""

    def open(
        self,
        on_tools: Callable[[tuple[Tool, ...]], None],
        on_failed: Callable[[PolicyError], None],
    ) -> None:
        """Find out which tools there are."""


# Where a call may be asked about before it is run: a hook, and what stands there otherwise.


class Approval(Protocol):
    """Decides about a call that the policy grants and that nothing of has been run yet.

    Exactly one of ``proceed()`` and ``refuse(why)`` is called, now or later. Neither does anything
    once the call was withdrawn; ``dropped`` says that, so that nobody is asked any more.
    """

    def decide(
        self, call: Call, proceed: Callable[[], None], refuse: Callable[[str], None]
    ) -> None:
        """Decide about ``call``."""

    def dropped(self, number: int) -> None:
        """Take note that nobody waits any more for this call; harmless when it is decided."""


class Unasked:
    """Approves of whatever the policy grants."""

    def decide(
        self,
        call: Call,  # noqa: ARG002 - whatever it is
        proceed: Callable[[], None],
        refuse: Callable[[str], None],  # noqa: ARG002 - as above
    ) -> None:
        """Go ahead."""
        proceed()

    def dropped(self, number: int) -> None:
        """Do nothing: nobody was asked."""


class DenyAll:
    """Approves of nothing: the policy has users asked, and whoever runs the cells can't be."""

    def decide(
        self,
        call: Call,  # noqa: ARG002 - whatever it is
        proceed: Callable[[], None],  # noqa: ARG002 - as above
        refuse: Callable[[str], None],
    ) -> None:
        """Refuse it."""
        refuse("nobody can be asked: a program runs the cells")

    def dropped(self, number: int) -> None:
        """Do nothing: nobody was asked."""


# One call of a tool as it is told of later: in a reply's metadata, and on the record.

#: Bytes of arguments, and of a result, that are told; of more only how much it was.
MOST_TOLD: Final = 4_096
MASK: Final = "•••"
_POSITIONAL, _REST, _NAMED_REST = (0, 1), 2, 4
Status = Literal["ok", "error", "withdrawn", "refused", "unfinished"]


class CallRecord(msgspec.Struct, frozen=True):
    """A call and what came of it, secrets included: ``as_dict`` is for everybody's eyes."""

    number: int
    tool: Tool
    #: As they crossed, or how many bytes they were.
    arguments: bytes | int
    status: Status
    #: The value, where ``status`` is ok; or again its size.
    value: bytes | int = 0
    kind: str = ""
    message: str = ""
    #: Of a language model.
    tokens: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return JSON data in which secrets are masked and what is large is only measured."""
        args, kwargs = _arguments(self.tool, self.arguments)
        told: dict[str, Any] = {"name": self.tool.name, "args": args, "kwargs": kwargs}
        told["status"] = self.status
        if self.status == "ok":
            told["result"] = MASK if self.tool.secret_result else _told(self.value)
        elif self.kind:
            told["error"] = {"type": self.kind, "message": self.message}
        if self.tokens:
            told["tokens"] = self.tokens
        return told | {"seconds": round(self.seconds, 6)}


@dataclass(frozen=True, slots=True)
class CellCalls:
    """The calls that a cell made: the first of them, and how many more."""

    records: tuple[CallRecord, ...] = ()
    left_out: int = 0

    def as_list(self) -> list[dict[str, Any]]:
        """Return them as JSON data."""
        return [record.as_dict() for record in self.records]


def kept(encoded: bytes) -> bytes | int:
    """Return what a record keeps of encoded data: it outlives the call."""
    return encoded if len(encoded) <= MOST_TOLD else len(encoded)


def _told(encoded: bytes | int) -> Any:
    if isinstance(encoded, int):
        return f"… {encoded:,} bytes"
    try:
        return _cleaned(values.decode(msgspec.Raw(encoded)))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return "… no data"


def _cleaned(value: Any) -> Any:
    try:
        return Cleaner(nodes=MOST_TOLD, chars=8 * MOST_TOLD, depth=32).clean(value)
    except TooLargeError:
        return "… too deep"


def _arguments(tool: Tool, encoded: bytes | int) -> tuple[list[Any], dict[str, Any]]:
    """Return args and kwargs, secret ones masked."""
    data = _told(encoded)
    match data:
        case [list() as args, dict() as kwargs]:
            pass
        case _:
            return [data], {}
    return (
        [MASK if is_secret_at(tool, index) else value for index, value in enumerate(args)],
        {key: MASK if is_secret_named(tool, key) else kwargs[key] for key in kwargs},
    )


def is_secret_at(tool: Tool, index: int) -> bool:
    """Say whether an argument by its place is kept out of what others see."""
    positional = [one for one in tool.parameters if one.kind in _POSITIONAL]
    rest = [one for one in tool.parameters if one.kind == _REST]
    found = positional[index : index + 1] or rest
    return any(one.secret for one in found)


def is_secret_named(tool: Tool, key: str) -> bool:
    """Say the same of an argument by its name."""
    named = [one for one in tool.parameters if one.name == key and one.kind != 0]
    found = named or [one for one in tool.parameters if one.kind == _NAMED_REST]
    return any(one.secret for one in found)


# What a workshop is told: which tools its worker is to have, and how long calls may take.


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """The policy's part: what to import, seconds of a call, by name and for all others.

    With ``operations`` nothing is imported: those are what is offered.
    """

    entries: tuple[str, ...] = ()
    operations: operations.OperationGrants | None = None
    timeout: float | None = None
    timeouts: Mapping[str, float] = field(default_factory=dict)
    max_bytes: int = 2**20
    #: The field that says how long a call may take.
    limit: str = "tool_timeout"
    #: The file that says so, for errors.
    policy: str = ""
