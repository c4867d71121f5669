"""Operations as cells see them: known without starting what runs them.

A test holds each against the signature and the words of the function behind it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from cellblock.backends import plan
from cellblock.errors import PolicyError
from cellblock.wire.messages import Parameter, Struct, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.policy.model import Policy
    from cellblock.policy.operations import Operations


PREFIX: Final = "ops."
_POSITIONAL, _NAMED = 1, 3
#: Bytes of a call's arguments besides the data that it carries: paths, addresses, headers.
BESIDES: Final = 64 * 2**10


def _one(name: str, annotation: str, default: str | None = None, kind: int = _NAMED) -> Parameter:
    return Parameter(name=name, kind=kind, annotation=annotation, default=default)


READ_FILE: Final = Tool(
    name="ops.read_file",
    parameters=(
        _one("path", "str", kind=_POSITIONAL),
        _one("binary", "bool", "False"),
        _one("offset", "int", "0"),
        _one("size", "int | None", "None"),
    ),
    returns="str | bytes",
    doc="""Read a file, beneath the folders that the policy grants.

Relative paths are relative to the folder that the kernel was started in. Text is UTF-8; with
``binary`` you get bytes. ``offset`` and ``size`` (bytes) read a part of a large file.""",
    max_bytes=BESIDES,
)
WRITE_FILE: Final = Tool(
    name="ops.write_file",
    parameters=(
        _one("path", "str", kind=_POSITIONAL),
        _one("data", "str | bytes", kind=_POSITIONAL),
    ),
    returns="int",
    doc="""Write a whole file, beneath the folders that the policy grants.

A file of that name is replaced, in one step. Text is written as UTF-8. Returns how many bytes were
written.""",
)
LIST_DIR: Final = Tool(
    name="ops.list_dir",
    parameters=(_one("path", "str", "'.'", _POSITIONAL),),
    returns="list[dict[str, Any]]",
    doc="""List a folder, beneath those that the policy grants.

Each entry has ``name``, ``kind`` (file, folder, link, other), ``size`` in bytes and ``modified``
in seconds since 1970; they come by name.""",
    max_bytes=BESIDES,
)
HTTP: Final = Tool(
    name="ops.http",
    parameters=(
        _one("url", "str", kind=_POSITIONAL),
        _one("method", "str", "'GET'"),
        _one("params", "dict[str, str | int | float] | None", "None"),
        Parameter(
            name="headers",
            kind=_NAMED,
            annotation="dict[str, str] | None",
            default="None",
            secret=True,
        ),
        _one("json", "Any", "None"),
        _one("data", "str | bytes | None", "None"),
        _one("timeout", "float | None", "None"),
    ),
    returns="Response",
    doc="""Have the host make an HTTP request that the policy grants.

``params`` are added to the address, ``json`` or ``data`` is sent as the body. The response has
``status``, ``headers``, ``content``, ``text`` and ``json()``; an error status is no exception.""",
    is_async=True,
)
INSTALL: Final = Tool(
    name="ops.install",
    parameters=(Parameter(name="packages", kind=2, annotation="str"),),
    returns="list[str]",
    doc="""Have the host install packages that the policy grants: wheels from its index.

``ops.install("tabulate", "numpy<3")``; what they need comes along. Returns names and versions.
They can be imported from then on, as far as the policy lets cells import them.""",
    max_bytes=BESIDES,
)
ALL: Final = {
    tool.name.removeprefix(PREFIX): replace(tool, of_host=True)
    for tool in (READ_FILE, WRITE_FILE, LIST_DIR, HTTP, INSTALL)
}


def granted_tools(section: Operations | None) -> tuple[Tool, ...]:
    """Return the operations that cells may call, with what their arguments may take."""
    if section is None:
        return ()
    sizes = {}
    for name in ("write_file", "http"):
        table = getattr(section, name)
        sizes[name] = 0 if table is None else table.max_bytes + BESIDES
    return tuple(
        replace(ALL[name], max_bytes=sizes.get(name, BESIDES)) for name in section.granted()
    )


def refusal(name: str) -> str:
    """Return why an operation is not run that no section grants."""
    section = name.removeprefix(PREFIX)
    said = f"this policy does not grant {name}; a section [ops.{section}] in it would"
    return f"{said}, with {_NEEDED[section]}"


_NEEDED: Final = {
    "read_file": "roots, the folders that may be read",
    "write_file": "roots, the folders that may be written to",
    "list_dir": "roots, the folders that may be listed",
    "http": "hosts, who may be asked",
    "install": "index and allow, what may be installed from where",
}


# What the worker of operations is told: plain data, which crosses to it in one frame.


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


class OperationGrants(Struct, frozen=True, kw_only=True):
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


# From a policy to what its operations may touch. Decided by the host, before a guest exists.


def grants_of(
    policy: Policy, *, project: Path, private: Sequence[Path] = ()
) -> OperationGrants | None:
    """Return what the operations of a policy may touch; None where it grants none.

    ``private`` are the host's own places. Makes the folder of packages, which guests read from
    their start on. Raises PolicyError where something can't be granted.
    """
    section = policy.operations
    if section is None:
        return None
    denied = plan.denied(policy, private=private)
    _check_roots(policy, section, denied)
    return OperationGrants(
        project=os.path.realpath(project),
        denied=denied,
        read_file=_table(section.read_file, ReadFile),
        write_file=_table(section.write_file, WriteFile),
        list_dir=_table(section.list_dir, ListDir),
        http=_table(section.http, Http),
        install=_install(policy, section),
    )


def _table(table: Any, kind: Any, **more: str) -> Any:
    """Return of a section what the worker needs; the rest is the host's."""
    if table is None:
        return None
    names = (name for name in kind.__struct_fields__ if name not in more)
    return kind(**{name: getattr(table, name) for name in names}, **more)


def _check_roots(policy: Policy, section: Operations, denied: Sequence[str]) -> None:
    for name, table in section.with_roots().items():
        key = f"ops.{name}.roots"
        for root in table.roots:
            plan.refuse_denied(root, denied, policy_name=policy.name, key=key)
            if name != "read_file" and not Path(root).is_dir():
                message = "not a folder"
                remedy = "Name the folder that it is in."
                raise PolicyError(
                    message, file=policy.name, key=key, value=repr(root), remedy=remedy
                )
    if section.write_file is not None:
        written = section.write_file.roots
        plan.check_writable(written, denied, policy, "ops.write_file.roots")


def _install(policy: Policy, section: Operations) -> Install | None:
    if section.install is None:
        return None
    folder = section.install.store()
    try:
        Path(folder, "lib").mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as exc:
        raise PolicyError(
            f"{folder} can't be made: {exc.strerror}",
            file=policy.name,
            key="ops.install",
            value="",
            remedy="Have XDG_DATA_HOME name a folder that can be written to.",
        ) from None
    made: Install = _table(section.install, Install, folder=folder)
    return made
