"""Shared parts of the commands: options, printing, and the policy of a notebook's kernel."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from jupyter_core.paths import jupyter_path

from cellblock.batch import files
from cellblock.batch.report_formats import inert, json_text, one_line
from cellblock.errors import CellblockError
from cellblock.jupyter.command_line import options_of
from cellblock.policy.load import load
from cellblock.render.text import encodable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.batch.verdict import Problem
    from cellblock.policy.model import Policy

PolicyOption = Annotated[str, typer.Option("--policy", metavar="NAME|FILE")]
NotebooksPolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME|FILE",
        help="Default: that of each notebook's kernel; else safe to check, data to run.",
    ),
]
AllowUnsafe = Annotated[
    bool, typer.Option("--allow-unsafe", help="Accept a policy that confines nothing.")
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="PATTERN", help="Leave out paths that match; repeatable."),
]
Jobs = Annotated[
    int, typer.Option("--jobs", "-j", min=0, help="How many at once; 0: one for each processor.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load_policy(spec: str, project: Path | None = None) -> Policy:
    """Load a policy to show it. Nothing runs under it, so mode unsafe is allowed."""
    return load(spec, project=project or Path.cwd(), allow_unsafe=True)


# --- printing: commands print by these functions, except for reports and exports ------------------
#
# Names of files, text of cells, and messages with them may be hostile. None of them may act on a
# terminal, be a command to a CI runner, or begin a line of its own.


def say(*lines: str, err: bool = False) -> None:
    """Print lines, made harmless, in one call."""
    typer.echo("\n".join(one_line(encodable(line)) for line in lines), err=err)  # noqa: TID251


def say_rich(*renderables: Any, soft_wrap: bool = False) -> None:
    """Print tables of rich's, and lines with its markup. The caller escapes text of others."""
    from rich.console import Console  # noqa: PLC0415 - most commands print no table

    console = Console(highlight=False, emoji=False, soft_wrap=soft_wrap)
    with console.capture() as captured:
        console.print(*renderables, sep="\n")
    sys.stdout.write(inert(encodable(captured.get())))


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json_text(value), nl=False)  # noqa: TID251


def complain(text: str) -> None:
    """Print a message of the program on stderr."""
    say(f"cellblock: {text}", err=True)


def complain_of(failure: CellblockError) -> None:
    """Print a failure on stderr, with a line for each fault."""
    for text in failure.each():
        complain(text)


def complain_of_files(problems: Iterable[Problem]) -> None:
    """Print problems with files on stderr, a line for each."""
    for problem in problems:
        complain(f"{problem.path}: {problem.message}")


def write_report(path: Path, text: str) -> None:
    """Write the file of a report. Raises CellblockError."""
    try:
        files.write_report(path, text)
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> CellblockError:
    """Return the error for a report that can't be written."""
    return CellblockError(f"{path}: the report can't be written: {error.strerror}")


# --- without --policy, a notebook's policy is that of its kernel, as installed here ---------------

_KERNEL: Final = re.compile(r"[a-z0-9._-]{1,100}")


class _Command(msgspec.Struct):
    """The part of a kernelspec that starts the kernel."""

    argv: list[str] = []


class _Kernelspec(msgspec.Struct):
    name: str = ""


class _Metadata(msgspec.Struct):
    kernelspec: _Kernelspec = msgspec.field(default_factory=_Kernelspec)


class _Notebook(msgspec.Struct):
    """The part of a notebook that names its kernel."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


def policy_of(notebook: files.File, default: str) -> str:
    """Return the policy of the kernel that a notebook names; ``default`` for other kernels.

    A notebook that can't be read gets ``default`` too: whoever checks or runs it reports the error.
    """
    try:
        content = files.read(notebook)
        name = msgspec.json.decode(content, type=_Notebook).metadata.kernelspec.name
    except (OSError, files.NoFileError, msgspec.DecodeError):
        return default
    return _policy_of_kernel(name.lower()) or default


@cache
def _policy_of_kernel(name: str) -> str:
    """Return the policy in the kernelspec that Jupyter finds by this name; "" for other kernels.

    jupyter_client is not used, because importing it takes half as long as a small check.
    """
    if not _KERNEL.fullmatch(name):
        return ""
    candidates = (Path(kernels, name, "kernel.json") for kernels in jupyter_path("kernels"))
    spec = next((path for path in candidates if path.is_file()), None)
    try:
        argv = [] if spec is None else msgspec.json.decode(spec.read_bytes(), type=_Command).argv
        options = options_of(argv)
    except (OSError, msgspec.DecodeError, SystemExit):  # such a kernel would not start
        return ""
    return "" if options is None else options.policy
