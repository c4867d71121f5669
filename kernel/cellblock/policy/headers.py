"""Headers of HTTP requests: those that cells may set, and those that may have a credential."""

from __future__ import annotations

import re
from typing import Final

#: Headers that say how a message is read or by whom. Only the host writes them.
HOST_HEADERS: Final = frozenset((
    "accept-encoding", "connection", "content-encoding", "content-length", "expect", "host",
    "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "via",
))  # fmt: skip
#: A cell's headers that are sent on after a redirect to another host. Others may be meant for the
#: first host only.
FORWARDED_HEADERS: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_HYPHENS: Final = re.compile(r"[^a-z0-9]")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")


def is_header(name: str, value: str = "") -> bool:
    """Return whether a header can be sent: neither its name nor its value can begin another one."""
    return bool(_NAME.fullmatch(name) and _VALUE.fullmatch(value))


def compared(header: str) -> str:
    """Return a header's name in a spelling for comparisons.

    Servers that pass headers on as variables (CGI, WSGI) read ``X_Api_Key`` as ``X-Api-Key``, and
    some also ``X.Api.Key``.
    """
    return _HYPHENS.sub("-", header.lower())
