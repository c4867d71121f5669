"""Which addresses may be connected to: by kind of address, and by a policy's entries.

Pure: the caller looks names up. What a name leads to is judged as well (DNS rebinding): a listed
name reaches only addresses that it was found at here and that are public. An address that is not
public has to be listed itself.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

from cellblock.policy.network import LOCALHOST, IPAddress, parse_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network


# Which addresses are public, and of one host each. An allowlist (IANA's special-purpose registries,
# RFC 6890), since the standard library's idea of it changed between versions of Python. An IPv4
# address within an IPv6 one is judged as IPv4 (RFC 4291, RFC 6052). Addresses that tunnels carry
# (6to4, Teredo) are not public.


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
_EMBEDDING_IPV4: Final = _networks("::ffff:0:0/96", "64:ff9b::/96")


def is_public(address: IPAddress) -> bool:
    """Whether an address is on the Internet, and of one host."""
    address = _unwrapped(address)
    if _is_in(address, (*METADATA, *PRIVATE, *_SPECIAL)):
        return False
    return address.is_global and _is_in(address, _PUBLIC)


def refusal(addresses: Iterable[str], *, private: bool) -> str:
    """Return why a host with these addresses may not be asked; empty if it may be.

    One address that may not be asked is enough. ``private``: the policy allows private ones.
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
    """Return the IPv4 address that an IPv6 one holds; any other as it is."""
    if _is_in(address, _EMBEDDING_IPV4):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _is_in(address: IPAddress, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


#: The addresses of ``localhost``, whatever a resolver says.
LOOPBACK: Final = ("127.0.0.1", "::1")
#: Addresses of one name that count, the latest ones: a large service has others in each answer.
MAX_ADDRESSES: Final = 64


class Allowlist:
    """The entries of one policy, and where their names are. Raises ``network.AddressError``."""

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
                here = map(ipaddress.ip_address, LOOPBACK)
                self._listed.update((one, address.port) for one in here)

    def knows(self, name: str) -> bool:
        """Whether a name is listed, with any port; only such names are looked up."""
        return name in self._ports

    def found(self, name: str, addresses: Iterable[str]) -> tuple[list[str], str]:
        """Record where a listed name is.

        Return the addresses that may be reached by it, and one that may not, or "".
        """
        good, bad = list[str](), ""
        known = self._found.setdefault(name, {})
        for text in addresses:
            address = read(text)
            if address is None:
                continue
            listed = any((address, port) in self._listed for port in self._ports[name])
            if listed or is_public(address):
                known.pop(address, None)
                known[address] = None
                good.append(str(address))
            else:
                bad = str(address)
        while len(known) > MAX_ADDRESSES:
            del known[next(iter(known))]
        return good, bad

    def reaches(self, address: IPAddress, port: int) -> bool:
        """Whether this address and port may be connected to."""
        if (address, port) in self._listed:
            return True
        return is_public(address) and bool(self.names(address, port))

    def names(self, address: IPAddress, port: int) -> list[str]:
        """Return the names listed with this port that were found at an address."""
        return [
            name
            for name, ports in self._ports.items()
            if port in ports and address in self._found.get(name, ())
        ]


def read(text: str) -> IPAddress | None:
    """Return the address in a text, None if there is none; an IPv4-mapped IPv6 one as IPv4."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped
