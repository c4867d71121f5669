"""The table ``[credentials.NAME]`` of a policy, and the texts that say where a secret is.

Each kernel imports this module with the model, and so does the worker of operations, so it imports
little.
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
    """Return credentials by name, made from a file's values where they are not credentials yet."""
    return {
        name: value if isinstance(value, Credential) else Credential(**frozen(value))
        for name, value in values.items()
    }


# --- where a secret is: "env:" NAME | "file:" PATH ------------------------------------------------


def source_parts(source: str) -> tuple[str, str]:
    """Return the kind of a secret's source, "env" or "file", and its name. Raises ValueError."""
    kind, colon, name = source.partition(":")
    fits = {"env": name.isidentifier(), "file": bool(name) and "\0" not in name}
    if not colon or not fits.get(kind):
        raise ValueError("it does not say where a secret is")
    return kind, name


def named_by(source: str, kind: str) -> str:
    """Return the variable (``kind`` "env") or path ("file") of a source; empty for another kind."""
    try:
        actual, name = source_parts(source)
    except ValueError:
        return ""
    return name if actual == kind else ""


# --- texts about credentials ----------------------------------------------------------------------

_HTTPS: Final = ":443"


def words(credentials: dict[str, Any]) -> str:
    """Return the text of ``%policy`` about credentials, from a policy or its ``as_dict``."""
    texts = [
        f"requests to {hosts_in_words(credential)} carry your key {name} (cells do not see it)"
        for name, credential in credentials_of(**credentials).items()
    ]
    return "; ".join(texts) or "none"


def hosts_in_words(credential: Credential) -> str:
    """Return the hosts that are sent a key, as a text."""
    *others, last = (host.removesuffix(_HTTPS) for host in credential.hosts)
    return f"{', '.join(others)} and {last}" if others else last
