"""The settings of the server over HTTP, and their defaults: the options of ``cellblock mcp``.

They are not part of ``mcp.http``, because the command line shows the defaults, and ``mcp.http``
imports the SDK.
"""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.mcp.access import LOOPBACK, Access


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """The settings of the server over HTTP.

    ``names`` are further names of the server, each a host with a port or ``:*``, that clients may
    send as ``Host``, in addition to ``host`` and the names of the loopback. A session ends if its
    client makes no request for ``idle`` seconds, or if no second request follows its first within
    ``opening`` seconds.
    """

    token: str
    host: str = "127.0.0.1"
    port: int = 8765
    names: tuple[str, ...] = ()
    idle: float = 1_800.0
    opening: float = 60.0
    max_sessions: int = 100

    def access(self) -> Access:
        """Return the conditions for letting a request in."""
        host_in_url = f"[{self.host}]" if ":" in self.host else self.host
        return Access(
            self.token, (*(f"{name}:*" for name in (host_in_url, *LOOPBACK)), *self.names)
        )
