"""The settings of the server over HTTP, and their defaults: the options of ``cellblock mcp``.

Apart from the server, which imports the SDK: the command line shows the defaults without it.
"""

from __future__ import annotations

from dataclasses import dataclass

from cellblock.mcp.access import LOOPBACK, Access


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings:
    """Where to listen, and for whom.

    ``names`` are hosts, with a port or ``:*``, that clients may have in ``Host``, besides
    ``host`` itself and the loopback's names; ``idle`` is seconds, and so is ``opening``, in which
    a client has to come back after its first request.
    """

    token: str
    host: str = "127.0.0.1"
    port: int = 8765
    names: tuple[str, ...] = ()
    idle: float = 1_800.0
    opening: float = 60.0
    max_sessions: int = 100

    def access(self) -> Access:
        """Return who is let in."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return Access(self.token, (*(f"{one}:*" for one in (shown, *LOOPBACK)), *self.names))
