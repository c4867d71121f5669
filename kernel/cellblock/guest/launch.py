"""What a guest shows cells of how Jupyter started their kernel: as under ipykernel.

Programs read it. argparse takes ``sys.argv`` by default, and notebooks declare the ``-f`` that
Jupyter adds; libraries know a notebook by ``JPY_PARENT_PID``, and what it is called by
``__session__``. None of it opens anything: the connection file is named, and no guest reads it.
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
    """Have ``sys.argv`` name ipykernel's launcher, in place of what a zygote is started with."""
    spec = importlib.util.find_spec(_MODULE)
    path = None if spec is None else spec.origin
    sys.argv[:] = [path or f"{_MODULE}.py"]
    sys.orig_argv[:] = [sys.executable, "-m", _MODULE]


#: What ipykernel sets for programs (``ZMQInteractiveShell.init_environment``): they may show
#: colours, and must not wait for somebody to turn their pages.
_FOR_PROGRAMS: Final = {
    "TERM": "xterm-color", "CLICOLOR": "1", "CLICOLOR_FORCE": "1", "FORCE_COLOR": "1",
    "PAGER": "cat", "GIT_PAGER": "cat",
}  # fmt: skip


def begin(launch: Launch, shell: GuestShell, rules: Rules) -> None:
    """Show cells what Jupyter started their kernel with; called before the first request."""
    sys.argv[1:] = launch.arguments
    sys.orig_argv[3:] = launch.arguments
    # Where notebooks look for their kernel's own name.
    shell.config.IPKernelApp.connection_file = launch.arguments[-1]
    if GuestApp.initialized():
        app: Any = GuestApp.instance()
        app.connection_file = launch.arguments[-1]
    os.environ.update(_FOR_PROGRAMS)
    if launch.has_parent:
        # As under ipykernel the parent's. The server's own number means nothing in a guest.
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
    """Set one trait; one that does not take the value is told of, and the others are set."""
    if isinstance(value, str):
        value = DeferredConfigString(value)
    elif isinstance(value, list):
        value = DeferredConfigList(value)
    formatter: Any = shell.display_formatter
    parts: list[Any] = [*shell.configurables, *formatter.formatters.values()]
    try:
        # The shell's config is also that of whatever is made for it later.
        for one in parts:
            one.update_config(Config({kind: {trait: value}}))
    except Exception as error:  # of a trait's observer, or of a module that the value names
        why = error if isinstance(error, TraitError | ValueError) else repr(error)
        sys.stderr.write(f"cellblock: --{kind}.{trait} was not set: {why}\n")
        for one in parts:
            one.config[kind].pop(trait, None)
