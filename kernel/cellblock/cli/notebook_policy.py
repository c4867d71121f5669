"""The policy of ``cellblock check`` and ``run`` where none is named: that of the notebooks' kernel.

A notebook can choose among installed kernels only, and no two policies are mixed in one report:
where notebooks differ, whoever calls the command has to name one.
"""

from __future__ import annotations

import contextlib
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from jupyter_core.paths import jupyter_path

from cellblock.batch import files
from cellblock.batch.report_formats import one_line
from cellblock.batch.verdict import FileKind
from cellblock.cli.common import clean
from cellblock.errors import CellblockError
from cellblock.jupyter.start import options_of

if TYPE_CHECKING:
    from collections.abc import Sequence

NotebooksPolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="NAME|FILE", help="Default: that of the notebooks' kernel, or safe."
    ),
]
_DEFAULT: Final = "safe"
_NAME: Final = re.compile(r"[a-z0-9._-]{1,100}")


class _Command(msgspec.Struct):
    """Of a kernelspec, what starts the kernel."""

    argv: list[str] = []


class _Kernelspec(msgspec.Struct):
    name: str = ""


class _Metadata(msgspec.Struct):
    kernelspec: _Kernelspec = msgspec.field(default_factory=_Kernelspec)


class _Notebook(msgspec.Struct):
    """Of a notebook, what says which kernel it is for."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def policy_of_notebooks(paths: Sequence[str], exclude: Sequence[str], stdin: bytes = b"") -> str:
    """Return the policy of the kernel that notebooks name: ``safe`` where that is none of ours.

    ``stdin`` is the content of one more. Raise CellblockError where they have not all the same.
    """
    found, _ = files.find(paths, exclude)
    named = {_policy_of(stdin): "-"} if stdin else {}
    for file in found:
        content = b""
        if file.kind is FileKind.notebook:
            with contextlib.suppress(OSError, files.NoFileError):  # they are told later
                content = files.read(file)
        named.setdefault(_policy_of(content), file.shown)
    if len(named) > 1:
        (one, first), (other, second) = list(named.items())[:2]
        raise CellblockError(
            one_line(
                f"{clean(first)} is for a kernel with policy {one}, {clean(second)} for one with"
                f" {other}. Choose one: --policy {one}"
            )
        )
    return next(iter(named), _DEFAULT)


def _policy_of(notebook: bytes) -> str:
    try:
        name = msgspec.json.decode(notebook, type=_Notebook).metadata.kernelspec.name
    except msgspec.DecodeError:  # whoever reads it as a whole says what is wrong
        return _DEFAULT
    return _policy_of_kernel(name.lower())


@cache
def _policy_of_kernel(name: str) -> str:
    """Return the policy in the kernelspec that Jupyter finds by this name.

    It is read here: to import jupyter_client for it takes half as long as a small check.
    """
    if not _NAME.fullmatch(name):
        return _DEFAULT
    found = (Path(kernels, name, "kernel.json") for kernels in jupyter_path("kernels"))
    spec = next((path for path in found if path.is_file()), None)
    try:
        argv = [] if spec is None else msgspec.json.decode(spec.read_bytes(), type=_Command).argv
        options = options_of(argv)
    except (OSError, msgspec.DecodeError, SystemExit):  # a kernel that does not start
        return _DEFAULT
    return _DEFAULT if options is None else options.policy
