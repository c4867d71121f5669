"""Why there is no completion, as a cell is told: in our words, and the endpoint's where they help.

Runs in the worker. What the client raises quotes requests, addresses and keys, and goes no further.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import openai

from cellblock.render.text import encodable

if TYPE_CHECKING:
    from cellblock.host.llm.redaction import Redactor

TOO_LARGE: Final = "the endpoint's answer is too large (tool_max_bytes)"
NO_COMPLETION: Final = "the endpoint's answer is no completion"
_LONGEST_DETAIL, _LOOKED_AT, _LONGEST_NAME = 300, 2_000, 200
_REFUSED_KEY: Final = (401, 403)
_REDIRECTS: Final = range(300, 400)
_FAILED: Final = range(400, 600)
#: What the client's HTTP library, whichever it is, calls a request that was never sent.
_NOT_SENT: Final = ("ConnectError", "ConnectTimeout", "PoolTimeout")

#: Kind, message, and the tokens that it cost: None where that may be anything.
Told = tuple[str, str, int | None]


class UnusableError(Exception):
    """An endpoint that can't be asked, or an answer that can't be used.

    ``tokens`` is None where it may have cost something.
    """

    def __init__(self, kind: str, message: str, tokens: int | None = None) -> None:
        super().__init__(message)
        self.told: Told = (kind, message, tokens)


def told(exc: Exception, redactor: Redactor) -> Told:
    """Return what a cell is told of an exception, whosever it is."""
    cause = exc.__cause__
    for one in (exc, cause):
        if isinstance(one, UnusableError):
            return one.told
    status = getattr(exc, "status_code", None)
    if isinstance(exc, openai.APIStatusError) and isinstance(status, int):
        return _of_status(status, exc, redactor)
    cost = 0 if type(cause).__name__ in _NOT_SENT else None
    if isinstance(exc, openai.APITimeoutError):
        return "TimeoutError", "the endpoint did not answer in time (llm.timeout)", cost
    if isinstance(exc, openai.APIConnectionError):
        return "ConnectionError", "the endpoint can't be reached, or hung up", cost
    if isinstance(exc, openai.APIError):  # told in the middle of a stream
        return "EndpointError", f"the endpoint says: {_detail(exc, redactor)}", None
    return "EndpointError", NO_COMPLETION, None


def _of_status(status: int, exc: Any, redactor: Redactor) -> Told:
    if status in _REFUSED_KEY:
        # Whatever it says of the key is not for cells.
        return "AuthenticationError", f"the endpoint refuses the host's key ({status})", 0
    if status in _REDIRECTS:
        return "EndpointError", f"the endpoint is elsewhere, which is not followed ({status})", 0
    name, cost = type(exc).__name__[:_LONGEST_NAME], 0 if status in _FAILED else None
    detail = _detail(exc, redactor)
    return name, f"the endpoint refuses ({status})" + (f": {detail}" if detail else ""), cost


def _detail(exc: Any, redactor: Redactor) -> str:
    """Return the endpoint's own words, if it has any: one line, bounded, without the key."""
    body = getattr(exc, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    said = inner.get("message") if isinstance(inner, dict) else inner
    if not isinstance(said, str):
        return ""
    # The key is out of it before it is cut, and all that is done to it after that is short.
    said = redactor.error(redactor.text(encodable(said))[:_LOOKED_AT])
    line = " ".join(said.split())
    return "".join(c for c in line if c.isprintable())[:_LONGEST_DETAIL]
