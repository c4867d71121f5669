"""The operations as cells see them, and what a policy grants of them.

The host calls this module when it makes a session. The descriptions (``Tool``) are written out, so
that the host need not import the modules that run the operations; a test compares each with its
function's signature.
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from cellblock.backends import plan
from cellblock.errors import PolicyError
from cellblock.host.services.operations.grants import OperationError, OperationGrants
from cellblock.policy.paths import is_pattern
from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cellblock.policy.model import Policy
    from cellblock.policy.operations import Operations


PREFIX: Final = "ops."
#: The kinds of ``inspect.Parameter``.
_POSITIONAL, _REST, _NAMED = 1, 2, 3
#: Bytes of a call's arguments besides its data: paths, addresses, headers.
BESIDES: Final = 64 * 2**10


def _parameter(
    name: str,
    annotation: str,
    default: str | None = None,
    kind: int = _NAMED,
    *,
    secret: bool = False,
) -> Parameter:
    return Parameter(name=name, kind=kind, annotation=annotation, default=default, secret=secret)


READ_FILE: Final = Tool(
    name="ops.read_file",
    parameters=(
        _parameter("path", "str", kind=_POSITIONAL),
        _parameter("binary", "bool", "False"),
        _parameter("offset", "int", "0"),
        _parameter("size", "int | None", "None"),
    ),
    returns="str | bytes",
    doc="""Read a file, beneath the folders that the policy grants.

Relative paths are relative to the folder that the kernel was started in. Text is UTF-8; with
``binary`` you get bytes. ``offset`` and ``size`` (bytes) read a part of a large file.""",
)
WRITE_FILE: Final = Tool(
    name="ops.write_file",
    parameters=(
        _parameter("path", "str", kind=_POSITIONAL),
        _parameter("data", "str | bytes", kind=_POSITIONAL),
    ),
    returns="int",
    doc="""Write a whole file, beneath the folders that the policy grants.

A file of that name is replaced, in one step. Text is written as UTF-8. Returns how many bytes were
written.""",
)
LIST_DIR: Final = Tool(
    name="ops.list_dir",
    parameters=(_parameter("path", "str", "'.'", _POSITIONAL),),
    returns="list[dict[str, Any]]",
    doc="""List a folder, beneath those that the policy grants.

Each entry has ``name``, ``kind`` (file, folder, link, other), ``size`` in bytes and ``modified``
in seconds since 1970; they come by name.""",
)
HTTP: Final = Tool(
    name="ops.http",
    parameters=(
        _parameter("url", "str", kind=_POSITIONAL),
        _parameter("method", "str", "'GET'"),
        _parameter("params", "dict[str, str | int | float] | None", "None"),
        _parameter("headers", "dict[str, str] | None", "None", secret=True),
        _parameter("json", "Any", "None"),
        _parameter("data", "str | bytes | None", "None"),
        _parameter("timeout", "float | None", "None"),
    ),
    returns="Response",
    doc="""Have the host make an HTTP request that the policy grants.

``params`` are added to the address, ``json`` or ``data`` is sent as the body. The response has
``status``, ``headers``, ``content``, ``text`` and ``json()``; an error status is no exception.""",
    is_async=True,
)
INSTALL: Final = Tool(
    name="ops.install",
    parameters=(_parameter("packages", "str", kind=_REST),),
    returns="list[str]",
    doc="""Have the host install packages that the policy grants: wheels from its index.

``ops.install("tabulate", "numpy<3")``; what they need comes along. Returns names and versions.
They can be imported from then on, as far as the policy lets cells import them.""",
)
#: All operations, by the names of their sections in a policy.
ALL: Final = {
    tool.name.removeprefix(PREFIX): replace(tool, of_host=True)
    for tool in (READ_FILE, WRITE_FILE, LIST_DIR, HTTP, INSTALL)
}


def granted_tools(section: Operations | None) -> tuple[Tool, ...]:
    """Return the operations that a policy grants, with the size limits of their arguments."""
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
    """Return why a call is refused of an operation that the policy has no section for."""
    section = name.removeprefix(PREFIX)
    message = f"this policy does not grant {name}; a section [ops.{section}] in it would"
    return f"{message}, with {_NEEDED[section]}"


_NEEDED: Final = {
    "read_file": "roots, the folders that may be read",
    "write_file": "roots, the folders that may be written to",
    "list_dir": "roots, the folders that may be listed",
    "http": "hosts, who may be asked",
    "install": "index and allow, what may be installed from where",
}


# --- what a policy grants: decided by the host, before a guest exists -------------------------


def grants_of(
    policy: Policy, *, project: Path, private: Sequence[Path] = ()
) -> OperationGrants | None:
    """Return what a policy's operations may touch; None if it grants none.

    ``private`` are the host's own folders, which are denied. Makes the folder of packages now,
    since a guest gets no right to read a folder after its start. Raises PolicyError if something
    can't be granted.
    """
    section = policy.operations
    if section is None:
        return None
    denied = plan.denied(policy, private=private)
    _check_roots(policy, section, denied)
    tables = {name: getattr(section, name) for name in ALL}
    return OperationGrants(
        project=os.path.realpath(project),
        denied=(*denied, *filter(is_pattern, policy.read_deny_paths)),
        tables={
            name: dataclasses.asdict(table) for name, table in tables.items() if table is not None
        },
        packages=_packages_folder(policy, section),
        credentials=policy.credentials,
    )


def _check_roots(policy: Policy, section: Operations, denied: Sequence[str]) -> None:
    for name, table in section.with_roots().items():
        key = f"ops.{name}.roots"
        for root in table.roots:
            plan.refuse_denied(root, denied, policy, key)
            if name != "read_file" and not Path(root).is_dir():
                raise policy.error("not a folder", key, root, "Name the folder that it is in.")
    if section.write_file is not None:
        written = section.write_file.roots
        plan.check_writable(written, denied, policy, "ops.write_file.roots")


def _packages_folder(policy: Policy, section: Operations) -> str:
    if section.install is None:
        return ""
    folder = section.install.store()
    try:
        Path(folder, "lib").mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as exc:
        message = f"{folder} can't be made: {exc.strerror}"
        remedy = "Set XDG_DATA_HOME to a folder that you can write to."
        raise PolicyError(message, file=policy.name, key="ops.install", remedy=remedy) from None
    return folder


# --- errors -----------------------------------------------------------------------------------

#: Failures that may pass: the same request may succeed later.
TRANSIENT: Final = frozenset({"ConnectError", "OSError", "TimeoutError"})
#: Failures of ``ops.write_file`` before it has written anything.
UNWRITTEN: Final = frozenset(
    {
        "FileNotFoundError",
        "NotADirectoryError",
        "NotAFile",
        "NotGranted",
        "PermissionError",
        "TooLarge",
        "ValidationError",
        "ValueError",
    }
)


def not_granted(message: str) -> OperationError:
    """Return the error for a request that the policy's section does not grant."""
    return OperationError("NotGranted", message)


def os_failure(path: str, error: OSError) -> OperationError:
    """Return the error for an OSError. ``path`` is as the cell spelled it, never the real path."""
    return OperationError(type(error).__name__, f"{path}: {error.strerror or 'it failed'}")
