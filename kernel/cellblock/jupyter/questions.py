"""A cell's question: put to the front end that sent the cell, answered by that one alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellblock.host.output import gateway

if TYPE_CHECKING:
    from cellblock.jupyter.channels import Channels
    from cellblock.jupyter.messages import Message
    from cellblock.wire import messages as wire

#: Characters of an answer that reach the cell; the wire carries no more than a frame.
LONGEST_ANSWER = 1 << 20


class Questions:
    """At most one question at a time."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._cell: Message | None = None
        self._id = ""

    def put(self, request: wire.InputRequest, cell: Message | None) -> bool:
        """Ask for ``cell``; False when it may not ask, or still waits for an answer."""
        if cell is None or self._cell is not None or not cell.content.get("allow_stdin"):
            return False
        content = {"prompt": gateway.clean_prompt(request.prompt), "password": request.password}
        self._id = self._channels.send("stdin", "input_request", content, cell)
        self._cell = cell
        return True

    def answer(self, reply: Message) -> str | None:
        """Return the text that answers the question, or None: it is not the answer to this one.

        Other front ends have the key too, so whom a reply comes from counts, and which question
        it names, if any: jupyter_client names none.
        """
        cell = self._cell
        if cell is None or reply.kind != "input_reply" or reply.identities != cell.identities:
            return None
        if reply.parent.get("msg_id", self._id) not in {self._id, cell.header.get("msg_id")}:
            return None
        self.withdraw()
        value = reply.content.get("value")
        return value[:LONGEST_ANSWER] if isinstance(value, str) else ""

    def withdraw(self) -> None:
        """Expect no answer any more."""
        self._cell, self._id = None, ""
