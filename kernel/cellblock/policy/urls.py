"""URLs that a policy names: endpoints of language models, package indexes."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def split(text: str) -> SplitResult | None:
    """Return an address in its parts, None if it is none of http or https."""
    try:
        url = urlsplit(text)
        _ = url.port
    except ValueError:
        return None
    fits = url.scheme in ("http", "https") and url.hostname and text.isascii()
    return url if fits and text.isprintable() and " " not in text else None


def says_more(url: SplitResult) -> bool:
    """Say whether there is more in it than where something is: a user, a password, a query."""
    return "@" in url.netloc or bool(url.query or url.fragment)


def is_here(host: str) -> bool:
    """Say whether a host is this machine by its very name."""
    import ipaddress  # noqa: PLC0415 - for few policies

    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
