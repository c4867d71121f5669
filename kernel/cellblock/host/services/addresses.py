"""Which addresses the host connects to for cells: by kind of address, and by a policy's entries.

For the relay (``Allowlist``) and for operations (``refusal``). Pure: the caller looks names up, and
must connect to the very addresses that were judged, since a second look-up may answer with others
(DNS rebinding). A listed name reaches only public addresses. An address that is not public must be
listed itself.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from cellblock.policy.network import IPAddress, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.wire.messages import Neighbour

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network


# Which addresses are public and belong to one host (unicast). These tables come from IANA's
# special-purpose registries (RFC 6890), and an address must also be in _PUBLIC, since the standard
# library's idea of a global address changed between versions of Python. An IPv4 address within an
# IPv6 one is judged as IPv4 (RFC 4291, RFC 6052). Addresses of tunnels (6to4, Teredo) are not
# public.


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


#: Addresses at which clouds hand out credentials. Some look like ordinary public ones.
METADATA: Final = _networks(
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure's platform
    "169.254.0.0/16",  # nearly all
    "192.0.0.192/32",  # Oracle
    "fd00:ec2::/32",  # Amazon
    "fd20:ce::/32",  # Google
    "fe80::/10",
)
#: Addresses of private networks, and of this machine.
PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
)
#: Addresses that are never public, whatever the standard library says.
_SPECIAL: Final = _networks(
    "0.0.0.0/8",
    "192.0.0.0/24",
    "192.88.99.0/24",
    "198.18.0.0/15",
    "224.0.0.0/3",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
)
_PUBLIC: Final = _networks("0.0.0.0/0", "2000::/3")
#: IPv4 addresses in the last four bytes: mapped ones, and those behind NAT64 (RFC 6052).
_EMBEDDING_IPV4: Final = _networks("::ffff:0:0/96", "64:ff9b::/96")


def is_public(address: IPAddress) -> bool:
    """Return whether an address is on the Internet, and of one host."""
    address = _unwrapped(address)
    if _is_in(address, (*METADATA, *PRIVATE, *_SPECIAL)):
        return False
    return address.is_global and _is_in(address, _PUBLIC)


def refusal(addresses: Iterable[str], *, private: bool) -> str:
    """Return why a host with these addresses may not be connected to; empty if it may be.

    One address that may not be connected to is enough. ``private``: the policy allows private ones.
    """
    for text in addresses:
        address = _unwrapped(ipaddress.ip_address(text))
        if _is_in(address, METADATA):
            return "it has a link-local address, or one at which a cloud gives out credentials"
        if _is_in(address, PRIVATE):
            if not private:
                return "it has a private or loopback address (allow_private)"
        elif not is_public(address):
            return "it has no public address"
    return ""


def _unwrapped(address: IPAddress) -> IPAddress:
    """Return the IPv4 address that an IPv6 one embeds; any other address unchanged."""
    if _is_in(address, _EMBEDDING_IPV4):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _is_in(address: IPAddress, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


#: The most addresses of one name that are tried.
MAX_ADDRESSES: Final = 64


class Allowlist:
    """The hosts that a policy lists. Raises ``network.AddressError`` for a malformed entry."""

    def __init__(self, entries: Iterable[str]) -> None:
        listed = [parse_address(entry) for entry in entries]
        self._entries = frozenset(map(str, listed))
        self._literals = {(each.literal, each.port) for each in listed if each.literal is not None}

    def has(self, neighbour: Neighbour) -> bool:
        """Return whether the host of a neighbour in the guests' network is listed."""
        address = ipaddress.ip_address(neighbour.address)
        return neighbour.entry in self._entries or (address, neighbour.port) in self._literals

    def reachable(self, addresses: Iterable[str], port: int) -> tuple[list[IPAddress], str]:
        """Return the addresses of a listed name that may be reached, and one that may not.

        The latter is for a message to the user, and empty if there is none.
        """
        good = list[IPAddress]()
        bad = ""
        for text in addresses:
            address = read(text)
            if address is None:
                continue
            if (address, port) in self._literals or is_public(address):
                good.append(address)
            else:
                bad = str(address)
        return good[:MAX_ADDRESSES], bad


def read(text: str) -> IPAddress | None:
    """Return the address that a text is, an IPv4-mapped IPv6 one as IPv4; None if it is not one."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
