"""What a guest may say when. Each rule returns how it was broken, or nothing.

An honest guest keeps all of them by its own code, whatever a cell does with the language alone:
who breaks one has taken over the process, and is ended for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cellblock.wire import messages

if TYPE_CHECKING:
    from cellblock.host.request import Request

#: Questions that a cell may repeat while none is answered: one that is interrupted may ask again.
MAX_QUESTIONS = 1_000
#: What answers what.
_ANSWERS: dict[type, type] = {
    messages.Execute: messages.Done,
    messages.CommIn: messages.Done,
    messages.Complete: messages.Completed,
    messages.Inspect: messages.Inspected,
}


def unasked(message: messages.FromGuest, *, served: bool) -> str:
    """Judge what is said of guests themselves; ``served`` if this one has come to serve before."""
    if isinstance(message, messages.Tried):
        return "nobody asked what it tried"
    if isinstance(message, messages.Standing | messages.Resumed):
        return "it speaks as a snapshot"
    if served and isinstance(message, messages.Ready | messages.NotReady):
        # Claims about locks count once, before the first user byte.
        return "a second report of its locks"
    return ""


def began(message: messages.Began, request: Request | None, unread: int) -> str:
    """Judge a claim to have taken up a request; ``unread`` are bytes still on their way to it."""
    if request is None or message.id != request.message.id or request.began:
        return "it claims to have begun what it was not told to"
    if _ANSWERS[type(request.message)] is not messages.Done:
        return "it claims to have begun a query"
    if unread:
        # Believed, it would keep an interrupt from ending a guest that never takes it up.
        return "it claims to have begun what it has not read"
    return ""


def question(message: messages.InputRequest, request: Request | None) -> str:
    """Judge a question to the user."""
    if request is None or message.id != request.message.id or not request.began:
        return "a question of no cell"
    if not isinstance(request.message, messages.Execute) or not request.message.allow_stdin:
        return "a question where none may be asked"
    if request.questions > MAX_QUESTIONS:
        return "a storm of questions"
    return ""


def may_undo(request: Request) -> bool:
    """Say whether a wish to step back is heeded: a cell's. A handler or a thread may utter one."""
    return isinstance(request.message, messages.Execute) and request.began


def reply(message: Any, request: Request | None) -> str:
    """Judge what says that it answers a request."""
    if request is None or message.id != request.message.id or request.ended:
        return "a reply to no request"
    if type(message) is not _ANSWERS[type(request.message)]:
        return "a reply of another kind"
    if isinstance(message, messages.Done) and not request.began:
        return "an end without a beginning"
    return ""
