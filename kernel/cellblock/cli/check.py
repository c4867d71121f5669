"""``cellblock check``: the gate before a notebook is published, by the rules of the kernel.

Exit status 0: nothing found; 1: findings; 2: something could not be checked, or nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from cellblock.batch import files
from cellblock.batch.check import Check, StdinFile, VerdictCache, cache_folder
from cellblock.batch.report_formats import Format, format_report, one_line
from cellblock.batch.verdict import MAX_FILE_BYTES, CheckOptions, CheckReport
from cellblock.cli.common import clean, complain_of_files, write_report
from cellblock.cli.notebook_policy import NotebooksPolicyOption, policies_of, policy_of
from cellblock.policy.load import base_folder, load_for_check

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    found, problems = files.find(named, exclude or ())
    groups = {policy: found} if policy else _by_policy(found)
    of_stdin = "" if stdin is None else policy or policy_of(stdin.content)
    reports = [
        _check(
            one,
            groups.get(one, []),
            stdin if one == of_stdin else None,
            template=template,
            jobs=jobs,
            cache=cache,
        )
        for one in {**groups, of_stdin: ()}
        if one
    ]
    report = CheckReport.of(reports, problems)
    text = format_report(report, form)
    if output is not None:
        write_report(output, text)
    else:  # what a terminal has no letter for is spelled by its number
        typer.echo(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"), nl=False)
    complain_of_files(report.problems)
    raise typer.Exit(code=report.status)


def _by_policy(found: Sequence[files.File]) -> dict[str, list[files.File]]:
    """Return the files that are judged by each policy; say where it was hard to tell."""
    policies, undecided = policies_of(found)
    if undecided:
        which = clean(undecided[0].shown)
        which += f" and {len(undecided) - 1} more are" if len(undecided) > 1 else " is"
        why = "notebooks of several policies are around. For another: --policy"
        typer.echo(one_line(f"cellblock: {which} judged by policy safe: {why}"), err=True)
    groups = dict[str, list[files.File]]()
    for file in found:
        groups.setdefault(policies[file], []).append(file)
    return groups or {"safe": []}


def _check(
    policy: str,
    found: Sequence[files.File],
    stdin: StdinFile | None,
    *,
    template: bool,
    jobs: int,
    cache: bool,
) -> CheckReport:
    """Check files by one policy. Raise CheckError and PolicyError."""
    judged_by, here = load_for_check(policy), Path.cwd()
    options = msgspec.structs.replace(
        CheckOptions.of(judged_by, template=template),
        project=os.fsencode(here),
        folder=os.fsencode(base_folder(policy, here)),
    )
    cached = VerdictCache(cache_folder(), options) if cache else None
    return Check(judged_by, options, jobs=jobs, cache=cached).run(found, stdin=stdin)
