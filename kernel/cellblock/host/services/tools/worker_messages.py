"""Messages between the host and a worker, over a socket of their own."""

from __future__ import annotations

import msgspec

from cellblock.host.services.operations.grants import OperationGrants
from cellblock.host.services.tools.calls import Answer, KeyUse
from cellblock.policy.mcp_servers import McpServer
from cellblock.wire.messages import Message, Struct, Tool


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """What a worker is to run: the operator's ``entries`` or ``servers``, or the host's operations.

    ``timeout`` and ``timeouts`` are seconds of a call, of any tool and by name; ``max_bytes``
    bounds an answer. ``limit`` names the policy field of the time limit, ``policy`` its file.
    """

    entries: tuple[str, ...] = ()
    operations: OperationGrants | None = None
    servers: dict[str, McpServer] = msgspec.field(default_factory=dict)
    timeout: float | None = None
    timeouts: dict[str, float] = msgspec.field(default_factory=dict)
    max_bytes: int = 2**20
    limit: str = "tool_timeout"
    policy: str = ""


class Load(Message, frozen=True, kw_only=True):
    """First. The environment comes here, and not where other processes can read it."""

    settings: WorkerSettings
    environment: dict[bytes, bytes]


class Begin(Message, frozen=True, kw_only=True):
    """Run a tool. ``arguments`` are as a guest encoded them, ``cell`` is that of ``ToolCall``.

    With ``checks_only`` they are validated, and nothing is run.
    """

    number: int
    tool: str
    arguments: msgspec.Raw
    cell: int = 0
    checks_only: bool = False


class Cancel(Message, frozen=True, kw_only=True):
    """Tell a call to stop; it is answered all the same."""

    number: int


class Loaded(Message, frozen=True, kw_only=True):
    """The tools are ready."""

    tools: tuple[Tool, ...]


class LoadFailed(Message, frozen=True, kw_only=True):
    """An entry is no tool; the worker ends."""

    entry: str
    message: str
    remedy: str


class Progress(Message, frozen=True, kw_only=True):
    """A line about a call's progress, for the user who waits."""

    number: int
    text: str


class KeySent(Message, frozen=True, kw_only=True):
    """A call's request carries a credential; said before it is sent."""

    number: int
    use: KeyUse


class Answered(Message, frozen=True, kw_only=True):
    """A call ended."""

    number: int
    answer: Answer


ToWorker = Load | Begin | Cancel
FromWorker = Loaded | LoadFailed | Progress | KeySent | Answered
