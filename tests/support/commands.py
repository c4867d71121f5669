"""Runs cellblock's commands in this process, since starting Python would take most of the time."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys

import pytest

from cellblock.cli import main


def in_this_process(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line ``cellblock …`` as a shell would; return the result as ``subprocess.run`` does."""
    arguments = shlex.split(os.path.expandvars(line), comments=True)
    out, err, status = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", arguments)
        try:
            main.main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())
