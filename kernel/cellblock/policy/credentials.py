"""A table ``[credentials.NAME]`` of a policy, and the form in which it says where a secret is.

Each kernel imports it with the model, and the worker of operations, so it imports little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from cellblock.policy.vocabulary import Table, frozen


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential(Table):
    """A key that the host adds to requests of ``ops.http``. Cells use it and never see it."""

    hosts: tuple[str, ...] = ()
    """Who is sent the key, as ``host:port``; at least one. Each has to be among
    ``ops.http.hosts``. It is sent over https alone, but to this machine's loopback."""

    header: str = "Authorization"
    """The header of a request that holds the key. Cells can't set it there."""

    prefix: str = ""
    """What stands before the key in that header: ``"Bearer "``, with its space."""

    value: str = ""
    """Where the host reads the key: ``env:NAME``, a variable of its environment, or
    ``file:PATH``, a file that no guest can read."""


def credentials_of(**values: Any) -> dict[str, Credential]:
    """Return credentials of a file's values, or of credentials."""
    return {
        name: one if isinstance(one, Credential) else Credential(**frozen(one))
        for name, one in values.items()
    }


# --- where a secret is: "env:" NAME | "file:" PATH ------------------------------------------------


def source_parts(source: str) -> tuple[str, str]:
    """Return what kind of place a secret is in, and which. Raises ValueError."""
    kind, colon, place = source.partition(":")
    fits = {"env": place.isidentifier(), "file": bool(place) and "\0" not in place}
    if not colon or not fits.get(kind):
        raise ValueError("it says not where a secret is")
    return kind, place


def named_by(source: str, kind: str) -> str:
    """Return the variable (kind ``env``) or path (``file``) that a source names, or nothing."""
    try:
        found, place = source_parts(source)
    except ValueError:
        return ""
    return place if found == kind else ""


# --- what is said of credentials ------------------------------------------------------------------

_HTTPS: Final = ":443"


def words(credentials: dict[str, Any]) -> str:
    """Return what ``%policy`` says of credentials, as a policy or its ``as_dict`` has them."""
    said = [
        f"requests to {hosts_in_words(one)} carry your key {name} (cells do not see it)"
        for name, one in credentials_of(**credentials).items()
    ]
    return "; ".join(said) or "none"


def hosts_in_words(credential: Credential) -> str:
    """Return who is sent a key."""
    *others, last = (host.removesuffix(_HTTPS) for host in credential.hosts)
    return f"{', '.join(others)} and {last}" if others else last
