"""What operations of the host's cells may call: ``[ops.read_file]`` and its like in a file.

A table grants its operation, and nothing else does. The docstring below a field is its
documentation of record, as in ``model``. Imported for policies that grant any: a class of this
kind takes a kernel's start half a millisecond.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from cellblock.errors import PolicyError
from cellblock.policy import network
from cellblock.policy.vocabulary import CHECKED, GIB, MIB, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from packaging.requirements import Requirement

    from cellblock.policy.model import Policy


Names = tuple[str, ...]
#: Of what crosses in one call: a frame has to hold it.
Crossing = Annotated[int, Range(1, 16 * MIB)]
Entries = Annotated[int, Range(1, 50_000)]
Hops = Annotated[int, Range(0, 20)]
Wait = Annotated[float, Range(0.1, 3_600.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """``ops.read_file``: cells read files that the host opens for them."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    roots: Names = ()
    """Folders and files that may be read; at least one. ``read_deny_paths`` stay unreadable beneath
    them."""

    max_bytes: Crossing = MIB
    """Bytes that one call may read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFile:
    """``ops.write_file``: cells have the host write whole files."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    roots: Names = ()
    """Folders beneath which may be written; at least one."""

    max_bytes: Crossing = MIB
    """Bytes of one file."""

    max_total_bytes: Annotated[int, Range(1)] = 256 * MIB
    """Bytes that a session may write; a file counts as 4 KiB at least."""

    replace: bool = True
    """Whether a file that is there may be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDir:
    """``ops.list_dir``: cells learn what is in a folder."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    roots: Names = ()
    """Folders that may be listed, with what is beneath them; at least one."""

    max_entries: Entries = 10_000
    """Entries of a folder; one that has more is not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http:
    """``ops.http``: cells have the host make a request and get its answer."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    hosts: Names = ()
    """Who may be asked: ``api.example.org``, ``*.example.org`` for what is beneath it, ``*`` for
    anybody; with ``http://`` before it and ``:port`` behind it where it is not https on its own
    port. At least one."""

    methods: Names = ("GET", "HEAD")
    """Methods that may be used."""

    paths: Names = ("/",)
    """Paths that may be asked for: one that ends in ``/`` with all beneath it, any other as it
    is."""

    allow_private: bool = False
    """Whether hosts that are listed by their whole name may have private or loopback addresses.
    Link-local addresses, and those at which clouds give out credentials, are never asked."""

    ca_file: str = ""
    """Certificates of authorities (PEM) to trust instead of the usual ones."""

    max_bytes: Crossing = MIB
    """Bytes of an answer's body, unpacked, and of what is sent."""

    max_redirects: Hops = 5
    """Redirects that are followed; each is judged as the first request was."""

    timeout: Wait = 20.0
    """Seconds that a call may take, redirects included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """``ops.install``: cells have packages installed, wheels only."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    index: str = ""
    """The package index, as ``https://…/simple``."""

    allow: Names = ()
    """Packages that may be installed, and versions of them: ``tabulate``, ``numpy<3``. What a
    package needs has to be listed as well."""

    cells: bool = True
    """Whether cells may call it; if not, it is for ``packages`` alone."""

    max_bytes: Annotated[int, Range(MIB)] = GIB
    """Bytes on disk of one package."""

    timeout: Wait = 300.0
    """Seconds that a call may take, what is needed included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Operations of the host's own that cells may call. None is granted whose table is missing."""

    __pydantic_config__: ClassVar[Mapping[str, object]] = CHECKED

    read_file: ReadFile | None = None
    """``ops.read_file``."""

    write_file: WriteFile | None = None
    """``ops.write_file``."""

    list_dir: ListDir | None = None
    """``ops.list_dir``."""

    http: Http | None = None
    """``ops.http``."""

    install: Install | None = None
    """``ops.install``."""

    def granted(self) -> tuple[str, ...]:
        """Return the names of the operations that cells may call, without ``ops.``."""
        named = (name for name in OPERATIONS if getattr(self, name) is not None)
        return tuple(name for name in named if name != "install" or self._for_cells())

    def _for_cells(self) -> bool:
        return self.install is not None and self.install.cells

    def with_roots(self) -> dict[str, ReadFile | WriteFile | ListDir]:
        """Return the tables that have roots, by the operation's name."""
        found = ((name, getattr(self, name)) for name in WITH_ROOTS)
        return {name: one for name, one in found if one is not None}


