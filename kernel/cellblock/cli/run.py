"""``cellblock run``: runs notebooks in confined guests, without a Jupyter server.

And ``cellblock learn``: proposes a policy under which notebooks pass.

Exit status 0: every notebook passed; 1: some did not; 2: the run was not possible, a named path is
not there, or the report could not be written; 128 and a signal's number: ended by that signal.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer
from rich.console import Console

from cellblock.api.results import receipts_module
from cellblock.batch import files
from cellblock.batch import learn as learning
from cellblock.batch.run import runner
from cellblock.batch.run.execution import DROP, KEEP, NotebookStatus, RunOptions
from cellblock.batch.run.runner import OutputFolder, Progress, RunRequest, plan
from cellblock.batch.verdict import FileKind, Problem
from cellblock.cli.common import (
    AllowUnsafe,
    Exclude,
    Jobs,
    NotebooksPolicyOption,
    complain_of,
    complain_of_files,
    policy_of,
    unwritable,
    write_report,
)
from cellblock.errors import CellblockError, InputError
from cellblock.host.guests.spawn import available_processors
from cellblock.host.session.history import encode_inputs, inputs_from_file
from cellblock.policy.load import load, unsafe_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cellblock.batch.run.runner import RunResult
    from cellblock.policy.model import Policy

app: Final = typer.Typer(add_completion=False)
_ASK: Final = "Run with --allow-unsafe"
#: The policy for notebooks of other kernels: under this preset they run as they do there.
_DEFAULT: Final = "data"
_SIGNALLED: Final = 128
Paths = Annotated[list[str], typer.Argument(metavar="PATHS", help="Notebooks and folders.")]


@app.command()
def run(
    paths: Paths,
    *,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", metavar="DIR", help="Where executed ones go.")
    ],
    policy: NotebooksPolicyOption = None,
    allow_unsafe: AllowUnsafe = False,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME=VALUE",
            help="What cells find in `inputs`; repeatable.",
        ),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="FILE", help="The same, from a file with a JSON object."),
    ] = None,
    jobs: Jobs = 0,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="For a whole notebook.")
    ] = None,
    cell_timeout: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="For a cell, besides the policy's timeout."),
    ] = None,
    allow_errors: Annotated[
        bool, typer.Option("--allow-errors", help="Go on after cells that fail.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Skip notebooks that passed before and are unchanged.")
    ] = False,
    exclude: Exclude = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report as JUnit XML.")
    ] = None,
    changes: Annotated[
        str,
        typer.Option(
            metavar="DIR|keep|drop",
            help="What to do with files that cells wrote to the project, of notebooks that passed.",
        ),
    ] = "",
    receipt: Annotated[
        bool, typer.Option("--receipt", help="Write a signed receipt beside each notebook.")
    ] = False,
    cluster: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster of that scheduler.")
    ] = "",
    timing: Annotated[
        bool, typer.Option("--timing/--no-timing", help="Write when each cell ran.")
    ] = True,
) -> None:
    """Run notebooks in confined guests, and write what they show to DIR.

    Exit status 0 if every notebook passed, 1 if some did not, 2 if nothing could be run.
    """
    planned, problems = plan(paths, output_dir, exclude or ())
    complain_of_files(problems)
    if problems:  # before anything runs, because a run may take long
        raise typer.Exit(code=2)
    if junit is not None:
        _check_writable(junit)
    if cluster and changes not in {"", DROP}:
        raise CellblockError("--changes: with --cluster, what cells write stays on the workers.")
    if receipt:
        _check_key(cluster)
    if changes not in {"", KEEP, DROP}:
        changes = str(Path(changes).absolute())
        _check_writable(Path(changes, "changes"))
    notebooks = {notebook: policy or policy_of(notebook.file, _DEFAULT) for notebook in planned}
    policies = {
        spec: _load(spec, allow_unsafe=allow_unsafe) for spec in dict.fromkeys(notebooks.values())
    }
    if cluster and len(policies) > 1:
        several = " and ".join(sorted(policies))
        raise CellblockError(f"--cluster: notebooks have policies {several}. Name one: --policy")
    write_roots = [root for loaded in policies.values() for root in loaded.filesystem_write_roots]
    options = RunOptions(
        parameters=parameters(parameter or (), given or (), write_roots),
        allow_errors=allow_errors,
        timeout=timeout,
        cell_timeout=cell_timeout,
        timing=timing,
        changes=DROP if cluster else changes,
        receipt=receipt,
    )
    request = RunRequest(
        notebooks=notebooks,
        allow_unsafe=allow_unsafe,
        options=options,
        jobs=jobs or available_processors(),
        resume=resume,
        report=junit,
    )
    ran, seconds = _run(request, output_dir, cluster)
    reported = junit is None or _write_junit(junit, ran, seconds)
    raise typer.Exit(code=_status(ran, reported=reported))


@app.command()
def learn(
    paths: Paths,
    *,
    base: Annotated[str, typer.Option(metavar="NAME", help="The preset to extend.")] = "safe",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it there, too.")
    ] = None,
) -> None:
    """Run notebooks, and propose the smallest policy that lets them pass.

    Exit status 0 if all passed under it, 1 if some did not, 2 if there is no proposal.
    """
    files_found, problems = files.find(paths, ())
    notebooks = [file for file in files_found if file.kind is FileKind.notebook]
    problems += [] if notebooks or problems else [Problem(" ".join(paths), "no notebook is there")]
    complain_of_files(problems)
    if problems:
        raise typer.Exit(code=2)
    if output is not None:
        _check_writable(output)
    proposal = learning.learn(notebooks, base)
    if output is not None:
        write_report(output, str(proposal))
    typer.echo(str(proposal), nl=False)  # noqa: TID251 - a policy file, made of clean lines
    raise typer.Exit(code=bool(proposal.failed))


def _load(spec: str, *, allow_unsafe: bool) -> Policy:
    """Return a policy. Mode unsafe is refused here, so that the error names this option."""
    policy = load(spec, project=Path.cwd(), allow_unsafe=True)
    if not allow_unsafe and (error := unsafe_error(policy, spec, ask=_ASK, asks=False)):
        raise error
    return policy


def _check_key(cluster: str) -> None:
    """Raise CellblockError, before anything runs, if receipts could not be signed."""
    if cluster:
        raise CellblockError("--receipt: the workers of a --cluster do not have your key.")
    receipts_module().own_key()


def _run(request: RunRequest, output_dir: Path, cluster: str) -> tuple[RunResult, float]:
    """Run the notebooks and print the summary. Return the result, and the seconds that it took."""
    # Gaps are printed once, with the summary, and not logged for each guest.
    logging.getLogger("cellblock").addHandler(logging.NullHandler())
    console = Console(highlight=False)
    began = time.monotonic()
    folder = OutputFolder(output_dir)
    try:
        if cluster:
            ran = _run_on_cluster(request, folder, Progress(console), cluster)
        else:
            ran = runner.run(request, folder, Progress(console))
    finally:
        folder.close()
    seconds = time.monotonic() - began
    runner.print_summary(console, ran, seconds)
    return ran, seconds


def _run_on_cluster(
    request: RunRequest, folder: OutputFolder, progress: Progress, address: str
) -> RunResult:
    try:
        from cellblock.batch import cluster  # noqa: PLC0415 - an extra
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"dask", "distributed"}:
            raise
        remedy = "Install it: pip install 'cellblock[dask]'."
        raise CellblockError(f"--cluster: Dask is not installed. {remedy}") from None
    return cluster.run(request, folder, progress, address)


def _check_writable(path: Path) -> None:
    """Raise CellblockError, before a run that may be long, if a report can't be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None
    if path.is_dir():
        raise unwritable(path, OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise unwritable(path, OSError(errno.EACCES, os.strerror(errno.EACCES)))


def _write_junit(path: Path, ran: RunResult, seconds: float) -> bool:
    """Write the report. Print an error if that fails; the result of the run is printed already.

    Return whether it was written.
    """
    try:
        _check_writable(path)
        write_report(path, runner.junit(ran.results, seconds))
    except CellblockError as error:
        complain_of(error)
        return False
    return True


def _status(ran: RunResult, *, reported: bool) -> int:
    if ran.signal:
        return _SIGNALLED + ran.signal
    if not reported:
        return 2
    return int(any(result.status is not NotebookStatus.passed for result in ran.results))


# --- parameters: the values that cells find in ``inputs`` -----------------------------------------


def parameters(
    given: Iterable[str], files: Iterable[str], writable: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the values of the JSON ``files``, and those ``given`` as NAME=VALUE, by name.

    Later values replace earlier ones, and ``given`` ones those of files. A VALUE that is JSON is
    parsed; any other is a string. ``writable`` are folders that cells may write to: see
    `inputs_from_file`. Raise InputError.
    """
    values = dict[str, Any]()
    for file in files:
        values |= {
            name: json.loads(encoded) for name, encoded in inputs_from_file(file, writable).items()
        }
    for option in given:
        name, has_value, text = option.partition("=")
        if not has_value or not name:
            remedy = "Write -p NAME=VALUE."
            raise InputError("no name and value", file="-p", value=repr(option), remedy=remedy)
        values[name] = _parameter(text)
    encode_inputs(values, source="-p")
    return values


def _parameter(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return text


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(text)
