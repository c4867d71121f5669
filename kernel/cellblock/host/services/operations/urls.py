"""URLs for ``ops.http``: a strict parser, and the policy's rules for requests.

The parts that are judged are the bytes that are sent. A URL that two parsers could read differently
is refused: white space, control characters, letters that are not ASCII, backslashes, user names,
and hosts that are not in canonical form.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from cellblock.host.services.operations.catalog import not_granted
from cellblock.host.services.operations.grants import OperationError
from cellblock.policy import network

if TYPE_CHECKING:
    from cellblock.policy.operations import Http


_LONGEST_URL: Final = 8_192
_MAX_PORT: Final = 65_535
_URL: Final = re.compile(
    r"(?P<scheme>https?)://(?P<host>\[[^\]/?#@]*\]|[^\[\]/?#:@]*)(?::(?P<port>[0-9]{0,5}))?"
    r"(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?:#.*)?",
    re.IGNORECASE,
)
#: The characters of a URL: visible ASCII without those that parsers disagree about.
_PLAIN: Final = re.compile(r"[!#-;=?-\[\]_a-z~]*", re.IGNORECASE | re.ASCII)
_ESCAPES: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
#: Layers of escapes that are undone to find how a server may read a path. More are refused.
_MOST_DECODINGS: Final = 4
_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL; ``host`` is canonical."""

    scheme: str
    host: str
    port: int
    path: str
    query: str | None

    @property
    def target(self) -> str:
        """The path and query, as they are sent."""
        return self.path if self.query is None else f"{self.path}?{self.query}"

    @property
    def authority(self) -> str:
        """The host, with the port where it is not the scheme's own."""
        own = self.port == network.PORTS[self.scheme]
        return self.host if own else f"{self.host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """The scheme, host and port."""
        return self.scheme, self.host, self.port

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> Url:
    """Return the parts of a URL. Raises OperationError."""
    match = _URL.fullmatch(text) if len(text) <= _LONGEST_URL else None
    if match is None or not _PLAIN.fullmatch(text) or _ESCAPES.search(text.encode()):
        message = f"{text[:100]!r} is not a plain address of http or https"
        raise OperationError("ValueError", f"{message}: escape what is not ASCII, name no user")
    scheme = match["scheme"].lower()
    port = int(match["port"] or network.PORTS[scheme])
    try:
        host = network.canonical_host(match["host"])
    except ValueError as exc:
        raise OperationError("ValueError", f"{match['host'][:100]!r}: {exc}") from None
    if not 0 < port <= _MAX_PORT:
        raise OperationError("ValueError", f"{port}: no such port")
    return Url(scheme, host, port, match["path"] or "/", match["query"])


class HttpRules:
    """The requests that a policy grants."""

    def __init__(self, table: Http) -> None:
        self._entries = [network.parse_host(entry) for entry in table.hosts]
        self._methods, self._paths = table.methods, table.paths
        self._private = table.allow_private

    def check(self, method: str, url: Url) -> bool:
        """Check a request, and return whether its host may have a private address.

        Raises OperationError if the policy does not grant the request.
        """
        if method not in self._methods:
            message = f"{method[:20]!r} is not one of its methods: {', '.join(self._methods)}"
            raise not_granted(f"{message} ([ops.http] methods)")
        entries = [entry for entry in self._entries if entry.admits(*url.origin)]
        if not entries:
            origin = f"{url.scheme}://{url.authority}"
            raise not_granted(f"{origin} is not one of its hosts ([ops.http] hosts)")
        self._check_path(url.path)
        return self._private and any(not entry.beneath for entry in entries)

    def _check_path(self, path: str) -> None:
        if "/" in self._paths:
            return
        if not _is_plain(path):
            message = f"{path[:100]!r} can be read in more than one way"
            rule = "with [ops.http] paths, UTF-8, no escaped /, no .. and no //"
            raise not_granted(f"{message}: {rule}")
        for entry in self._paths:
            if path == entry or (entry.endswith("/") and path.startswith(entry)):
                return
        raise not_granted(f"{path[:100]!r} is not beneath one of its paths ([ops.http] paths)")


def _is_plain(path: str) -> bool:
    """Return whether every server must read this path as the same place."""
    decoded = path
    try:
        for _ in range(_MOST_DECODINGS):
            before, decoded = decoded, _read_once(decoded)
            if decoded == before:
                break
        else:
            return False
    except UnicodeDecodeError:  # an overlong form of a dot, say, which some servers accept
        return False
    segments = decoded.split("/")
    if len(segments) != path.count("/") + 1 or "\\" in decoded or _CONTROLS.search(decoded):
        return False
    # Some servers cut parameters off, and so read ``..;x`` as ``..``.
    names = [segment.partition(";")[0] for segment in segments]
    return "" not in segments[1:-1] and "." not in names and ".." not in names


def _read_once(path: str) -> str:
    """Return a path with one layer of escapes undone, and compatible letters replaced (NFKC).

    Raises UnicodeDecodeError.
    """
    return unicodedata.normalize("NFKC", unquote_to_bytes(path).decode())
