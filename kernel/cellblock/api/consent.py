"""A program's own answer where its policy asks for consent.

Imported late: few programs give ``approve=``.
"""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.api.front import answer_of
from cellblock.api.results import Wish
from cellblock.errors import PolicyError
from cellblock.host.consent.approver import PROGRAM, Approver
from cellblock.host.consent.grants import Grants, Under
from cellblock.wire import values

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from cellblock.api.front import SandboxFront
    from cellblock.host.consent import request as wishes
    from cellblock.host.consent.prompt import Answer
    from cellblock.host.session.types import ExecuteRequest
    from cellblock.policy.model import Policy

    Approve = Callable[[Wish], Any]

_ANSWERS: Final[dict[object, Answer]] = {
    True: "once",
    "once": "once",
    "session": "session",
    False: "no",
    None: "no",
}


class ProgramPrompt:
    """Asks the program's ``approve``, one wish at a time (``host.approvals.approver.Ask``)."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, approve: Approve, front: SandboxFront
    ) -> None:
        self._loop, self._approve, self._front = loop, approve, front
        self._asked: asyncio.Task[None] | None = None

    def __call__(
        self,
        wish: wishes.Wish,
        cell: ExecuteRequest | None,
        note: str,  # noqa: ARG002 - for who mistypes
        answered: Callable[[Answer], None],
    ) -> Callable[[], None]:
        """Ask; return what cancels that. An exception or an unknown answer is a no."""
        self._asked = self._loop.create_task(self._put(wish, cell, answered))
        return self.close

    def close(self) -> None:
        """Cancel the question."""
        if self._asked is not None:
            self._asked.cancel()

    async def _put(
        self, wish: wishes.Wish, cell: ExecuteRequest | None, answered: Callable[[Answer], None]
    ) -> None:
        answer: Answer = "no"
        try:
            asked = wish_of(wish, cell)
            answer = _answer(await answer_of(self._loop, self._approve, asked, self._front))
        except Exception:  # noqa: BLE001 - the caller's fault, told to the caller
            traceback.print_exc()
        answered(answer)


def approver_of(policy: Policy, front: SandboxFront, prompt: ProgramPrompt) -> Approver:
    """Return what asks the program. Raises PolicyError for a policy that asks nobody."""
    if policy.approvals == "never":
        raise PolicyError(
            "approve= would never be called: the policy has nobody asked",
            file=policy.name,
            key="approvals",
            value=repr(policy.approvals),
            remedy='Leave approve= out, or choose a policy with approvals = "prompt".',
        )
    grants = Grants(Under(scope="", policy=policy.name, digest=""), None)
    observe, tell = front.audit.approved, front.outputs.notice
    return Approver(prompt, grants, observe=observe, tell=tell, manner=PROGRAM)


def wish_of(wish: wishes.Wish, cell: ExecuteRequest | None) -> Wish:
    """Return a wish as the program gets it. Raises ValueError, msgspec.MsgspecError."""
    count, source = (0, "") if cell is None else (cell.execution_count, cell.code)
    args, kwargs = values.decode(msgspec.Raw(wish.arguments)) if wish.arguments else ((), {})
    return Wish(
        kind="import" if wish.of == "import" else "call",
        names=wish.subjects,
        args=tuple(args),
        kwargs=kwargs,
        text="\n".join([f"may cell [{count}] {wish.asks}", *wish.shown]),
        source=source,
        execution_count=count,
    )


def _answer(said: object) -> Answer:
    """Return a program's answer. Raises TypeError for one that is not allowed."""
    if isinstance(said, bool | str | None) and said in _ANSWERS:
        return _ANSWERS[said]
    raise TypeError(f"approve= returns True, False, 'once' or 'session', not {said!r}")
