"""Questions, a cell's and the host's own: put to the front end that sent the cell, which answers.

One stands at a time, and no more than one of each kind waits. The host's questions bear a mark on
each line; what a cell asks is one line without it, and where the host asks at all, says that it is
the cell's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from cellblock.host.consent.approvals.approver import Clerk, Grants, Under
from cellblock.host.consent.approvals.prompt import Prompt
from cellblock.host.consent.approvals.store import Store, default_path
from cellblock.host.output import gateway
from cellblock.host.session.narrowing import changes
from cellblock.policy import paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.host.consent.approvals.prompt import Decision
    from cellblock.host.session.config import Ground
    from cellblock.host.session.types import Cell
    from cellblock.jupyter.channels import Channels
    from cellblock.jupyter.kernel import Kernel
    from cellblock.jupyter.messages import Message
    from cellblock.policy.model import Policy
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


# Asking the user, in a kernel: who does that, and a kernel that may not start before.


def begin(ground: Ground, kernel: Kernel, start: Callable[[], None]) -> None:
    """Have a clerk ask the user of ``kernel``; ``start`` its session, once it may be started."""
    policy = paths.unplaced(ground.policy, Path(ground.told.scratch))
    kernel.clerk = clerk = clerk_of(ground, policy, kernel)
    if ground.condition is None:
        start()
        return

    def allowed() -> None:
        kernel.views.allow()
        kernel.starting = None
        start()

    starting = Start(clerk, policy, ground.condition.key, allowed)
    if starting.is_allowed:
        start()
        return
    kernel.starting = starting
    kernel.views.refuse(ground.condition)


def clerk_of(ground: Ground, policy: Policy, kernel: Kernel) -> Clerk:
    """Return who asks a kernel's user; the policy is that of ``placing.unplaced``."""
    kernel.questions.named = True
    grants = Grants(under(ground, policy), Store(default_path()))
    return Clerk(
        Prompt(kernel.consulted, grants),
        grants,
        observe=kernel.audit.approved,
        tell=kernel.outputs.notice,
    )


def under(ground: Ground, policy: Policy) -> Under:
    """Return what users are asked under: the policy, which a notebook may have made narrower."""
    scope = policy.approval.scope.replace("{project}", os.path.realpath(ground.project))
    made, scratch = ground.operators, Path(ground.told.scratch)
    if made is None:
        return Under(scope=scope, policy=policy.name, digest=policy.digest())
    written = paths.unplaced(made, scratch).digest()
    first = Under(scope=scope, policy=policy.name, digest=written)
    return first.narrower(policy.digest(), changes(made, ground.policy, scratch))


class Start:
    """What the first cell has to wait for: until then there is no session, and no guest.

    ``field`` is what of the policy has to be asked for, ``begin`` makes both.
    """

    def __init__(self, clerk: Clerk, policy: Policy, field: str, begin: Callable[[], None]) -> None:
        self._clerk, self._begin = clerk, begin
        self._field, self._value = field, str(getattr(policy, field))

    @property
    def is_allowed(self) -> bool:
        """Whether the user has allowed it for always."""
        return self._clerk.may_start(self._field, self._value)

    def ask(self, cell: Cell, go_on: Callable[[], None]) -> None:
        """Ask on behalf of a cell, which goes on once that is decided."""

        def decided(decision: Decision) -> None:
            self._clerk.end()
            if decision.scope is not None:
                self._begin()
            go_on()

        self._clerk.begin(cell)
        self._clerk.ask_start(self._field, self._value, decided)

    def interrupt(self) -> None:
        """Take the question back: the kernel does not start."""
        self._clerk.interrupt()
