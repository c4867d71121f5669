"""``InputRequests``: puts questions of cells and of the host to the front end that sent the cell.

One question is open at a time; a question of the other kind may wait for it. A user can tell the
kinds apart: each line of a host's question begins with a mark, and a cell's question is one line
without a mark. In a kernel whose host may ask, a cell's question also begins with ``CELL_PREFIX``.
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

#: Characters of an answer. Longer ones are cut, since the answer must fit into a frame.
LONGEST_ANSWER = 1 << 20
#: Begins a cell's question in a kernel whose host may ask too.
CELL_PREFIX = "the cell asks: "


class _Question(Struct, frozen=True, eq=False):
    """A question for the front end that sent ``cell``; ``on_answer`` gets the answer."""

    cell: Message
    prompt: str
    on_answer: Callable[[str], None]
    password: bool = False
    is_hosts: bool = False


class HostQuestion(Struct, frozen=True, eq=False):
    """An open question of the host's. JupyterLab's extension may show and answer it too."""

    id: str
    asked: Question
    #: The request of the cell, whose sender may answer.
    cell: Message
    #: Gets the answer, as it would be typed.
    answered: Callable[[str], None]
    #: Takes the prompt back.
    withdraw: Callable[[], None]


class InputRequests:
    """The questions of one kernel. Sends ``input_request`` and passes on the answers."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        #: Whether cells' questions begin with ``CELL_PREFIX``.
        self.prefix_cells = False
        #: The question that waits for an answer, and the id of its message.
        self._open: _Question | None = None
        self._id = ""
        #: Questions that will be sent when the open one is answered.
        self._waiting: list[_Question] = []

    def ask_for_cell(
        self, request: wire.InputRequest, cell: Message | None, on_answer: Callable[[str], None]
    ) -> bool:
        """Put a cell's question. Return False if the cell may not ask, or asks already."""
        prompt = (CELL_PREFIX if self.prefix_cells else "") + gateway.clean_prompt(request.prompt)
        return cell is not None and self._ask(_Question(cell, prompt, on_answer, request.password))

    def ask_for_host(
        self, text: str, cell: Message | None, on_answer: Callable[[str], None]
    ) -> Callable[[], None] | None:
        """Put a question of the host's to the sender of ``cell``.

        Return the function that cancels it, or None if nobody can be asked.
        """
        if cell is None:
            return None
        question = _Question(cell, text, on_answer, is_hosts=True)

        def cancel() -> None:
            self._waiting = [waiting for waiting in self._waiting if waiting is not question]
            if self._open is question:
                self._open = None
                self._id = ""
                self._send_next()

        return cancel if self._ask(question) else None

    def _ask(self, question: _Question) -> bool:
        """Queue a question. Return False if its cell allows none, or one of its kind is there."""
        open_questions = (entry for entry in (self._open, *self._waiting) if entry is not None)
        is_open = any(entry.is_hosts is question.is_hosts for entry in open_questions)
        if is_open or not question.cell.content.get("allow_stdin"):
            return False
        self._waiting.append(question)
        self._send_next()
        return True

    def _send_next(self) -> None:
        if self._open is None and self._waiting:
            self._open = question = self._waiting.pop(0)
            content = {"prompt": question.prompt, "password": question.password}
            self._id = self._channels.send("stdin", "input_request", content, question.cell)

    def on_reply(self, reply: Message) -> None:
        """Pass an answer on if it belongs to the open question.

        Other front ends have the key too. So the answer must come from the connection that was
        asked. If it names a question, it must be this one; jupyter_client names none.
        """
        question = self._open
        if (
            question is None
            or reply.kind != "input_reply"
            or reply.identities != question.cell.identities
        ):
            return
        if reply.parent.get("msg_id", self._id) not in {
            self._id,
            question.cell.header.get("msg_id"),
        }:
            return
        self._open = None
        self._id = ""
        value = reply.content.get("value")
        question.on_answer(value[:LONGEST_ANSWER] if isinstance(value, str) else "")
        self._send_next()

    def cancel(self) -> None:
        """Cancel all questions."""
        self._open = None
        self._id = ""
        self._waiting.clear()
