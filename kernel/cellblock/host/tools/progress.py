"""What a call that takes its time says before its answer. In the worker."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from cellblock.host.tools.speech import Piece, Said

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST: Final = 200


def _nobody(_text: str) -> None: ...


#: Of the call that runs in this thread or task: who is told how it is getting on, and who gets
#: pieces of the text that it is going to return.
telling: Final[ContextVar[Callable[[str], None]]] = ContextVar("telling", default=_nobody)
giving: Final[ContextVar[Callable[[str], None]]] = ContextVar("giving", default=_nobody)


def listen(number: int, send: Callable[[Piece | Said], None]) -> None:
    """Have ``send`` get what the call of this number says from now on."""
    telling.set(lambda text: send(Said(number=number, text=text)))
    giving.set(lambda text: send(Piece(number=number, text=text)))


def tell(text: str) -> None:
    """Show a line to whoever waits for the call under way."""
    telling.get()(text[:_LONGEST])


def give(text: str) -> None:
    """Give the cell more of the text that the call under way will have returned."""
    giving.get()(text)
