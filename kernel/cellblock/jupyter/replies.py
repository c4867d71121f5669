"""Contents of the replies that need no guest, and of those made from a guest's answers."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from cellblock import __version__
from cellblock.analysis import check_complete
from cellblock.host.output import gateway
from cellblock.jupyter.messages import PROTOCOL

if TYPE_CHECKING:
    from cellblock.host.session.history import History
    from cellblock.wire import messages as wire


#: Characters of a glob that history is searched with.
_LONGEST_PATTERN = 1_000


def kernel_info() -> dict[str, Any]:
    """Return ``kernel_info_reply``; what is not listed here is not offered."""
    version = platform.python_version()
    return {
        "protocol_version": PROTOCOL,
        "implementation": "cellblock",
        "implementation_version": __version__,
        "language_info": {
            "name": "python",
            "version": version,
            "mimetype": "text/x-python",
            "codemirror_mode": {"name": "ipython", "version": 3},
            "pygments_lexer": "ipython3",
            "nbconvert_exporter": "python",
            "file_extension": ".py",
        },
        "banner": f"cellblock {__version__}: Python {version}, every cell under policy."
        " %policy shows which.",
        "debugger": False,
        "supported_features": [],
        "help_links": [
            {"text": "Python Reference", "url": f"https://docs.python.org/{version[:4]}"},
            {"text": "IPython Reference", "url": "https://ipython.org/documentation.html"},
        ],
    }


def is_complete(code: str) -> dict[str, Any]:
    """Return ``is_complete_reply``: what IPython's transformer says, in the host."""
    status, indent = check_complete(code)
    reply: dict[str, Any] = {"status": status}
    if status == "incomplete":
        reply["indent"] = " " * (indent or 0)
    return reply


def history(store: History, content: dict[str, Any]) -> list[Any]:
    """Return the entries that a ``history_request`` asks for."""
    raw = bool(content.get("raw", True))
    count = max(0, _number(content.get("n")) or 0)
    match content.get("hist_access_type"):
        case "tail":
            found = store.tail(count, raw=raw)
        case "range":
            start, stop = _number(content.get("start")) or 0, _number(content.get("stop"))
            found = store.range(_number(content.get("session")) or 0, start, stop, raw=raw)
        case "search":
            pattern = str(content.get("pattern") or "*")[:_LONGEST_PATTERN]
            unique = bool(content.get("unique", False))
            found = store.search(pattern, count, raw=raw, unique=unique)
        case _:
            found = []
    if content.get("output"):
        return [(session, line, (text, None)) for session, line, text in found]
    return found


def _word(code: str, cursor: int, start: int, end: int) -> tuple[int, int]:
    """Return the span claimed, cut to the cursor's own line and to what stands around it."""
    line_start = code.rfind("\n", 0, cursor) + 1
    line_end = code.find("\n", cursor)
    line_end = len(code) if line_end < 0 else line_end
    return min(max(start, line_start), cursor), max(min(end, line_end), cursor)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def completions(reply: wire.Completed, code: str, cursor: int) -> dict[str, Any]:
    """Return ``complete_reply`` from a guest's answer.

    What it replaces is the word at the cursor: a front end that is offered one match puts it in
    unasked, and a guest that named the whole cell would write the user's next one.
    """
    start, end = _word(code, cursor, reply.start, reply.end)
    return {
        "matches": gateway.clean_matches(reply.matches),
        "cursor_start": start,
        "cursor_end": end,
        "metadata": {
            "_jupyter_types_experimental": gateway.clean_match_types(reply.types),
        },
    }


def comm_content(content: dict[str, Any]) -> dict[str, Any]:
    """Return what a comm message may hold, in either direction."""
    data = content.get("data")
    kept: dict[str, Any] = {
        "comm_id": str(content.get("comm_id", ""))[:200],
        "data": data if isinstance(data, dict) else {},
    }
    for key in ("target_name", "target_module"):
        value = content.get(key)
        if isinstance(value, str):
            kept[key] = value[:200]
    return kept
