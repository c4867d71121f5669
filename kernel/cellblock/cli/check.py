"""``cellblock check``: checks notebooks by the kernel's rules, for example before publishing them.

Exit status 0: no findings; 1: findings; 2: something could not be checked, or there was nothing.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer

from cellblock.batch import files
from cellblock.batch.check import check as check_files
from cellblock.batch.report_formats import Format, format_report
from cellblock.batch.verdict import CheckOptions, CheckReport, FileKind
from cellblock.cli.common import (
    Exclude,
    Jobs,
    NotebooksPolicyOption,
    complain_of_files,
    policy_of,
    write_report,
)
from cellblock.policy.load import base_folder, load_for_check

if TYPE_CHECKING:
    from collections.abc import Sequence

app: Final = typer.Typer(add_completion=False)


@app.command()
def check(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="PATHS", help="Notebooks, scripts, folders."),
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
    exclude: Exclude = None,
    jobs: Jobs = 0,
) -> None:
    """Check notebooks and scripts by a policy, without running them.

    Exit status 1 if there are findings, 2 if something could not be checked.
    """
    files_found, problems = files.find(paths, exclude or ())
    groups = dict[str, list[files.File]]()
    for file, name in _policies(files_found, policy).items():
        groups.setdefault(name, []).append(file)
    groups = groups or {policy or "safe": []}
    reports = [
        _check(policy_name, group, template=template, jobs=jobs)
        for policy_name, group in groups.items()
    ]
    report = CheckReport.of(reports, problems)
    text = format_report(report, form)
    if output is not None:
        write_report(output, text)
    else:  # letters that the terminal's encoding lacks are escaped
        encoded = text.encode(sys.stdout.encoding or "utf-8", "backslashreplace")
        typer.echo(encoded, nl=False)  # noqa: TID251 - a report, which is made harmless whole
    complain_of_files(report.problems)
    raise typer.Exit(code=report.status)


#: The policy for notebooks of other kernels: only this preset judges source.
_DEFAULT: Final = "safe"


def _policies(files_found: Sequence[files.File], policy_name: str | None) -> dict[files.File, str]:
    """Return the policy of each file: ``policy_name``, or that of the kernel that a notebook names.

    Scripts get the notebooks' policy if all notebooks have the same, else ``safe``.
    """
    policies = dict.fromkeys(files_found, policy_name or _DEFAULT)
    if policy_name is None:
        notebooks = [file for file in files_found if file.kind is FileKind.notebook]
        policies |= {file: policy_of(file, _DEFAULT) for file in notebooks}
        kernel_policies = {policies[file] for file in notebooks}
        if len(kernel_policies) == 1:
            scripts = [file for file in files_found if file.kind is FileKind.script]
            policies |= dict.fromkeys(scripts, kernel_policies.pop())
    return policies


def _check(
    policy: str, files_found: Sequence[files.File], *, template: bool, jobs: int
) -> CheckReport:
    """Check files by one policy. Raise CheckError and PolicyError."""
    loaded_policy = load_for_check(policy)
    current_folder = Path.cwd()
    options = msgspec.structs.replace(
        CheckOptions.of(loaded_policy, template=template, file=policy),
        project=os.fsencode(current_folder),
        folder=os.fsencode(base_folder(policy, current_folder)),
    )
    return check_files(files_found, loaded_policy, options, jobs=jobs)
