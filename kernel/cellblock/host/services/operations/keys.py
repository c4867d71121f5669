"""A policy's credentials at requests of ``ops.http``: which request carries which, and its header.

A credential belongs to origins: scheme, host and port, all three as they were judged for this very
request. So a redirect to any other carries none, whatever the request before it carried. Names of
cells, spellings of hosts and headers that a cell sets decide nothing.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cellblock.host.services import secret_values
from cellblock.host.services.operations.catalog import not_granted
from cellblock.host.services.operations.grants import OperationError
from cellblock.policy import headers, network

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cellblock.host.services.operations.urls import Url
    from cellblock.policy.credentials import Credential


#: Characters of the shortest key that is replaced in answers. A cell that sees a guess replaced
#: knows that it is right, and one answer has room for millions of guesses at a short key.
LEAST_REPLACED: Final = 16


class Key(NamedTuple):
    """A credential whose value was read, at one request."""

    name: str
    header: str
    prefix: str
    value: str

    @property
    def field(self) -> tuple[str, str]:
        """The header's name in small letters, and what is sent in it."""
        return self.header.lower(), f"{self.prefix}{self.value}"


class Keys:
    """The credentials of a policy, by who is sent them."""

    def __init__(self, credentials: Mapping[str, Credential]) -> None:
        self._by_origin: dict[network.Origin, list[tuple[str, Credential]]] = {}
        for name, one in credentials.items():
            for entry in one.hosts:
                for origin in network.origins_of(entry):
                    self._by_origin.setdefault(origin, []).append((name, one))

    def named_at(self, url: Url, sent: Iterable[str]) -> list[tuple[str, Credential]]:
        """Return the credentials of a request that sends the headers ``sent`` of a cell's.

        Reads no key. Raises OperationError for a header that a key is in.
        """
        own = self._by_origin.get(url.origin, ())
        names = {headers.compared(name): name for name in sent}
        for name, one in own:
            if (theirs := names.get(headers.compared(one.header))) is not None:
                message = f"the host sets {theirs!r} for {url.authority}: the key {name} is in it"
                raise not_granted(f"{message} (credentials). Leave it out of headers")
        return list(own)

    def at(self, url: Url, sent: Iterable[str]) -> tuple[Key, ...]:
        """Return the keys that a request carries.

        Raises OperationError as ``named_at``, and for a key that can't be had.
        """
        return tuple(_read(name, one, url) for name, one in self.named_at(url, sent))


def _read(name: str, one: Credential, url: Url) -> Key:
    try:
        value = secret_values.read_secret(one.value)
    except secret_values.NoSecretError as exc:
        message = f"{url.authority} takes the key {name}: {exc.message}. {exc.remedy}"
        raise OperationError("NoKey", message) from None
    return Key(name, one.header, one.prefix, value)


def check_way(url: Url, keys: Sequence[Key], addresses: Sequence[str]) -> None:
    """Raise OperationError if keys would leave this machine without TLS.

    A name of this machine's own may have been given another address.
    """
    if keys and url.scheme == "http" and not all(map(_is_loopback, addresses)):
        message = f"{url.host} is not this machine, and the key {keys[0].name} goes by TLS alone"
        raise not_granted(f"{message} (credentials)")


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


# --- answers that hold a key --------------------------------------------------------------------


def without_keys(content: Any, keys: Iterable[Key]) -> Any:
    """Return text or bytes of an answer with ``[credential NAME]`` for each key in it.

    That keeps keys from notebooks that show what a server echoes. It holds up nobody who means to
    have one: a server that is sent a key can pass it on in any other form.
    """
    for key in sorted(keys, key=lambda key: -len(key.value)):  # one key may begin another
        if len(key.value) >= LEAST_REPLACED:
            old, new = key.value, f"[credential {key.name}]"
            if isinstance(content, bytes):
                content = content.replace(old.encode(), new.encode())
            else:
                content = content.replace(old, new)
    return content
