"""The policy's sections ``[ops.…]``, for the host's operations that cells may call.

Only a table grants its operation. The docstring below a field is its documentation for users, as in
``model``, which imports this module for policies that grant an operation.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from cellblock.policy import network
from cellblock.policy.folders import package_folder
from cellblock.policy.vocabulary import GIB, MIB, Range, Table, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from packaging.requirements import Requirement


Names = tuple[str, ...]
#: Bytes that one call sends or returns: they must fit into a frame.
Crossing = Annotated[int, Range(1, 16 * MIB)]
Entries = Annotated[int, Range(1, 50_000)]
Hops = Annotated[int, Range(0, 20)]
Wait = Annotated[float, Range(0.1, 3_600.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile(Table):
    """``ops.read_file``: cells read files that the host opens for them."""

    roots: Names = ()
    """Folders and files that may be read; at least one. ``read_deny_paths`` stay unreadable beneath
    them."""

    max_bytes: Crossing = MIB
    """Bytes that one call may read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteFile(Table):
    """``ops.write_file``: cells have the host write whole files."""

    roots: Names = ()
    """Folders beneath which may be written; at least one."""

    max_bytes: Crossing = MIB
    """Bytes of one file."""

    max_total_bytes: Annotated[int, Range(1)] = 256 * MIB
    """Bytes that a session may write; a file counts as 4 KiB at least."""

    replace: bool = True
    """Whether a file that is there may be replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListDir(Table):
    """``ops.list_dir``: cells learn what is in a folder."""

    roots: Names = ()
    """Folders that may be listed, with what is beneath them; at least one."""

    max_entries: Entries = 10_000
    """Entries of a folder; one that has more is not listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Http(Table):
    """``ops.http``: cells have the host make a request and get its answer."""

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
    """Bytes of an answer's body, and of what is sent."""

    max_redirects: Hops = 5
    """Redirects that are followed; each is judged as the first request was."""

    timeout: Wait = 20.0
    """Seconds that a call may take, redirects included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Install(Table):
    """``ops.install``: cells have packages installed, wheels only."""

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

    def store(self) -> str:
        """Return the folder of the packages from this index and list, for this interpreter.

        Guests may read only its subfolder ``lib``, in which installed packages appear. ``lib`` must
        exist before a guest is confined, since no right can be added later.
        """
        interpreter = [sys.implementation.cache_tag, sysconfig.get_platform(), sys.abiflags]
        identity = json.dumps([self.index, sorted(self.allow), interpreter])
        return f"{package_folder()}/{hashlib.sha256(identity.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations(Table):
    """Operations of the host's own that cells may call. None is granted whose table is missing."""

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

    @classmethod
    def of_values(cls, values: Mapping[str, Mapping[str, Any]]) -> Operations:
        """Return the section with a file's values, unchecked."""
        return cls(**{name: OPERATIONS[name](**frozen(table)) for name, table in values.items()})

    def granted(self) -> tuple[str, ...]:
        """Return the names of the operations that cells may call, without ``ops.``."""
        tables = {name: getattr(self, name) for name in OPERATIONS}
        if self.install is not None and not self.install.cells:
            del tables["install"]
        return tuple(name for name, table in tables.items() if table is not None)

    def with_roots(self) -> dict[str, ReadFile | WriteFile | ListDir]:
        """Return the tables that have roots, by the operation's name."""
        tables = ((name, getattr(self, name)) for name in WITH_ROOTS)
        return {name: table for name, table in tables if table is not None}

    def with_paths(self, path: Callable[[str, str], str | None]) -> Operations:
        """Return the section with each path replaced by ``path(entry, key)``; None removes it."""
        changed: dict[str, Any] = {}
        for name, table in self.with_roots().items():
            paths = (path(entry, f"ops.{name}.roots") for entry in table.roots)
            roots = tuple(dict.fromkeys(root for root in paths if root is not None))
            changed[name] = dataclasses.replace(table, roots=roots)
        if self.http is not None and self.http.ca_file:
            file = path(self.http.ca_file, "ops.http.ca_file") or ""
            changed["http"] = dataclasses.replace(self.http, ca_file=file)
        return dataclasses.replace(self, **changed)


#: The table of each operation, in the order in which they are shown.
OPERATIONS: Final[dict[str, type]] = {
    "read_file": ReadFile,
    "write_file": WriteFile,
    "list_dir": ListDir,
    "http": Http,
    "install": Install,
}
WITH_ROOTS: Final = ("read_file", "write_file", "list_dir")


# --- packages, by name and versions ---------------------------------------------------------------

_MAX_REQUIREMENT: Final = 200


