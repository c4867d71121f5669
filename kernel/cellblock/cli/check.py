"""``cellblock check``: the gate before a notebook is published, by the rules of the kernel.

Exit status 0: nothing found; 1: findings; 2: something could not be checked, or nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from cellblock.batch.check import Check, StdinFile, VerdictCache, cache_folder
from cellblock.batch.report_formats import Format, format_report
from cellblock.batch.verdict import MAX_FILE_BYTES, CheckOptions
from cellblock.cli.common import complain_of_files, write_report
from cellblock.cli.notebook_policy import NotebooksPolicyOption, policy_of_notebooks
from cellblock.policy.load import base_folder, load_for_check

app: Final = typer.Typer(add_completion=False)
_STDIN: Final = "-"


@app.command()
def check(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATHS", help="Notebooks, scripts, folders; - for stdin."),
    ],
    *,
    policy: NotebooksPolicyOption = None,
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
    named = [path for path in paths if path != _STDIN]
    stdin = None
    if _STDIN in paths:
        stdin = StdinFile(stdin_name, sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
    if policy is None:
        policy = policy_of_notebooks(named, exclude or (), b"" if stdin is None else stdin.content)
    judged_by, here = load_for_check(policy), Path.cwd()
    options = msgspec.structs.replace(
        CheckOptions.of(judged_by, template=template),
        project=os.fsencode(here),
        folder=os.fsencode(base_folder(policy, here)),
    )
    cached = VerdictCache(cache_folder(), options) if cache else None
    run = Check(judged_by, options, jobs=jobs, cache=cached)
    report = run.run(named, exclude=exclude or (), stdin=stdin)
    text = format_report(report, form)
    if output is not None:
        write_report(output, text)
    else:  # what a terminal has no letter for is spelled by its number
        typer.echo(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"), nl=False)
    complain_of_files(report.problems)
    raise typer.Exit(code=report.status)
