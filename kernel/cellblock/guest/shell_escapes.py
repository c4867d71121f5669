"""``!command``: runs a shell and shows its output as it arrives. Replaces IPython's ``system``.

IPython's uses a terminal, which guests can't have. Otherwise the behaviour is the same: lines end
as a terminal ends them, an interrupt ends the command and not the cell, and a negative status says
which signal ended the command.
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

#: Milliseconds between checks whether the shell has ended. The end of the pipe does not tell: a
#: program in the background may keep it open.
_LOOK: Final = 50
#: Seconds in which an interrupted command must end, before it is killed.
_GRACE: Final = 1.0
_READ: Final = 1 << 16
#: Makes Python programs write at once, as they do in a terminal.
_UNBUFFERED: Final = {"PYTHONUNBUFFERED": "1"}
#: The status of the last command that failed since ``take_failure``: 0 for none.
_failure = 0


def take_failure() -> int:
    """Return the status of the last command that failed since the last call; 0 for none."""
    global _failure
    failure, _failure = _failure, 0
    return failure


def run(command: str) -> int:
    """Run a command in a shell and show its output; return its exit status.

    The status is negative if a signal ended the command. Output of programs that the shell has left
    in the background is shown when it arrives.
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
    """The pipe to which a shell and the programs that it started write."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: Any) -> None:
        self._process = process
        self._pipe = pipe
        os.set_blocking(self._pipe.fileno(), False)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)

    def show_until_end(self, seconds: float = float("inf")) -> None:
        """Show output until the shell has ended, the pipe is closed, or ``seconds`` have passed."""
        deadline = time.monotonic() + seconds
        while not self._pipe.closed and time.monotonic() < deadline:
            self._poll.poll(_LOOK)
            has_ended = self._process.poll() is not None  # asked first: now all its output is there
            self._show()
            if has_ended:
                return

    def _show(self) -> None:
        """Show what has arrived; close the pipe if it has ended."""
        while (data := self._pipe.read(_READ)) is not None:
            text: str = self._decode(data, not data)
            sys.stdout.write(text.replace("\n", "\r\n"))
            if not data:
                self._pipe.close()
                return

    def leave(self, command: str) -> None:
        """Start a thread that shows what a program in the background still writes."""
        if not self._pipe.closed:
            name = f"output of !{command}"
            threading.Thread(target=self._show_rest, name=name, daemon=True).start()

    def _show_rest(self) -> None:
        while not self._pipe.closed:
            self._poll.poll()
            self._show()
