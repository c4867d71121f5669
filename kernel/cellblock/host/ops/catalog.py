"""Operations as cells see them: known without starting what runs them.

A test holds each against the signature and the words of the function behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from cellblock.wire.messages import Parameter, Tool

if TYPE_CHECKING:
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


def granted(section: Operations | None) -> tuple[Tool, ...]:
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
