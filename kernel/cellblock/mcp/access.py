"""Which HTTP requests are let in, by bearer token and by the server's names. Pure.

Only the token identifies a client. The names keep out web pages: the name of a page's own server
can be made to lead to this one (DNS rebinding), and then the browser would send requests here, with
a token that it knows, on behalf of the page.

``Host`` and ``Origin`` are matched as a whole. Nothing here splits an address and looks at a part
of it: ``127.0.0.1:8000@evil.example`` is not a host with a port, so it is refused.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
#: A name, an IPv4 address, or an IPv6 address in brackets; then a port or none.
_HOST: Final = re.compile(
    r"(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?",
    re.ASCII | re.IGNORECASE,
)
_ORIGIN: Final = re.compile(r"https?://(?P<host>[^/?#]+)", re.ASCII)
_ANY_PORT: Final = ":*"


class Refusal(NamedTuple):
    """The HTTP status and the text of the response to a refused request."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class Access:
    """The conditions for letting a request in.

    ``token`` is the bearer token. ``names`` are the names of this server: each is a host with a
    port, with ``:*`` for any port, or without a port.
    """

    token: str
    names: tuple[str, ...]

    def refusal(
        self, authorization: Sequence[str], hosts: Sequence[str], origins: Sequence[str]
    ) -> Refusal | None:
        """Return why a request with these headers is refused, or None if it is let in.

        Each argument has all values of a header, since a header that is repeated is refused.
        """
        if not self._has_token(authorization):
            return Refusal(
                401,
                "A bearer token is needed: the one that `cellblock mcp` printed or was given.",
            )
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return Refusal(
                421, "This server has another name. --allow-host NAME:PORT adds the one you use."
            )
        # Programs send no Origin. A page served by this server would send this server's name.
        if len(origins) > 1 or not all(map(self._is_our_origin, origins)):
            return Refusal(403, "Pages of other origins are refused.")
        return None

    def _has_token(self, authorizations: Sequence[str]) -> bool:
        expected = f"Bearer {self.token}".encode()
        # In constant time: the time of the comparison must not tell how much of a guess is right.
        return len(authorizations) == 1 and hmac.compare_digest(
            authorizations[0].encode("utf-8", "replace"), expected
        )

    def _is_our_origin(self, origin: str) -> bool:
        match = _ORIGIN.fullmatch(origin)
        return match is not None and self._is_ours(match["host"])

    def _is_ours(self, host: str) -> bool:
        """Return whether a host, with its port if it has one, is one of this server's names."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        lowered = host.lower()
        return any(
            lowered == name or (name.endswith(_ANY_PORT) and match["name"].lower() == name[:-2])
            for name in map(str.lower, self.names)
        )
