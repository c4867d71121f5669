"""How Jupyter started the kernel, shown to cells as under ipykernel.

Programs read this. argparse takes ``sys.argv`` by default, and notebooks declare the option ``-f``
that Jupyter adds. Libraries recognise a notebook by ``JPY_PARENT_PID``, and read its name in
``__session__``. Nothing here gives access: the connection file is named, but no guest can read it.

``setup`` calls ``name_program`` in the zygote; ``server`` calls ``begin`` when the host has sent
``Launch``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from traitlets import TraitError
from traitlets.config import Config
from traitlets.config.loader import DeferredConfigList, DeferredConfigString

from cellblock.analysis.magics import may_configure
from cellblock.guest.kernel import GuestApp

if TYPE_CHECKING:
    from cellblock.analysis import Rules
    from cellblock.guest.shell import GuestShell
    from cellblock.wire.messages import Launch

_MODULE = "ipykernel_launcher"


def name_program() -> None:
    """Set ``sys.argv`` to ipykernel's launcher, in place of the zygote's command line."""
    spec = importlib.util.find_spec(_MODULE)
    path = None if spec is None else spec.origin
    sys.argv[:] = [path or f"{_MODULE}.py"]
    sys.orig_argv[:] = [sys.executable, "-m", _MODULE]


#: Variables that ipykernel sets for programs (``ZMQInteractiveShell.init_environment``): they may
#: show colours, and must not wait for a key after each page.
_FOR_PROGRAMS: Final = {
    "TERM": "xterm-color", "CLICOLOR": "1", "CLICOLOR_FORCE": "1", "FORCE_COLOR": "1",
    "PAGER": "cat", "GIT_PAGER": "cat",
}  # fmt: skip


def begin(launch: Launch, shell: GuestShell, rules: Rules) -> None:
    """Show cells the arguments, environment and configuration that Jupyter started the kernel with.

    Called before the first request.
    """
    sys.argv[1:] = launch.arguments
    sys.orig_argv[3:] = launch.arguments
    # Notebooks look here for the name of their kernel.
    shell.config.IPKernelApp.connection_file = launch.arguments[-1]
    if GuestApp.initialized():
        app: Any = GuestApp.instance()
        app.connection_file = launch.arguments[-1]
    os.environ.update(_FOR_PROGRAMS)
    if launch.has_parent:
        # The parent's pid, as under ipykernel. The server's own would mean nothing in a guest.
        os.environ["JPY_PARENT_PID"] = str(os.getppid())
    if launch.session:
        os.environ["JPY_SESSION_NAME"] = launch.session
        shell.user_ns["__session__"] = launch.session
    if not launch.searches_folder:
        sys.path[:] = filter(None, sys.path)
    for kind, traits in launch.config.items():
        for trait, value in traits.items():
            if may_configure(rules, kind, trait, value):
                _configure(shell, kind, trait, value)


def _configure(shell: GuestShell, kind: str, trait: str, value: Any) -> None:
    """Set one trait. If it does not accept the value, tell the user, and leave it as it was."""
    if isinstance(value, str):
        value = DeferredConfigString(value)
    elif isinstance(value, list):
        value = DeferredConfigList(value)
    formatter: Any = shell.display_formatter
    parts: list[Any] = [*shell.configurables, *formatter.formatters.values()]
    try:
        # Objects that are made later get the shell's config.
        for configurable in parts:
            configurable.update_config(Config({kind: {trait: value}}))
    except Exception as error:  # raised by a trait's observer, or by a module that the value names
        why = error if isinstance(error, TraitError | ValueError) else repr(error)
        sys.stderr.write(f"cellblock: --{kind}.{trait} was not set: {why}\n")
        for configurable in parts:
            configurable.config[kind].pop(trait, None)
