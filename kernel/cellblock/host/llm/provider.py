"""Between cells and a language model: every call read, counted, made in a worker, and settled."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import msgspec

from cellblock.host.llm import asked, offer
from cellblock.host.llm.speech import Completed, Failed
from cellblock.host.tools.provider import Answer, Call
from cellblock.host.tools.settings import Settings
from cellblock.host.tools.workshop import Workshop
from cellblock.wire.messages import Tool

if TYPE_CHECKING:
    from cellblock.host.llm.ledger import Ledger
    from cellblock.host.session.types import Reactor
    from cellblock.policy.sections import Llm as Section

#: What the worker runs.
_ENTRY: Final = "cellblock.host.llm.endpoint:complete"
_COMPLETE: Final = Tool(name="complete", is_async=True)
#: Bytes of an answer beside its text.
_ROOM: Final = 4_096
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Completed | Failed).decode


class Llm:
    """A provider. Nothing is started or imported before the first call.

    ``max_bytes`` bounds what a model says in one answer.
    """

    def __init__(
        self, reactor: Reactor, section: Section, ledger: Ledger, *, max_bytes: int
    ) -> None:
        self._section, self._ledger = section, ledger
        self._connection = _connection(section, max_bytes)
        self._workshop = Workshop(
            reactor,
            Settings(
                entries=(_ENTRY,),
                timeout=section.timeout,
                limit="llm.timeout",
                max_bytes=max_bytes + _ROOM,
            ),
        )

    @property
    def tools(self) -> tuple[Tool, ...]:
        """What cells may call."""
        return offer.tools(self._section)

    def beyond(self, call: Call) -> Answer | None:
        """Return what a call is answered that asks wrongly, or for what is not granted."""
        try:
            asked.read(call, self._section)
        except asked.WrongError as exc:
            return Answer(kind="ValidationError", message=str(exc))
        return None

    def begin(self, call: Call) -> None:
        """Have a model asked, or answer why it is not."""
        try:
            wanted = asked.read(call, self._section)
        except asked.WrongError as exc:
            call.answer(Answer(kind="ValidationError", message=str(exc)))
            return
        if refusal := self._ledger.reserve(call.number, wanted.most_tokens()):
            call.answer(Answer(kind="BudgetSpent", message=refusal))
            return
        self._workshop.begin(
            Call(
                number=call.number,
                tool=_COMPLETE,
                arguments=msgspec.Raw(_encode(([self._connection, wanted], {}))),
                answer=lambda answer: self._answered(call, answer),
                piece=call.piece,
                tell=call.tell,
            )
        )

    def _answered(self, call: Call, answer: Answer) -> None:
        """Settle a call that the worker is done with, and tell its cell."""
        if answer.kind:  # it ran out of time, or its worker is gone
            taken = self._ledger.settle(call.number)
            call.answer(Answer(kind=answer.kind, message=answer.message, tokens=taken))
            return
        match _decode(answer.value):
            case Failed(kind=kind, message=message, tokens=tokens):
                taken = self._ledger.settle(call.number, tokens)
                call.answer(Answer(kind=kind, message=message, tokens=taken))
            case Completed(value=value, tokens=tokens):
                taken = self._ledger.settle(call.number, tokens)
                call.answer(Answer(bytes(value), tokens=taken))

    def cancel(self, number: int) -> None:
        """Stop asking. What it took nobody tells: it counts as all that it might."""
        self._ledger.settle(number)
        self._workshop.cancel(number)

    def hold(self, *, held: bool) -> None:
        """Take no answers for now, or again."""
        self._workshop.hold(held=held)

    def close(self) -> None:
        """End the worker."""
        self._workshop.close()


def _connection(section: Section, max_bytes: int) -> dict[str, Any]:
    known = dataclasses.asdict(section)
    names = ("base_url", "key_env", "keyring", "timeout", "retries", "max_in_flight")
    return {name: known[name] for name in (*names, "token_parameter")} | {"max_bytes": max_bytes}