def parse_requirement(text: str) -> Requirement:
    """Return a requirement such as ``name[extra] <3``.

    Raises ValueError for one that is malformed, names an address or file, or has a condition.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - 15 ms

    if len(text) > _MAX_REQUIREMENT or not text.isprintable():
        raise ValueError("not the name of a package")
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        raise ValueError("not the name of a package") from None
    if requirement.url is not None:
        raise ValueError("an address: packages come from the policy's index")
    if requirement.marker is not None:
        raise ValueError("a condition")
    return requirement


def canonical_package(name: str) -> str:
    """Return a package's name in its normal form, for comparisons (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def find_uv() -> str | None:
    """Return the path of uv: beside this interpreter, or on PATH; None without one.

    It is looked up beside the interpreter, since a kernel is often started without its
    environment's folder on PATH.
    """
    beside = str(Path(sys.executable).parent)
    return shutil.which("uv", path=os.pathsep.join([beside, os.environ.get("PATH", os.defpath)]))


def has_pip() -> bool:
    """Return whether this interpreter has pip, which unpacks wheels if there is no uv."""
    return importlib.util.find_spec("pip") is not None


# --- checks that types can't express --------------------------------------------------------------

#: A key, what is wrong with it, its value or None, and the remedy.
Problem = tuple[str, str, object, str]
_METHOD: Final = re.compile(r"[A-Z]{1,20}")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+,;=:@-]*)+")


def operation_problems(
    section: Operations, packages: Names, *, here: bool = True
) -> Iterator[Problem]:
    """Yield problems with operations and ``packages``. ``here``: cells run on this machine."""
    http = section.http
    install = section.install
    if here and http is not None and importlib.util.find_spec("httpcore") is None:
        remedy = "pip install 'cellblock[http]' where the kernel runs."
        yield "ops.http", "httpcore is not installed", None, remedy
    if here and install is not None and find_uv() is None and not has_pip():
        remedy = "Install one of them where the kernel runs."
        yield "ops.install", "neither uv nor pip is there", None, remedy
    for name, table in section.with_roots().items():
        if not table.roots:
            yield f"ops.{name}.roots", "it grants nothing", (), "Name a folder."
    if http is not None:
        yield from _http_problems(http)
    if install is not None:
        yield from _install_problems(install)
    yield from _package_problems(packages, install)


def _package_problems(packages: Names, install: Install | None) -> Iterator[Problem]:
    if packages and install is None:
        remedy = "Add a table [ops.install] with index and allow; cells = false keeps cells out."
        yield "packages", "it names no index", list(packages), remedy
    allowed = {_package_name(entry)[0] for entry in install.allow} if install else set()
    for entry in packages:
        name, wrong = _package_name(entry)
        if wrong:
            yield "packages", wrong, entry, "Write name, or name<3."
        elif name not in allowed:
            remedy = "Add it to allow in [ops.install]."
            yield "packages", "not a package that is allowed", entry, remedy


def _http_problems(table: Http) -> Iterator[Problem]:
    for field, example in (("hosts", "a host"), ("methods", "GET, say"), ("paths", '"/" for all')):
        if not getattr(table, field):
            yield f"ops.http.{field}", "it grants nothing", (), f"Name {example}."
    for entry in table.hosts:
        try:
            network.parse_host(entry)
        except ValueError as exc:
            remedy = "Write host, host:port, *.domain or http://host:port."
            yield "ops.http.hosts", str(exc), entry, remedy
    for method in table.methods:
        if not _METHOD.fullmatch(method) or method in {"CONNECT", "TRACE"}:
            remedy = "Write it in capitals, as in GET."
            yield "ops.http.methods", "not a method", method, remedy
    for path in table.paths:
        if not _PATH.fullmatch(path) or "/." in path or "//" in path:
            remedy = "Write /folder/ for all beneath it, or /the/whole/path, without % and dots."
            yield "ops.http.paths", "not a plain path", path, remedy


def _install_problems(table: Install) -> Iterator[Problem]:
    url = network.split_url(table.index)
    if url is None or network.may_hold_secret(url):
        remedy = "Write https://…/simple; its password goes into ~/.netrc."
        yield "ops.install.index", "not an index", table.index, remedy
    if not table.allow:
        yield "ops.install.allow", "it grants nothing", (), "Name a package."
    for entry in table.allow:
        if wrong := _package_name(entry)[1]:
            yield "ops.install.allow", wrong, entry, "Write name, or name<3."


def _package_name(entry: str) -> tuple[str, str]:
    """Return the canonical name of an entry's package and "", or "" and what is wrong."""
    try:
        return canonical_package(parse_requirement(entry).name), ""
    except ValueError as exc:
        return "", str(exc)
