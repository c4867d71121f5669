"""What commands share: the options for a policy and for JSON, and how they print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cellblock.batch import files
from cellblock.batch.report_formats import one_line
from cellblock.errors import CellblockError
from cellblock.policy.load import load
from cellblock.render.text import encodable, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cellblock.batch.verdict import Problem
    from cellblock.policy.model import Policy

PolicyOption = Annotated[str, typer.Option("--policy", metavar="NAME|FILE")]
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
