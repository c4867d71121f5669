"""What came of a cell: frozen values, cleaned and bounded like all that is shown of a guest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from cellblock.host.services.artifacts.collect import Artifact, Skipped
from cellblock.host.session.types import Usage
from cellblock.render.bundle import (
    ARTIFACTS_JSON,
    DENIAL_JSON,
    ENFORCEMENT_JSON,
    OUTCOME_JSON,
    PROBLEM_JSON,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "Artifact",
    "CellError",
    "Denial",
    "Display",
    "Output",
    "Result",
    "Skipped",
    "Stop",
    "ToolCall",
    "Usage",
    "Wish",
]

Status = Literal["ok", "error", "denied", "refused", "stopped", "failed"]
Kind = Literal[
    "stream",
    "display_data",
    "update_display_data",
    "execute_result",
    "error",
    "clear_output",
    "comm_open",
    "comm_msg",
    "comm_close",
]
#: Types of what cellblock says by itself; no cell can send them. Tables that a cell asks for, such
#: as ``%usage``, are the cell's.
OURS: Final = frozenset({ARTIFACTS_JSON, DENIAL_JSON, ENFORCEMENT_JSON, OUTCOME_JSON, PROBLEM_JSON})


@dataclass(frozen=True, slots=True)
class Output:
    """One output as a front end gets it: the type and content of Jupyter's message.

    In their order these are all that a notebook's outputs are made of: ``clear_output`` and
    ``update_display_data`` are still to be acted on.
    """

    kind: Kind
    content: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()

    @property
    def ours(self) -> bool:
        """Whether it is a card of cellblock's, and not the cell's."""
        return not OURS.isdisjoint(self.content.get("data", ()))


@dataclass(frozen=True, slots=True)
class Display:
    """Something rich that a cell showed: mime types to text or JSON data."""

    data: Mapping[str, Any]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    #: The id under which a cell updates it.
    display_id: str | None = None

    def __str__(self) -> str:
        return str(self.data.get("text/plain", ""))


@dataclass(frozen=True, slots=True)
class CellError:
    """Why a cell failed: an exception's type and message; ``traceback`` has no terminal colours.

    ``type`` is ``PolicyDenied`` where cells were refused, ``CellStopped`` where one was ended from
    outside: what to say then is in ``Result.denials`` and ``Result.stop``.
    """

    type: str
    message: str
    traceback: str
    #: As it was sent, colours and all, line by line.
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True, slots=True)
class Denial:
    """A place in a cell that the policy refuses. Lines count from 1, columns from 0.

    ``rewrite`` is a line or two that do the same with an operation that the policy grants;
    ``detail`` is text of more lines: the difference to the nearest approved cell, say.
    """

    rule: str
    line: int
    column: int
    end_column: int
    excerpt: str
    subject: str
    why: str
    remedy: str
    detail: str = ""
    rewrite: str = ""


@dataclass(frozen=True, slots=True)
class Stop:
    """A cell that was ended from outside.

    ``why`` is ``timeout``, ``cpu``, ``memory``, ``scratch``, ``interrupt``, ``crash``,
    ``violation``, ``breach`` or ``silent``; ``limit`` is the limit it was over, in words. ``state``
    says what became of the variables.
    """

    why: str
    limit: str
    state: Literal["kept", "restored", "gone"]
    said: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool; secret values are masked, and of what is large only the size is told."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    status: Literal["ok", "error", "withdrawn", "refused", "unfinished"]
    seconds: float
    result: Any = None
    #: The exception's type and message.
    error: tuple[str, str] | None = None
    #: Of a language model, prompt and completion together.
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of one cell.

    ``output`` and ``error_output`` are what it wrote to stdout and stderr, ``result`` is the
    representation of its last expression's value. ``outputs`` has everything, in order.
    """

    status: Status
    output: str = ""
    error_output: str = ""
    result: str | None = None
    #: The same with all its types, as a cell's other displays.
    rich_result: Display | None = None
    error: CellError | None = None
    displays: tuple[Display, ...] = ()
    #: What ``name?`` shows, each as text: a front end has a pager for it.
    pages: tuple[str, ...] = ()
    denials: tuple[Denial, ...] = ()
    stop: Stop | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_calls_left_out: int = 0
    artifacts: tuple[Artifact, ...] = ()
    #: Files that were to be copied out, and why they were not.
    skipped: tuple[Skipped, ...] = ()
    #: None for a cell that did not run.
    usage: Usage | None = None
    #: Bytes that were left out of stdout, stderr and displays.
    left_out: Mapping[str, int] = field(default_factory=dict)
    outputs: tuple[Output, ...] = ()
    execution_count: int = 0
    #: What the policy is called, and the source that was run.
    policy: str = ""
    source: str = ""

    @property
    def success(self) -> bool:
        """Whether it ran to its end without an exception."""
        return self.status == "ok"

    def to_string(self, limit: int = 8_000) -> str:
        """Return this as text from which a language model can correct its cell.

        At most ``limit`` characters.
        """
        from cellblock.api.wording import to_string  # noqa: PLC0415 - it imports this

        return to_string(self, limit)

    def __str__(self) -> str:
        return self.to_string()


@dataclass(frozen=True, slots=True)
class Wish:
    """What a cell may do only if the program says so: import modules, or make one call.

    ``names`` are the modules', or the function's, whose arguments are whole in ``args`` and
    ``kwargs``, secrets too. ``text`` is the question with all of that, in lines that can be shown
    to anybody: long ones are cut, secrets left out, and nothing in them moves a cursor or hides.
    """

    kind: Literal["call", "import"]
    names: tuple[str, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    text: str
    source: str
    execution_count: int
