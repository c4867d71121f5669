"""Which addresses cells may have asked: public ones, and no others unless the policy says so."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from cellblock.host.internet import METADATA, PRIVATE, is_in, is_public, unwrapped

if TYPE_CHECKING:
    from collections.abc import Iterable


def refusal(addresses: Iterable[str], *, private: bool) -> str:
    """Return why a host with these addresses is not asked; nothing if it may be.

    One address that may not be asked is enough. ``private``: the policy allows such for this host.
    """
    for text in addresses:
        if why := _judge(unwrapped(ipaddress.ip_address(text)), private=private):
            return why
    return ""


def _judge(address: ipaddress.IPv4Address | ipaddress.IPv6Address, *, private: bool) -> str:
    if is_in(address, METADATA):
        return "it has a link-local address, or one at which a cloud gives out credentials"
    if is_in(address, PRIVATE):
        return "" if private else "it has a private or loopback address (allow_private)"
    return "" if is_public(address) else "it has no public address"
