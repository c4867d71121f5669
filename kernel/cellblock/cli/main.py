"""The ``cellblock`` command. The kernel itself is ``python -m cellblock``.

Commands import what they need when they run: ``cellblock --help`` is quick. Whatever cellblock
raises on purpose becomes one line on stderr and exit status 2.
"""

from __future__ import annotations

import dataclasses
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cellblock.cli.approve import approvals_app, approve, packages_app, summary, templates
from cellblock.cli.audit import app as audit_app
from cellblock.cli.check import check
from cellblock.cli.run import RunCommand, run
from cellblock.errors import BackendError, CellblockError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from cellblock.backends.choose import Chosen
    from cellblock.backends.probes import Proof
    from cellblock.policy.model import Policy
    from cellblock.wire.messages import LockReport


app: Final = typer.Typer(
    help="A Jupyter kernel that enforces policy on every cell.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
policy_app: Final = typer.Typer(help="Show and check policies.", no_args_is_help=True)
app.add_typer(policy_app, name="policy")
image_app: Final = typer.Typer(help="Make images for backend docker.", no_args_is_help=True)
app.add_typer(image_app, name="image")
app.add_typer(audit_app, name="audit")
app.command()(approve)
app.command()(templates)
app.command()(check)
app.command(cls=RunCommand)(run)
app.add_typer(packages_app, name="packages")
app.add_typer(approvals_app, name="approvals")

Spec = Annotated[str, typer.Argument(metavar="NAME|FILE", help="A preset or a TOML file.")]
SpecOption = Annotated[str, typer.Option("--policy", metavar="NAME|FILE")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """Run the command line; the console script's entry point."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A letter that a terminal's encoding lacks, in a cell's words, is no end of a command.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except CellblockError as failure:
        _complain(str(failure))
        sys.exit(2)


@policy_app.command()
def show(spec: Spec = "safe", *, as_json: AsJson = False) -> None:
    """Show what a policy says. {project} is the current folder."""
    policy = _load(spec)
    if as_json:
        _print_json(policy.as_dict() | {"digest": policy.digest()})
        return
    console = _console()
    console.print(_policy_table(policy))
    console.print(f"digest  {policy.digest()}", style="dim")


@policy_app.command()
def schema() -> None:
    """Print the JSON schema of a policy."""
    from cellblock.policy.schema import json_schema  # noqa: PLC0415

    _print_json(json_schema())


@policy_app.command()
def validate(files: Annotated[list[str], typer.Argument(metavar="FILE...")]) -> None:
    """Check policy files: one line each, exit status 1 when any is wrong."""
    wrong = 0
    for file in files:
        try:
            policy = _load(file)
        except CellblockError as failure:
            _complain(str(failure))
            wrong += 1
        else:
            typer.echo(f"{file}: ok{_condition(policy)}")
    raise typer.Exit(code=bool(wrong))


@image_app.command()
def build(
    *,
    tag: Annotated[
        str, typer.Option("--tag", metavar="NAME:TAG", help="For container_image in a policy.")
    ] = "",
    engine: Annotated[str, typer.Option(help="docker, podman or nerdctl.")] = "auto",
    again: Annotated[bool, typer.Option("--again", help="Even if it is there.")] = False,
) -> None:
    """Make the image that backend docker starts: an empty one, since the rest is mounted."""
    from cellblock.backends import container_engine, container_image  # noqa: PLC0415

    found = container_engine.find_engine(engine, os.environ)
    if isinstance(found, str):
        raise BackendError(found)
    name = tag or container_image.EMPTY
    if not again and container_image.exists(found, name):
        typer.echo(f"{name} is there already")
        return
    typer.echo(f"Made {container_image.build(found, name)}")


@app.command()
def install(  # one parameter an option
    *,
    policy: SpecOption = "safe",
    name: Annotated[str | None, typer.Option(help="Kernel name; default cellblock-POLICY.")] = None,
    display_name: Annotated[str | None, typer.Option(help="What the launcher shows.")] = None,
    user: Annotated[bool, typer.Option("--user", help="For this user (default).")] = False,
    sys_prefix: Annotated[
        bool, typer.Option("--sys-prefix", help="Into this Python environment.")
    ] = False,
    prefix: Annotated[Path | None, typer.Option(help="Below this folder.")] = None,
    given: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="JSON that its cells find in `inputs`."),
    ] = None,
    allow_unsafe: Annotated[bool, typer.Option("--allow-unsafe")] = False,
) -> None:
    """Install a kernel for a policy of your own, so that Jupyter offers it."""
    from cellblock.jupyter import install as specs  # noqa: PLC0415

    if (user, sys_prefix, prefix is not None).count(True) > 1:
        raise typer.BadParameter("Choose one of --user, --sys-prefix and --prefix.")
    below = Path(sys.prefix) if sys_prefix else prefix
    rest: Any = {"prefix": below, "allow_unsafe": allow_unsafe, "inputs": given}
    installed, folder = specs.install(policy, name=name, display_name=display_name, **rest)
    typer.echo(f"Installed kernel {installed} in {folder}")
    typer.echo(_what_holds(policy))
    if said := _obstacle(policy):
        typer.echo(f"In a kernel that starts in this folder no cell would run: {said}")


@app.command()
def uninstall(name: str) -> None:
    """Remove a kernel that `cellblock install` installed."""
    from cellblock.jupyter import install as specs  # noqa: PLC0415

    typer.echo(f"Removed {specs.uninstall(name)}")


@app.command()
def doctor(*, policy: SpecOption = "safe", as_json: AsJson = False) -> None:
    """Say what this machine enforces of a policy, and try it.

    Exit status 1 if nothing real does, a probe passes that should not, or no guest could try them.
    """
    from cellblock.backends.report import doctor_report  # noqa: PLC0415

    asked = _load(policy)
    try:
        report = doctor_report(asked, _proved)
    except BackendError as failure:
        _complain(str(failure))
        raise typer.Exit(code=1) from None
    if as_json:
        _print_json(dataclasses.asdict(report))
    else:
        from cellblock.cli.doctor import print_report  # noqa: PLC0415

        print_report(report)
        if said := summary(asked):
            typer.echo(said)
    contradicted = any(gap.contradicted for gap in report.gaps)
    untried = bool(report.probes and report.unproved)
    raise typer.Exit(code=int(report.backend == "noop" or contradicted or untried))


def _load(spec: str) -> Policy:
    """Load for showing: nothing runs under it, so mode unsafe need not be asked for."""
    from cellblock.policy.load import load  # noqa: PLC0415

    return load(spec, project=Path.cwd(), allow_unsafe=True)


def _what_holds(spec: str) -> str:
    """Try a policy that was installed, and say in a line or more what this machine does of it."""
    from cellblock.backends.choose import choose  # noqa: PLC0415
    from cellblock.backends.report import gaps, known_report, settle  # noqa: PLC0415
    from cellblock.render.policy_card import gaps_text  # noqa: PLC0415
    from cellblock.render.text import COLUMNS, wrap  # noqa: PLC0415

    policy = _load(spec)
    try:
        chosen = choose(policy)
    except BackendError as failure:
        return f"It runs nothing here: {failure}"
    declared = chosen.declare(policy)
    proof, seen = _proved(policy, chosen)
    report = known_report(chosen, proof, seen)
    settled = settle(declared, report, proof).values()
    verified = [each.capability for each in settled if each.status == "verified"]
    said = f"Verified under backend {chosen.backend.name}: {', '.join(verified) or 'nothing'}"
    said += f" ({proof.failure})" if proof and proof.failure else ""
    found = gaps(policy, declared, report, proof)
    said = "\n".join(wrap(said, hanging="  ", columns=COLUMNS))
    return f"{said}\n{gaps_text(found, chosen.backend.name)}"


def _obstacle(spec: str) -> str:
    """Return what keeps a policy that can be read from holding in this folder, if anything does."""
    import tempfile  # noqa: PLC0415

    from cellblock.host.session.config import Ground, Terms, lay  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as scratch:
        laid = lay(Terms(spec, Path.cwd(), Path(scratch).resolve(), allow_unsafe=True))
    return "" if isinstance(laid, Ground | BackendError) else str(laid)


def _proved(policy: Policy, chosen: Chosen) -> tuple[Proof | None, LockReport | None]:
    """Run the suite of probes, where guests start: on Linux."""
    if sys.platform != "linux":
        return None, None
    from cellblock.jupyter.probe import proved  # noqa: PLC0415

    return proved(policy, chosen, Path.cwd())


def _condition(policy: Policy) -> str:
    field = policy.to_be_asked_for()
    value = getattr(policy, field) if field else None
    asks = ", or when its user allows it" if policy.approvals == "prompt" else ""
    return f" ({field} {value}: starts only with --allow-unsafe{asks})" if field else ""


def _policy_table(policy: Policy) -> Table:
    from rich.table import Table  # noqa: PLC0415

    from cellblock.policy.model import rows  # noqa: PLC0415

    table = Table("field", "value", title=f"policy {policy.name}", title_justify="left")
    for field, value in rows(policy.as_dict()).items():
        table.add_row(field, _shown(value))
    return table


def _shown(value: object) -> str:
    from rich.markup import escape  # noqa: PLC0415

    if isinstance(value, tuple):
        return escape(", ".join(value)) or "[dim]nothing[/]"
    words = {None: "no limit", True: "yes", False: "no"}
    if value is None or isinstance(value, bool):
        return words[value]
    return f"{value:,}" if isinstance(value, int) else escape(str(value))


def _print_json(value: Any) -> None:
    import json  # noqa: PLC0415

    typer.echo(json.dumps(value, indent=2))


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415

    return Console(highlight=False)


def _complain(text: str) -> None:
    typer.echo(f"cellblock: {text}", err=True)
