"""Runs kernels as the user nobody, for suites that root starts."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path

NOBODY = 65534
ROOT = Path(__file__).resolve().parents[2]


@cache
def as_nobody() -> tuple[str, ...] | None:
    """Return the words before a command so that the user nobody runs it; None if that fails.

    If the interpreter is below a folder that others can't enter, such as /root, a mount namespace
    shows the interpreter and hides the rest of the folder.
    """
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        return None
    drop = f"exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups"
    plain = ("sh", "-c", f'{drop} "$@"', "sh")
    script = "\n".join(["set -e", *_uncover(), f'{drop} "$@"'])
    mounted = ("unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh")
    for prefix in (plain, mounted):
        if _works(prefix):
            return prefix
    return None


def _works(prefix: tuple[str, ...]) -> bool:
    probe = f"import os, zmq, cellblock; assert os.getuid() == {NOBODY}; os.stat({str(ROOT)!r})"
    try:
        # Through a shell, since setpriv still has root's capabilities when it executes its command.
        command = [*prefix, "sh", "-c", 'exec "$@"', "sh", sys.executable, "-c", probe]
        return subprocess.run(command, check=False, capture_output=True, timeout=60).returncode == 0
    except OSError:
        return False


def _uncover() -> list[str]:
    """Return shell commands that make the files that a kernel needs reachable for others."""
    needed = {Path(sys.base_prefix).resolve(), Path(sys.prefix).resolve(), ROOT}
    hidden: dict[Path, list[Path]] = {}
    for path in sorted(needed):
        closed = [p for p in reversed(path.parents) if not p.stat().st_mode & stat.S_IXOTH]
        if closed:
            hidden.setdefault(closed[0], []).append(path)
    lines = []
    for folder, paths in hidden.items():
        keeps = [(shlex.quote(str(p)), f"$keep/{n}") for n, p in enumerate(paths)]
        lines.append("keep=$(mktemp -d)")
        lines += [f"mkdir {keep}; mount --bind {path} {keep}" for path, keep in keeps]
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(str(folder))}")
        lines += [f"mkdir -p {path}; mount --bind {keep} {path}" for path, keep in keeps]
        lines += [f"umount {keep}; rmdir {keep}" for _, keep in keeps]
        lines.append("rmdir $keep")
    return lines
