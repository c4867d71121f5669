"""``cellblock run``: notebooks to their outputs, in confined guests, without a Jupyter server.

Exit status 0: every notebook passed; 1: some did not; 2: the run could not be had, part of what
was named is not there, or the report could not be written; 130 and the like: ended by that signal.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from cellblock.errors import CellblockError

if TYPE_CHECKING:
    from collections.abc import Callable

    from cellblock.batch.run.output_folder import OutputFolder
    from cellblock.batch.run.plan import Plan
    from cellblock.batch.run.report import Progress
    from cellblock.batch.run.result import RunResult
    from cellblock.batch.run.runner import RunRequest
    from cellblock.policy.model import Policy

_ASK = "Run with --allow-unsafe"
_SIGNALLED = 128


class RunCommand(TyperCommand):
    """Takes ``-p NAME VALUE``, which takes one word or two."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line."""
        from cellblock.batch.run.plan import join_parameters  # noqa: PLC0415 - when it is needed

        return super().parse_args(ctx, join_parameters(args))


def run(  # noqa: PLR0913  # one parameter an option
    paths: Annotated[list[str], typer.Argument(metavar="PATHS", help="Notebooks and folders.")],
    *,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", metavar="DIR", help="Where executed ones go.")
    ],
    policy: Annotated[
        str, typer.Option("--policy", metavar="NAME|FILE", help="A preset or a TOML file.")
    ] = "safe",
    allow_unsafe: Annotated[
        bool, typer.Option("--allow-unsafe", help="Take a policy that confines nothing.")
    ] = False,
    preload: Annotated[
        list[str] | None,
        typer.Option(metavar="MODULE", help="Import it once for all notebooks; repeatable."),
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter",
            "-p",
            metavar="NAME=VALUE",
            help="What cells find in `inputs`; repeatable. NAME VALUE does, too.",
        ),
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="FILE", help="The same, from a JSON object."),
    ] = None,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="At once; 0 for one a processor.")
    ] = 0,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Of a whole notebook.")
    ] = None,
    cell_timeout: Annotated[
        float | None, typer.Option(min=0.1, metavar="SECONDS", help="Of a cell; the policy's too.")
    ] = None,
    allow_errors: Annotated[
        bool, typer.Option("--allow-errors", help="Go on behind cells that fail.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Leave out what DIR has of equal notebooks.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="As --resume, but try again what did not pass.")
    ] = False,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Leave out what it fits; repeatable."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a report as JUnit XML.")
    ] = None,
    cluster: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Run on the Dask cluster of that scheduler."),
    ] = "",
    timing: Annotated[
        bool, typer.Option("--timing/--no-timing", help="Write when each cell ran.")
    ] = True,
) -> None:
    """Run notebooks in confined guests, and write what they show to DIR.

    Exit status 0 if every notebook passed, 1 if some did not, 2 if the run could not be had.
    """
    from cellblock.batch.run.plan import RunOptions, parameters, plan  # noqa: PLC0415
    from cellblock.batch.run.runner import RunRequest  # noqa: PLC0415
    from cellblock.host.guests.spawn import available_processors  # noqa: PLC0415

    planned = plan(paths, output_dir, exclude or ())
    _refuse(planned)
    if junit is not None:
        _try_place(junit)
    asked, written = _policy(policy, preload or (), allow_unsafe=allow_unsafe)
    options = RunOptions(
        parameters=parameters(parameter or (), given or (), written),
        allow_errors=allow_errors,
        timeout=timeout,
        cell_timeout=cell_timeout,
        timing=timing,
    )
    request = RunRequest(
        notebooks=planned.notebooks,
        policy=asked,
        allow_unsafe=allow_unsafe,
        options=options,
        jobs=jobs or available_processors(),
        resume=resume or again,
        again=again,
        report=junit,
    )
    ran, seconds = _run(request, output_dir, cluster)
    reported = junit is None or _report(junit, ran, seconds)
    raise typer.Exit(code=_status(ran, reported=reported))