#: Each operation's table, in the order in which they are shown.
OPERATIONS: Final[dict[str, type]] = {
    "read_file": ReadFile,
    "write_file": WriteFile,
    "list_dir": ListDir,
    "http": Http,
    "install": Install,
}
WITH_ROOTS: Final = ("read_file", "write_file", "list_dir")


def built(values: Mapping[str, Any]) -> Operations:
    """Return the section of a file's values as they are: nothing is checked."""
    made = {
        name: OPERATIONS[name](
            **{key: tuple(own) if isinstance(own, list) else own for key, own in table.items()}
        )
        for name, table in values.items()
    }
    return Operations(**made)


def expanded(section: Operations, path: Callable[[str, str], str | None]) -> Operations:
    """Return the section with its paths expanded by ``path(entry, key)``; None leaves one out."""
    changed: dict[str, Any] = {}
    for name, table in section.with_roots().items():
        found = (path(entry, f"ops.{name}.roots") for entry in table.roots)
        roots = tuple(dict.fromkeys(root for root in found if root is not None))
        changed[name] = dataclasses.replace(table, roots=roots)
    if section.http is not None and section.http.ca_file:
        file = path(section.http.ca_file, "ops.http.ca_file") or ""
        changed["http"] = dataclasses.replace(section.http, ca_file=file)
    return dataclasses.replace(section, **changed)


# Packages by name and versions: what a policy lists, what a cell asks for, what a wheel needs.

_LONGEST = 200


def parse(text: str) -> Requirement:
    """Return ``name[extra] <3``, checked: no address, no file, no condition. Raises ValueError."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - 15 ms

    if len(text) > _LONGEST or not text.isprintable():
        raise ValueError("not the name of a package")
    try:
        found = Requirement(text)
    except InvalidRequirement:
        raise ValueError("not the name of a package") from None
    if found.url is not None:
        raise ValueError("an address: packages come from the policy's index")
    if found.marker is not None:
        raise ValueError("a condition")
    return found


def canonical(name: str) -> str:
    """Return a package's name in the one spelling that is compared (PEP 503)."""
    from packaging.utils import canonicalize_name  # noqa: PLC0415 - as above

    return str(canonicalize_name(name))


# Which program unpacks wheels: uv where there is one, pip otherwise.


def uv() -> str | None:
    """Return uv's path: the one that was installed with this interpreter, or the first on PATH.

    A kernel is often started without its environment's folder on PATH.
    """
    beside = str(Path(sys.executable).parent)
    return shutil.which("uv", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))


def has_pip() -> bool:
    """Say whether this interpreter has pip."""
    return importlib.util.find_spec("pip") is not None


# What a type can't say of the operations that a policy grants, and of ``packages``.
#
# One function per table; each raises the PolicyError for the first thing wrong, or returns.

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
    if section.install is not None and uv() is None and not has_pip():
        remedy = "Install one of them where the kernel runs."
        raise _wrong(file, "ops.install", "", "neither uv nor pip is there", remedy)


def _http(table: Http, file: str) -> None:
    for field, example in (("hosts", "a host"), ("methods", "GET, say"), ("paths", '"/" for all')):
        if not getattr(table, field):
            raise _wrong(file, f"ops.http.{field}", "()", "it grants nothing", f"Name {example}.")
    for entry in table.hosts:
        try:
            network.parse_host(entry)
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
    url = network.split(table.index)
    if url is None or network.says_more(url):
        remedy = "Write https://…/simple; its password goes into ~/.netrc."
        raise _wrong(file, "ops.install.index", repr(table.index), "not an index", remedy)
    if not table.allow:
        raise _wrong(file, "ops.install.allow", "()", "it grants nothing", "Name a package.")
    for entry in table.allow:
        _requirement(entry, "ops.install.allow", file)


def _requirement(entry: str, key: str, file: str) -> str:
    """Return the name of what an entry asks for."""
    try:
        return canonical(parse(entry).name)
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
