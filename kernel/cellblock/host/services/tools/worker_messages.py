"""Messages between the host and a worker, over a socket of their own."""

from __future__ import annotations

import msgspec

from cellblock.host.services.operations.grants import OperationGrants
from cellblock.host.services.tools.calls import Answer, KeyUse
from cellblock.policy.mcp_servers import McpServer
from cellblock.wire.messages import Message, Struct, Tool


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """The settings of a worker: it runs the operator's ``entries`` or ``servers``, or operations.

    ``timeout`` is the time limit of a call in seconds, ``timeouts`` those of tools by name.
    ``max_bytes`` bounds an answer. ``limit`` names the policy field of the time limit, ``policy``
    the policy's file.
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
    """The first message. The environment comes with it, since /proc would show it to others."""

    settings: WorkerSettings
    environment: dict[bytes, bytes]


class Begin(Message, frozen=True, kw_only=True):
    """Run a tool. ``arguments`` are as the guest encoded them, ``cell`` is from its ``ToolCall``.

    With ``checks_only`` the arguments are validated, and the tool isn't run.
    """

    number: int
    tool: str
    arguments: msgspec.Raw
    cell: int = 0
    checks_only: bool = False


class Cancel(Message, frozen=True, kw_only=True):
    """Tell a call to stop. It is still answered."""

    number: int


class Loaded(Message, frozen=True, kw_only=True):
    """The tools are ready."""

    tools: tuple[Tool, ...]


class LoadFailed(Message, frozen=True, kw_only=True):
    """An entry can't be used as a tool. The worker ends after this message."""

    entry: str
    message: str
    remedy: str


class Progress(Message, frozen=True, kw_only=True):
    """A line about a call's progress, for the user."""

    number: int
    text: str


class KeySent(Message, frozen=True, kw_only=True):
    """A call's request carries a credential. This message comes before the request is sent."""

    number: int
    use: KeyUse


class Answered(Message, frozen=True, kw_only=True):
    """A call has ended, with this answer."""

    number: int
    answer: Answer


ToWorker = Load | Begin | Cancel
FromWorker = Loaded | LoadFailed | Progress | KeySent | Answered
