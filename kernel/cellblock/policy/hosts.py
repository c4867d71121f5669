"""Who ``ops.http`` may ask, as a policy spells it and as an address names it.

Grammar of an entry::

    entry  = [ scheme "://" ] who [ ":" port ]
    scheme = "http" | "https"                       https where it is left out
    who    = "*" | [ "*." ] name | ipv4 | "[" ipv6 "]"
    port   = 1 .. 65535                             the scheme's own where it is left out

A name has letters, digits, ``-`` and ``_``: one of another script is written in its ASCII form
(``xn--…``). What ends in a number is an address, in the one spelling that RFC 3986 knows for it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

PORTS: Final = {"http": 80, "https": 443}
_ENTRY: Final = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<who>\[[^\]]*\]|[^:/]*)(?::(?P<port>[0-9]{1,5}))?"
)
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)", re.ASCII)
#: What some resolvers take for a number, and with it for an address (inet_aton(3)).
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII)
_LONGEST: Final = 253
_MAX_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Entry:
    """Whom an entry admits. ``host`` is canonical; empty with ``beneath`` for anybody."""

    scheme: str
    host: str
    port: int
    beneath: bool = False

    def admits(self, scheme: str, host: str, port: int) -> bool:
        """Say whether a canonical host may be asked in this way."""
        if (scheme, port) != (self.scheme, self.port):
            return False
        if not self.beneath:
            return host == self.host
        if not self.host:
            return True
        return host.endswith(f".{self.host}")


def parse_host(entry: str) -> Entry:
    """Return what an entry of a policy means. Raises ValueError that says what is wrong."""
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise ValueError("not a host")
    scheme = found["scheme"] or "https"
    who, port = found["who"], int(found["port"] or PORTS[scheme])
    if not 0 < port <= _MAX_PORT:
        raise ValueError("no such port")
    if who == "*":
        return Entry(scheme, "", port, beneath=True)
    beneath = who.startswith("*.")
    host = canonical(who.removeprefix("*."))
    if beneath and is_address(host):
        raise ValueError("nothing is beneath an address")
    return Entry(scheme, host, port, beneath)


def canonical(host: str) -> str:
    """Return a host in the one spelling that is compared. Raises ValueError."""
    if host.startswith("[") and host.endswith("]"):
        address = ipaddress.IPv6Address(host[1:-1])
        if address.scope_id is not None:
            raise ValueError("an address with a zone is this machine's own affair")
        return f"[{address.compressed}]"
    if not host.isascii():
        raise ValueError("write it in its ASCII form, xn--…")
    name = host.lower()
    labels = name.split(".")
    if len(name) > _LONGEST or not all(map(_LABEL.fullmatch, labels)):
        raise ValueError("not the name of a host")
    if _NUMBER.fullmatch(labels[-1]):
        return str(ipaddress.IPv4Address(name))
    return name


def is_address(host: str) -> bool:
    """Say whether a canonical host is an address and no name."""
    return host.startswith("[") or host.rpartition(".")[2].isdecimal()