def _refuse(planned: Plan) -> None:
    """End the command where PATHS are wrong: before anything runs, as that may take long."""
    from cellblock.batch.report_formats import one_line  # noqa: PLC0415

    for problem in planned.problems:
        typer.echo(one_line(f"cellblock: {problem.path}: {problem.message}"), err=True)
    if planned.problems:
        raise typer.Exit(code=2)


def _policy(spec: str, preload: Any, *, allow_unsafe: bool) -> tuple[str | Policy, tuple[str, ...]]:
    """Return the policy, and the folders that cells may write.

    It is checked here so that what is wrong with it is said in these words.
    """
    from cellblock.policy.load import condition, load  # noqa: PLC0415

    found = load(spec, project=Path.cwd(), allow_unsafe=True)
    if not allow_unsafe and (error := condition(found, spec, ask=_ASK, asks=False)):
        raise error
    written = found.filesystem_write_roots
    if not preload:
        return spec, written
    return found.replace(preload=tuple(dict.fromkeys((*found.preload, *preload)))), written


def _run(request: RunRequest, output_dir: Path, cluster: str) -> tuple[RunResult, float]:
    from rich.console import Console  # noqa: PLC0415

    from cellblock.batch.run import report  # noqa: PLC0415
    from cellblock.batch.run.output_folder import OutputFolder  # noqa: PLC0415

    # Gaps are told once, below the summary, and not for each guest.
    logging.getLogger("cellblock").addHandler(logging.NullHandler())
    console, began = Console(highlight=False), time.monotonic()
    folder = OutputFolder(output_dir)
    try:
        with _progress(console, len(request.notebooks)) as progress:
            ran = _by(cluster)(request, folder, progress)
    finally:
        folder.close()
    seconds = time.monotonic() - began
    report.print_summary(console, ran, seconds)
    return ran, seconds


def _by(cluster: str) -> Callable[[RunRequest, OutputFolder, Progress], RunResult]:
    """Return what runs notebooks: here, or on a cluster."""
    if not cluster:
        from cellblock.batch.run.runner import run as here  # noqa: PLC0415

        return here
    try:
        from cellblock.batch.cluster.client import run as there  # noqa: PLC0415
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in {"dask", "distributed"}:
            raise
        raise CellblockError("--cluster: Dask is not here. Install cellblock[dask].") from None
    return lambda request, folder, progress: there(request, folder, progress, cluster)


def _progress(console: Any, total: int) -> Progress:
    from cellblock.batch.run.report import Progress, ProgressBar  # noqa: PLC0415

    # rich takes FORCE_COLOR for a terminal; Jupyter's own kernel sets it for what its cells start.
    plain = not (console.is_terminal and sys.stdout.isatty()) or "CI" in os.environ
    return Progress(console) if plain else ProgressBar(console, total)


def _try_place(path: Path) -> None:
    """Raise CellblockError where a report can't be written: before the run, which may be long."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from None
    if path.is_dir():
        raise _unwritable(path, OSError(errno.EISDIR, os.strerror(errno.EISDIR)))
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise _unwritable(path, OSError(errno.EACCES, os.strerror(errno.EACCES)))


def _report(path: Path, ran: RunResult, seconds: float) -> bool:
    """Write the report, and say so where that fails: how the run ended is known all the same."""
    try:
        _write_junit(path, ran, seconds)
    except CellblockError as error:
        from cellblock.batch.report_formats import one_line  # noqa: PLC0415

        typer.echo(one_line(f"cellblock: {error}"), err=True)
        return False
    return True


def _write_junit(path: Path, ran: RunResult, seconds: float) -> None:
    from cellblock.batch import files  # noqa: PLC0415
    from cellblock.batch.run.report import junit  # noqa: PLC0415

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_report(path, junit(ran.results, seconds))
    except OSError as error:
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> CellblockError:
    return CellblockError(f"{path}: the report can't be written: {error.strerror}")


def _status(ran: RunResult, *, reported: bool) -> int:
    from cellblock.batch.run.result import NotebookStatus  # noqa: PLC0415

    if ran.signal:
        return _SIGNALLED + ran.signal
    if not reported:
        return 2
    return int(any(one.status is not NotebookStatus.passed for one in ran.results))
