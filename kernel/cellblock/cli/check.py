"""``cellblock check``: the gate before a notebook is published, by the rules of the kernel.

Exit status 0: nothing found; 1: findings; 2: something could not be checked, or nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from cellblock.batch.report_formats import Format
from cellblock.errors import CheckError

if TYPE_CHECKING:
    from cellblock.batch.check import StdinFile
    from cellblock.batch.verdict import Problem

_STDIN = "-"


def check(  # noqa: PLR0913  # one parameter an option
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATHS", help="Notebooks, scripts, folders; - for stdin."),
    ],
    *,
    policy: Annotated[str, typer.Option("--policy", metavar="NAME|FILE")] = "safe",
    template: Annotated[
        bool, typer.Option("--template", help="Refuse calls for their effect outside functions.")
    ] = False,
    form: Annotated[Format, typer.Option("--format", help="What is written.")] = Format.text,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write it there.")
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="PATTERN", help="Leave out what it fits; repeatable."),
    ] = None,
    stdin_name: Annotated[
        str, typer.Option("--stdin-name", metavar="NAME", help="What - is called, .py or .ipynb.")
    ] = "stdin",
    jobs: Annotated[
        int, typer.Option("--jobs", min=0, help="Processes; 0 for one a processor.")
    ] = 0,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Keep verdicts.")] = True,
) -> None:
    """Check notebooks and scripts by a policy, without running anything of them.

    Exit status 1 if there are findings, 2 if something could not be checked.
    """
    from cellblock.batch.check import Check, VerdictCache, cache_folder  # noqa: PLC0415
    from cellblock.batch.report_formats import format_report  # noqa: PLC0415
    from cellblock.batch.verdict import CheckOptions  # noqa: PLC0415
    from cellblock.policy.load import folder_of, to_judge_by  # noqa: PLC0415

    judged_by, here = to_judge_by(policy), Path.cwd()
    options = msgspec.structs.replace(
        CheckOptions.of(judged_by, template=template),
        project=os.fsencode(here),
        folder=os.fsencode(folder_of(policy, here)),
    )
    cached = VerdictCache(cache_folder(), options) if cache else None
    stdin = _stdin(stdin_name) if _STDIN in paths else None
    named = [path for path in paths if path != _STDIN]
    run = Check(judged_by, options, jobs=jobs, cache=cached)
    report = run.run(named, exclude=exclude or (), stdin=stdin)
    _write(format_report(report, form), output)
    _complain(report.problems)
    raise typer.Exit(code=report.status)


def _stdin(name: str) -> StdinFile:
    from cellblock.batch.check import StdinFile  # noqa: PLC0415
    from cellblock.batch.verdict import MAX_FILE_BYTES  # noqa: PLC0415

    return StdinFile(name, sys.stdin.buffer.read(MAX_FILE_BYTES + 1))


def _write(text: str, output: Path | None) -> None:
    """Write a report; what a terminal has no letter for is spelled by its number."""
    if output is None:
        typer.echo(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"), nl=False)
        return
    from cellblock.batch import files  # noqa: PLC0415

    try:
        files.write_report(output, text)
    except OSError as error:
        raise CheckError(f"{output}: the report can't be written: {error.strerror}") from None


def _complain(problems: tuple[Problem, ...]) -> None:
    from cellblock.batch.report_formats import one_line  # noqa: PLC0415

    for problem in problems:
        typer.echo(one_line(f"cellblock: {problem.path}: {problem.message}"), err=True)
