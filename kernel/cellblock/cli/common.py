"""What commands share: options, which policy a notebook is under, and how they print."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from jupyter_core.paths import jupyter_path

from cellblock.batch import files
from cellblock.batch.report_formats import one_line
from cellblock.errors import CellblockError
from cellblock.jupyter.command_line import options_of
from cellblock.policy.load import load
from cellblock.render.text import encodable, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.batch.verdict import Problem
    from cellblock.policy.model import Policy

PolicyOption = Annotated[str, typer.Option("--policy", metavar="NAME|FILE")]
NotebooksPolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="NAME|FILE", help="Default: that of each notebook's kernel, or safe."
    ),
]
AllowUnsafe = Annotated[
    bool, typer.Option("--allow-unsafe", help="Take a policy that confines nothing.")
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PATTERN", help="Leave out what it fits; repeatable."),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", min=0, help="How many at once; 0 for one a processor.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load_policy(spec: str, project: Path | None = None) -> Policy:
    """Load for showing: nothing runs under it, so mode unsafe need not be asked for."""
    return load(spec, project=project or Path.cwd(), allow_unsafe=True)


def clean(text: str) -> str:
    """Return a text without what a terminal would act on or can't show."""
    return visible(encodable(text))


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(value, indent=2))


def complain(text: str) -> None:
    """Print a line of the program's own on stderr."""
    typer.echo(f"cellblock: {text}", err=True)


def complain_of_files(problems: Iterable[Problem]) -> None:
    """Print what is wrong with files, a line each: no command to a CI runner."""
    for problem in problems:
        typer.echo(one_line(f"cellblock: {problem.path}: {problem.message}"), err=True)


def write_report(path: Path, text: str) -> None:
    """Write a report. Raises CellblockError."""
    try:
        files.write_report(path, text)
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> CellblockError:
    """Return why a report can't be written."""
    return CellblockError(f"{path}: the report can't be written: {error.strerror}")


# --- the policy of a notebook where none is named: that of its kernel, as installed here ----------

_DEFAULT: Final = "safe"
_KERNEL: Final = re.compile(r"[a-z0-9._-]{1,100}")


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


def policy_of(notebook: files.File) -> str:
    """Return the policy of the kernel that a notebook names; what is wrong is told later."""
    try:
        content = files.read(notebook)
        name = msgspec.json.decode(content, type=_Notebook).metadata.kernelspec.name
    except (OSError, files.NoFileError, msgspec.DecodeError):
        return _DEFAULT
    return _policy_of_kernel(name.lower())


@cache
def _policy_of_kernel(name: str) -> str:
    """Return the policy in the kernelspec that Jupyter finds by this name.

    It is read here: to import jupyter_client for it takes half as long as a small check.
    """
    if not _KERNEL.fullmatch(name):
        return _DEFAULT
    found = (Path(kernels, name, "kernel.json") for kernels in jupyter_path("kernels"))
    spec = next((path for path in found if path.is_file()), None)
    try:
        argv = [] if spec is None else msgspec.json.decode(spec.read_bytes(), type=_Command).argv
        options = options_of(argv)
    except (OSError, msgspec.DecodeError, SystemExit):  # a kernel that does not start
        return _DEFAULT
    return _DEFAULT if options is None else options.policy
