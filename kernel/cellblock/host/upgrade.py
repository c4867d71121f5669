"""Notebooks of formats before 4, made notebooks of today's by nbformat, in a process with limits.

nbformat trusts what it upgrades: a heading's level is a number of signs that it writes, so that a
line of a file could ask for all the memory there is.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from typing import Final

from cellblock.host.launch import import_path

_BOOT: Final = (
    "import sys;sys.path[:] = sys.argv[1:];from cellblock.host.upgrade import main;main()"
)
_EARLY: Final = ("LANG", "LC_", "LD_", "PATH", "TZ")
#: What jsonschema imports if it is there, for a format that no notebook's schema has: two seconds.
_SLOW: Final = "rfc3987_syntax"
#: Today's major format.
FORMAT: Final = 4
#: Of the process: seconds of processor time, seconds in all, bytes of memory and of its answer.
_CPU_SECONDS: Final = 10
_SECONDS: Final = 60.0
_MEMORY: Final = 1 << 30
_LARGEST: Final = 64 << 20


class UpgradeError(Exception):
    """nbformat can't read it, or takes too much for it."""


def upgraded(content: bytes) -> bytes:
    """Return a notebook of today's format as JSON. Blocks for a while. Raises UpgradeError."""
    argv = [sys.executable, "-I", "-S", "-X", "utf8", "-c", _BOOT, *import_path()]
    early = {name: value for name, value in os.environ.items() if name.startswith(_EARLY)}
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, and words of ours
            argv,
            input=content,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # nbformat quotes what it reads
            env=early,
            timeout=_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        raise UpgradeError("nbformat can't read it") from None
    return done.stdout


def main() -> None:
    """Upgrade what is on stdin; end by an error where that takes too much, or can't be."""
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, _CPU_SECONDS),
        (resource.RLIMIT_DATA, _MEMORY),
    ):
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, hard))
    sys.modules[_SLOW] = None  # type: ignore[assignment]
    import nbformat  # noqa: PLC0415 - under the limits

    text = sys.stdin.buffer.read().decode()
    made = nbformat.writes(nbformat.reads(text, as_version=FORMAT), version=FORMAT)  # type: ignore[no-untyped-call]
    content = made.encode()
    if len(content) > _LARGEST:
        sys.exit(1)
    sys.stdout.buffer.write(content)
