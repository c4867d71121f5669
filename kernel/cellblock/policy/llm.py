"""What has to hold of ``[llm]``: an address, models, and a key that is told to nobody else."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from cellblock.policy import urls

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cellblock.policy.model import Policy

_LONGEST: Final = 200
_VARIABLE: Final = re.compile(r"[^\W\d]\w*|")
_KEYRING: Final = re.compile(r"[^:\s][^:]*:[^:]+")


class Wrong(NamedTuple):
    """One thing that is wrong with a key of the section."""

    key: str
    message: str
    value: object
    remedy: str


def wrongs(policy: Policy, *, here: bool = True) -> Iterator[Wrong]:
    """Yield what is wrong, if cells are to have ``llm``; ``here`` on this machine."""
    if policy.llm.granted:
        yield from _address(policy)
        yield from _models(policy)
        yield from _key(policy)
        if here and importlib.util.find_spec("openai") is None:
            remedy = "Install it: pip install 'cellblock[llm]'."
            yield Wrong("base_url", "openai is not installed", policy.llm.base_url, remedy)
        if "llm" in map(_function, policy.tools):
            yield Wrong("base_url", "a tool is named llm", policy.llm.base_url, "Rename the tool.")


def _function(entry: str) -> str:
    return entry.rpartition(":")[2].rpartition(".")[2]


def _address(policy: Policy) -> Iterator[Wrong]:
    llm = policy.llm
    url = urls.split(llm.base_url)
    if url is None:
        remedy = "Write it as in https://api.openai.com/v1."
        yield Wrong("base_url", "not an endpoint's address", llm.base_url, remedy)
    elif urls.says_more(url):
        remedy = "Give the key by key_env or keyring, and nothing behind the path."
        yield Wrong("base_url", "it may be shown, so it holds no secret", "•••", remedy)
    elif (
        url.scheme == "http"
        and (llm.key_env or llm.keyring)
        and not urls.is_here(url.hostname or "")
    ):
        remedy = "Write https, or leave out the key."
        yield Wrong(
            "base_url", "the key would cross the network in the clear", url.geturl(), remedy
        )


def _models(policy: Policy) -> Iterator[Wrong]:
    if not policy.llm.models:
        yield Wrong("models", "none is named", [], "Name one at least, the default first.")
    for name in policy.llm.models:
        if not name.isprintable() or not 0 < len(name) <= _LONGEST:
            yield Wrong("models", "not the name of a model", name, "Name it as the endpoint does.")


def _key(policy: Policy) -> Iterator[Wrong]:
    llm = policy.llm
    if llm.key_env in policy.env_var_access and llm.key_env:
        remedy = "Take it out of env_var_access."
        yield Wrong("key_env", "cells would be given the key", llm.key_env, remedy)
    if not _VARIABLE.fullmatch(llm.key_env):
        # It may be the key itself.
        remedy = "Give its name as in `env`, without $; the key itself stands nowhere in a policy."
        yield Wrong("key_env", "not the name of a variable", "•••", remedy)
    if llm.keyring and llm.key_env:
        yield Wrong("keyring", "the key is in key_env already", llm.keyring, "Give one of the two.")
    if llm.keyring and not _KEYRING.fullmatch(llm.keyring):
        yield Wrong("keyring", "not a place in a keyring", llm.keyring, "Write service:user.")
