"""The keys of requests by ``ops.http``: which request carries which of the policy's credentials.

A credential belongs to origins: scheme, host and port, as they were judged for this very request.
So the request after a redirect carries the credentials of its own origin, whatever the one before
carried. Nothing that a cell writes, such as another spelling of a host or a header, adds a key.
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


#: Characters of the shortest key that is replaced in answers. If a server echoes a cell's guess and
#: it comes back replaced, the guess was right. One answer has room for millions of guesses, which
#: is enough for a short key.
LEAST_REPLACED: Final = 16


class Key(NamedTuple):
    """A credential with its value, as it was read for one request."""

    name: str
    header: str
    prefix: str
    value: str

    @property
    def field(self) -> tuple[str, str]:
        """The header's name in lower case, and its value."""
        return self.header.lower(), f"{self.prefix}{self.value}"


class Keys:
    """The credentials of a policy, by the origins that they are sent to."""

    def __init__(self, credentials: Mapping[str, Credential]) -> None:
        self._by_origin: dict[network.Origin, list[tuple[str, Credential]]] = {}
        for name, credential in credentials.items():
            for entry in credential.hosts:
                for origin in network.origins_of(entry):
                    self._by_origin.setdefault(origin, []).append((name, credential))

    def named_at(self, url: Url, header_names: Iterable[str]) -> list[tuple[str, Credential]]:
        """Return the credentials that a request to ``url`` carries, with their names. Reads no key.

        ``header_names`` are the names of the headers that the cell set. Raises OperationError if
        one of them is the header of a credential.
        """
        own = self._by_origin.get(url.origin, ())
        names = {headers.compared(name): name for name in header_names}
        for name, credential in own:
            if (header := names.get(headers.compared(credential.header))) is not None:
                message = f"the host sets {header!r} for {url.authority}: the key {name} is in it"
                raise not_granted(f"{message} (credentials). Leave it out of headers")
        return list(own)

    def at(self, url: Url, header_names: Iterable[str]) -> tuple[Key, ...]:
        """Return the keys that a request carries.

        Raises OperationError as ``named_at`` does, and for a key that can't be read.
        """
        return tuple(
            _read_key(name, credential, url)
            for name, credential in self.named_at(url, header_names)
        )


def _read_key(name: str, credential: Credential, url: Url) -> Key:
    try:
        value = secret_values.read_secret(credential.value)
    except secret_values.NoSecretError as exc:
        message = f"{url.authority} takes the key {name}: {exc.message}. {exc.remedy}"
        raise OperationError("NoKey", message) from None
    return Key(name, credential.header, credential.prefix, value)


def check_way(url: Url, keys: Sequence[Key], addresses: Sequence[str]) -> None:
    """Raise OperationError if a key would leave this machine without TLS.

    A credential may be sent by plain HTTP to this machine only, and a name that is meant for it,
    such as localhost, may have another address.
    """
    if keys and url.scheme == "http" and not all(map(_is_loopback, addresses)):
        message = f"{url.host} is not this machine, and the key {keys[0].name} goes by TLS alone"
        raise not_granted(f"{message} (credentials)")


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


# --- keys in answers ----------------------------------------------------------------------------


def without_keys(content: Any, keys: Iterable[Key]) -> Any:
    """Return text or bytes of an answer with ``[credential NAME]`` in place of each key.

    That keeps keys out of notebooks that show a server's echo. It doesn't stop an attack: a server
    that is sent a key can pass it on in any other form.
    """
    for key in sorted(keys, key=lambda key: -len(key.value)):  # one key may begin another
        if len(key.value) >= LEAST_REPLACED:
            old = key.value
            new = f"[credential {key.name}]"
            if isinstance(content, bytes):
                content = content.replace(old.encode(), new.encode())
            else:
                content = content.replace(old, new)
    return content
