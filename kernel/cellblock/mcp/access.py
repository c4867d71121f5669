"""Which HTTP requests are let in: by bearer token, and by the names that a client uses. Pure.

The token alone says who a client is. The names keep a page of the web, whose own name can be made
to lead here (DNS rebinding), from being a client whose token a browser would send along.

``Host`` and ``Origin`` are matched whole. Nothing here takes an address apart and looks at a piece
of it: ``127.0.0.1:8000@evil.example`` is no host with a port, so it is no name that is let in.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
#: A name or an IPv4 address, or an IPv6 one in brackets; then a port, or none.
_HOST: Final = re.compile(
    r"(?P<name>[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:.]+\])(?::(?P<port>\d{1,5}))?",
    re.ASCII | re.IGNORECASE,
)
_ORIGIN: Final = re.compile(r"https?://(?P<host>[^/?#]+)", re.ASCII)
_ANY_PORT: Final = ":*"


class Refusal(NamedTuple):
    """The status of an answer that lets nobody in, and what it says."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class Access:
    """Who is let in: the token, and names with a port, with ``:*`` for any, or with none."""

    token: str
    names: tuple[str, ...]

    def refusal(
        self, authorization: Sequence[str], hosts: Sequence[str], origins: Sequence[str]
    ) -> Refusal | None:
        """Return why a request with these headers is refused, None if it is let in.

        Each argument has every value that the request gives for one header.
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
        # Programs send none; a page of this server's would send its own name.
        if len(origins) > 1 or not all(map(self._is_our_origin, origins)):
            return Refusal(403, "Pages of other origins are refused.")
        return None

    def _has_token(self, given: Sequence[str]) -> bool:
        wanted = f"Bearer {self.token}".encode()
        return len(given) == 1 and hmac.compare_digest(given[0].encode("utf-8", "replace"), wanted)

    def _is_our_origin(self, origin: str) -> bool:
        found = _ORIGIN.fullmatch(origin)
        return found is not None and self._is_ours(found["host"])

    def _is_ours(self, host: str) -> bool:
        """Return whether this is one of the names, with a port that belongs to it."""
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        lowered = host.lower()
        return any(
            lowered == name or (name.endswith(_ANY_PORT) and found["name"].lower() == name[:-2])
            for name in map(str.lower, self.names)
        )
