"""Which addresses may be connected to: a policy's entries, and what their names were found at.

Pure: whoever asks looks names up. A name is as good as who answers for it, so what it leads to is
judged, too: an address that is not a public one has to stand in the list itself (DNS rebinding),
and of the others those alone are reached that a listed name was found at here.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from cellblock.policy.network import LOCALHOST, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    from cellblock.policy.network import IPAddress


# Which addresses are the Internet's, and of one host each: for operations and for the relay.
#
# Allowlists of what is public (IANA's special-purpose registries, RFC 6890), since the standard
# library's idea of that has changed between versions of Python. An IPv4 address within an IPv6
# one is judged as what it is (RFC 4291, RFC 6052); what tunnels carry (6to4, Teredo) is not
# public.


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ipaddress.ip_network, texts))


#: Where clouds hand out credentials; some of them look like anybody's addresses.
METADATA: Final = _networks(
    "100.100.100.200/32",  # Alibaba
    "168.63.129.16/32",  # Azure's platform
    "169.254.0.0/16",  # nearly all
    "192.0.0.192/32",  # Oracle
    "fd00:ec2::/32",  # Amazon
    "fd20:ce::/32",  # Google
    "fe80::/10",
)
#: What is a network's own, or this machine's.
PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "::1/128",
    "fc00::/7",
)
#: Never public, whatever the standard library says of them.
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
_HOLDING: Final = _networks("::ffff:0:0/96", "64:ff9b::/96")


def is_public(address: Address) -> bool:
    """Say whether an address is one of the Internet's, and of one host."""
    address = unwrapped(address)
    if is_in(address, (*METADATA, *PRIVATE, *_SPECIAL)):
        return False
    return address.is_global and is_in(address, _PUBLIC)


def unwrapped(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one holds, any other as it is."""
    if is_in(address, _HOLDING):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def is_in(address: Address, networks: Iterable[Network]) -> bool:
    """Say whether an address is in one of these."""
    return any(address in network for network in networks)


#: Where ``localhost`` is, whatever anybody says.
THIS_MACHINE: Final = ("127.0.0.1", "::1")
#: Addresses of one name that count, the latest ones: of a large service each answer has others.
MOST_FOUND: Final = 64


class Allowlist:
    """The entries of one policy, and where their names are. Raises ``addresses.AddressError``."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._ports: dict[str, set[int]] = {}
        self._listed: set[tuple[IPAddress, int]] = set()
        self._found: dict[str, dict[IPAddress, None]] = {}
        for address in map(parse_address, entries):
            if address.literal is not None:
                self._listed.add((address.literal, address.port))
                continue
            self._ports.setdefault(address.host, set()).add(address.port)
            if address.host == LOCALHOST:
                here = map(ipaddress.ip_address, THIS_MACHINE)
                self._listed.update((one, address.port) for one in here)

    def knows(self, name: str) -> bool:
        """Say whether a name is listed, with any port: no other is to be looked up."""
        return name in self._ports

    def found(self, name: str, addresses: Iterable[str]) -> tuple[list[str], str]:
        """Take note where a listed name is; return the addresses that may be reached by it.

        Beside them an address that may not, or "".
        """
        good, bad = list[str](), ""
        known = self._found.setdefault(name, {})
        for text in addresses:
            address = read(text)
            if address is None:
                continue
            if any(self._may(address, port) for port in self._ports[name]):
                known.pop(address, None)
                known[address] = None
                good.append(str(address))
            else:
                bad = str(address)
        while len(known) > MOST_FOUND:
            del known[next(iter(known))]
        return good, bad

    def reaches(self, address: IPAddress, port: int) -> bool:
        """Say whether this very address may be connected to."""
        if (address, port) in self._listed:
            return True
        named = any(address in self._found.get(name, ()) for name in self._named(port))
        return named and is_public(address)

    def names(self, address: IPAddress, port: int) -> list[str]:
        """Return the listed names that were found at an address, for the record."""
        return [name for name in self._named(port) if address in self._found.get(name, ())]

    def _named(self, port: int) -> list[str]:
        return [name for name, ports in self._ports.items() if port in ports]

    def _may(self, address: IPAddress, port: int) -> bool:
        return (address, port) in self._listed or is_public(address)


def read(text: str) -> IPAddress | None:
    """Return the address that a text is, None for any other; IPv4 in IPv6's clothes is IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
