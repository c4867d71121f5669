"""What operations of the host's cells may call: ``[ops.read_file]`` and its like in a file.

A table grants its operation, and nothing else does. The docstring below a field is its
documentation of record, as in ``model``. Imported for policies that grant any: a class of this
kind takes a kernel's start half a millisecond.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from cellblock.policy.ranges import CHECKED, GIB, MIB, Range

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
