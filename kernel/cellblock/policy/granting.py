"""What a type can't say of the operations that a policy grants, and of ``packages``.

One function per table; each raises the PolicyError for the first thing wrong, or returns.
"""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Final

from cellblock.errors import PolicyError
from cellblock.policy import hosts, installers, requirements, urls
from cellblock.policy.operations import Operations

if TYPE_CHECKING:
    from cellblock.policy.model import Policy
    from cellblock.policy.operations import Http, Install

_METHOD: Final = re.compile(r"[A-Z]{1,20}")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)+")


def check_grants(policy: Policy, *, file: str, here: bool = True) -> None:
    """Raise PolicyError unless what is granted means something, ``here`` on this machine."""
    if here:
        _needed(policy, file)
    section = policy.operations or Operations()
    for name, table in section.with_roots().items():
        if not table.roots:
            raise _wrong(file, f"ops.{name}.roots", "()", "it grants nothing", "Name a folder.")
    if section.http is not None:
        _http(section.http, file)
    if section.install is not None:
        _install(section.install, file)
    _packages(policy.packages, section.install, file)


def _wrong(file: str, key: str, value: str, message: str, remedy: str) -> PolicyError:
    return PolicyError(message, file=file, key=key, value=value, remedy=remedy)


def _needed(policy: Policy, file: str) -> None:
    """Raise PolicyError unless the host has what it takes."""
    section, installed = policy.operations or Operations(), importlib.util.find_spec
    if section.http is not None and installed("httpx") is None:
        remedy = "pip install 'cellblock[http]' where the kernel runs."
        raise _wrong(file, "ops.http", "", "httpx is not installed", remedy)
    if section.install is not None and installers.uv() is None and not installers.has_pip():
        remedy = "Install one of them where the kernel runs."
        raise _wrong(file, "ops.install", "", "neither uv nor pip is there", remedy)


def _http(table: Http, file: str) -> None:
    for field, example in (("hosts", "a host"), ("methods", "GET, say"), ("paths", '"/" for all')):
        if not getattr(table, field):
            raise _wrong(file, f"ops.http.{field}", "()", "it grants nothing", f"Name {example}.")
    for entry in table.hosts:
        try:
            hosts.parse_host(entry)
        except ValueError as exc:
            remedy = "Write host, host:port, *.domain or http://host:port."
            raise _wrong(file, "ops.http.hosts", repr(entry), str(exc), remedy) from None
    for method in table.methods:
        if not _METHOD.fullmatch(method) or method in {"CONNECT", "TRACE"}:
            remedy = "Write it in capitals, as in GET."
            raise _wrong(file, "ops.http.methods", repr(method), "not a method", remedy)
    for path in table.paths:
        if not _PATH.fullmatch(path) or "/." in path or "//" in path:
            remedy = "Write /folder/ for all beneath it, or /the/whole/path, without % and dots."
            raise _wrong(file, "ops.http.paths", repr(path), "not a plain path", remedy)


def _install(table: Install, file: str) -> None:
    url = urls.split(table.index)
    if url is None or urls.says_more(url):
        remedy = "Write https://…/simple; its password goes into ~/.netrc."
        raise _wrong(file, "ops.install.index", repr(table.index), "not an index", remedy)
    if not table.allow:
        raise _wrong(file, "ops.install.allow", "()", "it grants nothing", "Name a package.")
    for entry in table.allow:
        _requirement(entry, "ops.install.allow", file)


def _requirement(entry: str, key: str, file: str) -> str:
    """Return the name of what an entry asks for."""
    try:
        return requirements.canonical(requirements.parse(entry).name)
    except ValueError as exc:
        raise _wrong(file, key, repr(entry), str(exc), "Write name, or name<3.") from None


def _packages(packages: tuple[str, ...], install: Install | None, file: str) -> None:
    if packages and install is None:
        remedy = "Add a table [ops.install] with index and allow; cells = false keeps cells out."
        raise _wrong(file, "packages", repr(list(packages)), "it names no index", remedy)
    allowed = (
        {_requirement(one, "ops.install.allow", file) for one in install.allow} if install else ()
    )
    for entry in packages:
        if _requirement(entry, "packages", file) not in allowed:
            remedy = "Add it to allow in [ops.install]."
            raise _wrong(file, "packages", repr(entry), "not a package that is allowed", remedy)
