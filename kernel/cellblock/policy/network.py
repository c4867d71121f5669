"""Hosts in a policy: ``network_access``, ``ops.http.hosts``, hosts of credentials, and URLs.

Each host has one spelling. One that another program could read differently (``127.1``,
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
#: The one name whose addresses are known without a look-up (RFC 6761).
LOCALHOST: Final = "localhost"
#: The addresses of localhost, whatever a resolver says.
LOOPBACK: Final = ("127.0.0.1", "::1")
_EXAMPLE: Final = "Write host:port, as in example.org:443."
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_MAX_PORT: Final = 65_535
_LABEL: Final = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
_NAME: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_MAX_NAME: Final = 253
#: Names that some resolvers read as a number, and so as an address (inet_aton(3)).
_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """An entry of ``network_access``. ``literal`` is the host if it is an address, not a name."""

    host: str
    port: int
    literal: IPAddress | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class AddressError(ValueError):
    """An entry is not a host and port: ``message`` says why, ``remedy`` what to do."""

    def __init__(self, message: str, remedy: str) -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(message)


def parse_address(entry: str) -> Address:
    """Return the host and port of an entry. Raises AddressError."""
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
        # A connection to it goes to this machine (ip(7)).
        remedy = f"For this machine write 127.0.0.1:{port}."
        raise AddressError("not an address of one host", remedy)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        raise AddressError("an IPv4 address in disguise", f"Write {address.ipv4_mapped}:{port}.")
    return address


# --- credentials.NAME.hosts: entries as in network_access -----------------------------------------

#: The scheme, canonical host and port of a URL of ``ops.http``.
Origin = tuple[str, str, int]


def origins_of(entry: str) -> tuple[Origin, ...]:
    """Return the origins that are sent a key, from an entry of a credential's hosts.

    That is by https only, so that a key does not cross a network in the clear; to this machine, if
    the entry names it, also by http. Raises AddressError.
    """
    address = parse_address(entry)
    host = f"[{address.host}]" if ":" in address.host else address.host
    schemes = ("https", "http") if is_loopback(address.host) else ("https",)
    return tuple((scheme, host, address.port) for scheme in schemes)


# --- ops.http.hosts -------------------------------------------------------------------------------
#
#     entry  = [ scheme "://" ] who [ ":" port ]
#     scheme = "http" | "https"                       by default https
#     who    = "*" | [ "*." ] name | ipv4 | "[" ipv6 "]"
#     port   = 1 .. 65535                             by default the scheme's
#
# A name has letters, digits, "-" and "_"; one of another script is written in its ASCII form
# (xn--…). A host that ends in a number is an address, which must be spelled as in RFC 3986.

PORTS: Final = {"http": 80, "https": 443}
_ENTRY: Final = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<who>\[[^\]]*\]|[^:/]*)(?::(?P<port>[0-9]{1,5}))?"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """The hosts that an entry admits: the canonical ``host``, or all ``beneath`` it.

    With ``beneath``, an empty ``host`` admits every host.
    """

    scheme: str
    host: str
    port: int
    beneath: bool = False

    def admits(self, scheme: str, host: str, port: int) -> bool:
        """Return whether the entry admits a canonical host with this scheme and port."""
        if (scheme, port) != (self.scheme, self.port):
            return False
        if not self.beneath:
            return host == self.host
        if not self.host:
            return True
        return host.endswith(f".{self.host}")


def parse_host(entry: str) -> Entry:
    """Return an entry of ``ops.http.hosts``. Raises ValueError, whose text says what is wrong."""
    match = _ENTRY.fullmatch(entry)
    if match is None:
        raise ValueError("not a host")
    scheme = match["scheme"] or "https"
    host_text = match["who"]
    port = int(match["port"] or PORTS[scheme])
    if not 0 < port <= _MAX_PORT:
        raise ValueError("no such port")
    if host_text == "*":
        return Entry(scheme, "", port, beneath=True)
    beneath = host_text.startswith("*.")
    host = canonical_host(host_text.removeprefix("*."))
    if beneath and is_address(host):
        raise ValueError("nothing is beneath an address")
    return Entry(scheme, host, port, beneath)


def canonical_host(host: str) -> str:
    """Return a host in its canonical form, for comparisons. Raises ValueError."""
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
    """Return whether a canonical host is an address, not a name."""
    return host.startswith("[") or host.rpartition(".")[2].isdecimal()


# --- URLs of language models and package indexes --------------------------------------------------


def split_url(text: str) -> SplitResult | None:
    """Return the parts of a URL of http or https; None for any other text."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    fits = url.scheme in ("http", "https") and url.hostname and text.isascii()
    return url if fits and text.isprintable() and " " not in text else None


def may_hold_secret(url: SplitResult) -> bool:
    """Return whether a URL has parts that may be a secret: a user, a password, a query."""
    return "@" in url.netloc or bool(url.query or url.fragment)


def loopback_ports(network_access: bool | tuple[str, ...]) -> frozenset[int]:
    """Return the ports of the entries for localhost, 127.0.0.1 and ::1."""
    if isinstance(network_access, bool):
        return frozenset()
    listed = map(parse_address, network_access)
    return frozenset(each.port for each in listed if each.host in (LOCALHOST, *LOOPBACK))


def is_loopback(host: str) -> bool:
    """Return whether a host is localhost or an address of the loopback; nothing is looked up."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
