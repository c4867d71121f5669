"""Which processes a guest's threads have started, read from outside."""

import os
import subprocess
import sys
from pathlib import Path

from cellblock.host.guests.process import children


def test_a_thread_that_has_ended_hides_no_other_threads_children(monkeypatch):
    listed = Path.iterdir

    def with_one_that_is_gone(self):
        yield self / "0"
        yield from listed(self)

    monkeypatch.setattr(Path, "iterdir", with_one_that_is_gone)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert child.pid in children(os.getpid())
        child.communicate(b"\n")
