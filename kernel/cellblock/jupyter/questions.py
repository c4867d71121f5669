"""Questions, a cell's and the host's own: put to the front end that sent the cell, which answers.

One stands at a time, and no more than one of each kind waits. The host's questions bear a mark on
each line; what a cell asks is one line without it, and where the host asks at all, says that it is
the cell's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from cellblock.host.output import gateway

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.jupyter.channels import Channels
    from cellblock.jupyter.messages import Message
    from cellblock.wire import messages as wire

#: Characters of an answer that reach the cell; the wire carries no more than a frame.
LONGEST_ANSWER = 1 << 20
#: Begins what a cell asks, where the host asks, too.
CELLS = "the cell asks: "


class _Question(msgspec.Struct, frozen=True, eq=False):
    """What is asked for ``cell``, and who is told the answer."""

    cell: Message
    prompt: str
    told: Callable[[str], None]
    password: bool = False
    hosts: bool = False


class Questions:
    """Puts questions, and tells an answer to whoever asked. ``named``: cells' are told apart."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self.named = False
        self._open: _Question | None = None
        self._id = ""
        self._waiting: list[_Question] = []

    def put(
        self, request: wire.InputRequest, cell: Message | None, told: Callable[[str], None]
    ) -> bool:
        """Ask for ``cell``; False when it may not ask, or still waits for an answer."""
        if cell is None or not _takes_input(cell) or self._asks(hosts=False):
            return False
        prompt = (CELLS if self.named else "") + gateway.clean_prompt(request.prompt)
        self._add(_Question(cell, prompt, told, request.password))
        return True

    def consult(
        self, text: str, cell: Message | None, told: Callable[[str], None]
    ) -> Callable[[], None] | None:
        """Ask for the host; return what takes the question back, None where nobody can be asked."""
        if cell is None or not _takes_input(cell) or self._asks(hosts=True):
            return None
        question = _Question(cell, text, told, hosts=True)
        self._add(question)
        return lambda: self._take_back(question)

    def _asks(self, *, hosts: bool) -> bool:
        return any(one.hosts is hosts for one in (self._open, *self._waiting) if one is not None)

    def _add(self, question: _Question) -> None:
        self._waiting.append(question)
        self._go_on()

    def _go_on(self) -> None:
        if self._open is None and self._waiting:
            self._open = one = self._waiting.pop(0)
            content = {"prompt": one.prompt, "password": one.password}
            self._id = self._channels.send("stdin", "input_request", content, one.cell)

    def _take_back(self, question: _Question) -> None:
        """Expect no answer to one question; the next is put."""
        self._waiting = [one for one in self._waiting if one is not question]
        if self._open is question:
            self._open, self._id = None, ""
            self._go_on()

    def answer(self, reply: Message) -> None:
        """Tell whoever asked, if this is the answer to the question that stands.

        Other front ends have the key too, so whom a reply comes from counts, and which question
        it names, if any: jupyter_client names none.
        """
        one = self._open
        if one is None or reply.kind != "input_reply" or reply.identities != one.cell.identities:
            return
        if reply.parent.get("msg_id", self._id) not in {self._id, one.cell.header.get("msg_id")}:
            return
        self._open, self._id = None, ""
        value = reply.content.get("value")
        one.told(value[:LONGEST_ANSWER] if isinstance(value, str) else "")
        self._go_on()

    def withdraw(self) -> None:
        """Expect no answer any more."""
        self._open, self._id = None, ""
        self._waiting.clear()


def _takes_input(cell: Message) -> bool:
    return bool(cell.content.get("allow_stdin"))
