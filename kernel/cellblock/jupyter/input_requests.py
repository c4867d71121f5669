"""Questions of a cell and of the host, put to the front end that sent the cell.

One question stands at a time, and at most one of each kind waits. Each line of the host's questions
begins with a mark. A cell's question is one line without it. Where the host asks too, the cell's
question says that it is the cell's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from cellblock.host.output import gateway

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.jupyter.channels import Channels
    from cellblock.jupyter.messages import Message
    from cellblock.render.text import Question
    from cellblock.wire import messages as wire

#: Characters of an answer that reach the cell; the wire carries no more than a frame.
LONGEST_ANSWER = 1 << 20
#: Begins a cell's question where the host asks too.
CELL_PREFIX = "the cell asks: "


class _Question(Struct, frozen=True, eq=False):
    """A question for the sender of ``cell``, and what gets its answer."""

    cell: Message
    prompt: str
    on_answer: Callable[[str], None]
    password: bool = False
    is_hosts: bool = False


class HostQuestion(Struct, frozen=True, eq=False):
    """A question of the host's that stands, and the cell whose sender may answer it.

    ``withdraw`` takes the prompt back, and ``answered`` gets what was typed, or stands for that.
    """

    id: str
    asked: Question
    cell: Message
    answered: Callable[[str], None]
    withdraw: Callable[[], None]


class InputRequests:
    """Sends ``input_request``, and passes each answer to whoever asked."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        #: Whether cells' questions say that they are.
        self.prefix_cells = False
        self._open: _Question | None = None
        self._id = ""
        self._waiting: list[_Question] = []

    def ask_for_cell(
        self, request: wire.InputRequest, cell: Message | None, on_answer: Callable[[str], None]
    ) -> bool:
        """Ask for ``cell``; return False when it may not ask, or still waits for an answer."""
        prompt = (CELL_PREFIX if self.prefix_cells else "") + gateway.clean_prompt(request.prompt)
        return cell is not None and self._ask(_Question(cell, prompt, on_answer, request.password))

    def ask_for_host(
        self, text: str, cell: Message | None, on_answer: Callable[[str], None]
    ) -> Callable[[], None] | None:
        """Ask for the host; return what cancels the question, None where nobody can be asked."""
        if cell is None:
            return None
        question = _Question(cell, text, on_answer, is_hosts=True)

        def cancel() -> None:
            self._waiting = [one for one in self._waiting if one is not question]
            if self._open is question:
                self._open = None
                self._id = ""
                self._send_next()

        return cancel if self._ask(question) else None

    def _ask(self, question: _Question) -> bool:
        """Queue a question; return False where its cell allows none, or one of its kind is open."""
        asking = (one for one in (self._open, *self._waiting) if one is not None)
        is_open = any(one.is_hosts is question.is_hosts for one in asking)
        if is_open or not question.cell.content.get("allow_stdin"):
            return False
        self._waiting.append(question)
        self._send_next()
        return True

    def _send_next(self) -> None:
        if self._open is None and self._waiting:
            self._open = one = self._waiting.pop(0)
            content = {"prompt": one.prompt, "password": one.password}
            self._id = self._channels.send("stdin", "input_request", content, one.cell)

    def on_reply(self, reply: Message) -> None:
        """Pass an answer on, if it is to the question that stands.

        Other front ends have the key too, so it must come from the one that was asked, and name
        that question if it names any: jupyter_client names none.
        """
        one = self._open
        if one is None or reply.kind != "input_reply" or reply.identities != one.cell.identities:
            return
        if reply.parent.get("msg_id", self._id) not in {self._id, one.cell.header.get("msg_id")}:
            return
        self._open = None
        self._id = ""
        value = reply.content.get("value")
        one.on_answer(value[:LONGEST_ANSWER] if isinstance(value, str) else "")
        self._send_next()

    def cancel(self) -> None:
        """Cancel all questions."""
        self._open = None
        self._id = ""
        self._waiting.clear()
