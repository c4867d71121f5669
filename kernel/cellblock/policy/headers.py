"""Headers of requests: which cells may set, and which a policy's credentials may be."""

from __future__ import annotations

import re
from typing import Final

#: Headers that say how a message is to be read, or by whom: the host writes them.
HOST_HEADERS: Final = frozenset((
    "accept-encoding", "connection", "content-encoding", "content-length", "expect", "host",
    "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "via",
))  # fmt: skip
#: A cell's headers that go along to another host; others may be meant for the first alone.
FORWARDED_HEADERS: Final = frozenset({"accept", "accept-language", "content-type", "user-agent"})
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
_HYPHENS: Final = re.compile(r"[^a-z0-9]")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")


def is_header(name: str, value: str = "") -> bool:
    """Whether a header can be sent as it is: neither name nor value begins another one."""
    return bool(_NAME.fullmatch(name) and _VALUE.fullmatch(value))


def compared(header: str) -> str:
    """Return a header's name in the spelling that is compared.

    Servers that hand headers on as variables (CGI, WSGI) take ``X_Api_Key`` for ``X-Api-Key``, and
    some ``X.Api.Key``.
    """
    return _HYPHENS.sub("-", header.lower())
