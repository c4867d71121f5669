"""The ``cellblock`` program, and the table of its commands.

The module of a command is imported when the command is given, so that ``cellblock --help`` is fast.
A CellblockError becomes a line on stderr, and exit status 2.
"""

from __future__ import annotations

import importlib
import io
import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from cellblock import __version__
from cellblock.errors import CellblockError

#: The commands, with the first sentence of their help.
COMMANDS: Final = {
    "approve": "Approve the code cells of notebooks as they are now, for kernels under a policy.",
    "templates": "List the templates of a policy, checked as cells are. Exit status 1 when one is "
    "refused.",
    "check": "Check notebooks and scripts by a policy, without running them.",
    "run": "Run notebooks in confined guests, and write what they show to DIR.",
    "learn": "Run notebooks, and propose the smallest policy that lets them pass.",
    "mcp": "Serve sandboxes to an MCP client: one session is one sandbox under the policy.",
    "install": "Install a kernel for a policy of your own, so that Jupyter offers it.",
    "uninstall": "Remove a kernel that `cellblock install` installed.",
    "doctor": "Test what this machine enforces of a policy, and say in a line whether it is all.",
    "policy": "Show, check, compare and change policies.",
    "image": "Make images for backend docker.",
    "audit": "Show, verify and export audit logs.",
    "receipt": "Verify receipts of cells' results, and show the key that yours are signed with.",
    "packages": "Show and clear packages that ops.install installed.",
    "changes": "Show, keep and drop what cells wrote to projects.",
    "approvals": "Show and take back approvals: of notebooks, and answers to a kernel's questions.",
}
#: The module of a command in this package, if it hasn't the command's name.
MODULES: Final = {
    "approvals": "approve",
    "doctor": "install",
    "image": "install",
    "learn": "run",
    "packages": "install",
    "templates": "approve",
    "uninstall": "install",
}


def group(name: str) -> typer.Typer:
    """Return a command with subcommands."""
    return typer.Typer(help=COMMANDS[name], no_args_is_help=True, add_completion=False)


class LazyGroup(TyperGroup):
    """A group that knows only the names and helps of its commands, until one of them is given."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        show_flags(self)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that ``args`` begin with, after importing its module."""
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load_command(str(name)), rest


def load_command(name: str) -> Any:
    """Return a command from its module: the module's ``app``, or the app's command of this name."""
    app = importlib.import_module(f"cellblock.cli.{MODULES.get(name, name)}").app
    command = typer.main.get_command(app)
    command = getattr(command, "commands", {}).get(name, command)
    for subcommand in (command, *getattr(command, "commands", {}).values()):
        show_flags(subcommand)
    return command


def show_flags(command: Any) -> None:
    """Have a command's help show flags without a value, and not as ``--all <bool>``."""
    own = command.get_help_option(typer.Context(command))
    for option in (*command.params, own):
        if getattr(option, "is_flag", False):
            option.metavar = ""


app: Final = typer.Typer(
    cls=LazyGroup,
    help="A Jupyter kernel that enforces policy on every cell.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _name, _help in COMMANDS.items():
    app.command(_name, help=_help)(lambda: None)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"cellblock {__version__}")  # noqa: TID251 - it is ours
        raise typer.Exit


@app.callback()
def _global_options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Say which this is."
        ),
    ] = False,
) -> None: ...


def main() -> None:
    """Run the command line. This is the entry point of the console script."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Text of a cell may have letters that the terminal's encoding lacks: escape them, instead
        # of failing.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except CellblockError as failure:
        from cellblock.cli.common import complain_of  # noqa: PLC0415 - help needs none of it

        complain_of(failure)
        sys.exit(2)
