"""Which addresses are the Internet's, and of one host each: for operations and for the relay.

Allowlists of what is public (IANA's special-purpose registries, RFC 6890), since the standard
library's idea of that has changed between versions of Python. An IPv4 address within an IPv6 one
is judged as what it is (RFC 4291, RFC 6052); what tunnels carry (6to4, Teredo) is not public.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Network = ipaddress.IPv4Network | ipaddress.IPv6Network


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
