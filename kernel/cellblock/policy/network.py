"""Hosts that a policy names: ``network_access``, ``ops.http.hosts``, keys' hosts, and whole URLs.

Each has one spelling. What another reader could take for something else (``127.1``,
``[::ffff:10.0.0.1]``) is refused, so that an entry means here what it means to its reviewer.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

# --- network_access ------------------------------------------------------------------------------
#
#     entry = host ":" port
#     host  = name | IPv4 address | "[" IPv6 address "]"
#     name  = labels of a-z, 0-9, "-" and "_", with dots between them
#
# There are no wildcards, ranges or schemes.

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
#: The one name whose addresses are known without asking (RFC 6761).
LOCALHOST: Final = "localhost"
#: Its addresses, whatever a resolver says.
LOOPBACK: Final = ("127.0.0.1", "::1")
_EXAMPLE: Final = "Write host:port, as in example.org:443."
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_MAX_PORT: Final = 65_535
_LABEL: Final = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_MAX_NAME: Final = 253
#: What some resolvers take for a number, and with it for an address (inet_aton(3)).
_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """One entry. ``literal`` is the host where that is an address and no name."""

    host: str
    port: int
    literal: IPAddress | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class AddressError(ValueError):
    """Text that is not an address: what is wrong with it, and what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        self.message, self.remedy = message, remedy
        super().__init__(message)


def parse_address(entry: str) -> Address:
    """Return what ``entry`` names. Raises AddressError."""
    if "*" in entry:
        remedy = "List each host: others may run hosts that it would let in."
        raise AddressError("a wildcard", remedy)
    if "/" in entry:
        remedy = "Write host:port, without a scheme, a path or a range: example.org:443."
        raise AddressError("not a host and port", remedy)
    text, _, port = entry.rpartition(":")
    if not text or not _PORT.fullmatch(port) or int(port) > _MAX_PORT:
        raise AddressError("not a host and port", _EXAMPLE)
    host, in_brackets = text.lower(), text[0] + text[-1] == "[]" and ":" in text
    if ":" in text and not in_brackets:
        remedy = "Write an IPv6 address in brackets: [2001:db8::1]:443."
        raise AddressError("not a host and port", remedy)
    if in_brackets or _NUMBER.fullmatch(host):
        literal = _literal(host.strip("[]"), port)
        return Address(str(literal), int(port), literal)
    if not host.isascii():
        raise AddressError("not a name as DNS has it", _in_ascii(host, port))
    if len(host) > _MAX_NAME or not _NAME.fullmatch(host):
        raise AddressError("not a host and port", _EXAMPLE)
    return Address(host, int(port), None)


def _in_ascii(host: str, port: str) -> str:
    try:
        return f"Write {host.encode('idna').decode()}:{port}."
    except UnicodeError:
        return _EXAMPLE


def _literal(text: str, port: str) -> IPAddress:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        remedy = "Write all of it: 127.0.0.1:443, [2001:db8::1]:443."
        raise AddressError("not an address", remedy) from None
    if "%" in text or address.is_multicast or str(address) == "255.255.255.255":
        raise AddressError("not an address of one host", "Give one host's address.")
    if address.is_unspecified:
        # To connect there is to connect to this machine (ip(7)).
        remedy = f"For this machine write 127.0.0.1:{port}."
        raise AddressError("not an address of one host", remedy)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise AddressError("an IPv4 address in disguise", f"Write {address.ipv4_mapped}:{port}.")
    return address


# --- credentials.NAME.hosts: entries as in network_access -----------------------------------------

#: A scheme, a canonical host and a port, as a URL of ``ops.http`` has them.
Origin = tuple[str, str, int]


def origins_of(entry: str) -> tuple[Origin, ...]:
    """Return how the host that an entry names may be asked with a key. Raises AddressError.

    A key crosses no network in the clear. To this machine, by its very name, it goes without TLS.
    """
    address = parse_address(entry)
    host = f"[{address.host}]" if ":" in address.host else address.host
    schemes = ("https", "http") if is_loopback(address.host) else ("https",)
    return tuple((scheme, host, address.port) for scheme in schemes)


# --- ops.http.hosts -------------------------------------------------------------------------------
#
#     entry  = [ scheme "://" ] who [ ":" port ]
#     scheme = "http" | "https"                       https where it is left out
#     who    = "*" | [ "*." ] name | ipv4 | "[" ipv6 "]"
#     port   = 1 .. 65535                             the scheme's own where it is left out
#
# A name has letters, digits, "-" and "_": one of another script is written in its ASCII form
# (xn--…). What ends in a number is an address, in the one spelling that RFC 3986 knows for it.

PORTS: Final = {"http": 80, "https": 443}
_ENTRY: Final = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<who>\[[^\]]*\]|[^:/]*)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """The hosts that an entry admits: ``host``, canonical, or all ``beneath`` it.

    An empty ``host`` with ``beneath`` stands for every host.
    """

    scheme: str
    host: str
    port: int
    beneath: bool = False

    def admits(self, scheme: str, host: str, port: int) -> bool:
        """Whether a canonical host may be asked in this way."""
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
    host = canonical_host(who.removeprefix("*."))
    if beneath and is_address(host):
        raise ValueError("nothing is beneath an address")
    return Entry(scheme, host, port, beneath)


def canonical_host(host: str) -> str:
    """Return a host in the one spelling that is compared. Raises ValueError."""
    if host.startswith("[") and host.endswith("]"):
        address = ipaddress.IPv6Address(host[1:-1])
        if address.scope_id is not None:
            raise ValueError("an address with a zone is this machine's own affair")
        return f"[{address.compressed}]"
    if not host.isascii():
        raise ValueError("write it in its ASCII form, xn--…")
    name = host.lower()
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise ValueError("not the name of a host")
    return str(ipaddress.IPv4Address(name)) if _NUMBER.fullmatch(name) else name


def is_address(host: str) -> bool:
    """Whether a canonical host is an address, not a name."""
    return host.startswith("[") or host.rpartition(".")[2].isdecimal()


# --- URLs of language models and package indexes --------------------------------------------------


def split_url(text: str) -> SplitResult | None:
    """Return a URL in its parts, or None if it is not one of http or https."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    fits = url.scheme in ("http", "https") and url.hostname and text.isascii()
    return url if fits and text.isprintable() and " " not in text else None


def may_hold_secret(url: SplitResult) -> bool:
    """Whether a URL says more than where something is: a user, a password, a query."""
    return "@" in url.netloc or bool(url.query or url.fragment)


def loopback_ports(network_access: bool | tuple[str, ...]) -> frozenset[int]:
    """Return the ports of a list's entries that are this machine at 127.0.0.1 or ::1."""
    if isinstance(network_access, bool):
        return frozenset()
    listed = map(parse_address, network_access)
    return frozenset(each.port for each in listed if each.host in (LOCALHOST, *LOOPBACK))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its very name."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
