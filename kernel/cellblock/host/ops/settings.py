"""What the worker of operations is told: plain data, which crosses to it in one frame."""

from __future__ import annotations

from cellblock.wire.messages import Struct


class ReadFile(Struct, frozen=True, kw_only=True):
    """Folders and files that may be read, and bytes of one call."""

    roots: tuple[str, ...]
    max_bytes: int


class WriteFile(Struct, frozen=True, kw_only=True):
    """Folders that may be written to, and bytes of one file."""

    roots: tuple[str, ...]
    max_bytes: int
    replace: bool


class ListDir(Struct, frozen=True, kw_only=True):
    """Folders that may be listed, and entries of one."""

    roots: tuple[str, ...]
    max_entries: int


class Http(Struct, frozen=True, kw_only=True):
    """Who may be asked for what; as in the policy."""

    hosts: tuple[str, ...]
    methods: tuple[str, ...]
    paths: tuple[str, ...]
    allow_private: bool
    ca_file: str
    max_bytes: int
    max_redirects: int
    timeout: float


class Install(Struct, frozen=True, kw_only=True):
    """What may be installed from where, and the ``folder`` it is kept in."""

    index: str
    allow: tuple[str, ...]
    max_bytes: int
    timeout: float
    folder: str


class Settings(Struct, frozen=True, kw_only=True):
    """What is granted; None is not.

    ``project`` is what relative paths are relative to; ``denied`` are canonical paths that are
    neither read nor written beneath any root.
    """

    project: str
    denied: tuple[str, ...] = ()
    read_file: ReadFile | None = None
    write_file: WriteFile | None = None
    list_dir: ListDir | None = None
    http: Http | None = None
    install: Install | None = None
