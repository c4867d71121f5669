"""``!command``: a shell whose output is shown as it comes, in the place of IPython's ``system``.

IPython's has a terminal between, which guests can't have. What else it does is kept: lines end as
a terminal ends them, an interrupt ends the command and not the cell, and a status says which signal
ended it.
"""

from __future__ import annotations

import codecs
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from typing import Any, Final

#: Milliseconds between looks whether a shell has ended, which a program in the background may
#: outlive: while that has the pipe, its end tells nothing.
_LOOK: Final = 50
#: Seconds that an interrupted command has to end before it is killed.
_GRACE: Final = 1.0
_READ: Final = 1 << 16
#: Programs in Python write at once, as they do where they have a terminal.
_UNBUFFERED: Final = {"PYTHONUNBUFFERED": "1"}
#: The status of the last command that failed since ``take_failure``: 0 for none.
_failure = 0


def take_failure() -> int:
    """Return the status of the last command that failed since the last call; 0 for none."""
    global _failure
    failure, _failure = _failure, 0
    return failure


def run(command: str) -> int:
    """Run a command in a shell, and show what it writes; return its exit status.

    That is negative where a signal ended it. What a program that the shell has left in the
    background writes is shown when it comes.
    """
    process = subprocess.Popen(  # noqa: S602 - a shell escape is a shell command
        command,
        shell=True,
        executable=shutil.which(os.environ.get("SHELL", "sh")),  # as IPython chooses it
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        env=_UNBUFFERED | os.environ,
    )
    output = _Output(process, process.stdout)
    try:
        output.show_until_end()
        process.wait()
    except KeyboardInterrupt:
        sys.stdout.write("^C\r\n")
        output.show_until_end(_GRACE)
        process.kill()
    global _failure  # noqa: PLW0603
    status = process.wait()
    output.leave(command)
    status = 128 - status if status > 128 else status  # noqa: PLR2004 - a shell's way to say signal
    _failure = status or _failure
    return status


class _Output:
    """What a shell, and the programs that it started, write to one pipe."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: Any) -> None:
        self._process = process
        self._pipe = pipe
        os.set_blocking(self._pipe.fileno(), False)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)

    def show_until_end(self, seconds: float = float("inf")) -> None:
        """Show what is written until the shell has ended, or nobody can write any more."""
        end = time.monotonic() + seconds
        while not self._pipe.closed and time.monotonic() < end:
            self._poll.poll(_LOOK)
            has_ended = self._process.poll() is not None  # then all it wrote is there
            self._show()
            if has_ended:
                return

    def _show(self) -> None:
        """Show what is there; close the pipe at its end."""
        while (data := self._pipe.read(_READ)) is not None:
            text: str = self._decode(data, not data)
            sys.stdout.write(text.replace("\n", "\r\n"))
            if not data:
                self._pipe.close()
                return

    def leave(self, command: str) -> None:
        """Have a thread show what a program in the background goes on to write."""
        if not self._pipe.closed:
            name = f"output of !{command}"
            threading.Thread(target=self._show_rest, name=name, daemon=True).start()

    def _show_rest(self) -> None:
        while not self._pipe.closed:
            self._poll.poll()
            self._show()
